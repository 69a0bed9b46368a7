"""Operators on quantized tensors against ONNX Runtime, to the bit."""

from __future__ import annotations

import platform
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from .node_oracles import assert_as_onnx_runtime, run

KINDS = {np.uint8: TensorProto.UINT8, np.int8: TensorProto.INT8}
STEP = 0 if platform.machine().lower() in ("x86_64", "amd64") else 1
"""How far ONNX Runtime may be away: elsewhere it scales some sums in fixed point."""

pytestmark = pytest.mark.parametrize("dtype", KINDS)


class Random:
    """Random bytes and scales."""

    def __init__(self, dtype: Any, seed: int = 0) -> None:
        self.dtype = dtype
        self.generator = np.random.default_rng(seed)

    def bytes(self, *shape: int) -> Any:
        values = self.generator.integers(0, 256, shape)
        return np.asarray(values).astype(self.dtype)

    def scale(self, low: float = 0.01, high: float = 0.1) -> Any:
        return np.array(self.generator.uniform(low, high), np.float32)


@pytest.mark.parametrize("op_type", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize(
    ("a_shape", "b_shape"),
    [
        ((700, 33), (700, 33)),
        ((3, 5, 40), (40,)),
        ((1,), (70,)),
        ((), (7, 3)),
        ((0, 3), (3,)),
    ],
)
def test_two_operands(dtype: Any, op_type: str, a_shape: Any, b_shape: Any) -> None:
    for seed in range(3):
        draw = Random(dtype, seed)
        larger = 8 if op_type == "QLinearMul" else 1
        assert_as_onnx_runtime(
            op_type,
            *(draw.bytes(*a_shape), draw.scale(), draw.bytes()),
            *(draw.bytes(*b_shape), draw.scale(), draw.bytes()),
            *(draw.scale(0.01 * larger, 0.1 * larger), draw.bytes()),
            outputs=(KINDS[dtype],),
            atol=STEP,
        )


@pytest.mark.parametrize("op_type", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize(
    ("a_shape", "b_shape"), [((50, 1), (50, 40)), ((2, 1, 3), (4, 1)), ((9,), (1,))]
)
def test_two_operands_of_which_one_is_repeated(
    dtype: Any, op_type: str, a_shape: Any, b_shape: Any
) -> None:
    """ONNX Runtime rounds a repeated operand's product before it adds up.

    So a result may be one step away where it is within float32's precision of the
    middle between two steps, which these are not.
    """
    draw = Random(dtype)
    assert_as_onnx_runtime(
        op_type,
        *(draw.bytes(*a_shape), draw.scale(), draw.bytes()),
        *(draw.bytes(*b_shape), draw.scale(), draw.bytes()),
        *(draw.scale(0.04, 0.4), draw.bytes()),
        outputs=(KINDS[dtype],),
        atol=STEP,
    )


@pytest.mark.parametrize(("op_type", "scale"), [("QLinearAdd", 1), ("QLinearMul", 8)])
def test_ties_are_rounded_after_the_zero_point_is_added(
    dtype: Any, op_type: str, scale: float
) -> None:
    draw = Random(dtype)
    scales = [np.array(value, np.float32) for value in (0.25, 0.5, scale)]
    a, b = draw.bytes(2000), draw.bytes(2000)
    for zero_point in (3, 4):
        zero = np.array(zero_point, dtype)
        assert_as_onnx_runtime(
            op_type,
            *(a, scales[0], zero, b, scales[1], zero, scales[2], zero),
            outputs=(KINDS[dtype],),
            atol=STEP,
        )


@pytest.mark.parametrize("op_type", ["QLinearAdd", "QLinearMul"])
def test_zero_points_that_are_left_out(dtype: Any, op_type: str) -> None:
    """ONNX Runtime's own type inference refuses these."""
    draw, zero = Random(dtype), np.zeros((), dtype)
    a, a_scale = draw.bytes(30), draw.scale()
    b, b_scale, c_scale = draw.bytes(30), draw.scale(), draw.scale()
    found = run(op_type, a, a_scale, None, b, b_scale, None, c_scale)
    full = (a, a_scale, zero, b, b_scale, zero, c_scale, zero)
    np.testing.assert_array_equal(found, run(op_type, *full))
    assert found.dtype == dtype


def test_a_scale_of_several_elements_is_refused(dtype: Any) -> None:
    draw, two = Random(dtype), np.ones(2, np.float32)
    one = np.ones((), np.float32)
    with pytest.raises(ValueError, match=r"the scale of a has shape \(2,\)"):
        run(
            "QLinearMul",
            *(draw.bytes(2), two, None, draw.bytes(2), one, None, one),
        )


@pytest.mark.parametrize("shape", [(400,), (2, 3), (), (0, 4)])
def test_activations(dtype: Any, shape: Any) -> None:
    for seed in range(4):
        draw = Random(dtype, seed)
        assert_as_onnx_runtime(
            "QLinearLeakyRelu",
            *(draw.bytes(*shape), draw.scale(), draw.bytes(), draw.scale()),
            draw.bytes(),
            outputs=(KINDS[dtype],),
            **({"alpha": 0.3} if seed % 2 else {}),
        )
        y_scale = draw.scale(0.003, 0.01) if seed % 2 else np.array(2**-8, np.float32)
        assert_as_onnx_runtime(
            "QLinearSigmoid",
            *(draw.bytes(*shape), draw.scale(), draw.bytes(), y_scale, draw.bytes()),
            outputs=(KINDS[dtype],),
        )


@pytest.mark.parametrize("opset", [12, 13])
@pytest.mark.parametrize("axis", [-3, -1, 0, 1, 2])
def test_softmax(dtype: Any, opset: int, axis: int) -> None:
    lowest = np.array(np.iinfo(dtype).min, dtype)
    for seed, y_scale in enumerate((1 / 256, 1 / 255, 0.0047, 0.01)):
        draw = Random(dtype, seed)
        assert_as_onnx_runtime(
            "QLinearSoftmax",
            *(draw.bytes(7, 9, 40), draw.scale(), draw.bytes()),
            *(np.array(y_scale, np.float32), lowest),
            outputs=(KINDS[dtype],),
            opset=opset,
            axis=axis,
        )


def test_softmax_of_many_and_of_one_that_is_all(dtype: Any) -> None:
    draw = Random(dtype)
    lowest = np.array(np.iinfo(dtype).min, dtype)
    one = np.array([[0, 100, 0], [5, 5, 5]], dtype)
    wide = draw.bytes(2, 3000)
    for x, scale, y_scale in ((one, 0.3, 1 / 256), (wide, 0.02, 1 / 4096)):
        assert_as_onnx_runtime(
            "QLinearSoftmax",
            *(x, np.array(scale, np.float32), draw.bytes()),
            *(np.array(y_scale, np.float32), lowest),
            outputs=(KINDS[dtype],),
            opset=13,
        )
    # ONNX Runtime makes no output of an empty input
    empty = (draw.bytes(3, 0), draw.scale(), None, draw.scale(), lowest)
    found = run("QLinearSoftmax", *empty, opset=13)
    assert (found.shape, found.dtype) == ((3, 0), dtype)


def test_concat_and_where(dtype: Any) -> None:
    for seed in range(3):
        draw = Random(dtype, seed)
        shared = (draw.scale(), draw.bytes())
        assert_as_onnx_runtime(
            "QLinearConcat",
            *shared,
            *(draw.bytes(2, 3, 4), draw.scale(), draw.bytes()),
            *(draw.bytes(2, 0, 4), draw.scale(), draw.bytes()),
            *(draw.bytes(2, 5, 4), *shared),
            outputs=(KINDS[dtype],),
            axis=-2,
        )
        condition = draw.generator.integers(0, 2, (5, 1, 7)).astype(bool)
        assert_as_onnx_runtime(
            "QLinearWhere",
            condition,
            *(draw.bytes(6, 7), draw.scale(), draw.bytes()),
            *(draw.bytes(5, 6, 1), draw.scale(), draw.bytes()),
            *(draw.scale(), draw.bytes()),
            outputs=(KINDS[dtype],),
        )


def test_concat_of_incomplete_triples_is_refused(dtype: Any) -> None:
    draw = Random(dtype)
    inputs = (draw.scale(), draw.bytes(), draw.bytes(3), draw.scale())
    with pytest.raises(ValueError, match="2 inputs after the output's"):
        run("QLinearConcat", *inputs, axis=0)


@pytest.mark.parametrize("channels_last", [0, 1])
@pytest.mark.parametrize(
    ("shape", "attributes"),
    [
        ((2, 3, 9, 8), {"kernel_shape": (3, 2)}),
        (
            (2, 3, 9, 8),
            {"kernel_shape": (3, 2), "pads": (1, 1, 2, 0), "strides": (2, 3)},
        ),
        (
            (2, 3, 9, 8),
            {"kernel_shape": (3, 2), "pads": (1, 1, 2, 0), "count_include_pad": 1},
        ),
        ((2, 3, 9, 8), {"kernel_shape": (3, 3), "strides": (2, 2), "ceil_mode": 1}),
        (
            (2, 3, 9, 8),
            {
                "kernel_shape": (3, 3),
                "strides": (2, 2),
                "ceil_mode": 1,
                "count_include_pad": 1,
                "pads": (1, 0, 0, 1),
            },
        ),
        (
            (1, 2, 10),
            {"kernel_shape": (4,), "auto_pad": "SAME_UPPER", "strides": (3,)},
        ),
        ((1, 2, 10), {"kernel_shape": (4,), "auto_pad": "SAME_LOWER"}),
        ((1, 2, 5, 6, 7), {"kernel_shape": (2, 3, 2), "pads": (1, 1, 0, 0, 1, 1)}),
        ((2, 2, 4, 4), {"kernel_shape": (2, 2), "auto_pad": "VALID"}),
    ],
)
def test_average_pool(
    dtype: Any, shape: Any, attributes: Any, channels_last: int
) -> None:
    draw = Random(dtype)
    x = draw.bytes(*shape)
    x = np.ascontiguousarray(np.moveaxis(x, 1, -1)) if channels_last else x
    scale, zero_point = draw.scale(), draw.bytes()
    for y_scale, y_zero_point in ((scale, zero_point), (draw.scale(), draw.bytes())):
        assert_as_onnx_runtime(
            "QLinearAveragePool",
            *(x, scale, zero_point, y_scale, y_zero_point),
            outputs=(KINDS[dtype],),
            channels_last=channels_last,
            **attributes,
        )


@pytest.mark.parametrize("channels_last", [0, 1])
@pytest.mark.parametrize(
    "shape", [(2, 5, 7, 6), (3, 1, 9), (2, 9, 3, 3, 2), (1, 3, 40, 50), (0, 2, 3, 3)]
)
def test_global_average_pool(dtype: Any, shape: Any, channels_last: int) -> None:
    draw = Random(dtype)
    x, scale = draw.bytes(*shape), draw.scale()
    for y_scale in (scale, draw.scale()):
        assert_as_onnx_runtime(
            "QLinearGlobalAveragePool",
            *(x, scale, draw.bytes(), y_scale, draw.bytes()),
            outputs=(KINDS[dtype],),
            atol=STEP,
            channels_last=channels_last,
        )


@pytest.mark.parametrize("axes", [(1,), (-1, 0), ()])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_mean(dtype: Any, axes: Any, keepdims: int) -> None:
    """No EP of ONNX Runtime has it: against its formula in float64."""
    draw = Random(dtype)
    x, x_scale, x_zero = draw.bytes(5, 7, 6), draw.scale(), draw.bytes()
    y_scale, y_zero = draw.scale(), draw.bytes()
    found = run(
        "QLinearReduceMean",
        *(x, x_scale, x_zero, y_scale, y_zero),
        axes=axes,
        keepdims=keepdims,
    )
    exact = (x.astype(np.float64) - float(x_zero)) * float(x_scale)
    mean = exact.mean(axis=axes or None, keepdims=bool(keepdims)) / float(y_scale)
    assert np.abs(mean - np.floor(mean) - 0.5).min() > 1e-4  # no ties
    limits = np.iinfo(dtype)
    expected = np.clip(np.rint(mean) + float(y_zero), limits.min, limits.max)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, expected)
