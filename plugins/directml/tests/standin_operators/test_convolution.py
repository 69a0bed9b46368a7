"""Convolutions and products: constraints of the pages, ONNX Runtime's results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ..standin.operators import OPERATORS, Desc
from .examples import assert_rejected, described, evaluate, f32, i32
from .reference import of_onnx

Array = np.ndarray[Any, Any]


def random(*sizes: int, seed: int = 3) -> Array:
    """Floats."""
    return np.random.default_rng(seed).uniform(-2, 2, sizes).astype(np.float32)


def codes(*sizes: int, dtype: str = "u1", seed: int = 3) -> Array:
    """Integers of 8 bits."""
    limits = np.iinfo(dtype)
    rng = np.random.default_rng(seed)
    return rng.integers(limits.min, limits.max, sizes, dtype, endpoint=True)


def convolution(x: Array, w: Array, output: Array, **fields: Any) -> dict[str, Any]:
    """Fields of ``CONVOLUTION``."""
    count = x.ndim - 2
    plain: dict[str, Any] = {
        "Mode": "CROSS_CORRELATION",
        "Direction": "FORWARD",
        "DimensionCount": count,
        "Strides": (1,) * count,
        "Dilations": (1,) * count,
        "StartPadding": (0,) * count,
        "EndPadding": (0,) * count,
        "OutputPadding": (0,) * count,
        "GroupCount": 1,
        "FusedActivation": None,
    }
    tensors = {"InputTensor": x, "FilterTensor": w, "OutputTensor": output}
    return plain | tensors | fields


FORWARD: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "plain": ((2, 3, 5, 6), (4, 3, 3, 2), {}),
    "1D": ((2, 3, 7), (4, 3, 3), {"strides": [2], "pads": [1, 0]}),
    "3D": ((1, 2, 4, 5, 3), (3, 2, 2, 3, 1), {"dilations": [2, 1, 1]}),
    "strides": ((1, 2, 7, 8), (3, 2, 3, 3), {"strides": [2, 3], "pads": [1, 0, 2, 1]}),
    "dilations": ((1, 2, 7, 8), (3, 2, 2, 3), {"dilations": [3, 2]}),
    "groups": ((2, 4, 5, 5), (6, 2, 3, 3), {"group": 2}),
    "depthwise": ((2, 4, 5, 5), (8, 1, 3, 3), {"group": 4, "strides": [2, 2]}),
}


def fields_of(attributes: dict[str, Any], count: int) -> dict[str, Any]:
    """ONNX's attributes by the names of DirectML."""
    pads = attributes.get("pads", [0] * 2 * count)
    return {
        "Strides": tuple(attributes.get("strides", [1] * count)),
        "Dilations": tuple(attributes.get("dilations", [1] * count)),
        "StartPadding": tuple(pads[:count]),
        "EndPadding": tuple(pads[count:]),
        "GroupCount": attributes.get("group", 1),
    }


@pytest.mark.parametrize("name", FORWARD)
def test_forward(name: str) -> None:
    sizes, window, attributes = FORWARD[name]
    x, w, count = random(*sizes), random(*window, seed=4), len(sizes) - 2
    bias = random(window[0], seed=5)
    expected = of_onnx("Conv", x, w, bias, **attributes)
    fields = convolution(x, w, expected, **fields_of(attributes, count))
    fields["BiasTensor"] = bias.reshape(1, -1, *[1] * count)
    (found,) = evaluate("CONVOLUTION", **fields)
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-5)


BACKWARD: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "plain": ((2, 3, 4, 5), (3, 4, 3, 2), {}),
    "1D": ((2, 3, 5), (3, 2, 3), {"strides": [2], "pads": [1, 0]}),
    "3D": ((1, 2, 2, 3, 3), (2, 3, 2, 1, 2), {"strides": [1, 2, 2]}),
    "pads": ((1, 2, 4, 4), (2, 3, 3, 3), {"strides": [2, 3], "pads": [1, 0, 2, 1]}),
    "dilations": ((1, 2, 4, 4), (2, 3, 2, 3), {"dilations": [3, 2]}),
    "groups": ((2, 4, 3, 3), (4, 3, 3, 3), {"group": 2, "strides": [2, 2]}),
    "output padding": (
        (1, 2, 4, 4),
        (2, 3, 3, 3),
        {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]},
    ),
    "output padding beyond": (
        (1, 2, 3, 3),
        (2, 3, 2, 2),
        {"strides": [3, 3], "output_padding": [2, 1]},
    ),
}


@pytest.mark.parametrize("name", BACKWARD)
def test_backward(name: str) -> None:
    """Of ``output_padding`` only the output's sizes tell, as from ONNX Runtime."""
    sizes, window, attributes = BACKWARD[name]
    x, w, count = random(*sizes), random(*window, seed=4), len(sizes) - 2
    expected = of_onnx("ConvTranspose", x, w, **attributes)
    fields = convolution(x, w, expected, **fields_of(attributes, count))
    (found,) = evaluate("CONVOLUTION", **fields | {"Direction": "BACKWARD"})
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-5)


