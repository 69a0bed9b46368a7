"""Recurrent layers on an adapter, beside the same in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import onnxplug

RNG = np.random.default_rng(0)

LAYERS: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    "an LSTM that sees its cell": (
        "LSTM",
        {"direction": "bidirectional"},
        ("B", "lengths", "h", "c", "P"),
    ),
    "an LSTM that couples, of other activations": (
        "LSTM",
        {
            "input_forget": 1,
            "clip": 0.8,
            "activations": ["HardSigmoid", "ScaledTanh", "Softsign"],
            "activation_alpha": [0.3, 1.2],
            "activation_beta": [0.4, 0.7],
        },
        ("B",),
    ),
    "a GRU": ("GRU", {"direction": "reverse"}, ("B", "lengths", "h")),
    "a GRU that resets late": (
        "GRU",
        {"direction": "bidirectional", "linear_before_reset": 1},
        ("B", "h"),
    ),
    "a bare GRU": ("GRU", {"activations": ["Sigmoid", "Elu"]}, ()),
    "an RNN": (
        "RNN",
        {"direction": "bidirectional", "activations": ["Softplus", "ThresholdedRelu"]},
        ("lengths",),
    ),
    "an RNN of leaks": (
        "RNN",
        {"activations": ["LeakyRelu"], "activation_alpha": [0.1]},
        ("h",),
    ),
}
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


@pytest.mark.parametrize(
    ("hidden", "dtype"), [(1, np.float32), (70, np.float32), (70, np.float16)]
)
@pytest.mark.parametrize("name", LAYERS)
def test_layers_are_what_they_are_in_float64(
    alone: Any, name: str, hidden: int, dtype: Any
) -> None:
    """Between steps states of float16 are float32, too."""
    kind, attributes, given = LAYERS[name]
    directions = 2 if attributes.get("direction") == "bidirectional" else 1
    steps, batch, depth, gates = 4, 3, 6, GATES[kind]
    shapes: dict[str, tuple[int, ...]] = {
        "X": (steps, batch, depth),
        "W": (directions, gates * hidden, depth),
        "R": (directions, gates * hidden, hidden),
        "B": (directions, 2 * gates * hidden),
        "lengths": (batch,),
        "h": (directions, batch, hidden),
        "c": (directions, batch, hidden),
        "P": (directions, 3 * hidden),
    }
    feeds: dict[str, Any] = {
        name: (RNG.standard_normal(shape) / max(1, shape[-1] ** 0.5))
        .astype(dtype)
        .astype(np.float64)
        for name, shape in shapes.items()
        if name in ("X", "W", "R", *given)
    }
    if "lengths" in given:
        feeds["lengths"] = np.array([4, 0, 2], np.int32)

    def model(element: int) -> onnx.ModelProto:
        inputs = [
            onnx.helper.make_tensor_value_info(
                each, 6 if each == "lengths" else element, shapes[each]
            )
            for each in feeds
        ]
        names = ["Y", "Y_h", "Y_c"][: 3 if kind == "LSTM" else 2]
        node = onnx.helper.make_node(
            kind,
            [each if each in feeds else "" for each in shapes],
            names,
            hidden_size=hidden,
            **attributes,
        )
        outputs = [
            onnx.helper.make_tensor_value_info(each, element, None) for each in names
        ]
        graph = onnx.helper.make_graph([node], "layer", inputs, outputs)
        opset = onnx.helper.make_opsetid("", 21)
        return onnx.helper.make_model(graph, opset_imports=[opset], ir_version=10)

    wide = onnxplug.InferenceSession(model(11), providers=["CPUExecutionProvider"])
    expected = wide.run(None, feeds)
    session = alone(model(onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))))
    single = {
        each: value if each == "lengths" else value.astype(dtype)
        for each, value in feeds.items()
    }
    for found, wanted in zip(session.run(None, single), expected, strict=True):
        assert found.dtype == dtype
        half = 2.0**-11 * 1.03 if dtype is np.float16 else 0
        np.testing.assert_allclose(found, wanted, 1e-4 + half, 1e-5)
    if "lengths" in given:
        for wrong in (5, -1):
            single["lengths"] = np.array([1, wrong, 2], np.int32)
            with pytest.raises(onnxplug.errors.NodeError, match="a sequence of fewer"):
                session.run(None, single)


def test_states_that_are_too_large_are_for_the_next_ep(beside: Any, parse: Any) -> None:
    model = parse(
        "z = Relu(x) y, last = RNN<hidden_size=3000>(z, w, r)",
        "float[1, 1, 2] x, float[1, 3000, 2] w, float[1, 3000, 3000] r",
        "float[1, 1, 1, 3000] y, float[1, 1, 3000] last",
    )
    found = {node.op_type: node.ep for node in beside(model).explain().nodes}
    assert found["RNN"] == "CPUExecutionProvider"
