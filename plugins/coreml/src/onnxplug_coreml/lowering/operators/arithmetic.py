"""Elementwise arithmetic, comparisons, logic and casts."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from onnxplug import ep
from onnxplug_coreml.lowering.builder import Builder, Refused
from onnxplug_coreml.lowering.call import FLOATS, NUMBERS, Call, lowers
from onnxplug_coreml.lowering.program import Value
from onnxplug_coreml.lowering.target import Engine

_BROADCASTS: Final = 7
"""The version since which operators broadcast as numpy does."""

_UNARY: Final = {
    "Acos": "acos", "Acosh": "acosh", "Asin": "asin", "Asinh": "asinh", "Atan": "atan",
    "Atanh": "atanh", "Ceil": "ceil", "Cos": "cos", "Cosh": "cosh", "Erf": "erf",
    "Exp": "exp", "Floor": "floor", "Log": "log", "Round": "round", "Sin": "sin",
    "Sinh": "sinh", "Sqrt": "sqrt", "Tan": "tan",
}  # fmt: skip


@lowers(*_UNARY)
def _unary(call: Call) -> Value:
    call.require_type(0, *FLOATS)
    return call.build(_UNARY[call.op_type], call.operand(0))


@lowers("Abs", "Neg", "Sign")
def _of_numbers(call: Call) -> Value:
    _require_exact(call)
    return call.build(call.op_type.lower(), call.operand(0))


@lowers("Reciprocal")
def _reciprocal(call: Call) -> Value:
    call.require_type(0, *FLOATS)
    x = call.operand(0)
    return call.build("divide", call.build.scalar(1, x.dtype), x)


@lowers("Identity", "Dropout")
def _identity(call: Call) -> Value:
    if call.op_type == "Dropout":
        call.ignore("ratio", "seed", "is_test")
        trains = call.since >= 12 and call.has(2) and bool(call.content(2))
        if trains or call.wants(1) or call.since < 7:
            raise Refused(ep.RefusalCode.OTHER, "Dropout that drops, or gives its mask")
    return call.operand(0)


_BINARY: Final = {"Add": "add", "Sub": "sub", "Mul": "mul"}


@lowers(*_BINARY)
def _binary(call: Call) -> Value:
    _require_broadcasting(call)
    _require_exact(call)
    return call.build(_BINARY[call.op_type], call.operand(0), call.operand(1))


@lowers("Div")
def _divide(call: Call) -> Value:
    _require_broadcasting(call)
    # by zero, and the least number by -1, Core AI ends the process
    call.require_type(0, *FLOATS)
    return call.build("divide", call.operand(0), call.operand(1))


@lowers("Pow")
def _power(call: Call) -> Value:
    _require_broadcasting(call)
    call.require_type(0, *FLOATS)
    x, y = call.operand(0), call.operand(1)
    exponent = call.known(1)
    if exponent is not None and exponent.size == 1 and exponent.ndim <= x.rank:
        if exponent.item() == 2:
            return call.build("mul", x, x)
        if exponent.item() == 0.5 and call.target.engine is Engine.ML_PROGRAM:
            return call.build("sqrt", x)
    return call.build("pow", x, call.build.cast(y, x.dtype))


@lowers("Max", "Min", "Sum", "Mean")
def _variadic(call: Call) -> Value:
    if call.since < 8:
        _require_same_shapes(call)
    if call.op_type in ("Max", "Min"):
        call.require_type(0, *NUMBERS)
        primitive = "maximum" if call.op_type == "Max" else "minimum"
    else:
        call.require_type(0, *FLOATS)
        primitive = "add"
    first, *others = call.operands()
    for other in others:
        first = call.build(primitive, first, other)
    if call.op_type == "Mean" and others:
        share = call.build.scalar(1 / (len(others) + 1), first.dtype)
        first = call.build("mul", first, share)
    return first


_COMPARISONS: Final = {
    "Equal": "equal",
    "Greater": "greater",
    "GreaterOrEqual": "greater_equal",
    "Less": "less",
    "LessOrEqual": "less_equal",
}


@lowers(*_COMPARISONS)
def _compare(call: Call) -> Value:
    _require_broadcasting(call)
    types = (*NUMBERS, ep.DataType.BOOL) if call.op_type == "Equal" else NUMBERS
    call.require_type(0, *types)
    return call.build(_COMPARISONS[call.op_type], call.operand(0), call.operand(1))


_LOGIC: Final = {"And": "logical_and", "Or": "logical_or", "Xor": "logical_xor"}


@lowers(*_LOGIC)
def _logic(call: Call) -> Value:
    _require_broadcasting(call)
    return call.build(_LOGIC[call.op_type], call.operand(0), call.operand(1))


@lowers("Not")
def _not(call: Call) -> Value:
    return call.build("logical_not", call.operand(0))


@lowers("IsNaN")
def _is_nan(call: Call) -> Value:
    call.require_type(0, *FLOATS)
    x = call.operand(0)
    return call.build("not_equal", x, x)


@lowers("IsInf")
def _is_inf(call: Call) -> Value:
    call.require_type(0, *FLOATS)
    x = call.operand(0)
    infinity = call.build.scalar(float("inf"), x.dtype)
    minus = call.build.scalar(float("-inf"), x.dtype)
    up, down = (
        call.attribute(f"detect_{kind}", 1) for kind in ("positive", "negative")
    )
    if up and down:
        return call.build("equal", call.build("abs", x), infinity)
    if not up and not down:
        raise Refused(ep.RefusalCode.ATTRIBUTE, "IsInf that detects nothing")
    return call.build("equal", x, infinity if up else minus)


@lowers("Where")
def _where(call: Call) -> Value:
    return call.build("select", call.operand(0), call.operand(1), call.operand(2))


@lowers("Cast", "CastLike")
def _cast(call: Call) -> Value:
    given, wanted = call.dtype(0), call.output_dtype()
    call.ignore("to", "saturate", "round_mode")  # the last two are of narrow floats
    narrow = call.build.type_of(wanted)
    if given in FLOATS and narrow is not wanted:
        raise Refused(
            ep.RefusalCode.DTYPE,
            f"{given} to {wanted}, for which {call.target.engine} has {narrow}",
        )
    x = call.operand(0)
    if x.dtype is ep.DataType.INT64 and wanted is ep.DataType.INT32:
        _require_narrow(call, x)
    return call.build.cast(x, narrow)


def _require_narrow(call: Call, x: Value) -> None:
    """Let runs fail in which int64 does not fit int32: ONNX's wraps, Core AI's not."""
    build, bounds = call.build, np.iinfo(np.int32)
    least, most = (build.scalar(bound, x.dtype) for bound in (bounds.min, bounds.max))
    held = build("minimum", build("maximum", x, least), most)
    name = call.input_name(0)
    build.check_none(
        build("not_equal", held, x),
        f"{call.describe()}: a number of {name!r} does not fit int32, to which Core AI "
        "does not cast it as ONNX does; name another EP for this model",
    )


@lowers("Clip")
def _clip(call: Call) -> Value:
    call.require_type(0, *NUMBERS)
    x = call.operand(0)
    if call.since >= 11:
        bounds = [call.optional(1), call.optional(2)]
    else:
        bounds = [
            None if (bound := call.attribute(name)) is None
            else call.build.scalar(bound, x.dtype)
            for name in ("min", "max")
        ]  # fmt: skip
    lower, upper = bounds
    if lower is not None:
        x = call.build("maximum", x, lower)
    return x if upper is None else call.build("minimum", x, upper)


def _require_broadcasting(call: Call) -> None:
    if call.since < _BROADCASTS:
        call.ignore("axis", "broadcast")
        _require_same_shapes(call)


def _require_same_shapes(call: Call) -> None:
    shapes = {call.shape(position) for position in range(call.input_count)}
    if len(shapes) > 1:
        raise Refused(ep.RefusalCode.OPSET, f"{call.op_type} of different shapes")


def _require_exact(call: Call) -> None:
    """Refuse integers whose results may not fit where the engine keeps them."""
    call.require_type(0, *NUMBERS)
    if call.dtype() is ep.DataType.INT64 and call.target.engine is Engine.ML_PROGRAM:
        raise Refused(
            ep.RefusalCode.DTYPE,
            f"{call.op_type} of int64, for which {call.target.engine} has int32",
        )


def scaled(build: Builder, x: Value, factor: float) -> Value:
    """*x* times a number."""
    return x if factor == 1 else build("mul", x, build.scalar(factor, x.dtype))


def shifted(build: Builder, x: Value, number: Any) -> Value:
    """*x* plus a number."""
    return x if number == 0 else build("add", x, build.scalar(number, x.dtype))
