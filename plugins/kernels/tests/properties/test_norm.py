"""Normalisations against their formulas in NumPy's widest floats."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from .comparison import assert_near, result_of, wide
from .formulas import Normalized
from .strategies import Array, Draw, Dtype, examples

EPSILON = float(np.float32(1e-5))


def check(found: Array, exact: Array, magnitude: Array, dtype: Dtype) -> None:
    units = 24 if dtype.itemsize > 2 else 1
    assert_near(found, exact, dtype, units, np.nan_to_num(magnitude, posinf=0))


def values(draw: Draw) -> Any:
    return draw.one_of(["ordinary", "ordinary", "special"])


def channels(x: Array, parameter: Array) -> Array:
    """*parameter* [C] beside [N, C, ...]."""
    return wide(parameter).reshape(-1, *(1,) * (x.ndim - 2))


@examples(60)
def test_layer_normalization(draw: Draw) -> None:
    dtype = draw.dtype("LayerNormalization")
    x = draw.array(dtype, draw.shape(1, empty=False), values(draw))
    axis = draw.axis(x.ndim)
    shape = x.shape[axis:]
    scale = draw.array(dtype, shape, "ordinary")
    bias = draw.array(dtype, shape, "ordinary") if draw.flag() else None
    y, mean, inverse = result_of(
        "LayerNormalization", x, scale, bias, axis=axis, output_count=3
    )
    axes = tuple(range(axis % x.ndim, x.ndim))
    exact = Normalized(wide(x), axes, EPSILON)
    result = exact.scaled(wide(scale), None if bias is None else wide(bias))
    check(y, *result, dtype)
    # the type of the statistics is float32 unless the attribute says otherwise
    size = np.nan_to_num(np.abs(wide(x)), posinf=0).max(axis=axes, keepdims=True)
    kind = np.dtype(np.float32)
    assert_near(mean, exact.mean, kind, x.size, size)
    relative = np.nan_to_num(exact.inverse * (1 + size * exact.inverse), posinf=0)
    assert_near(inverse, exact.inverse, kind, 24, relative)


@examples(50)
def test_rms_normalization(draw: Draw) -> None:
    kind = draw.dtype("RMSNormalization", "V")
    # the statistics are in float32, which would spoil a result in float64
    dtype = kind if kind == np.float64 else draw.dtype("RMSNormalization")
    x = draw.array(dtype, draw.shape(1, empty=False), values(draw))
    axis = draw.axis(x.ndim)
    scale = draw.array(kind, x.shape[axis:], "ordinary")
    axes = tuple(range(axis % x.ndim, x.ndim))
    with np.errstate(all="ignore"):
        square = (wide(x) ** 2).mean(axis=axes, keepdims=True)
        exact = wide(x) / np.sqrt(square + EPSILON) * wide(scale)
    found = result_of("RMSNormalization", x, scale, axis=axis)
    check(found, exact, np.abs(exact), scale.dtype)


@examples(50)
def test_instance_normalization(draw: Draw) -> None:
    dtype = draw.dtype("InstanceNormalization")
    x = draw.array(dtype, draw.shape(3, empty=False), values(draw))
    scale, bias = (draw.array(dtype, x.shape[1:2], "ordinary") for _ in range(2))
    exact = Normalized(wide(x), tuple(range(2, x.ndim)), EPSILON)
    result = exact.scaled(channels(x, scale), channels(x, bias))
    check(result_of("InstanceNormalization", x, scale, bias), *result, dtype)


@pytest.mark.parametrize("version", [28, 18])
@examples(40)
def test_group_normalization(version: int, draw: Draw) -> None:
    dtype = draw.dtype("GroupNormalization", version=version)
    groups, depth = draw.integer(1, 3), draw.integer(1, 3)
    shape = (draw.integer(1, 3), groups * depth, *draw.shape(0, 2, empty=False)[:2])
    x = draw.array(dtype, tuple(min(n, 9) for n in shape), values(draw))
    # of each channel, and before of each group
    count = groups * depth if version > 20 else groups
    scale, bias = (draw.array(dtype, (count,), "ordinary") for _ in range(2))
    grouped = wide(x).reshape(x.shape[0], groups, -1)
    exact = Normalized(grouped, (2,), EPSILON)
    exact.value = exact.value.reshape(x.shape)
    exact.magnitude = exact.magnitude.reshape(x.shape)
    repeated = [np.repeat(p, groups * depth // count) for p in (scale, bias)]
    result = exact.scaled(*(channels(x, p) for p in repeated))
    found = result_of(
        "GroupNormalization", x, scale, bias, num_groups=groups, version=version
    )
    check(found, *result, dtype)


@examples(50)
def test_batch_normalization(draw: Draw) -> None:
    dtype = draw.dtype("BatchNormalization")
    # the other parameters have types of their own, which are no less precise here
    x = draw.array(dtype, draw.shape(2), values(draw))
    count = x.shape[1:2]
    scale, bias, mean = (draw.array(dtype, count, "ordinary") for _ in range(3))
    variance = draw.array(dtype, count, "positive")
    found = result_of("BatchNormalization", x, scale, bias, mean, variance)
    scale_, bias_, mean_, variance_ = (
        channels(x, p) for p in (scale, bias, mean, variance)
    )
    with np.errstate(all="ignore"):
        factor = scale_ / np.sqrt(variance_ + EPSILON)
        exact = (wide(x) - mean_) * factor + bias_
        magnitude = (np.abs(wide(x)) + np.abs(mean_)) * np.abs(factor) + np.abs(bias_)
    check(found, exact, magnitude, dtype)


@examples(40)
def test_batch_normalization_in_training(draw: Draw) -> None:
    dtype = draw.dtype("BatchNormalization")
    x = draw.array(dtype, draw.shape(2, empty=False), "ordinary")
    count = x.shape[1:2]
    scale, bias, mean = (draw.array(dtype, count, "ordinary") for _ in range(3))
    variance = draw.array(dtype, count, "positive")
    momentum = draw.one_of([0.5, 0.75, 1.0])
    y, new_mean, new_variance = result_of(
        "BatchNormalization",
        x, scale, bias, mean, variance,
        momentum=momentum,
        training_mode=1,
        output_count=3,
    )  # fmt: skip
    axes = tuple(axis for axis in range(x.ndim) if axis != 1)
    exact = Normalized(wide(x), axes, EPSILON)
    check(y, *exact.scaled(channels(x, scale), channels(x, bias)), dtype)
    for found, old, own in (
        (new_mean, mean, exact.mean.reshape(-1)),
        (new_variance, variance, wide(x).var(axis=axes)),
    ):
        expected = wide(old) * momentum + own * (1 - momentum)
        check(found, expected, np.full(count, 64.0), dtype)


@examples(40)
def test_mean_variance_normalization(draw: Draw) -> None:
    dtype = draw.dtype("MeanVarianceNormalization")
    x = draw.array(dtype, draw.shape(1, empty=False), "ordinary")
    axes = tuple(draw.axes(x.ndim, fewest=1))
    with np.errstate(all="ignore"):
        centered = wide(x) - wide(x).mean(axis=axes, keepdims=True)
        deviation = np.sqrt((centered**2).mean(axis=axes, keepdims=True))
        exact = centered / (deviation + 1e-9)
        largest = np.abs(wide(x)).max(axis=axes, keepdims=True)
    found = result_of("MeanVarianceNormalization", x, axes=axes)
    # of equal elements all that remains of them is the rounding of their mean
    spread = np.broadcast_to(deviation > largest * 2.0**-20, x.shape)
    magnitude = largest / np.where(deviation == 0, 1, deviation)
    magnitude = np.broadcast_to(magnitude, x.shape)
    assert found.shape == x.shape
    check(found[spread], exact[spread], magnitude[spread], dtype)


@examples(40)
def test_lp_normalization(draw: Draw) -> None:
    dtype = draw.dtype("LpNormalization")
    x = draw.array(dtype, draw.shape(1), values(draw))
    p, axis = draw.integer(1, 2), draw.axis(x.ndim)
    with np.errstate(all="ignore"):
        total = (np.abs(wide(x)) ** p).sum(axis=axis, keepdims=True)
        norm = total if p == 1 else np.sqrt(total)
        # zeros stay
        exact = wide(x) / np.where(norm == 0, 1, norm)
    found = result_of("LpNormalization", x, p=p, axis=axis)
    check(found, exact, np.abs(exact), dtype)


@examples(40)
def test_lrn(draw: Draw) -> None:
    dtype = draw.dtype("LRN")
    x = draw.array(dtype, draw.shape(2), values(draw))
    size = draw.integer(1, 5)
    alpha, beta, bias = (draw.one_of(n) for n in ([0.5, 2.0], [0.75, 1.0], [1.0, 2.0]))
    before, after = math.floor((size - 1) / 2), math.ceil((size - 1) / 2)
    with np.errstate(all="ignore"):
        squares = wide(x) ** 2
        total = np.zeros_like(squares)
        for channel in range(x.shape[1]):
            first = max(0, channel - before)
            total[:, channel] = squares[:, first : channel + after + 1].sum(axis=1)
        exact = wide(x) / (bias + alpha / size * total) ** beta
    found = result_of("LRN", x, size=size, alpha=alpha, beta=beta, bias=bias)
    check(found, exact, np.abs(exact), dtype)


@examples(20)
def test_statistics_in_another_type(draw: Draw) -> None:
    dtype = np.dtype(np.float16)
    x = draw.array(dtype, draw.shape(1, empty=False), "ordinary")
    scale = draw.array(dtype, x.shape[-1:], "ordinary")
    kind = draw.one_of([TensorProto.FLOAT, TensorProto.BFLOAT16, TensorProto.FLOAT16])
    y = result_of("LayerNormalization", x, scale, stash_type=kind)
    exact = Normalized(wide(x), (x.ndim - 1,), EPSILON)
    check(y, *exact.scaled(wide(scale), None), dtype)