def test_output_padding_adds_zeros() -> None:
    x, w = f32([[[1, 2]]]), f32([[[1, 10]]])
    bias = f32([[[5]]])
    output = f32([[[26, 5]]])
    fields = convolution(x, w, output, BiasTensor=bias, OutputPadding=(1,))
    (found,) = evaluate("CONVOLUTION", **fields)
    np.testing.assert_array_equal(found, output)
    backward = fields | {"Direction": "BACKWARD", "OutputTensor": random(1, 1, 4)}
    (found,) = evaluate("CONVOLUTION", **backward)
    np.testing.assert_array_equal(found, f32([[[6, 17, 25, 5]]]))
    cut = {"EndPadding": (1,), "OutputTensor": random(1, 1, 3)}
    (found,) = evaluate("CONVOLUTION", **backward | cut)
    np.testing.assert_array_equal(found, f32([[[6, 17, 5]]]))


def test_the_mode_flips_the_filter() -> None:
    x, w = random(1, 2, 5, 5), random(3, 2, 2, 3, seed=4)
    flipped = np.ascontiguousarray(w[:, :, ::-1, ::-1])
    expected = of_onnx("Conv", x, flipped)
    fields = convolution(x, w, expected, Mode="CONVOLUTION")
    (found,) = evaluate("CONVOLUTION", **fields)
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-5)
    x = random(1, 3, 3, 3)
    expected = of_onnx("ConvTranspose", x, flipped)
    fields = convolution(x, w, expected, Mode="CONVOLUTION", Direction="BACKWARD")
    (found,) = evaluate("CONVOLUTION", **fields)
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-5)


def test_an_activation_follows_the_bias() -> None:
    leaky = {"InputTensor": None, "OutputTensor": None, "Alpha": 0.5}
    fields = convolution(
        f32([[[1, -4]]]),
        f32([[[2]]]),
        f32([[[0, 0]]]),
        BiasTensor=f32([[[1]]]),
        FusedActivation=Desc("ACTIVATION_LEAKY_RELU", leaky),
    )
    (found,) = evaluate("CONVOLUTION", **fields)
    np.testing.assert_array_equal(found, f32([[[3, -3.5]]]))


@pytest.mark.parametrize(
    ("reason", "change"),
    [
        ("FilterTensor has 4 filters of 3 ch", {"GroupCount": 3}),
        ("does not divide", {"GroupCount": 2}),
        ("OutputTensor has Sizes", {"EndPadding": (1, 0)}),
        ("OutputTensor has Sizes", {"OutputPadding": (0, 1)}),
        ("at least 1", {"Strides": (1, 0)}),
        ("is larger than", {"Dilations": (3, 1)}),
        ("DimensionCount is 3", {"DimensionCount": 3}),
        ("BiasTensor has Sizes", {"BiasTensor": random(1, 3, 1, 1)}),
        ("BiasTensor has 1 dim", {"BiasTensor": random(4)}),
        ("DataType must be", {"FilterTensor": random(4, 3, 3, 2).astype("f2")}),
        ("are those of", {"Direction": "BACKWARD"}),
    ],
)
def test_what_convolutions_do_not_take(reason: str, change: dict[str, Any]) -> None:
    fields = convolution(random(2, 3, 5, 6), random(4, 3, 3, 2), random(2, 4, 3, 5))
    if "Direction" in change:
        change = change | {"OutputTensor": random(2, 3, 9, 9)}
        change |= {"InputTensor": random(2, 4, 5, 6)}
    if change.get("GroupCount") == 3:
        change = change | {"OutputTensor": random(2, 6, 3, 5)}
    assert_rejected("CONVOLUTION", reason, **fields | change)


def test_one_spatial_dimension_came_with_4_0() -> None:
    fields = convolution(random(1, 2, 5), random(3, 2, 2), random(1, 3, 4))
    assert_rejected("CONVOLUTION", "InputTensor has 3", (3, 1), **fields)


