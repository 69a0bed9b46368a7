"""Runs that are given numbers beyond what DirectML takes."""

from __future__ import annotations

from typing import Final

import numpy as np
import pytest

import onnxplug

from .nodes.attention import CONTRIBUTED
from .nodes.indices import INDICES
from .nodes.networks import NETWORKS
from .nodes.pictures import PICTURES
from .single_node import SingleNode, alone, feeds_of, model_of

NODES: Final = {**INDICES, **PICTURES, **NETWORKS, **CONTRIBUTED}

WRONG: Final = [
    ("ReverseSequence", 1, [7, -1]),
    ("TensorScatter-linear", 2, [4, -1, 2**32]),
    ("MaxUnpool", 1, [1000, -1]),
    ("LSTM-both", 4, [5, -1]),
    ("RoiAlign-half_pixel", 2, [2, -1]),
    ("MaxRoiPool", 1, [9.0, -1.0, np.nan]),
    ("GroupQueryAttention-buffer", 5, [99, -1]),
]
"""A node, which of its inputs, and numbers that it cannot have."""


@pytest.mark.usefixtures("factory")
@pytest.mark.parametrize(("name", "position", "numbers"), WRONG)
def test_a_run_fails_with_numbers_that_are_out_of_range(
    name: str, position: int, numbers: list[float]
) -> None:
    node = NODES[name]
    given = node.inputs[position]
    assert given is not None
    nodes: dict[str, SingleNode] = {name: node._replace(constant=[
        each for each in node.constant if each != position
    ])}  # fmt: skip
    feeds = feeds_of(nodes)
    with alone(model_of(nodes)) as session:
        session.run(None, feeds)
        for number in numbers:
            wrong = given.copy()
            wrong.flat[0] = number
            with pytest.raises(onnxplug.errors.NodeError, match="out of range"):
                session.run(None, feeds | {f"{name}:x{position}": wrong})
        session.run(None, feeds)
