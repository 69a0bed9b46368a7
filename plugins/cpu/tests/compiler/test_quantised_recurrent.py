"""ONNX Runtime's LSTM of codes, compiled, against arrays and ONNX Runtime."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import onnx
import onnxruntime
from onnx import helper

from .lowered import lowered

Array = np.ndarray[Any, Any]

_FORMS: Final[tuple[dict[str, Any], ...]] = (
    {"sizes": (4, 3, 5, 6)},
    {"sizes": (7, 1, 37, 48), "dtype": np.uint8, "per_column": True, "state": True},
    {"sizes": (5, 2, 16, 32), "direction": "reverse", "peepholes": True, "zero": 90},
    {"sizes": (3, 9, 20, 16), "direction": "forward", "bias": False, "clip": 0.5},
    {
        "sizes": (2, 2, 8, 40),
        "direction": "forward",
        "activations": ["Sigmoid", "Tanh", "Relu"],
        "input_forget": 1,
    },
)


def lstm(
    *,
    sizes: tuple[int, int, int, int],
    dtype: Any = np.int8,
    zero: int = 0,
    direction: str = "bidirectional",
    per_column: bool = False,
    bias: bool = True,
    state: bool = False,
    peepholes: bool = False,
    lengths: Array | None = None,
    **attributes: Any,
) -> tuple[onnx.ModelProto, Array]:
    """A model and its input of *sizes*, steps, sequences, inputs and hidden ones."""
    random, limits = np.random.default_rng(3), np.iinfo(dtype)
    time, batch, inputs, hidden = sizes
    count = 2 if direction == "bidirectional" else 1
    columns = (4 * hidden,) if per_column else ()

    def floats(*shape: int) -> Array:
        return (0.3 * random.standard_normal(shape)).astype(np.float32)

    given: dict[str, Array | None] = {"x": floats(time, batch, inputs) * 5}
    for name, inner in (("w", inputs), ("r", hidden)):
        shape = (count, inner, 4 * hidden)
        # where a processor has no VNNI, ONNX Runtime's sums of two products saturate
        # for signed weights of more than seven bits
        low, high = limits.min // 2, limits.max // (2 if limits.min else 1)
        given[name] = random.integers(low, high, shape).astype(dtype)
    given["b"] = floats(count, 8 * hidden) if bias else None
    given["lengths"] = lengths
    given["h"], given["c"] = (
        floats(count, batch, hidden) if state else None for _ in range(2)
    )
    given["p"] = floats(count, 3 * hidden) if peepholes else None
    for name in "wr":
        given[f"{name}s"] = np.abs(floats(count, *columns)) / 64 + np.float32(1e-3)
        middle = zero or (128 if dtype == np.uint8 else 0)
        given[f"{name}z"] = np.full((count, *columns), middle, dtype)
    node = helper.make_node(
        "DynamicQuantizeLSTM",
        [name if array is not None else "" for name, array in given.items()],
        ["y", "yh", "yc"],
        domain="com.microsoft",
        direction=direction,
        hidden_size=hidden,
        **attributes,
    )
    x = given.pop("x")
    assert x is not None
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node],
        "lstm",
        [value("x", 1, x.shape)],
        [value(name, 1, None) for name in node.output],
        [onnx.numpy_helper.from_array(v, n) for n, v in given.items() if v is not None],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9), x


def test_lstm_of_codes() -> None:
    """A state that rounds to another code than theirs makes a step's difference."""
    for form in _FORMS:
        model, x = lstm(**form)
        tested = lowered(model, threads=2)
        assert set(tested.tiers()) == {"compiled"}
        found = tested.session.run(None, {"x": x})
        arrays = tested.expected.run(None, {"x": x})
        peer = onnxruntime.InferenceSession(
            model.SerializeToString(), providers=["CPUExecutionProvider"]
        )
        for one, other, theirs in zip(
            found, arrays, peer.run(None, {"x": x}), strict=True
        ):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(one, theirs, atol=0.01)


def test_lengths_are_left_to_arrays() -> None:
    model, x = lstm(sizes=(4, 2, 8, 6), lengths=np.array([4, 2], np.int32))
    tested = lowered(model, threads=1)
    assert set(tested.tiers()) == {"array"}
    for one, other in zip(
        tested.session.run(None, {"x": x}),
        tested.expected.run(None, {"x": x}),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)
