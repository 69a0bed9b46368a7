"""ReverseSequence, compiled, against its definition."""

from __future__ import annotations

import numpy as np
import onnx.helper
import pytest

import onnxplug
from onnxplug.errors import NodeError


def session(time_axis: int) -> onnxplug.InferenceSession:
    info = onnx.helper.make_tensor_value_info
    node = onnx.helper.make_node(
        "ReverseSequence",
        ["x", "lengths"],
        ["y"],
        time_axis=time_axis,
        batch_axis=1 - time_axis,
    )
    graph = onnx.helper.make_graph(
        [node],
        "reversed",
        [info("x", 1, ["N", "M", "K"]), info("lengths", 7, ["L"])],
        [info("y", 1, ["N", "M", "K"])],
    )
    imports = [onnx.helper.make_opsetid("", 17)]
    model = onnx.helper.make_model(graph, opset_imports=imports, ir_version=8)
    return onnxplug.InferenceSession(model.SerializeToString())


@pytest.mark.parametrize("time_axis", [0, 1])
def test_reversed_as_far_as_lengths_say(time_axis: int) -> None:
    runner = session(time_axis)
    rng = np.random.default_rng(0)
    for steps, batch, width in ((7, 3, 5), (1, 2, 1), (40, 1, 16)):
        x = rng.standard_normal((steps, batch, width)).astype(np.float32)
        lengths = rng.integers(0, steps + 1, batch)
        lengths[0] = steps
        expected = x.copy()
        for number, length in enumerate(lengths):
            expected[:length, number] = x[:length, number][::-1]
        if time_axis:
            x, expected = np.swapaxes(x, 0, 1), np.swapaxes(expected, 0, 1)
        (y,) = runner.run(None, {"x": np.ascontiguousarray(x), "lengths": lengths})
        np.testing.assert_array_equal(y, expected)
    nodes = runner.explain().nodes
    assert [(node.tier, node.note) for node in nodes] == [("compiled", "")]


@pytest.mark.parametrize("length", [-1, 6, -(2**62), 2**62])
def test_lengths_that_there_are_not(length: int) -> None:
    feeds = {"x": np.zeros((5, 2, 3), np.float32), "lengths": np.array([5, length])}
    with pytest.raises(
        NodeError, match=f"{length} elements, but axis 0 of the input has 5"
    ):
        session(0).run(None, feeds)
