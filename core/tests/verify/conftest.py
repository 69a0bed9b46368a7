"""Graphs whose types are known."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from onnxplug.graph import Graph, Model
from onnxplug.prepare import infer_types


@pytest.fixture
def typed() -> Callable[[Model], Graph]:
    def infer(model: Model) -> Graph:
        infer_types(model.graph)
        return model.graph

    return infer
