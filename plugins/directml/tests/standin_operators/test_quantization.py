"""Linear quantisation: constraints of the pages, and ONNX Runtime's results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from .examples import assert_documented, assert_rejected, evaluate, f32, i32
from .reference import of_onnx

RANDOM = np.random.default_rng(7).uniform(-3, 3, (4, 6)).astype(np.float32)
HALVES = f32([[-1.5, -0.5, 0.5, 1.5, 2.5, 300, -300]])


def filled(value: Any, like: Any, dtype: Any) -> Any:
    """A tensor of another's sizes."""
    return np.full(like.shape, value, dtype)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("x", [RANDOM, HALVES], ids=["random", "halves"])
def test_quantize_and_dequantize(x: Any, dtype: Any) -> None:
    scale, zero = np.float32(0.02 if x is RANDOM else 1), dtype(100)
    codes = of_onnx("QuantizeLinear", x, scale, zero)
    fields: dict[str, Any] = {"ScaleTensor": filled(scale, x, np.float32)}
    fields["ZeroPointTensor"] = filled(zero, x, dtype)
    assert_documented(
        "ELEMENT_WISE_QUANTIZE_LINEAR", InputTensor=x, OutputTensor=codes, **fields
    )
    values = of_onnx("DequantizeLinear", codes, scale, zero)
    assert_documented(
        "ELEMENT_WISE_DEQUANTIZE_LINEAR",
        InputTensor=codes,
        OutputTensor=values,
        **fields,
    )


def test_zero_points_may_be_left_out_since_6_2() -> None:
    fields: dict[str, Any] = {"InputTensor": f32([3]), "ScaleTensor": f32([2])}
    fields["OutputTensor"] = np.array([2], np.uint8)
    name = "ELEMENT_WISE_QUANTIZE_LINEAR"
    assert_documented(name, **fields)
    assert_rejected(name, "ZeroPointTensor is null", (6, 1), **fields)


def test_data_types_of_quantization() -> None:
    name = "ELEMENT_WISE_QUANTIZE_LINEAR"
    output: dict[str, Any] = {"OutputTensor": np.array([1], np.uint8)}
    assert_documented(name, InputTensor=i32([3]), ScaleTensor=f32([2.5]), **output)
    half = np.array([1], np.float16)
    fields: dict[str, Any] = {"ScaleTensor": half, **output}
    assert_rejected(name, "must be FLOAT32", InputTensor=i32([1]), **fields)
    assert_rejected(name, "DataType must be", InputTensor=f32([1]), **fields)
    assert_rejected(name, "InputTensor is FLOAT16", (5, 2), InputTensor=half, **fields)
    signed: dict[str, Any] = {"ZeroPointTensor": np.array([1], np.int8)}
    signed["ScaleTensor"] = f32([1])
    assert_rejected(name, "DataType must be", InputTensor=f32([1]), **signed, **output)
    assert_rejected(
        "ELEMENT_WISE_DEQUANTIZE_LINEAR",
        "Sizes must be",
        InputTensor=i32([1, 2]),
        ScaleTensor=f32([1]),
        OutputTensor=f32([1, 2]),
    )


def test_quantized_add() -> None:
    rng = np.random.default_rng(8)
    a, b = rng.integers(0, 256, (2, 3, 5), np.uint8)
    scales, zeros = f32([0.1, 0.3, 0.5]), np.array([100, 20, 90], np.uint8)
    real = (a - 100.0) * scales[0] + (b - 20.0) * scales[1]
    expected = np.clip(np.rint(real / scales[2]) + 90, 0, 255).astype(np.uint8)
    fields: dict[str, Any] = {"ATensor": a, "BTensor": b, "OutputTensor": expected}
    for at, each in enumerate(("A", "B", "Output")):
        fields[f"{each}ScaleTensor"] = scales[at : at + 1].reshape(1, 1)
        fields[f"{each}ZeroPointTensor"] = zeros[at : at + 1].reshape(1, 1)
    name = "ELEMENT_WISE_QUANTIZED_LINEAR_ADD"
    assert_documented(name, **fields)
    wrong = {"AScaleTensor": f32([[1, 2]])}
    assert_rejected(name, "must have one element", **fields | wrong)
    wrong = {"AScaleTensor": f32([1])}
    assert_rejected(name, "DimensionCount must be", **fields | wrong)


@pytest.mark.parametrize("shift", [0, 4, -4])
def test_dynamic_quantization(shift: int) -> None:
    x = RANDOM + np.float32(shift)
    codes, scale, zero = of_onnx("DynamicQuantizeLinear", x, outputs=3)
    found = evaluate(
        "DYNAMIC_QUANTIZE_LINEAR",
        InputTensor=x,
        OutputTensor=codes,
        OutputScaleTensor=scale.reshape(1, 1),
        OutputZeroPointTensor=zero.reshape(1, 1),
    )
    np.testing.assert_array_equal(found[0], codes)
    np.testing.assert_allclose(found[1], [[scale]], rtol=1e-7)
    np.testing.assert_array_equal(found[2], [[zero]])


def test_dynamic_quantization_of_zeros() -> None:
    codes = np.zeros((1, 3), np.int8)
    assert_documented(
        "DYNAMIC_QUANTIZE_LINEAR",
        InputTensor=f32([[0, 0, 0]]),
        OutputTensor=codes,
        OutputScaleTensor=f32([[0]]),
        OutputZeroPointTensor=codes[:, :1],
    )
