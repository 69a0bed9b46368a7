"""Products and convolutions of bytes by tensor cores: exact, whatever zero points."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import onnxplug
from onnxplug_compiler.gpu.families import contractions

Array = np.ndarray[Any, Any]
Session = Callable[..., onnxplug.InferenceSession]
Parse = Callable[..., onnx.ModelProto]
RNG = np.random.default_rng(3)
I8, U8 = np.int8, np.uint8


def codes(dtype: Any, *shape: int) -> Array:
    """Bytes of which all occur."""
    limits = np.iinfo(dtype)
    found: Array = RNG.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    return found


@pytest.fixture
def by_tensor_cores(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What tensor cores multiply, product by product."""
    found: list[str] = []
    record = contractions.record_tensor_product

    def spied(recorder: Any, element: str, *given: Any) -> None:
        found.append(element)
        record(recorder, element, *given)

    monkeypatch.setattr(contractions, "record_tensor_product", spied)
    return found


def convolved(
    x: Array, w: Array, pads: tuple[int, ...], strides: tuple[int, int], groups: int
) -> Array:
    """Of what differs from zero points, in int64."""
    x = np.pad(x, [(0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])])
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], (2, 3))
    windows = windows[:, :, :: strides[0], :: strides[1]]
    parts = zip(np.split(windows, groups, 1), np.split(w, groups), strict=True)
    return np.concatenate([np.einsum("nchwij,mcij->nmhw", *each) for each in parts], 1)


CONVOLUTIONS = [
    (U8, I8, 137, None, (1, 0, 2, 1), (1, 2), 1),
    (I8, U8, -9, "each", (0, 1, 0, 0), (2, 1), 2),
    (I8, I8, 0, None, (1, 1, 1, 1), (1, 1), 1),
]


@pytest.mark.parametrize(
    ("x_dtype", "w_dtype", "zero", "of_weights", "pads", "strides", "groups"),
    CONVOLUTIONS,
)
def test_convolutions_of_bytes_are_exact(
    x_dtype: Any,
    w_dtype: Any,
    zero: int,
    of_weights: str | None,
    pads: tuple[int, ...],
    strides: tuple[int, int],
    groups: int,
    by_tensor_cores: list[str],
    alone: Session,
    parse: Parse,
) -> None:
    names = {I8: "int8", U8: "uint8"}
    x, w = codes(x_dtype, 2, 8, 7, 9), codes(w_dtype, 16, 8 // groups, 3, 2)
    zeros = codes(w_dtype, 16) if of_weights else np.zeros(16, w_dtype)
    wide = convolved(
        x.astype(np.int64) - zero,
        w.astype(np.int64) - zeros.astype(np.int64)[:, None, None, None],
        pads,
        strides,
        groups,
    )
    model = parse(
        f"y = ConvInteger <pads = {list(pads)}, strides = {list(strides)}, "
        f"group = {groups}> (x, w, o{', z' if of_weights else ''})",
        inputs=f"{names[x_dtype]}[2, 8, 7, 9] x",
        outputs=f"int32{list(wide.shape)} y",
    )
    held = {"w": w, "o": np.array(zero, x_dtype)} | ({"z": zeros} if of_weights else {})
    model.graph.initializer.extend(
        numpy_helper.from_array(array, name) for name, array in held.items()
    )
    (found,) = alone(model).run(None, {"x": x})
    np.testing.assert_array_equal(found, wide)
    assert len(by_tensor_cores) == 1 and by_tensor_cores[0].count("_") == 1


def test_a_convolution_whose_zero_point_is_fed_is_exact(
    by_tensor_cores: list[str], alone: Session, parse: Parse
) -> None:
    """And rounded to codes, as ONNX Runtime does, ties to even."""
    x, w, bias = (
        codes(U8, 1, 4, 6, 5),
        codes(I8, 10, 4, 3, 3),
        RNG.integers(-999, 999, 10),
    )
    model = parse(
        "y = QLinearConv <pads = [1, 1, 1, 1]> (x, s, o, w, v, z, t, q, b)",
        inputs="uint8[1, 4, 6, 5] x, uint8 o",
        outputs="uint8[1, 10, 6, 5] y",
    )
    scales = 0.0625, np.array([0.5, 0.25, 1, 2, 0.125] * 2, np.float32), 64.0
    held = {"w": w, "b": bias.astype(np.int32), "z": np.zeros(10, I8)}
    held |= {"s": np.float32(scales[0]), "v": scales[1], "t": np.float32(scales[2])}
    held["q"] = np.uint8(121)
    model.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(array), name) for name, array in held.items()
    )
    session = alone(model)
    for zero in (0, 200):
        wide = convolved(
            x.astype(np.int64) - zero, w.astype(np.int64), (1,) * 4, (1, 1), 1
        )
        sums = wide + bias[:, None, None]
        factor = scales[0] * scales[1].astype(np.float64)[:, None, None] / scales[2]
        wanted = np.clip(np.rint(sums * factor) + 121, 0, 255).astype(U8)
        (found,) = session.run(None, {"x": x, "o": np.array(zero, U8)})
        np.testing.assert_array_equal(found, wanted)
    assert by_tensor_cores == ["u8_i8"]


def test_channels_by_themselves_are_left_to_other_kernels(
    by_tensor_cores: list[str], alone: Session, parse: Parse
) -> None:
    x, w = codes(U8, 1, 4, 6, 5), codes(I8, 4, 1, 3, 3)
    model = parse(
        "y = ConvInteger <pads = [1, 1, 1, 1], group = 4> (x, w, o)",
        inputs="uint8[1, 4, 6, 5] x",
        outputs="int32[1, 4, 6, 5] y",
    )
    held = {"w": w, "o": np.array(99, U8)}
    model.graph.initializer.extend(
        numpy_helper.from_array(array, name) for name, array in held.items()
    )
    (found,) = alone(model).run(None, {"x": x})
    wide = x.astype(np.int64) - 99, w.astype(np.int64)
    np.testing.assert_array_equal(found, convolved(*wide, (1,) * 4, (1, 1), 4))
    assert by_tensor_cores == []


def test_explain_says_what_takes_codes(alone: Session, parse: Parse) -> None:
    model = parse(
        "d = DequantizeLinear (x, s, o) v = DequantizeLinear (w, s) "
        "m = MatMul (d, v) y = QuantizeLinear (m, s, o)",
        inputs="uint8[3, 16] x",
        outputs="uint8[3, 8] y",
    )
    x, w, zero = codes(U8, 3, 16), codes(I8, 16, 8), np.array(7, U8)
    held = {"w": w, "s": np.float32(0.125), "o": zero}
    model.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(array), name) for name, array in held.items()
    )
    session = alone(model)
    (found,) = session.run(None, {"x": x})
    sums = (x.astype(np.int64) - 7) @ w.astype(np.int64)
    wanted = np.clip(np.rint(sums * 0.125) + 7, 0, 255)
    np.testing.assert_array_equal(found, wanted)
    notes = {node.op_type: node.note for node in session.explain().nodes}
    assert "one step" in notes["MatMul"]
