"""Normalisations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from onnxplug import ep
from onnxplug_directml.lowering.builder import Builder, Refused, Result, Value
from onnxplug_directml.lowering.call import MICROSOFT, Call, front, lowers
from onnxplug_directml.lowering.operators.activation import activated
from onnxplug_directml.lowering.operators.arithmetic import power
from onnxplug_directml.lowering.operators.reduction import reduced
from onnxplug_directml.lowering.support import level_named

_EPSILON: Final = 1e-5
"""ONNX's default of most normalisations."""


@lowers("BatchNormalization")
def _batch_normalization(call: Call) -> Value:
    build, x = call.build, call.operand(0)
    call.ignore("momentum")
    trains = call.attribute("training_mode", 0) or not call.attribute(
        "is_test", call.since >= 7
    )
    if trains or any(call.wants(position) for position in range(1, 5)):
        raise Refused(ep.RefusalCode.ATTRIBUTE, "trains; takes inference")
    if not call.attribute("spatial", 1):
        raise call.refuse_attribute("spatial", "1")
    require_rank(x, 2)
    scale, bias, mean, variance = (
        _along_channels(build, call.operand(position), x) for position in range(1, 5)
    )
    return build(
        "BATCH_NORMALIZATION", InputTensor=x, MeanTensor=mean, VarianceTensor=variance,
        ScaleTensor=scale, BiasTensor=bias, OutputTensor=call.result(), Spatial=1,
        Epsilon=call.attribute("epsilon", _EPSILON),
    )  # fmt: skip


def require_rank(x: Value, least: int) -> None:
    """Refuse fewer dimensions than *least*."""
    if x.rank < least:
        raise Refused(
            ep.RefusalCode.RANK, f"{x.rank} dimensions; takes {least} or more"
        )


def _along_channels(build: Builder, numbers: Value, x: Value) -> Value:
    """One number for each channel, in the type of *x* and of its rank.

    Raises:
        Refused: there are more or fewer.
    """
    if numbers.size != x.shape[1]:
        raise Refused(
            ep.RefusalCode.OTHER, f"{numbers.size} numbers for {x.shape[1]} channels"
        )
    shape = (1, numbers.size, *(1,) * (x.rank - 2))
    return build.cast(build.reshape(numbers, shape), x.dtype)


def normalized(
    build: Builder,
    x: Value,
    axes: Sequence[int],
    epsilon: float,
    scale: Value | None = None,
    bias: Value | None = None,
) -> Value:
    """*x* less its mean, over its deviation, both along *axes*.

    Args:
        epsilon: added to the variance.
        scale, bias: of the rank of *x*, and of its sizes or 1.

    Raises:
        Refused: they are of others.
    """
    for each in (scale, bias):
        if each is not None:
            build.broadcast_to(each, x.shape)
    if build.target.level < level_named("5.2") and (scale is None) != (bias is None):
        one = (1,) * x.rank  # one needs the other
        scale = scale or build.reshape(build.scalar(1, x.dtype), one)
        bias = bias or build.reshape(build.scalar(0, x.dtype), one)
    return build.unary(
        "MEAN_VARIANCE_NORMALIZATION1", x, ScaleTensor=scale, BiasTensor=bias,
        Axes=tuple(axes), NormalizeVariance=1, Epsilon=epsilon,
    )  # fmt: skip


@lowers("InstanceNormalization")
def _instance_normalization(call: Call) -> Value:
    build, x = call.build, call.operand(0)
    require_rank(x, 3)
    scale, bias = (_along_channels(build, call.operand(i), x) for i in (1, 2))
    epsilon = call.attribute("epsilon", _EPSILON)
    return normalized(build, x, range(2, x.rank), epsilon, scale, bias)


