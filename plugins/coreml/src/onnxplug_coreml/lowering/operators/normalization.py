"""Normalisations."""

from __future__ import annotations

import numpy as np

from onnxplug import ep
from onnxplug_coreml.lowering.builder import Builder, Refused
from onnxplug_coreml.lowering.call import FLOATS, Call, lowers, numbers
from onnxplug_coreml.lowering.operators.arithmetic import shifted
from onnxplug_coreml.lowering.program import Value


@lowers("BatchNormalization")
def _batch(call: Call) -> Value:
    call.require_type(0, *FLOATS)
    if call.attribute("training_mode", 0) or call.output_count > 1:
        raise call.refuse_attribute("training_mode", "0, with one output")
    call.ignore("momentum")
    if call.since < 9 and (
        call.attribute("spatial", 1) != 1
        or (call.since < 7 and not call.attribute("is_test", 0))
    ):
        raise Refused(ep.RefusalCode.OPSET, "BatchNormalization that trains")
    build, x = call.build, call.operand(0)
    epsilon = call.attribute("epsilon", 1e-5)
    channels = (numbers(x.shape[1:2])[0], *(1,) * (x.rank - 2)) if x.rank > 1 else (1,)
    known = [call.known(i) for i in range(1, 5)]
    if all(each is not None for each in known):
        scale, shift, mean, variance = (np.asarray(k, np.float64) for k in known)
        factor = scale / np.sqrt(variance + epsilon)
        dtype = x.dtype.numpy
        slope = build.constant(factor.astype(dtype).reshape(channels))
        base = build.constant((shift - mean * factor).astype(dtype).reshape(channels))
        return build("add", build("mul", x, slope), base)
    scale_, shift_, mean_, variance_ = (
        build.cast(build.reshape(call.operand(i), channels), x.dtype)
        for i in range(1, 5)
    )
    spread = build("rsqrt", shifted(build, variance_, epsilon))
    found = build("mul", build("sub", x, mean_), build("mul", scale_, spread))
    return build("add", found, shift_)


@lowers("LayerNormalization")
def _layer(call: Call) -> tuple[Value | None, ...]:
    build, x = call.build, call.operand(0)
    if call.wants(1) or call.wants(2):
        raise Refused(ep.RefusalCode.OTHER, "LayerNormalization that gives statistics")
    axes = tuple(range(call.axis(x.rank, -1), x.rank))
    found = normalized(build, _wide(call), axes, call.attribute("epsilon", 1e-5))
    found = build.cast(found, x.dtype)
    found = build("mul", found, call.operand(1))
    bias = call.optional(2)
    return (found if bias is None else build("add", found, bias),)


@lowers("RMSNormalization")
def _root_mean_square(call: Call) -> Value:
    build, x, wide = call.build, call.operand(0), _wide(call)
    axes = tuple(range(call.axis(x.rank, -1), x.rank))
    square = build("reduce_mean", build("mul", wide, wide), axes=axes, keep=True)
    spread = build("rsqrt", shifted(build, square, call.attribute("epsilon", 1e-5)))
    found = build.cast(build("mul", wide, spread), x.dtype)
    return build("mul", found, call.operand(1))


def _wide(call: Call) -> Value:
    """The first input in the type that statistics are computed in."""
    call.require_type(0, *FLOATS)
    x = call.operand(0)
    if call.attribute("stash_type", 1) != 1:
        if x.dtype is not ep.DataType.FLOAT16 or call.attribute("stash_type") != 10:
            raise call.refuse_attribute("stash_type", "1")
        return x
    return call.build.cast(x, ep.DataType.FLOAT32)


@lowers("InstanceNormalization")
def _instance(call: Call) -> Value:
    call.require_type(0, *FLOATS)
    build, x = call.build, call.operand(0)
    axes = tuple(range(2, x.rank))
    found = normalized(build, x, axes, call.attribute("epsilon", 1e-5))
    shape = (*x.shape[1:2], *(1,) * (x.rank - 2))
    scale, bias = (build.reshape(call.operand(i), shape) for i in (1, 2))
    return build("add", build("mul", found, scale), bias)


@lowers("GroupNormalization")
def _group(call: Call) -> Value:
    build, x, wide = call.build, call.operand(0), _wide(call)
    n, c, *rest = numbers(x.shape)
    groups = call.attribute("num_groups")
    inside = c // groups * int(np.prod(rest))
    epsilon = call.attribute("epsilon", 1e-5)
    found = normalized(build, build.reshape(wide, (n, groups, inside)), (2,), epsilon)
    found = build.cast(found, x.dtype)
    scale, bias = call.operand(1), call.operand(2)
    if call.since < 21:  # one for each group
        found = build("mul", found, build.reshape(scale, (groups, 1)))
        found = build("add", found, build.reshape(bias, (groups, 1)))
        return build.reshape(found, x.shape)
    found = build.reshape(found, x.shape)
    shape = (c, *(1,) * len(rest))
    found = build("mul", found, build.reshape(scale, shape))
    return build("add", found, build.reshape(bias, shape))


@lowers("MeanVarianceNormalization")
def _mean_variance(call: Call) -> Value:
    call.require_type(0, *FLOATS)
    build, x = call.build, call.operand(0)
    axes = tuple(sorted(axis % x.rank for axis in call.attribute("axes", (0, 2, 3))))
    centred = build("sub", x, build("reduce_mean", x, axes=axes, keep=True))
    square = build("reduce_mean", build("mul", centred, centred), axes=axes, keep=True)
    return build("divide", centred, shifted(build, build("sqrt", square), 1e-9))


@lowers("LRN")
def _local_response(call: Call) -> Value:
    call.require_type(0, *FLOATS)
    build, x = call.build, call.operand(0)
    n, c, *rest = numbers(x.shape)
    size = call.attribute("size")
    before = (size - 1) // 2
    square = build.reshape(build("mul", x, x), (n, 1, c, int(np.prod(rest))))
    means = build(
        "avg_pool",
        square,
        kernel=(size, 1),
        strides=(1, 1),
        pads=((before, size - 1 - before), (0, 0)),
        count_pads=True,
    )
    alpha, beta = call.attribute("alpha", 1e-4), call.attribute("beta", 0.75)
    weighted = build("mul", means, build.scalar(alpha, x.dtype))
    base = shifted(build, weighted, call.attribute("bias", 1.0))
    power = build("pow", base, build.scalar(beta, x.dtype))
    return build("divide", x, build.reshape(power, x.shape))


@lowers("LpNormalization")
def _lp(call: Call) -> Value:
    call.require_type(0, *FLOATS)
    build, x = call.build, call.operand(0)
    axes = (call.axis(x.rank, -1),)
    if call.attribute("p", 2) == 1:
        length = build("reduce_sum", build("abs", x), axes=axes, keep=True)
    else:
        square = build("reduce_sum", build("mul", x, x), axes=axes, keep=True)
        length = build("sqrt", square)
    zero = build.scalar(0, x.dtype)
    found = build("divide", x, length)
    return build("select", build("equal", length, zero), zero, found)


def normalized(
    build: Builder, x: Value, axes: tuple[int, ...], epsilon: float
) -> Value:
    """*x* less its mean along axes, by its standard deviation."""
    centred = build("sub", x, build("reduce_mean", x, axes=axes, keep=True))
    square = build("reduce_mean", build("mul", centred, centred), axes=axes, keep=True)
    return build("mul", centred, build("rsqrt", shifted(build, square, epsilon)))
