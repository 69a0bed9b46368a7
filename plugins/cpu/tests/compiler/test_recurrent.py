"""Recurrent layers in models, against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx.helper
import onnx.numpy_helper
import pytest

import onnxplug

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
OF_THEIR_OWN = {
    "RNN": ["Tanh", "Relu"],
    "GRU": ["Sigmoid", "Tanh", "HardSigmoid", "Relu"],
    "LSTM": ["Sigmoid", "Tanh", "Tanh", "HardSigmoid", "Tanh", "Relu"],
}


def check(op_type: str, outputs: Sequence[str], given: dict[str, list[str]]) -> None:
    """Compare a layer of two directions and constant weights."""
    ort = pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(0)
    time, batch, inputs, hidden = 4, 3, 5, 20
    rows = GATES[op_type] * hidden
    weights = {
        "w": rng.standard_normal((2, rows, inputs)) * 0.3,
        "r": rng.standard_normal((2, rows, hidden)) * 0.2,
        "b": rng.standard_normal((2, 2 * rows)),
    }
    node = onnx.helper.make_node(
        op_type,
        ["x", "w", "r", "b"],
        outputs,
        hidden_size=hidden,
        direction="bidirectional",
        **given,
    )
    info = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [node],
        "layer",
        [info("x", 1, [time, batch, inputs])],
        [info(name, 1, None) for name in outputs if name],
        [
            onnx.numpy_helper.from_array(array.astype(np.float32), name)
            for name, array in weights.items()
        ],
    )
    imports = [onnx.helper.make_opsetid("", 17)]
    model = onnx.helper.make_model(graph, opset_imports=imports, ir_version=8)
    feeds = {"x": rng.standard_normal((time, batch, inputs)).astype(np.float32)}
    session = onnxplug.InferenceSession(model.SerializeToString())
    assert [each.tier for each in session.explain().nodes] == ["compiled"]
    peer = ort.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    for found, expected in zip(
        session.run(None, feeds), peer.run(None, feeds), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("op_type", GATES)
@pytest.mark.parametrize("own", [False, True])
def test_both_directions_of_constant_weights(op_type: str, own: bool) -> None:
    """Also where each direction has a cell of its own, and its part of the weights."""
    check(op_type, ["y", "last"], {"activations": OF_THEIR_OWN[op_type]} if own else {})


@pytest.mark.parametrize("op_type", GATES)
def test_only_last_states(op_type: str) -> None:
    check(op_type, ["", "h", "c"] if op_type == "LSTM" else ["", "h"], {})


def test_threads_that_share_steps() -> None:
    rng = np.random.default_rng(0)
    time, hidden = 40, 160
    weights = {
        "w": rng.standard_normal((1, 4 * hidden, 8)) * 0.3,
        "r": rng.standard_normal((1, 4 * hidden, hidden)) * 0.1,
    }
    node = onnx.helper.make_node("LSTM", ["x", *weights], ["y"], hidden_size=hidden)
    info = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [node],
        "layer",
        [info("x", 1, [time, 1, 8])],
        [info("y", 1, None)],
        [
            onnx.numpy_helper.from_array(array.astype(np.float32), name)
            for name, array in weights.items()
        ],
    )
    imports = [onnx.helper.make_opsetid("", 17)]
    made = onnx.helper.make_model(graph, opset_imports=imports, ir_version=8)
    model = made.SerializeToString()
    feeds = {"x": rng.standard_normal((time, 1, 8)).astype(np.float32)}
    found = []
    for threads in (1, 2, 3):
        options = onnxplug.SessionOptions()
        options.intra_op_num_threads = threads
        session = onnxplug.InferenceSession(model, options)
        for _ in range(20):
            (y,) = session.run(None, feeds)
            found.append(y.tobytes())
    assert len(set(found)) == 1
