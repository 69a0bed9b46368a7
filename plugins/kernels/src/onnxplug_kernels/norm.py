"""Normalisations by mean and variance, by norm, and by neighbouring channels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from onnxplug.authoring.bounds import at_least, normal_axes, normal_axis
from onnxplug_kernels.arrays import (
    element_dtype,
    mean_of,
    require_rank,
)
from onnxplug_kernels.registry import PORTABLE, operator

# ONNX attributes are float32; their defaults are these decimals rounded to it.
_EPSILON: Final = float(np.float32(1e-5))
_MOMENTUM: Final = float(np.float32(0.9))


@operator("BatchNormalization", since=14)
def batch_normalization(
    xp: Any,
    x: Any,
    scale: Any,
    b: Any,
    mean: Any,
    variance: Any,
    *,
    epsilon: float = _EPSILON,
    momentum: float = _MOMENTUM,
    training_mode: int = 0,
) -> Any:
    """[N, C, ...] normalised per channel.

    Returns:
        The result alone, or in training mode also the new running mean and variance.
    """
    if not training_mode:
        return _normalized_by(xp, x, scale, b, mean, variance, epsilon)
    y, new_mean, new_variance, _, _ = _train(
        xp, x, scale, b, mean, variance, epsilon, momentum
    )
    return y, new_mean, new_variance


@operator("BatchNormalization", since=7, until=13)
def batch_normalization_7(
    xp: Any,
    x: Any,
    scale: Any,
    b: Any,
    mean: Any,
    variance: Any,
    *,
    epsilon: float = _EPSILON,
    momentum: float = _MOMENTUM,
    spatial: int = 1,
    output_count: int = 1,
) -> Any:
    """In training mode where the node has more than one output.

    Without *spatial* each feature of [C, ...] has its own statistics.

    Returns:
        The result alone, or also the new running mean and variance, and those of *x*.
    """
    if output_count == 1:
        return _normalized_by(xp, x, scale, b, mean, variance, epsilon)
    return _train(xp, x, scale, b, mean, variance, epsilon, momentum, spatial=spatial)


@operator("BatchNormalization", since=1, until=6)
def batch_normalization_1(
    xp: Any,
    x: Any,
    scale: Any,
    b: Any,
    mean: Any,
    variance: Any,
    *,
    consumed_inputs: Sequence[int] | None = None,
    epsilon: float = _EPSILON,
    is_test: int = 0,
    momentum: float = _MOMENTUM,
    spatial: int = 1,
) -> Any:
    if is_test:
        return _normalized_by(xp, x, scale, b, mean, variance, epsilon)
    return _train(xp, x, scale, b, mean, variance, epsilon, momentum, spatial=spatial)


@operator("InstanceNormalization", since=6)
def instance_normalization(
    xp: Any, x: Any, scale: Any, b: Any, *, epsilon: float = _EPSILON
) -> Any:
    wide = xp.astype(x, xp.computing_dtype(x.dtype), copy=False)
    normalized, _, _ = _standardized(xp, wide, tuple(range(2, x.ndim)), epsilon)
    return xp.astype(_scaled_and_shifted(xp, normalized, scale, b), x.dtype, copy=False)


@operator("InstanceNormalization", since=1, until=5)
def instance_normalization_1(
    xp: Any,
    x: Any,
    scale: Any,
    b: Any,
    *,
    consumed_inputs: Sequence[int] | None = None,
    epsilon: float = _EPSILON,
) -> Any:
    return instance_normalization(xp, x, scale, b, epsilon=epsilon)


@operator("GroupNormalization", since=21)
def group_normalization(
    xp: Any,
    x: Any,
    scale: Any,
    b: Any,
    *,
    epsilon: float = _EPSILON,
    num_groups: int,
    stash_type: int = 1,
) -> Any:
    """[N, C, ...] normalised per group of channels, then scaled per channel [C]."""
    at_least(1, [num_groups], "num_groups")
    channels = x.shape[1]
    if channels % num_groups:
        raise ValueError(
            f"GroupNormalization of an input {x.shape} in {num_groups} groups: "
            f"{channels} channels are not a multiple of the groups"
        )
    wide = xp.astype(x, _stage_one_dtype(xp, x, stash_type), copy=False)
    size = math.prod(x.shape[1:]) // num_groups
    grouped = xp.reshape(wide, (x.shape[0], num_groups, size))
    normalized, _, _ = _standardized(xp, grouped, (2,), epsilon)
    y = _scaled_and_shifted(xp, xp.reshape(normalized, x.shape), scale, b)
    return xp.astype(y, x.dtype, copy=False)


@operator("GroupNormalization", since=18, until=20)
def group_normalization_18(
    xp: Any, x: Any, scale: Any, b: Any, *, epsilon: float = _EPSILON, num_groups: int
) -> Any:
    """As the later versions, but with a scale and bias for each group [num_groups]."""
    at_least(1, [num_groups], "num_groups")
    for parameter in (scale, b):
        _require_shape(parameter, (num_groups,))
    size = x.shape[1] // num_groups
    return group_normalization(
        xp,
        x,
        xp.repeat(scale, size),
        xp.repeat(b, size),
        epsilon=epsilon,
        num_groups=num_groups,
    )


@operator("LayerNormalization", since=17)
def layer_normalization(
    xp: Any,
    x: Any,
    scale: Any,
    b: Any | None = None,
    *,
    axis: int = -1,
    epsilon: float = _EPSILON,
    stash_type: int = 1,
    output_count: int = 1,
) -> Any:
    """Normalised over the axes from *axis* on.

    Returns:
        The result alone, or also mean and inverse standard deviation in the dtype
        *stash_type*.
    """
    wide = xp.astype(x, _stage_one_dtype(xp, x, stash_type), copy=False)
    axes = tuple(range(normal_axis(axis, x.ndim), x.ndim))
    normalized, mean, inverse = _standardized(xp, wide, axes, epsilon)
    normalized *= xp.astype(scale, wide.dtype, copy=False)
    if b is not None:
        normalized += xp.astype(b, wide.dtype, copy=False)
    y = xp.astype(normalized, x.dtype, copy=False)
    if output_count == 1:
        return y
    stash = element_dtype(xp, stash_type)
    return y, xp.astype(mean, stash, copy=False), xp.astype(inverse, stash, copy=False)


@operator("RMSNormalization", since=23)
def rms_normalization(
    xp: Any,
    x: Any,
    scale: Any,
    *,
    axis: int = -1,
    epsilon: float = _EPSILON,
    stash_type: int = 1,
) -> Any:
    """Divided by the root of the mean square over the axes from *axis* on.

    The result has the dtype of *scale*.
    """
    wide = xp.astype(x, _stage_one_dtype(xp, x, stash_type), copy=False)
    axes = tuple(range(normal_axis(axis, x.ndim), x.ndim))
    mean_square = mean_of(xp, wide * wide, axes)
    y = wide / xp.sqrt(mean_square + epsilon)
    y *= xp.astype(scale, wide.dtype, copy=False)
    return xp.astype(y, scale.dtype, copy=False)


@operator("MeanVarianceNormalization", since=9, portable=PORTABLE)
def mean_variance_normalization(
    xp: Any, x: Any, *, axes: Sequence[int] = (0, 2, 3)
) -> Any:
    # of no axes the reductions of its definition take all
    axes = normal_axes(axes or range(x.ndim), x.ndim)
    wide = xp.astype(x, xp.computing_dtype(x.dtype), copy=False)
    centered = wide - mean_of(xp, wide, axes)
    variance = mean_of(xp, centered * centered, axes)
    # the operator's definition as a function has this number
    centered /= xp.sqrt(variance) + 1e-9
    return xp.astype(centered, x.dtype, copy=False)


@operator("LpNormalization", since=1)
def lp_normalization(xp: Any, x: Any, *, axis: int = -1, p: int = 2) -> Any:
    if p not in (1, 2):
        raise ValueError(f"LpNormalization has p {p}, expected 1 or 2")
    axis = normal_axis(axis, x.ndim)
    wide = xp.astype(x, xp.computing_dtype(x.dtype), copy=False)
    if p == 1:
        norm = xp.sum(xp.abs(wide), axis=axis, keepdims=True)
    else:
        norm = xp.sqrt(xp.sum(wide * wide, axis=axis, keepdims=True))
    quotient = wide / xp.where(norm == 0, 1, norm)
    return xp.astype(quotient, x.dtype, copy=False)


@operator("LRN", since=1)
def lrn(
    xp: Any,
    x: Any,
    *,
    alpha: float = float(np.float32(1e-4)),
    beta: float = 0.75,
    bias: float = 1.0,
    size: int,
) -> Any:
    """[N, C, ...] divided by a power of the square sum over *size* channels around."""
    at_least(1, [size], "size")
    require_rank(x, "the input", 2)
    wide = xp.astype(x, xp.computing_dtype(x.dtype), copy=False)
    channels = x.shape[1]
    squares = wide * wide
    total = xp.zeros_like(wide)
    before = (size - 1) // 2
    # beyond the channels there is nothing to add, however far *size* reaches
    for shift in range(-min(before, channels), min(size - before, channels)):
        target = slice(max(-shift, 0), max(channels - max(shift, 0), 0))
        source = slice(max(shift, 0), max(channels + min(shift, 0), 0))
        total[:, target, ...] += squares[:, source, ...]
    y = wide / (bias + alpha / size * total) ** beta
    return xp.astype(y, x.dtype, copy=False)


def _stage_one_dtype(xp: Any, x: Any, stash_type: int) -> Any:
    """The dtype to normalise *x* in: that of *stash_type*, or a more precise one."""
    return xp.result_type(
        xp.computing_dtype(x.dtype), xp.computing_dtype(element_dtype(xp, stash_type))
    )


def _standardized(
    xp: Any, x: Any, axes: tuple[int, ...], epsilon: float
) -> tuple[Any, Any, Any]:
    """*x* with mean 0 and variance 1 over *axes*; the mean; 1 / standard deviation."""
    mean = mean_of(xp, x, axes)
    centered = x - mean
    variance = mean_of(xp, centered * centered, axes)
    inverse = 1 / xp.sqrt(variance + epsilon)
    centered *= inverse
    return centered, mean, inverse


def _along_channels(xp: Any, parameter: Any, x: Any) -> Any:
    """*parameter* [C] or [C, ...] so that it broadcasts over *x* [N, C, ...] or [N]."""
    if parameter.ndim > 1 or x.ndim == 1:
        return parameter
    return xp.reshape(parameter, (-1, *(1,) * (x.ndim - 2)))


def _require_shape(parameter: Any, expected: tuple[int, ...]) -> None:
    if parameter.shape != expected:
        raise ValueError(
            f"a parameter of the normalization has shape {parameter.shape}, expected "
            f"{expected}"
        )


def _scaled_and_shifted(xp: Any, normalized: Any, scale: Any, b: Any) -> Any:
    for parameter in (scale, b):
        _require_shape(parameter, normalized.shape[1:2])
    dtype = normalized.dtype
    normalized *= xp.astype(_along_channels(xp, scale, normalized), dtype, copy=False)
    normalized += xp.astype(_along_channels(xp, b, normalized), dtype, copy=False)
    return normalized


def _normalized_by(
    xp: Any, x: Any, scale: Any, b: Any, mean: Any, variance: Any, epsilon: float
) -> Any:
    """*x* normalised by given statistics, which may be of other dtypes than *x*."""
    # of a vector all elements are of one channel; features may have their own
    channels = x.shape[1:2] if x.ndim > 1 else (1,)
    for parameter in (scale, b, mean, variance):
        _require_shape(parameter, x.shape[1:] if parameter.ndim > 1 else channels)
    dtype = xp.result_type(
        *(xp.computing_dtype(a.dtype) for a in (x, scale, b, mean, variance))
    )
    scale, b, mean, variance = (
        xp.astype(_along_channels(xp, a, x), dtype, copy=False)
        for a in (scale, b, mean, variance)
    )
    factor = scale / xp.sqrt(variance + epsilon)
    y = xp.astype(x, dtype, copy=False) * factor
    y += b - mean * factor
    return xp.astype(y, x.dtype, copy=False)


def _train(
    xp: Any,
    x: Any,
    scale: Any,
    b: Any,
    mean: Any,
    variance: Any,
    epsilon: float,
    momentum: float,
    *,
    spatial: int = 1,
) -> tuple[Any, Any, Any, Any, Any]:
    """*x* normalised by its own statistics; the new running ones; its own."""
    axes = tuple(axis for axis in range(x.ndim) if axis != 1) if spatial else (0,)
    wide = xp.astype(x, xp.computing_dtype(x.dtype), copy=False)
    own = xp.mean(wide, axis=axes), xp.var(wide, axis=axes)
    for parameter in (mean, variance):
        if xp.size(parameter) != xp.size(own[0]):
            raise ValueError(
                f"a running mean or variance has shape {parameter.shape}, expected "
                f"{own[0].shape}"
            )
    own = tuple(
        xp.reshape(xp.asarray(a), running.shape)
        for a, running in zip(own, (mean, variance), strict=True)
    )
    y = _normalized_by(xp, x, scale, b, *own, epsilon)
    new = (
        xp.astype(running, a.dtype) * momentum + a * (1 - momentum)
        for running, a in zip((mean, variance), own, strict=True)
    )
    dtype = mean.dtype
    new_mean, new_variance, own_mean, own_variance = (
        xp.astype(a, dtype, copy=False) for a in (*new, *own)
    )
    return y, new_mean, new_variance, own_mean, own_variance
