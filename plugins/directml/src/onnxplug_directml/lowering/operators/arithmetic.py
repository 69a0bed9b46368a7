"""Operators on corresponding elements: arithmetic, comparison, logic, bits, casts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, Final

import numpy as np

from onnxplug import ep
from onnxplug_directml.abi.directml import DML_IS_INFINITY_MODE, DML_ROUNDING_MODE
from onnxplug_directml.lowering.builder import Builder, Refused, Result, Value
from onnxplug_directml.lowering.call import FLOATS, Call, front, lowers

_UNARY: Final = {
    "Abs": "ABS", "Acos": "ACOS", "Acosh": "ACOSH", "Asin": "ASIN", "Asinh": "ASINH",
    "Atan": "ATAN", "Atanh": "ATANH", "BitwiseNot": "BIT_NOT", "Ceil": "CEIL",
    "Cos": "COS", "Cosh": "COSH", "Erf": "ERF", "Exp": "EXP", "Floor": "FLOOR",
    "Log": "LOG", "Neg": "NEGATE", "Not": "LOGICAL_NOT",
    "Reciprocal": "RECIP", "Sign": "SIGN", "Sin": "SIN", "Sinh": "SINH",
    "Sqrt": "SQRT", "Tan": "TAN",
}  # fmt: skip
_BINARY: Final = {
    "Add": "ADD", "Sub": "SUBTRACT", "Mul": "MULTIPLY", "Div": "DIVIDE",
    "And": "LOGICAL_AND", "Or": "LOGICAL_OR", "Xor": "LOGICAL_XOR",
    "Equal": "LOGICAL_EQUALS", "Greater": "LOGICAL_GREATER_THAN",
    "GreaterOrEqual": "LOGICAL_GREATER_THAN_OR_EQUAL", "Less": "LOGICAL_LESS_THAN",
    "LessOrEqual": "LOGICAL_LESS_THAN_OR_EQUAL", "BitwiseAnd": "BIT_AND",
    "BitwiseOr": "BIT_OR", "BitwiseXor": "BIT_XOR",
}  # fmt: skip
_MOST_FACTORS: Final = 8
"""Of integers that are multiplied instead of raised."""
_VARIADIC: Final = {"Max": "MAX", "Min": "MIN", "Sum": "ADD"}


@lowers(*_UNARY)
def _unary(call: Call) -> Value:
    return call.build.unary(f"ELEMENT_WISE_{_UNARY[call.op_type]}", call.operand(0))


@lowers("Identity")
def _identity(call: Call) -> Value:
    return call.operand(0)


@lowers("Dropout")
def _dropout(call: Call) -> Sequence[Value | None]:
    """Nothing is dropped: the input, and a mask that is true everywhere."""
    build, x = call.build, call.operand(0)
    call.ignore("ratio", "seed")
    if call.since < 7 and not call.attribute("is_test", 0):
        raise call.refuse_attribute("is_test", "1")
    if call.has(2) and call.content(2).any():
        raise Refused(ep.RefusalCode.ATTRIBUTE, "trains; takes inference")
    if not call.wants(1):
        return [x]
    mask = build.scalar(1, call.output_dtype(1))
    return [x, build.broadcast_to(mask, x.shape)]


@lowers(*_BINARY)
def _binary(call: Call) -> Value:
    a, b = _placed(call, call.operand(0), call.operand(1))
    operator = f"ELEMENT_WISE_{_BINARY[call.op_type]}"
    return call.build.binary(operator, a, b, call.output_dtype())


def _placed(call: Call, a: Value, b: Value) -> tuple[Value, Value]:
    """Operands whose dimensions correspond from the back, as numpy has it.

    Before version 7 an attribute told where the second one's begin.
    """
    if call.since >= 7 or not call.attribute("broadcast", 0):
        call.ignore("axis")
        return a, b
    axis = front(call.attribute("axis", a.rank - b.rank), a.rank + 1)
    shape = b.shape + (1,) * (a.rank - axis - b.rank)
    return a, call.build.reshape(b, shape)


@lowers(*_VARIADIC)
def _variadic(call: Call) -> Value:
    return _folded(call, f"ELEMENT_WISE_{_VARIADIC[call.op_type]}")


@lowers("Mean")
def _mean(call: Call) -> Value:
    total = _folded(call, "ELEMENT_WISE_ADD")
    return scaled(call.build, total, 1 / call.input_count)


def _folded(call: Call, operator: str) -> Value:
    build, first = call.build, call.operand(0)
    others = call.operands()[1:]
    return reduce(lambda a, b: build.binary(operator, a, b), others, first)


def scaled(build: Builder, x: Value, scale: float, bias: float = 0.0) -> Value:
    """*x* times a number, and another added; *x* itself where that changes nothing."""
    if (scale, bias) == (1.0, 0.0):
        return x
    return build.unary("ELEMENT_WISE_IDENTITY", x, ScaleBias=(scale, bias))


@lowers("Mod")
def _mod(call: Call) -> Value:
    a, b = call.operand(0), call.operand(1)
    kind = "TRUNCATE" if call.attribute("fmod", 0) else "FLOOR"
    return call.build.binary(f"ELEMENT_WISE_MODULUS_{kind}", a, b)


@lowers("Pow")
def _pow(call: Call) -> Value:
    build = call.build
    a, b = _placed(call, call.operand(0), call.operand(1))
    if a.dtype not in FLOATS and b.dtype in FLOATS:
        return _whole_power(build, a, b)
    if a.dtype in FLOATS and b.dtype in (ep.DataType.INT64, ep.DataType.UINT64):
        b = build.cast(b, a.dtype)
    return _raised(build, a, b)


def _whole_power(build: Builder, a: Value, b: Value) -> Value:
    """Integers raised to a small number that is whole, as products.

    Raises:
        Refused: the exponent is another, and float32 has not all integers.
    """
    found = build.content(b)
    exponent = float(found.reshape(())) if found is not None and found.size == 1 else 0
    if exponent not in range(1, _MOST_FACTORS + 1):
        raise Refused(
            ep.RefusalCode.NOT_CONSTANT,
            f"{a.dtype} raised to {b.dtype}; takes one number from 1 to "
            f"{_MOST_FACTORS} that is always the same: there is no float64",
        )
    a = build.broadcast_to(a, np.broadcast_shapes(a.shape, b.shape))
    return reduce(
        lambda x, y: build.binary("ELEMENT_WISE_MULTIPLY", x, y), [a] * int(exponent)
    )


def _raised(build: Builder, a: Value, b: Value) -> Value:
    exponent = build.content(b)
    if exponent is not None and exponent.size == 1 and a.dtype in FLOATS:
        shape = np.broadcast_shapes(a.shape, b.shape)
        return power(build, build.broadcast_to(a, shape), float(exponent.reshape(())))
    a, b = build.broadcast(a, b)
    return build(
        "ELEMENT_WISE_POW", InputTensor=a, ExponentTensor=b,
        OutputTensor=Result(a.dtype, a.shape),
    )  # fmt: skip


def power(build: Builder, x: Value, exponent: float, **fields: Any) -> Value:
    """*x*, of floats, raised to a number."""
    return build.unary("ELEMENT_WISE_CONSTANT_POW", x, Exponent=exponent, **fields)


@lowers("BitShift")
def _bit_shift(call: Call) -> Value:
    direction = call.attribute("direction")
    if direction not in ("LEFT", "RIGHT"):
        raise call.refuse_attribute("direction", "LEFT and RIGHT")
    build, a, b = call.build, call.operand(0), call.operand(1)
    bits = ep.DataType(f"uint{8 * a.dtype.numpy.itemsize}")
    if direction == "RIGHT" and bits is not a.dtype:
        raise Refused(ep.RefusalCode.DTYPE, f"{a.dtype}; DirectML shifts no signs")
    a, b = (build.reinterpret(each, bits) for each in (a, b))
    shifted = build.binary(f"ELEMENT_WISE_BIT_SHIFT_{direction}", a, b)
    # what DirectML makes of more bits than there are is not documented; ONNX has 0
    width = build.scalar(8 * bits.numpy.itemsize, bits)
    within = build.binary("ELEMENT_WISE_LOGICAL_LESS_THAN", b, width, ep.DataType.BOOL)
    made = build.select(within, shifted, build.scalar(0, bits))
    return build.reinterpret(made, call.output_dtype())


@lowers("Round")
def _round(call: Call) -> Value:
    mode = DML_ROUNDING_MODE.HALVES_TO_NEAREST_EVEN
    return call.build.unary("ELEMENT_WISE_ROUND", call.operand(0), RoundingMode=mode)


@lowers("IsNaN")
def _is_nan(call: Call) -> Value:
    return call.build(
        "ELEMENT_WISE_IS_NAN", InputTensor=call.operand(0), OutputTensor=call.result()
    )


@lowers("IsInf")
def _is_inf(call: Call) -> Value:
    modes = {
        (True, True): DML_IS_INFINITY_MODE.EITHER,
        (True, False): DML_IS_INFINITY_MODE.POSITIVE,
        (False, True): DML_IS_INFINITY_MODE.NEGATIVE,
    }
    positive = bool(call.attribute("detect_positive", 1))
    negative = bool(call.attribute("detect_negative", 1))
    mode = modes.get((positive, negative))
    if mode is None:
        raise call.refuse_attribute("detect_positive", "either sign, or both")
    return call.build(
        "ELEMENT_WISE_IS_INFINITY", InputTensor=call.operand(0),
        OutputTensor=call.result(), InfinityMode=mode,
    )  # fmt: skip


@lowers("Where")
def _where(call: Call) -> Value:
    return call.build.select(call.operand(0), call.operand(1), call.operand(2))


@lowers("Cast", "CastLike")
def _cast(call: Call) -> Value:
    call.ignore("to", "round_mode")  # of types that DirectML lacks
    if call.attribute("saturate", 1) not in (0, 1):
        raise call.refuse_attribute("saturate", "0 and 1")
    return call.build.cast(call.operand(0), call.output_dtype())


@lowers("Clip")
def _clip(call: Call) -> Value:
    build, x = call.build, call.operand(0)
    least, most = _limits(call)
    if isinstance(least, Value) or isinstance(most, Value):
        for limit, operator in ((least, "MAX"), (most, "MIN")):
            if limit is not None:
                bound = (
                    limit if isinstance(limit, Value) else build.scalar(limit, x.dtype)
                )
                x = build.binary(f"ELEMENT_WISE_{operator}", x, bound)
        return x
    return clipped(build, x, least, most)


def _limits(call: Call) -> tuple[Value | float | None, Value | float | None]:
    if call.since < 11:
        return call.attribute("min"), call.attribute("max")
    found: list[Value | float | None] = []
    for position in (1, 2):
        limit = call.optional(position)
        content = None if limit is None else call.build.content(limit)
        if limit is not None and (limit.dtype is not call.dtype() or limit.size != 1):
            raise Refused(
                ep.RefusalCode.DTYPE,
                f"a limit is {limit.dtype}{list(limit.shape)}; takes {call.dtype()}[]",
            )
        found.append(limit if content is None else content.reshape(()).item())
    return found[0], found[1]


def clipped(build: Builder, x: Value, least: float | None, most: float | None) -> Value:
    """*x* within limits, of which there may be none."""
    if x.dtype in FLOATS:
        lowest, highest = -np.inf, np.inf
    else:
        bounds = np.iinfo(x.dtype.numpy)
        lowest, highest = bounds.min, bounds.max
    if least is None and most is None:
        return x
    low = lowest if least is None else least
    high = highest if most is None else most
    if low > high:  # ONNX has all elements be the upper limit then
        low = high
    return build.unary(
        "ELEMENT_WISE_CLIP1", x, MinMaxDataType=build.data_type(x.dtype), Min=low,
        Max=high,
    )  # fmt: skip