@pytest.mark.parametrize("filter_type", ["u1", "i1"])
@pytest.mark.parametrize("name", ["plain", "strides", "groups", "1D"])
def test_convolution_of_integers(name: str, filter_type: str) -> None:
    sizes, window, attributes = FORWARD[name]
    x, w = codes(*sizes), codes(*window, dtype=filter_type, seed=4)
    count = len(sizes) - 2
    zero = np.full(1, 131, np.uint8)
    expected = of_onnx("ConvInteger", x, w, zero.reshape(()), **attributes)
    fields = convolution(x, w, expected, **fields_of(attributes, count))
    (found,) = evaluate(
        "CONVOLUTION_INTEGER", **fields | {"InputZeroPointTensor": zero}
    )
    np.testing.assert_array_equal(found, expected)
    # a zero point for each filter, which ONNX has as well and its CPU EP has not
    each = codes(window[0], dtype=filter_type, seed=6)
    shape = (-1, *[1] * (w.ndim - 1))
    differences = w.astype("f4") - each.reshape(shape)
    exact = of_onnx("Conv", x.astype("f4"), differences, **attributes)
    fields["FilterZeroPointTensor"] = each.reshape(1, -1, *[1] * count)
    (found,) = evaluate("CONVOLUTION_INTEGER", **fields)
    np.testing.assert_array_equal(found, exact)


@pytest.mark.parametrize("name", ["plain", "strides", "groups", "depthwise"])
def test_quantized_convolution(name: str) -> None:
    sizes, window, attributes = FORWARD[name]
    x, w = codes(*sizes), codes(*window, dtype="i1", seed=4)
    scales = np.random.default_rng(5).uniform(0.01, 0.03, window[0]).astype("f4")
    bias = np.random.default_rng(6).integers(-900, 900, window[0], np.int32)
    x_scale, scale = f32([0.02]), f32([0.11])
    x_zero, zero = np.array([120], np.uint8), np.array([97], np.uint8)
    # not its QLinearConv, whose sums of two products saturate where a processor has no
    # VNNI
    sums = of_onnx("Conv", x.astype("f4") - x_zero, w.astype("f4"), **attributes)
    channels = (1, -1, 1, 1)
    factors = scales.astype("f8") * x_scale / scale
    real = (sums + bias.reshape(channels)) * factors.reshape(channels)
    expected = np.clip(np.rint(real) + zero, 0, 255).astype(np.uint8)
    fields = convolution(x, w, expected, **fields_of(attributes, 2))
    fields |= {
        "InputScaleTensor": x_scale,
        "InputZeroPointTensor": x_zero,
        "FilterScaleTensor": scales.reshape(channels),
        "FilterZeroPointTensor": None,
        "BiasTensor": bias.reshape(channels),
        "OutputScaleTensor": scale,
        "OutputZeroPointTensor": zero,
    }
    (found,) = evaluate("QUANTIZED_LINEAR_CONVOLUTION", **fields)
    assert np.abs(found.astype(int) - expected).max() <= 1  # halves, in float32 there
    assert np.mean(found != expected) < 0.01
    name = "QUANTIZED_LINEAR_CONVOLUTION"
    assert_rejected(
        name, "elements are due", **fields | {"FilterScaleTensor": scales[:2]}
    )
    assert_rejected(name, "has 1 dim", (5, 1), **fields | {"FilterScaleTensor": scales})
    wrong = fields | {"OutputZeroPointTensor": np.array([0], np.int8)}
    assert_rejected(name, "DataType must be", **wrong)


def gemm(a: Array, b: Array, output: Array, **fields: Any) -> dict[str, Any]:
    """Fields of ``GEMM``."""
    plain: dict[str, Any] = {
        "TransA": "NONE",
        "TransB": "NONE",
        "Alpha": 1.0,
        "Beta": 1.0,
    }
    tensors = {"ATensor": a, "BTensor": b, "OutputTensor": output}
    return plain | {"FusedActivation": None} | tensors | fields


@pytest.mark.parametrize("trans_a", [False, True])
@pytest.mark.parametrize("trans_b", [False, True])
def test_gemm(trans_a: bool, trans_b: bool) -> None:
    a, b, c = random(3, 4), random(4, 5, seed=4), random(3, 5, seed=5)
    a, b = (x.T.copy() if t else x for x, t in ((a, trans_a), (b, trans_b)))
    expected = of_onnx(
        "Gemm", a, b, c, transA=trans_a, transB=trans_b, alpha=0.5, beta=2.0
    )
    fields = gemm(a, b, expected, CTensor=c, Alpha=0.5, Beta=2.0)
    fields["TransA"] = "TRANSPOSE" if trans_a else "NONE"
    fields["TransB"] = "TRANSPOSE" if trans_b else "NONE"
    (found,) = evaluate("GEMM", **fields)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    relu = {"InputTensor": None, "OutputTensor": None}
    fields["FusedActivation"] = Desc("ACTIVATION_RELU", relu)
    (found,) = evaluate("GEMM", **fields)
    np.testing.assert_allclose(found, expected.clip(0), rtol=1e-6, atol=1e-6)


