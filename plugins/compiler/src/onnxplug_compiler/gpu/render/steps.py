"""The steps of chains on scalars, and which there are."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from onnxplug_compiler.gpu.render import (
    angles,
    arcs,
    casts,
    doubles,
    exponentials,
    integers,
    pairs,
    powers,
    remainders,
    wide_steps,
)
from onnxplug_compiler.gpu.render.body import KINDS, PAIRED, WIDTHS, Body
from onnxplug_compiler.gpu.render.casts import cast
from onnxplug_compiler.gpu.render.extremes import (
    is_infinite,
    is_nan,
    largest,
    smallest,
)
from onnxplug_compiler.gpu.render.narrow import NARROW, rounded
from onnxplug_compiler.ir.elementwise import Chain, Step

_Emit: TypeAlias = Callable[[Body, str, Sequence[str], Mapping[str, Any]], str]
"""Given the kind of the result, the operands and the attributes; gives an expression.
An operand that is left out is an empty text."""

_FLOATS: Final = NARROW | {"f32"}
_REALS: Final = _FLOATS | {"f64"}
_SIGNED: Final = frozenset({"i32", "i16", "i8"})
_INTEGERS: Final = _SIGNED | {"u32", "u16", "u8"}
_NUMBERS: Final = _REALS | _INTEGERS
_ANY: Final = _NUMBERS | {"i1"}

_EXACT: Final = frozenset({"Max", "Min", "Clip", "Relu", "Sign", "Mod"})
"""Operators whose results are of the elements of their operands, whatever these are."""

_EXACT_OF_FLOATS: Final = frozenset({"Neg", "Abs", "Floor", "Ceil", "Round"})
_EXACT_OF_INTEGERS: Final = frozenset({"BitwiseAnd", "BitwiseOr", "BitwiseXor"})


def supports(
    operator: str,
    operands: Sequence[str],
    result: str,
    attributes: Mapping[str, Any],
    *,
    wide: bool = False,
) -> bool:
    """Whether a step is computed; as ``Target.supports_step``.

    Args:
        wide: in a language with numbers of 64 bits.
    """
    if not wide and "f64" in (*operands, result):
        return False
    if operator == "Cast":
        return casts.supports(operands[0], result, attributes)
    if not PAIRED.isdisjoint((*operands, result)):
        return wide_steps.supports(operator, operands, result, attributes)
    if operator == "Where":
        return operands[0] == "i1" and result in _ANY and {*operands[1:]} == {result}
    if operator == "Gelu" and attributes.get("approximate") not in (
        None,
        "none",
        "tanh",
    ):
        return False
    if operator in _COMPARISONS:
        taken = _ANY if operator == "Equal" else _NUMBERS
        return result == "i1" and operands[0] in taken and len({*operands}) == 1
    if operator in ("IsNaN", "IsInf"):
        return result == "i1" and operands[0] in _REALS
    if operator in _LOGIC:
        return result == "i1" and {*operands} == {"i1"}
    if operator == "Pow":
        mixed = operands[0] in _REALS and operands[1] in _INTEGERS
        alike = operands[1] == operands[0] in _NUMBERS
        return result == operands[0] and (alike or mixed)
    if operator == "BitShift" and attributes.get("direction") not in ("LEFT", "RIGHT"):
        return False
    found = _STEPS.get(operator)
    if found is None:
        return False
    elements, _ = found
    known = result in elements or (result == "f64" and operator in doubles.STEPS)
    return bool(operands[0]) and known and {*operands} <= {result, ""}


def emit_chain(body: Body, chain: Chain, inputs: Sequence[Any]) -> list[Any]:
    """Write the steps of *chain*; gives its outputs: texts, and pairs for i64.

    Raises:
        ValueError: one of them is not computed for its elements.
    """
    values = list(inputs)
    for element, _ in chain.constants:
        if element not in KINDS and element not in PAIRED:
            raise ValueError(f"numbers of {element} are not computed with")
    for element, value in chain.constants:
        if element in PAIRED:
            values.append(pairs.constant(body, int(value)))
        else:
            values.append(body.number(KINDS[element], _held(element, value)))
    for step in chain.steps:
        operands = [values[each] if each >= 0 else "" for each in step.operands]
        elements = [chain.element(each) if each >= 0 else "" for each in step.operands]
        attributes, wide = dict(step.attributes), body.dialect.wide
        if not supports(step.operator, elements, step.element, attributes, wide=wide):
            raise ValueError(
                f"{step.operator} of {', '.join(elements)} as {step.element} is not "
                "computed"
            )
        values.append(_emit(body, step, operands, elements))
    return [values[output] for output in chain.outputs]


def _held(element: str, value: Any) -> Any:
    """A constant as its element has it."""
    if element == "f16" and math.isfinite(value):
        with np.errstate(over="ignore"):
            return float(np.float16(value))
    if element == "bf16" and math.isfinite(value):
        bits = int(np.float32(value).view(np.uint32))
        nearest = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
        return float(np.uint32(nearest).view(np.float32))
    return value


def _emit(
    body: Body, step: Step, operands: Sequence[Any], elements: Sequence[str]
) -> Any:
    operator, element = step.operator, step.element
    if operator == "Cast":
        return cast(body, operands[0], elements[0], element, dict(step.attributes))
    if not PAIRED.isdisjoint((*elements, element)) and element not in _REALS:
        of = elements[0]
        return wide_steps.emit(body, operator, operands, of, dict(step.attributes))
    kind = KINDS[element]
    if operator == "Where":
        return body.let(kind, body.dialect.select(*operands))
    if operator in _COMPARISONS:
        return body.let("i1", f"{operands[0]} {_COMPARISONS[operator]} {operands[1]}")
    if operator in _LOGIC:
        return body.let("i1", _LOGIC[operator].format(*operands))
    attributes = dict(step.attributes)
    of = KINDS[elements[0]] if elements[0] not in PAIRED else ""
    if operator == "IsNaN":
        return body.let("i1", is_nan(body, operands[0], of))
    if operator == "IsInf":
        return body.let("i1", is_infinite(body, operands[0], attributes, of))
    if element == "f64" and operator in doubles.STEPS:
        alike = [
            each if not each or of == "f64" else doubles.widened(body, each, of)
            for each, of in zip(operands, elements, strict=True)
        ]
        found = doubles.STEPS[operator](body, alike, attributes)
    elif operator == "Pow":
        found = powers.raised(body, kind, operands, elements)
    else:
        _, emit = _STEPS[operator]
        found = emit(body, kind, operands, attributes)
    return fitted(body, element, operator, found)


def fitted(body: Body, element: str, operator: str, value: str) -> str:
    """The result of an operator as *element*, of which registers may hold more:
    rounded, or wrapped."""
    if element in NARROW:
        if operator not in _EXACT | _EXACT_OF_FLOATS:
            return rounded(body, element, value)
    elif element in WIDTHS and operator not in _EXACT | _EXACT_OF_INTEGERS:
        return body.wrapped(element, value)
    return body.let(KINDS[element], value)


# one step each


def _infix(sign: str) -> _Emit:
    return lambda body, kind, x, attributes: f"{x[0]} {sign} {x[1]}"


def _function(name: str) -> _Emit:
    return lambda body, kind, x, attributes: body.dialect.call(name, x[0])


def _of_one(write: Callable[[Body, str], str]) -> _Emit:
    return lambda body, kind, x, attributes: write(body, x[0])


def _shifted(
    body: Body, kind: str, x: Sequence[str], attributes: Mapping[str, Any]
) -> str:
    return integers.shifted(body, kind, x, left=attributes["direction"] == "LEFT")


def _fold(combine: Callable[[Body, str, str, str], str]) -> _Emit:
    def emit(
        body: Body, kind: str, x: Sequence[str], attributes: Mapping[str, Any]
    ) -> str:
        found = x[0]
        for other in x[1:]:
            found = body.let(kind, combine(body, kind, found, other))
        return found

    return emit


def _mean(
    body: Body, kind: str, x: Sequence[str], attributes: Mapping[str, Any]
) -> str:
    return f"({' + '.join(x)}) / {body.number(kind, len(x))}"


def _div(body: Body, kind: str, x: Sequence[str], attributes: Mapping[str, Any]) -> str:
    of_floats = kind in ("f32", "f64")
    return f"{x[0]} / {x[1]}" if of_floats else integers.quotient(body, kind, x)


def _mod(body: Body, kind: str, x: Sequence[str], attributes: Mapping[str, Any]) -> str:
    of_dividend = bool(attributes.get("fmod", 0))
    if kind == "f32":
        return remainders.remainder(body, x, of_dividend=of_dividend)
    return integers.rest(body, kind, x, of_dividend=of_dividend)


def _clip(
    body: Body, kind: str, x: Sequence[str], attributes: Mapping[str, Any]
) -> str:
    found = x[0]
    if len(x) > 1 and x[1]:
        found = body.let(kind, largest(body, kind, found, x[1]))
    if len(x) > 2 and x[2]:
        found = body.let(kind, smallest(body, kind, found, x[2]))
    return found


def _relu(
    body: Body, kind: str, x: Sequence[str], attributes: Mapping[str, Any]
) -> str:
    zero = body.number(kind, 0)
    return body.dialect.select(f"{x[0]} < {zero}", zero, x[0])


def _sign(
    body: Body, kind: str, x: Sequence[str], attributes: Mapping[str, Any]
) -> str:
    zero, one, less = (body.number(kind, n) for n in (0, 1, -1 if kind != "u32" else 0))
    negative = body.dialect.select(f"{x[0]} < {zero}", less, x[0])
    return body.dialect.select(f"{x[0]} > {zero}", one, negative)


def _default(kind: str, value: float) -> float:
    """An attribute of which nothing is said, which as all of them is a float32."""
    return float(np.float32(value)) if kind == "f64" else value


def _sloped(default: float) -> _Emit:
    def emit(
        body: Body, kind: str, x: Sequence[str], attributes: Mapping[str, Any]
    ) -> str:
        slope = body.number(kind, attributes.get("alpha", _default(kind, default)))
        negative = f"{x[0]} < {body.number(kind, 0)}"
        return body.dialect.select(negative, f"{slope} * {x[0]}", x[0])

    return emit


def _prelu(
    body: Body, kind: str, x: Sequence[str], attributes: Mapping[str, Any]
) -> str:
    zero = body.number(kind, 0)
    return body.dialect.select(f"{x[0]} < {zero}", f"{x[1]} * {x[0]}", x[0])


def _thresholded(
    body: Body, kind: str, x: Sequence[str], attributes: Mapping[str, Any]
) -> str:
    limit = body.number(kind, attributes.get("alpha", 1.0))
    return body.dialect.select(f"{x[0]} > {limit}", x[0], body.number(kind, 0))


def _shrink(
    body: Body, kind: str, x: Sequence[str], attributes: Mapping[str, Any]
) -> str:
    limit = float(attributes.get("lambd", 0.5))
    bias = body.number(kind, attributes.get("bias", 0.0))
    above = body.dialect.select(
        f"{x[0]} > {body.number(kind, limit)}",
        f"{x[0]} - {bias}",
        body.number(kind, 0),
    )
    return body.dialect.select(
        f"{x[0]} < {body.number(kind, -limit)}", f"{x[0]} + {bias}", above
    )


def _ramp(body: Body, kind: str, x: str, alpha: float, beta: float) -> str:
    """``min(1, max(0, alpha x + beta))``, which keeps NaN."""
    slope, start, zero, one = (body.number(kind, n) for n in (alpha, beta, 0, 1))
    line = body.let(kind, f"{slope} * {x} + {start}")
    low = body.let(kind, body.dialect.select(f"{line} < {zero}", zero, line))
    return body.let(kind, body.dialect.select(f"{low} > {one}", one, low))


def _hard_sigmoid(
    body: Body, kind: str, x: Sequence[str], attributes: Mapping[str, Any]
) -> str:
    alpha = attributes.get("alpha", _default(kind, 0.2))
    beta = attributes.get("beta", 0.5)
    return _ramp(body, kind, x[0], alpha, beta)


def _hard_swish(
    body: Body, kind: str, x: Sequence[str], attributes: Mapping[str, Any]
) -> str:
    return f"{x[0]} * {_ramp(body, kind, x[0], _default(kind, 1 / 6), 0.5)}"


def _elu_step(
    body: Body, kind: str, x: Sequence[str], attributes: Mapping[str, Any]
) -> str:
    return exponentials.elu(body, x[0], attributes.get("alpha", 1.0), 1.0)


def _selu(
    body: Body, kind: str, x: Sequence[str], attributes: Mapping[str, Any]
) -> str:
    alpha = attributes.get("alpha", 1.67326319217681884765625)
    return exponentials.elu(
        body, x[0], alpha, attributes.get("gamma", 1.05070102214813232421875)
    )


def _celu(
    body: Body, kind: str, x: Sequence[str], attributes: Mapping[str, Any]
) -> str:
    alpha = attributes.get("alpha", 1.0)
    return exponentials.elu(body, x[0], alpha, 1.0, 1 / alpha)


def _sigmoid(
    body: Body, kind: str, x: Sequence[str], attributes: Mapping[str, Any]
) -> str:
    return exponentials.sigmoid(body, x[0])


def _swish(
    body: Body, kind: str, x: Sequence[str], attributes: Mapping[str, Any]
) -> str:
    alpha = body.number(kind, attributes.get("alpha", 1.0))
    return f"{x[0]} / (1.0f + {exponentials.exp(body, f'-({alpha} * {x[0]})')})"


def _swiglu(
    body: Body, kind: str, x: Sequence[str], attributes: Mapping[str, Any]
) -> str:
    return f"({_swish(body, kind, x, attributes)}) * {x[1]}"


def _softplus(
    body: Body, kind: str, x: Sequence[str], attributes: Mapping[str, Any]
) -> str:
    return exponentials.softplus(body, x[0])


def _tanh(
    body: Body, kind: str, x: Sequence[str], attributes: Mapping[str, Any]
) -> str:
    return exponentials.tanh(body, x[0])


def _mish(
    body: Body, kind: str, x: Sequence[str], attributes: Mapping[str, Any]
) -> str:
    """``x tanh(log(1 + e))`` for e = exp(x), which is x n / (n + 2) for n = e (e + 2).

    From 20 on the quotient rounds to 1.
    """
    low = body.let("f32", body.dialect.select(f"{x[0]} > 20.0f", "20.0f", x[0]))
    power = body.let("f32", exponentials.exp(body, low))
    n = body.let("f32", f"{power} * ({power} + 2.0f)")
    return f"{x[0]} * ({n} / ({n} + 2.0f))"


def _erf(body: Body, kind: str, x: Sequence[str], attributes: Mapping[str, Any]) -> str:
    return exponentials.erf(body, x[0])


def _gelu(
    body: Body, kind: str, x: Sequence[str], attributes: Mapping[str, Any]
) -> str:
    if attributes.get("approximate") == "tanh":
        inner = body.let(
            "f32", f"0.7978845608f * ({x[0]} + 0.044715f * {x[0]} * {x[0]} * {x[0]})"
        )
        return f"0.5f * {x[0]} * (1.0f + {exponentials.tanh(body, inner)})"
    scaled = body.let("f32", f"{x[0]} * 0.7071067812f")
    return f"0.5f * {x[0]} * (1.0f + {exponentials.erf(body, scaled)})"


_COMPARISONS: Final = {
    "Greater": ">",
    "GreaterOrEqual": ">=",
    "Less": "<",
    "LessOrEqual": "<=",
    "Equal": "==",
}
_LOGIC: Final = {
    "And": "{0} && {1}",
    "Or": "{0} || {1}",
    "Xor": "{0} != {1}",
    "Not": "!{0}",
}

_STEPS: Final[Mapping[str, tuple[frozenset[str], _Emit]]] = {
    "Add": (_NUMBERS, _infix("+")),
    "Sub": (_NUMBERS, _infix("-")),
    "Mul": (_NUMBERS, _infix("*")),
    "Div": (_NUMBERS, _div),
    "Mod": (_NUMBERS, _mod),
    "Neg": (_REALS | _SIGNED, lambda body, kind, x, attributes: f"-({x[0]})"),
    "Abs": (_NUMBERS, _function("abs")),
    "Sign": (_NUMBERS, _sign),
    "Sqrt": (_FLOATS, _function("sqrt")),
    "Reciprocal": (
        _REALS,
        lambda body, kind, x, attributes: f"{body.number(kind, 1)} / {x[0]}",
    ),
    "Floor": (_FLOATS, _function("floor")),
    "Ceil": (_FLOATS, _function("ceil")),
    "Round": (_FLOATS, _function("rint")),
    "Max": (_NUMBERS, _fold(largest)),
    "Min": (_NUMBERS, _fold(smallest)),
    "Sum": (
        _REALS,
        lambda body, kind, x, attributes: " + ".join(x),
    ),
    "Mean": (_REALS, _mean),
    "Clip": (_NUMBERS, _clip),
    "Relu": (_REALS | _SIGNED, _relu),
    "PRelu": (_NUMBERS, _prelu),
    "LeakyRelu": (_REALS, _sloped(0.01)),
    "ThresholdedRelu": (_REALS, _thresholded),
    "Shrink": (_REALS, _shrink),
    "HardSigmoid": (_REALS, _hard_sigmoid),
    "HardSwish": (_REALS, _hard_swish),
    "Softsign": (
        _REALS,
        lambda body, kind, x, attributes: (
            f"{x[0]} / ({body.number(kind, 1)} + abs({x[0]}))"
        ),
    ),
    "Elu": (_FLOATS, _elu_step),
    "Selu": (_FLOATS, _selu),
    "Celu": (_FLOATS, _celu),
    "Swish": (_FLOATS, _swish),
    "SwiGLU": (_FLOATS, _swiglu),
    "Mish": (_FLOATS, _mish),
    "Softplus": (_FLOATS, _softplus),
    "Gelu": (_FLOATS, _gelu),
    "Exp": (_FLOATS, _function("exp")),
    "Log": (_FLOATS, _function("log")),
    "Erf": (_FLOATS, _erf),
    "Tanh": (_FLOATS, _tanh),
    "Sigmoid": (_FLOATS, _sigmoid),
    "Sin": (_FLOATS, lambda body, kind, x, attributes: angles.sine(body, x[0])),
    "Cos": (_FLOATS, lambda body, kind, x, attributes: angles.sine(body, x[0], 1)),
    **{name: (_FLOATS, _of_one(write)) for name, write in arcs.FUNCTIONS.items()},
    "BitShift": (_INTEGERS, _shifted),
    "BitwiseAnd": (_INTEGERS, _infix("&")),
    "BitwiseOr": (_INTEGERS, _infix("|")),
    "BitwiseXor": (_INTEGERS, _infix("^")),
    "BitwiseNot": (_INTEGERS, lambda body, kind, x, attributes: f"~{x[0]}"),
}
"""The elements that operators whose operands and result are alike are computed for, and
how."""
