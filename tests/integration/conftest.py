"""An EP that compiles by input shapes, in a laboratory."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from onnxplug.plugins import registry

from .shapes_lab import EP, Factory, Lab


@pytest.fixture
def lab() -> Iterator[Lab]:
    """What an EP that compiles by input shapes does in a test."""
    lab = Lab()
    registry.add(Factory(lab))
    yield lab
    registry.remove(EP)
    for gate in lab.gates.values():
        gate.set()
    gc.collect()