def test_gemm_has_a_matrix_for_each_batch_and_channel() -> None:
    a, b = random(2, 3, 4, 5), random(2, 3, 5, 6, seed=4)
    expected = of_onnx("MatMul", a, b)
    (found,) = evaluate("GEMM", **gemm(a, b, expected))
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    assert_rejected("GEMM", "make none", **gemm(a, b[:1], expected))
    assert_rejected("GEMM", "make none", **gemm(a, b, expected[..., :5]))
    assert_rejected("GEMM", "DimensionCount", **gemm(a[0], b, expected))
    c = random(1, 1, 4, 6)
    assert_rejected("GEMM", "Sizes must be", **gemm(a, b, expected, CTensor=c))
    two = gemm(a[0, 0], b[0, 0], expected[0, 0])
    assert_rejected("GEMM", "ATensor has 2", (3, 1), **two)


def test_product_of_integers() -> None:
    a, b = codes(1, 2, 3, 4), codes(1, 2, 4, 5, dtype="i1", seed=4)
    a_zero, b_zero = codes(3, seed=5), codes(5, dtype="i1", seed=6)
    exact = (a.astype(int) - a_zero[:, None]) @ (b.astype(int) - b_zero)
    fields: dict[str, Any] = {
        "ATensor": a,
        "BTensor": b,
        "OutputTensor": exact.astype(np.int32),
    }
    fields |= {"AZeroPointTensor": a_zero.reshape(1, 1, 3, 1)}
    fields |= {"BZeroPointTensor": b_zero.reshape(1, 1, 1, 5)}
    (found,) = evaluate("MATRIX_MULTIPLY_INTEGER", **fields)
    np.testing.assert_array_equal(found, exact)
    name = "MATRIX_MULTIPLY_INTEGER"
    wrong = {"AZeroPointTensor": a_zero.reshape(1, 1, 1, 3)}
    assert_rejected(name, "elements are due", **fields | wrong)
    wrong = {"BZeroPointTensor": b_zero}
    assert_rejected(name, "BZeroPointTensor has 1", (5, 1), **fields | wrong)
    plain = {"AZeroPointTensor": None, "BZeroPointTensor": None}
    (found,) = evaluate(name, **fields | plain)
    np.testing.assert_array_equal(found, a.astype(int) @ b.astype(int))


def test_quantized_product() -> None:
    a, b = codes(3, 4), codes(4, 5, seed=4)
    scales = f32([0.02, 0.03, 1.7])
    zeros = np.array([120, 130, 90], np.uint8)
    expected = of_onnx(
        "QLinearMatMul",
        *(a, scales[0], zeros[0]),
        *(b, scales[1], zeros[1]),
        *(scales[2], zeros[2]),
    )
    fields: dict[str, Any] = {"ATensor": a, "BTensor": b, "OutputTensor": expected}
    for at, each in enumerate(("A", "B", "Output")):
        fields[f"{each}ScaleTensor"] = scales[at : at + 1]
        fields[f"{each}ZeroPointTensor"] = zeros[at : at + 1]
    (found,) = evaluate("QUANTIZED_LINEAR_MATRIX_MULTIPLY", **fields)
    np.testing.assert_array_equal(found, expected)
    rows = f32([[0.02], [0.01], [0.04]])
    real = (a.astype("f8") - 120) * rows @ ((b.astype("f8") - 130) * scales[1])
    expected = np.clip(np.rint(real / scales[2]) + 90, 0, 255).astype(np.uint8)
    two = {k: v.reshape(1, 1) for k, v in fields.items() if v.size == 1}
    (found,) = evaluate(
        "QUANTIZED_LINEAR_MATRIX_MULTIPLY", **fields | two | {"AScaleTensor": rows}
    )
    np.testing.assert_array_equal(found, expected)


def test_product_of_integers_to_floats() -> None:
    a, b = codes(3, 4, dtype="i1"), codes(4, 5, dtype="i1", seed=4)
    rows, columns = random(3, 1), random(1, 5, seed=5)
    bias = random(3, 5, seed=6)
    expected = (a * rows.astype("f8")) @ ((b - 3.0) * columns) + bias
    fields: dict[str, Any] = {"ATensor": a, "BTensor": b, "BiasTensor": bias}
    fields |= {"AScaleTensor": rows, "BScaleTensor": columns}
    fields |= {"BZeroPointTensor": np.full((1, 1), 3, np.int8)}
    fields |= {"OutputTensor": expected.astype(np.float32)}
    (found,) = evaluate("MATRIX_MULTIPLY_INTEGER_TO_FLOAT", **fields)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_accumulators_of_32_bits_wrap() -> None:
    a, b = np.full((1, 140_000), 255, np.uint8), np.full((140_000, 1), 255, np.uint8)
    desc = described(
        "MATRIX_MULTIPLY_INTEGER",
        (6, 4),
        {"ATensor": a, "BTensor": b, "OutputTensor": i32([[0]])},
    )
    meaning = OPERATORS["MATRIX_MULTIPLY_INTEGER"]
    (found,) = meaning.evaluate(desc, [a, None, b, None])
    assert found == np.array(255 * 255 * 140_000).astype(np.int32)
