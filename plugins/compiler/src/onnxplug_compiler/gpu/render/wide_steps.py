"""Steps of chains on integers of two words, and which there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from onnxplug_compiler.gpu.render import pair_arithmetic, pairs
from onnxplug_compiler.gpu.render.body import KINDS, PAIRED, Body, Pair

_COMPARISONS: Final = frozenset(
    {"Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"}
)
_BITS: Final = frozenset({"BitwiseAnd", "BitwiseOr", "BitwiseXor"})
_ARITHMETIC: Final = _BITS | frozenset(
    "Add Sub Mul Div Mod Pow Max Min Clip Neg Abs Sign BitwiseNot".split()
)


def supports(
    operator: str, operands: Sequence[str], result: str, attributes: Mapping[str, Any]
) -> bool:
    """Whether a step is computed of which an operand or the result is of two words."""
    if operator == "Where":
        return list(operands) == ["i1", result, result] and result in PAIRED
    first = operands[0]
    if operator == "Pow" and KINDS.get(first) in ("f32", "f64"):
        return operands[1] in PAIRED and result == first
    if first not in PAIRED or not {*operands} <= {first, ""}:
        return False
    if operator in _COMPARISONS:
        return result == "i1"
    if operator == "BitShift" and attributes.get("direction") in ("LEFT", "RIGHT"):
        return result == first
    return operator in _ARITHMETIC and result == first


def emit(
    body: Body,
    operator: str,
    x: Sequence[Any],
    element: str,
    attributes: Mapping[str, Any],
) -> Any:
    """The result of a step but a cast, and but a power of a float.

    Args:
        element: of the operands.
    """
    signed = element == "i64"
    if operator == "Where":
        return pairs.chosen(body, *x)
    if operator in _COMPARISONS:
        return pairs.compare(body, operator, x[0], x[1], signed=signed)
    if operator in _BITS:
        return _folded(body, operator, x, signed)
    match operator:
        case "Neg":
            return pair_arithmetic.negated(body, x[0])
        case "Abs":
            return pair_arithmetic.magnitude(body, x[0]) if signed else x[0]
        case "Sign":
            return pair_arithmetic.sign(body, x[0], signed=signed)
        case "BitwiseNot":
            return pair_arithmetic.inverted(body, x[0])
        case "Div":
            return pair_arithmetic.quotient(body, *x, signed=signed)
        case "Mod":
            fmod = bool(attributes.get("fmod", 0))
            return pair_arithmetic.rest(body, *x, signed=signed, of_dividend=fmod)
        case "Pow":
            return pair_arithmetic.power(body, *x, signed=signed)
        case "BitShift":
            left = attributes["direction"] == "LEFT"
            return pair_arithmetic.shifted(body, *x, left=left, signed=signed)
        case "Clip":
            found = x[0]
            for limit, sign in zip(x[1:], "><", strict=False):
                if limit:
                    found = pairs.extreme(body, sign, found, limit, signed=signed)
            return found
    return _folded(body, operator, x, signed)


def _folded(body: Body, operator: str, x: Sequence[Any], signed: bool) -> Any:
    found = x[0]
    for other in x[1:]:
        found = combined(body, operator, found, other, signed=signed)
    return found


def combined(body: Body, operator: str, a: Pair, b: Pair, *, signed: bool) -> Pair:
    """Two numbers by an operator that takes any number of them."""
    match operator:
        case "Max" | "Min":
            sign = ">" if operator == "Max" else "<"
            return pairs.extreme(body, sign, a, b, signed=signed)
        case "Mul":
            return pairs.product(body, a, b)
        case "Add":
            return pairs.total(body, a, b)
        case "Sub":
            return pairs.difference(body, a, b)
    return pair_arithmetic.joined(body, operator, a, b)


def widened(body: Body, x: Any, source: str) -> Pair:
    """A number of fewer bits, or a float, as one of two words."""
    if source in PAIRED:
        found: Pair = x
        return found
    if KINDS[source] == "f32":
        return pair_arithmetic.truncated(body, x)
    return pairs.widened(body, x, source)
