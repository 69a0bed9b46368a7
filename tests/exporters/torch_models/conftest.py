"""PyTorch's newer exporter, made to export many models in little time."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))  # has the zoo


@pytest.fixture(scope="session", autouse=True)
def translations_read_once() -> Iterator[None]:
    """Keep the 500 translations of operators, which each export would read anew.

    That takes it a second, of two that a small model takes.
    """
    from torch.onnx._internal.exporter._registration import ONNXRegistry

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            ONNXRegistry,
            "from_torchlib",
            staticmethod(cache(ONNXRegistry.from_torchlib)),
        )
        yield
