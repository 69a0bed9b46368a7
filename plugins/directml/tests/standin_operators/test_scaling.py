"""Scales and quantisation, by what the pages say and numpy computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from .examples import Array, assert_documented, assert_rejected, evaluate, f32


def test_value_scale_2d(rng: np.random.Generator) -> None:
    values = rng.integers(-9, 9, (2, 3, 2, 2)).astype(np.float32)
    bias = np.array([1, 2, 3]).reshape(3, 1, 1)
    fields: dict[str, Any] = {
        "InputTensor": values,
        "OutputTensor": (values * 0.5 + bias).astype(np.float32),
        "Scale": 0.5,
    }
    assert_documented("VALUE_SCALE_2D", **fields, ChannelCount=3, Bias=(1.0, 2.0, 3.0))
    assert_rejected(
        "VALUE_SCALE_2D", "3 channels", **fields, ChannelCount=1, Bias=(1.0,)
    )


def in_blocks(parameter: Array, sizes: tuple[int, ...]) -> Array:
    """A number for each block, for each element."""
    blocks = [size // count for size, count in zip(sizes, parameter.shape, strict=True)]
    return np.kron(parameter, np.ones(blocks, parameter.dtype))


@pytest.mark.parametrize("sizes", [(1, 1), (4, 1), (2, 3), (4, 6)])
@pytest.mark.parametrize("codes", [np.int8, np.uint8])
def test_quantize_and_back(
    sizes: tuple[int, int], codes: Any, rng: np.random.Generator
) -> None:
    values = rng.standard_normal((4, 6)).astype(np.float32)
    scale = rng.uniform(0.01, 0.02, sizes).astype(np.float32)
    zero = rng.integers(0, 9, sizes).astype(codes)
    limits = np.iinfo(codes)
    quotients = values / in_blocks(scale, values.shape)
    exact = np.rint(quotients.astype(np.float64)) + in_blocks(zero, values.shape)
    expected = np.clip(exact, limits.min, limits.max).astype(codes)
    both = {"QuantizationType": "SCALE_ZERO_POINT", "QuantizationTensorCount": 2}
    both = {**both, "QuantizationTensors": [scale, zero]}
    assert_documented("QUANTIZE", InputTensor=values, OutputTensor=expected, **both)
    back = (expected - in_blocks(zero, values.shape).astype(np.float64)) * in_blocks(
        scale, values.shape
    ).astype(np.float64)
    dequantized = back.astype(np.float32)
    assert_documented(
        "DEQUANTIZE", InputTensor=expected, OutputTensor=dequantized, **both
    )
    assert_rejected(
        "QUANTIZE",
        "2 QuantizationTensors for SCALE",
        InputTensor=values,
        OutputTensor=expected,
        **(both | {"QuantizationType": "SCALE"}),
    )


def test_quantization_parameters_fit_their_tensors() -> None:
    fields: dict[str, Any] = {
        "InputTensor": f32([[0.5, 1.5, 2.5, -200]]),
        "OutputTensor": np.array([[0, 2, 2, -128]], np.int8),
        "QuantizationType": "SCALE",
    }
    one = {"QuantizationTensors": [f32([[1]])]}
    assert_documented("QUANTIZE", **fields, **one)
    three = {"QuantizationTensors": [f32([[1, 1, 1]])]}
    assert_rejected("QUANTIZE", r"\(1, 3\) for \(1, 4\)", **fields, **three)
    half = {"QuantizationTensors": [np.ones((1, 1), np.float16)]}
    assert_rejected("QUANTIZE", "FLOAT16 as quantization", **fields, **half)
    flat = {"QuantizationTensors": [f32([1])]}
    assert_rejected("QUANTIZE", "DimensionCount", **fields, **flat)
    unsigned = fields | {"QuantizationType": "SCALE_ZERO_POINT"}
    two = {"QuantizationTensors": [f32([[1]]), np.zeros((1, 1), np.uint8)]}
    assert_rejected("QUANTIZE", "UINT8 as quantization", **unsigned, **two)


def test_infinite_quotients_are_clamped() -> None:
    (codes,) = evaluate(
        "QUANTIZE",
        InputTensor=f32([1, -1]),
        OutputTensor=np.zeros(2, np.uint8),
        QuantizationType="SCALE",
        QuantizationTensors=[f32([0])],
    )
    np.testing.assert_array_equal(codes, [255, 0])
