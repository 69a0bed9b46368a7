"""ONNX Runtime's operators on codes of a byte, against the same in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

RNG = np.random.default_rng(4)
MICROSOFT = "com.microsoft"

Array = np.ndarray[Any, Any]


def model_of(
    node: onnx.NodeProto, feeds: dict[str, Array], given: set[str], dtype: Any
) -> onnx.ModelProto:
    """*given* are inputs of the model, the others constants."""

    def info(name: str, kind: Any, shape: Any) -> onnx.ValueInfoProto:
        element = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
        return helper.make_tensor_value_info(name, element, shape)

    return helper.make_model(
        helper.make_graph(
            [node],
            "g",
            [info(n, x.dtype, x.shape) for n, x in feeds.items() if n in given],
            [info("y", dtype, None)],
            [
                onnx.numpy_helper.from_array(x, n)
                for n, x in feeds.items()
                if n not in given
            ],
        ),
        opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)],
        ir_version=10,
    )


def codes(dtype: Any, *shape: int) -> Array:
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max, shape, dtype, endpoint=True)


def scale(*shape: int) -> Array:
    return np.asarray(RNG.uniform(0.01, 0.05, shape), np.float32)


def tensor(dtype: Any, *shape: int) -> tuple[Array, Array, Array]:
    return codes(dtype, *shape), scale(), np.asarray(codes(dtype))


def wide(codes: Array, scale: Array, zero: Array) -> Array:
    return (codes.astype(np.float64) - zero) * scale.astype(np.float64)


def check(found: Array, steps: Array, dtype: Any) -> None:
    """Half-way between two codes either is right."""
    limits = np.iinfo(dtype)
    wanted = np.clip(np.rint(steps), limits.min, limits.max)
    apart = np.abs(np.abs(steps - np.floor(steps)) - 0.5) > 1e-3
    assert found.dtype == dtype and found.shape == wanted.shape
    np.testing.assert_array_equal(found[apart], wanted[apart])
    assert np.abs(found.astype(int) - wanted).max() <= 1
    assert len(np.unique(found)) > 2


def run(
    alone: Any, op_type: str, inputs: list[Array | None], dtype: Any, **attributes: Any
) -> list[Array]:
    """With constants as parameters, and with inputs only."""
    names = [f"i{n}" for n in range(len(inputs))]
    feeds = {n: x for n, x in zip(names, inputs, strict=True) if x is not None}
    node = helper.make_node(
        op_type,
        [n if x is not None else "" for n, x in zip(names, inputs, strict=True)],
        ["y"],
        domain=MICROSOFT,
        **attributes,
    )
    large = {n for n, x in feeds.items() if x.ndim > 1}
    results = []
    for given in (large, {*feeds}):
        session = alone(model_of(node, feeds, given, dtype))
        (found,) = session.run(None, {n: x for n, x in feeds.items() if n in given})
        results.append(found)
    return results


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_elements_by_themselves(alone: Any, dtype: Any) -> None:
    a, b = tensor(dtype, 3, 1, 50), tensor(dtype, 4, 50)
    y_scale, y_zero = np.asarray(scale() * 3), np.asarray(codes(dtype))
    condition = RNG.random((4, 1)) < 0.5
    slope = 0.3
    values = wide(*a), wide(*b)
    x = values[0]
    cases = {
        "QLinearAdd": ([*a, *b], values[0] + values[1], {}),
        "QLinearMul": ([*a, *b], values[0] * values[1], {}),
        "QLinearLeakyRelu": ([*a], np.where(x < 0, slope * x, x), {"alpha": slope}),
        "QLinearSigmoid": ([*a], 1 / (1 + np.exp(-x)), {}),
        "QLinearWhere": ([condition, *a, *b], np.where(condition, *values), {}),
    }
    for op_type, (inputs, value, attributes) in cases.items():
        step = y_scale if op_type != "QLinearSigmoid" else np.float32(1 / 256)
        of_ratios = op_type == "QLinearSigmoid"
        zero = np.array(np.iinfo(dtype).min, dtype) if of_ratios else y_zero
        parameters = [np.asarray(step, np.float32), zero]
        steps = value / np.float64(step) + zero
        for found in run(alone, op_type, [*inputs, *parameters], dtype, **attributes):
            check(found, steps, dtype)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_parts_means_and_a_softmax(alone: Any, dtype: Any) -> None:
    a, b = tensor(dtype, 2, 5, 6, 7), tensor(dtype, 2, 3, 6, 7)
    step, zero = np.asarray(scale()), np.asarray(codes(dtype))
    joined = np.concatenate([wide(*a), wide(*b)], 1) / step + zero
    for found in run(alone, "QLinearConcat", [step, zero, *a, *b], dtype, axis=1):
        check(found, joined, dtype)
    fine = np.asarray(step / 9)
    pool = [*a[:2], a[2], fine, zero]
    for axes, last in (((2, 3), 0), ((1, 2), 1)):
        steps = wide(*a).mean(axes, keepdims=True) / fine + zero
        how = {"channels_last": last}
        for found in run(alone, "QLinearGlobalAveragePool", pool, dtype, **how):
            check(found, steps, dtype)
    steps = wide(*a).mean((1, 3)) / fine + zero
    how = {"axes": [1, -1], "keepdims": 0}
    for found in run(alone, "QLinearReduceMean", pool, dtype, **how):
        check(found, steps, dtype)
    least, x = np.array(np.iinfo(dtype).min, dtype), np.exp(wide(*a))
    for opset, axes, step in ((13, (1,), 1 / 255), (12, (1, 2, 3), 1 / 5000)):
        y_scale = np.array(step, np.float32)
        whole = np.floor(1 / np.float64(y_scale))
        steps = x / x.sum(axes, keepdims=True) * whole + least
        inputs = [*a, y_scale, least]
        for found in run(alone, "QLinearSoftmax", inputs, dtype, axis=1, opset=opset):
            check(found, steps, dtype)


@pytest.mark.parametrize("padding_counts", [0, 1])
@pytest.mark.parametrize("channels_last", [0, 1])
def test_means_of_windows(alone: Any, padding_counts: int, channels_last: int) -> None:
    x = tensor(np.uint8, 2, 3, 7, 8)
    step, zero = np.asarray(scale() / 2), np.array(30, np.uint8)
    how = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}
    padded = np.pad(wide(*x), ((0, 0), (0, 0), (1, 1), (0, 1)))
    there = np.pad(np.ones(x[0].shape), ((0, 0), (0, 0), (1, 1), (0, 1)))
    sums, counts = (
        np.lib.stride_tricks.sliding_window_view(each, (3, 2), (2, 3))[:, :, ::2].sum(
            (-1, -2)
        )
        for each in (padded, there)
    )
    steps = sums / (6 if padding_counts else counts) / step + zero
    codes = x[0]
    if channels_last:
        codes, steps = (np.moveaxis(each, 1, -1).copy() for each in (codes, steps))
    inputs = [codes, *x[1:], step, zero]
    how |= {"channels_last": channels_last, "count_include_pad": padding_counts}
    for found in run(alone, "QLinearAveragePool", inputs, np.uint8, **how):
        check(found, steps, np.uint8)


@pytest.mark.parametrize("columns", [(), (9,)])
@pytest.mark.parametrize("rows", [3, 40])
def test_products(alone: Any, rows: int, columns: tuple[int, ...]) -> None:
    a, b = tensor(np.uint8, rows, 70), codes(np.int8, 70, 9)
    b_scale, b_zero = scale(*columns), np.asarray(codes(np.int8, *columns))
    c = RNG.integers(-5000, 5000, 9).astype(np.int32)
    bias = RNG.standard_normal(9).astype(np.float32)
    left = a[0].astype(np.int64) - a[2]
    right = b.astype(np.int64) - b_zero
    sums = left @ right
    y_scale = np.array(3.0, np.float32)
    zero = np.array(120, np.uint8)
    factor = 0.5 * a[1].astype(np.float64) * b_scale
    turned = [a[0].T.copy(), *a[1:], b.T.copy(), b_scale, b_zero, c]
    how = {"transA": 1, "transB": 1, "alpha": 0.5}
    for found in run(alone, "QGemm", [*turned, y_scale, zero], np.uint8, **how):
        check(found, (sums + c) * factor / 3 + 120, np.uint8)
    for found in run(alone, "QGemm", turned, np.float32, **how):
        np.testing.assert_allclose(found, (sums + c) * factor, 1e-5, 1e-3)
    inputs = [a[0], b, a[1], b_scale, a[2], b_zero, bias]
    for found in run(alone, "MatMulIntegerToFloat", inputs, np.float32):
        np.testing.assert_allclose(found, sums * factor * 2 + bias, 1e-5, 1e-3)
    x = RNG.standard_normal((2, rows, 70)).astype(np.float32)
    step = (x.max() - x.min()) / np.float32(255)
    middle = np.rint(-x.min() / step)
    seen = np.clip(np.rint(x / step) + middle, 0, 255) - middle
    wanted = (seen @ right) * step * b_scale.astype(np.float64) + bias
    inputs = [x, b, b_scale, b_zero, bias]
    for found in run(alone, "DynamicQuantizeMatMul", inputs, np.float32):
        # an element half-way between two codes may be either
        assert np.abs(found - wanted).max() <= 2 * step * 130 * b_scale.max()
        assert np.median(np.abs(found - wanted)) < 1e-3