@lowers("GroupNormalization")
def _group_normalization(call: Call) -> Value:
    build, x = call.build, call.operand(0)
    require_rank(x, 3)
    call.ignore("stash_type")
    groups, channels = call.attribute("num_groups"), x.shape[1]
    if not isinstance(groups, int) or groups < 1 or channels % groups:
        raise call.refuse_attribute("num_groups", f"a divisor of {channels} channels")
    each = channels // groups if call.since >= 21 else 1  # was one for each group
    scale, bias = (
        build.cast(build.reshape(call.operand(i), (1, groups, each, 1)), x.dtype)
        for i in (1, 2)
    )
    spatial = math.prod(x.shape[2:])
    grouped = build.reshape(x, (x.shape[0], groups, channels // groups, spatial))
    epsilon = call.attribute("epsilon", _EPSILON)
    made = normalized(build, grouped, (2, 3), epsilon, scale, bias)
    return build.reshape(made, x.shape)


@lowers("GroupNorm", domain=MICROSOFT)
def _group_norm(call: Call) -> Value:
    """Channels are last, and the sigmoid of the result may be its factor."""
    build, x = call.build, call.operand(0)
    require_rank(x, 3)
    groups, channels = call.attribute("groups"), x.shape[-1]
    if not call.attribute("channels_last", 1):
        raise call.refuse_attribute("channels_last", "1")
    if not isinstance(groups, int) or groups < 1 or channels % groups:
        raise call.refuse_attribute("groups", f"a divisor of {channels} channels")
    shape = (x.shape[0], x.size // x.shape[0] // channels, groups, channels // groups)
    scale, bias = (
        build.cast(build.reshape(call.operand(i), (1, 1, *shape[2:])), x.dtype)
        for i in (1, 2)
    )
    epsilon = call.attribute("epsilon", _EPSILON)
    grouped = build.reshape(x, shape)
    made = build.reshape(
        normalized(build, grouped, (1, 3), epsilon, scale, bias), x.shape
    )
    if not call.attribute("activation", 0):
        return made
    return build.binary(
        "ELEMENT_WISE_MULTIPLY", made, activated(build, "SIGMOID", made)
    )


@lowers("MeanVarianceNormalization")
def _mean_variance_normalization(call: Call) -> Value:
    x = call.operand(0)
    axes = sorted(front(a, x.rank) for a in call.attribute("axes", (0, 2, 3)))
    # ONNX adds 1e-9 to the deviation
    return normalized(call.build, x, axes, 1e-18)


# over the last dimensions


@lowers("LayerNormalization")
def _layer_normalization(call: Call) -> Sequence[Value | None]:
    build, x = call.build, call.operand(0)
    axis = call.axis(x.rank, -1)
    epsilon = call.attribute("epsilon", _EPSILON)
    stash = ep.DataType.from_onnx(call.attribute("stash_type", 1))
    bias = call.optional(2)
    found = _layer(build, x, axis, epsilon, call.operand(1), bias)
    if not (call.wants(1) or call.wants(2)):
        return [found]
    return [found, *_statistics(build, build.cast(x, stash), axis, epsilon)]


def _layer(
    build: Builder,
    x: Value,
    axis: int,
    epsilon: float,
    scale: Value,
    bias: Value | None,
) -> Value:
    """Normalised over the dimensions from *axis* on."""
    return normalized(
        build, x, range(axis, x.rank), epsilon, _trailing(build, scale, x),
        None if bias is None else _trailing(build, bias, x),
    )  # fmt: skip


def _trailing(build: Builder, numbers: Value, x: Value) -> Value:
    """Numbers for the last dimensions of *x*, in its type and of its rank."""
    return build.cast(build.at_rank(numbers, x.rank), x.dtype)


def _statistics(
    build: Builder, x: Value, axis: int, epsilon: float
) -> tuple[Value, Value]:
    """The means, and the reciprocals of deviations."""
    axes = range(axis, x.rank)
    mean = reduced(build, "AVERAGE", x, axes, keep=True)
    left = build.binary("ELEMENT_WISE_SUBTRACT", x, mean)
    squares = build.binary("ELEMENT_WISE_MULTIPLY", left, left)
    variance = reduced(build, "AVERAGE", squares, axes, keep=True)
    deviation = build.unary("ELEMENT_WISE_SQRT", variance, ScaleBias=(1.0, epsilon))
    return mean, build.unary("ELEMENT_WISE_RECIP", deviation)


@lowers("RMSNormalization", "SimplifiedLayerNormalization")
@lowers("SimplifiedLayerNormalization", domain=MICROSOFT)
def _rms_normalization(call: Call) -> Sequence[Value | None]:
    build, x = call.build, call.operand(0)
    call.ignore("stash_type")
    axis = call.axis(x.rank, -1)
    epsilon = call.attribute("epsilon", _EPSILON)
    made, factor = _rms(build, x, axis, epsilon, call.operand(1))
    return [made, factor] if call.wants(1) else [made]


def _rms(
    build: Builder, x: Value, axis: int, epsilon: float, scale: Value
) -> tuple[Value, Value]:
    """*x* over the root of its mean square, and the reciprocal of that.

    In 32 bits: squares of float16 soon have no room there.
    """
    wide = build.cast(x, ep.DataType.FLOAT32)
    axes = range(axis, x.rank)
    total = reduced(build, "SUM_SQUARE", wide, axes, keep=True)
    count = math.prod(x.shape[axis:])
    root = build.unary("ELEMENT_WISE_SQRT", total, ScaleBias=(1 / count, epsilon))
    factor = build.unary("ELEMENT_WISE_RECIP", root)
    made = build.cast(build.binary("ELEMENT_WISE_MULTIPLY", wide, factor), x.dtype)
    return build.binary(
        "ELEMENT_WISE_MULTIPLY", made, build.cast(scale, x.dtype)
    ), factor


@lowers("SkipLayerNormalization", domain=MICROSOFT)
def _skip_layer_normalization(call: Call) -> Sequence[Value | None]:
    build = call.build
    total = _skipped(call, bias=4)
    epsilon, axis = call.attribute("epsilon", 1e-12), total.rank - 1
    made = _layer(build, total, axis, epsilon, call.operand(2), call.optional(3))
    found: list[Value | None] = [made, None, None, total]
    if call.wants(1) or call.wants(2):
        wide = build.cast(total, ep.DataType.FLOAT32)
        found[1], found[2] = _statistics(build, wide, axis, epsilon)
    return found


@lowers("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def _skip_rms_normalization(call: Call) -> Sequence[Value | None]:
    total = _skipped(call, bias=3)
    epsilon = call.attribute("epsilon", 1e-12)
    made, factor = _rms(call.build, total, total.rank - 1, epsilon, call.operand(2))
    if call.wants(1):
        raise Refused(
            ep.RefusalCode.OTHER, "the mean is wanted, which it does not have"
        )
    return [made, None, factor, total]


def _skipped(call: Call, bias: int) -> Value:
    """What is normalised: the input, what skipped layers, and a bias."""
    build = call.build
    total = build.binary("ELEMENT_WISE_ADD", call.operand(0), call.operand(1))
    if call.has(bias):
        total = build.binary("ELEMENT_WISE_ADD", total, call.operand(bias))
    require_rank(total, 1)
    return total


# by neighbours, and by norms


@lowers("LRN")
def _lrn(call: Call) -> Value:
    """Of squares, averaged over channels as over the height of an image.

    ``DML_LOCAL_RESPONSE_NORMALIZATION_OPERATOR_DESC`` does not say on which side of an
    even size more channels are.
    """
    build, x = call.build, call.operand(0)
    size = call.attribute("size")
    alpha, beta = call.attribute("alpha", 1e-4), call.attribute("beta", 0.75)
    bias = call.attribute("bias", 1.0)
    if not isinstance(size, int) or size < 1:
        raise call.refuse_attribute("size", "a natural number")
    require_rank(x, 2)
    batch, channels = x.shape[:2]
    image = (batch, 1, channels, math.prod(x.shape[2:]))
    squares = build.binary("ELEMENT_WISE_MULTIPLY", x, x)
    before = (size - 1) // 2
    averages = build(
        "AVERAGE_POOLING", InputTensor=build.reshape(squares, image),
        OutputTensor=Result(x.dtype, image), Strides=(1, 1), WindowSize=(size, 1),
        StartPadding=(before, 0), EndPadding=(size - 1 - before, 0), IncludePadding=1,
    )  # fmt: skip
    divisor = power(
        build, build.reshape(averages, x.shape), beta, ScaleBias=(alpha, bias)
    )
    return build.binary("ELEMENT_WISE_DIVIDE", x, divisor)


@lowers("LpNormalization")
def _lp_normalization(call: Call) -> Value:
    """Where the norm is 0, so is the result."""
    build, x = call.build, call.operand(0)
    p = call.attribute("p", 2)
    if p not in (1, 2):
        raise call.refuse_attribute("p", "1 and 2")
    axis = call.axis(x.rank, -1)
    norm = reduced(build, f"L{p}", x, [axis], keep=True)
    is_some = build.cast(norm, ep.DataType.BOOL)
    divisor = build.select(is_some, norm, build.scalar(1, x.dtype))
    return build.binary("ELEMENT_WISE_DIVIDE", x, divisor)
