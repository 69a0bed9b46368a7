"""Activations, and softmax."""

from __future__ import annotations

from onnxplug import ep
from onnxplug_coreml.lowering.builder import Builder, Refused
from onnxplug_coreml.lowering.call import FLOATS, Call, lowers, numbers
from onnxplug_coreml.lowering.operators.arithmetic import scaled, shifted
from onnxplug_coreml.lowering.program import Value


@lowers("Relu", "Sigmoid", "Tanh")
def _plain(call: Call) -> Value:
    call.require_type(0, *FLOATS)
    return call.build(call.op_type.lower(), call.operand(0))


@lowers("Gelu")
def _gelu(call: Call) -> Value:
    call.require_type(0, *FLOATS)
    match call.attribute("approximate", "none"):
        case "none" | "tanh" as how:
            return call.build("gelu", call.operand(0), approximate=how == "tanh")
        case _:
            raise call.refuse_attribute("approximate", "none and tanh")


@lowers("Swish")
def _swish(call: Call) -> Value:
    call.require_type(0, *FLOATS)
    x = call.operand(0)
    if call.attribute("alpha", 1.0) == 1:
        return call.build("silu", x)
    inner = scaled(call.build, x, call.attribute("alpha"))
    return call.build("mul", x, call.build("sigmoid", inner))


@lowers("LeakyRelu")
def _leaky(call: Call) -> Value:
    call.require_type(0, *FLOATS)
    x = call.operand(0)
    return _below_zero(
        call.build, x, scaled(call.build, x, call.attribute("alpha", 0.01))
    )


@lowers("PRelu")
def _parametric(call: Call) -> Value:
    call.require_type(0, *FLOATS)
    if call.since < 7:
        raise Refused(ep.RefusalCode.OPSET, "PRelu before version 7")
    x, slope = call.operand(0), call.operand(1)
    return _below_zero(call.build, x, call.build("mul", x, slope))


@lowers("ThresholdedRelu")
def _thresholded(call: Call) -> Value:
    call.require_type(0, *FLOATS)
    build, x = call.build, call.operand(0)
    above = build("greater", x, build.scalar(call.attribute("alpha", 1.0), x.dtype))
    return build("select", above, x, build.scalar(0, x.dtype))


@lowers("Elu", "Celu", "Selu")
def _exponential(call: Call) -> Value:
    call.require_type(0, *FLOATS)
    build, x = call.build, call.operand(0)
    gamma, inner = 1.0, x
    match call.op_type:
        case "Elu":
            alpha = call.attribute("alpha", 1.0)
        case "Celu":
            alpha = call.attribute("alpha", 1.0)
            inner = scaled(build, x, 1 / alpha)
        case _:
            alpha = call.attribute("alpha", 1.67326319217681884765625)
            gamma = call.attribute("gamma", 1.05070102214813232421875)
    # above zero, where it is not wanted, the power might be infinite
    inner = build("minimum", inner, build.scalar(0, x.dtype))
    below = scaled(build, shifted(build, build("exp", inner), -1), alpha)
    return scaled(build, _below_zero(build, x, below), gamma)


@lowers("HardSigmoid")
def _hard_sigmoid(call: Call) -> Value:
    call.require_type(0, *FLOATS)
    alpha, beta = call.attribute("alpha", 0.2), call.attribute("beta", 0.5)
    return _ramp(call.build, call.operand(0), alpha, beta)


@lowers("HardSwish")
def _hard_swish(call: Call) -> Value:
    call.require_type(0, *FLOATS)
    x = call.operand(0)
    return call.build("mul", x, _ramp(call.build, x, 1 / 6, 0.5))


@lowers("Softplus")
def _softplus(call: Call) -> Value:
    call.require_type(0, *FLOATS)
    return _softplus_of(call.build, call.operand(0))


@lowers("Mish")
def _mish(call: Call) -> Value:
    call.require_type(0, *FLOATS)
    build, x = call.build, call.operand(0)
    # far below zero 16 bits have nothing left of the logarithm
    wide = build.cast(x, ep.DataType.FLOAT32)
    found = build("mul", wide, build("tanh", _softplus_of(build, wide)))
    return build.cast(found, x.dtype)


@lowers("Softsign")
def _softsign(call: Call) -> Value:
    call.require_type(0, *FLOATS)
    x = call.operand(0)
    return call.build("divide", x, shifted(call.build, call.build("abs", x), 1))


@lowers("Shrink")
def _shrink(call: Call) -> Value:
    call.require_type(0, *FLOATS)
    build, x = call.build, call.operand(0)
    bias, limit = call.attribute("bias", 0.0), call.attribute("lambd", 0.5)
    zero = build.scalar(0, x.dtype)
    above = build("greater", x, build.scalar(limit, x.dtype))
    below = build("less", x, build.scalar(-limit, x.dtype))
    rest = build("select", below, shifted(build, x, bias), zero)
    return build("select", above, shifted(build, x, -bias), rest)


@lowers("Softmax", "LogSoftmax", "Hardmax")
def _softmax(call: Call) -> Value:
    call.require_type(0, *FLOATS)
    build, x = call.build, call.operand(0)
    axis = call.axis(x.rank, -1 if call.since >= 13 else 1)
    shape = x.shape
    if call.since < 13 and axis != x.rank - 1:
        # one softmax over all dimensions from the axis on
        sizes = numbers(shape[axis:])
        total = 1
        for size in sizes:
            total *= size
        x = build.reshape(x, (*shape[:axis], total))
    match call.op_type:
        case "Softmax":
            found = build("softmax", x, axis=axis)
        case "LogSoftmax":
            found = log_softmax(build, x, axis)
        case _:
            found = _hardmax(build, x, axis)
    return build.reshape(found, shape)


def log_softmax(build: Builder, x: Value, axis: int) -> Value:
    """The logarithm of softmax, which stays finite where softmax is 0."""
    largest = build("reduce_max", x, axes=(axis,), keep=True)
    below = build("sub", x, largest)
    total = build("reduce_sum", build("exp", below), axes=(axis,), keep=True)
    return build("sub", below, build("log", total))


def _hardmax(build: Builder, x: Value, axis: int) -> Value:
    import numpy as np

    size = numbers(x.shape)[axis]
    first = build("argmax", x, axis=axis, keep=True)
    shape = [1] * x.rank
    shape[axis] = size
    each = build.constant(np.arange(size, dtype=np.int32).reshape(shape))
    return build.cast(build("equal", each, first), x.dtype)


def _below_zero(build: Builder, x: Value, below: Value) -> Value:
    negative = build("less", x, build.scalar(0, x.dtype))
    return build("select", negative, below, x)


def _ramp(build: Builder, x: Value, slope: float, middle: float) -> Value:
    line = shifted(build, scaled(build, x, slope), middle)
    cut = build("maximum", line, build.scalar(0, x.dtype))
    return build("minimum", cut, build.scalar(1, x.dtype))


def _softplus_of(build: Builder, x: Value) -> Value:
    # max(x, 0) + log(1 + exp(-|x|)), in which nothing overflows
    far = build("neg", build("abs", x))
    rest = build("log", shifted(build, build("exp", far), 1))
    return build("add", build("relu", x), rest)
