"""Which of ONNX's element-wise operators are compiled, and about what they cost.

Apart from :mod:`~.emitters`, which emits them, as a plan needs no more than this.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, TypeAlias

from onnxplug.authoring.record import Record
from onnxplug_compiler.ir.elements import (
    FLOATS,
    INTEGERS,
    NARROW_FLOATS,
    NUMBERS,
    SIGNED,
    SUB_BYTE,
)
from onnxplug_compiler.ir.elementwise import Chain

ANY: Final = NUMBERS | {"i1"}
_BOOL: Final = frozenset({"i1"})

_Accepts: TypeAlias = Callable[[Sequence[str], str], bool]


class _Operator(Record):
    """What a plan asks of an operator.

    Attributes:
        operands: the fewest and the most.
        accepts: whether it is compiled for these elements of operands and result.
        cost: about how many vector instructions it is, for f32.
    """

    operands: tuple[int, int]
    accepts: _Accepts
    cost: int = 1


def supports(
    operator: str,
    operand_elements: Sequence[str],
    result: str,
    attributes: Mapping[str, Any],
) -> bool:
    """Whether a step is compiled.

    Args:
        operator: ONNX's name.
        operand_elements: names of ``onnxplug_compiler.ir.elements``; empty for an
            operand that is left out.
        result: the result's element type.
        attributes: as of :class:`onnxplug_compiler.ir.elementwise.Step`.
    """
    found = OPERATORS.get(operator)
    if found is None or not found.operands[0] <= len(operand_elements):
        return False
    if len(operand_elements) > found.operands[1] or not operand_elements[0]:
        return False
    if operator == "Mod" and operand_elements[0] in FLOATS:
        return False
    if operator == "Gelu" and attributes.get("approximate", "none") not in (
        "none",
        "tanh",
    ):
        return False
    if operator == "BitShift" and attributes.get("direction") not in ("LEFT", "RIGHT"):
        return False
    return found.accepts(operand_elements, result)


def chain_cost(chain: Chain) -> int:
    """About how many vector instructions a chain is, for f32."""
    return sum(OPERATORS[step.operator].cost for step in chain.steps)


def _same(elements: Collection[str]) -> _Accepts:
    """All operands and the result of one type, which is one of *elements*."""

    def accepts(operands: Sequence[str], result: str) -> bool:
        return result in elements and all(o in ("", result) for o in operands)

    return accepts


def _to_bool(elements: Collection[str]) -> _Accepts:
    def accepts(operands: Sequence[str], result: str) -> bool:
        first = operands[0]
        return first in elements and result == "i1" and set(operands) == {first}

    return accepts


def _accepts_where(operands: Sequence[str], result: str) -> bool:
    return operands[0] == "i1" and result in ANY and set(operands[1:]) == {result}


def _accepts_power(operands: Sequence[str], result: str) -> bool:
    base, exponent = operands
    if base != result:
        return False
    if base in INTEGERS:
        return exponent in INTEGERS
    return base in FLOATS and exponent in NUMBERS


def _accepts_cast(operands: Sequence[str], result: str) -> bool:
    return operands[0] in ANY | SUB_BYTE and result in ANY


def _of(operands: int | tuple[int, int], accepts: _Accepts, cost: int = 1) -> _Operator:
    count = (operands, operands) if isinstance(operands, int) else operands
    return _Operator(count, accepts, cost)


_MANY: Final = (1, 1 << 10)
_NUMERIC, _FLOATING, _NARROW = _same(NUMBERS), _same(FLOATS), _same(NARROW_FLOATS)
_WHOLE, _TRUTH = _same(INTEGERS), _same(_BOOL)

OPERATORS: Final = {
    "Add": _of(2, _NUMERIC),
    "Sub": _of(2, _NUMERIC),
    "Mul": _of(2, _NUMERIC),
    "Div": _of(2, _NUMERIC, cost=6),
    "Mod": _of(2, _WHOLE, cost=20),
    "Pow": _of(2, _accepts_power, cost=60),
    "Neg": _of(1, _same(FLOATS | SIGNED)),
    "Abs": _of(1, _NUMERIC),
    "Sign": _of(1, _NUMERIC, cost=6),
    "Sqrt": _of(1, _FLOATING, cost=6),
    "Reciprocal": _of(1, _FLOATING, cost=6),
    "Floor": _of(1, _FLOATING),
    "Ceil": _of(1, _FLOATING),
    "Round": _of(1, _FLOATING),
    "Max": _of(_MANY, _NUMERIC, cost=3),
    "Min": _of(_MANY, _NUMERIC, cost=3),
    "Sum": _of(_MANY, _FLOATING),
    "Mean": _of(_MANY, _FLOATING, cost=2),
    "Clip": _of((1, 3), _NUMERIC, cost=2),
    "Greater": _of(2, _to_bool(NUMBERS)),
    "GreaterOrEqual": _of(2, _to_bool(NUMBERS)),
    "Less": _of(2, _to_bool(NUMBERS)),
    "LessOrEqual": _of(2, _to_bool(NUMBERS)),
    "Equal": _of(2, _to_bool(ANY)),
    "And": _of(2, _TRUTH),
    "Or": _of(2, _TRUTH),
    "Xor": _of(2, _TRUTH),
    "Not": _of(1, _TRUTH),
    "BitwiseAnd": _of(2, _WHOLE),
    "BitwiseOr": _of(2, _WHOLE),
    "BitwiseXor": _of(2, _WHOLE),
    "BitwiseNot": _of(1, _WHOLE),
    "BitShift": _of(2, _WHOLE, cost=3),
    "IsNaN": _of(1, _to_bool(FLOATS)),
    "IsInf": _of(1, _to_bool(FLOATS)),
    "Where": _of(3, _accepts_where),
    "Identity": _of(1, _same(ANY), cost=0),
    "Cast": _of(1, _accepts_cast),
    "Relu": _of(1, _same(FLOATS | SIGNED)),
    "PRelu": _of(2, _NUMERIC, cost=2),
    "LeakyRelu": _of(1, _FLOATING, cost=2),
    "ThresholdedRelu": _of(1, _FLOATING, cost=2),
    "Shrink": _of(1, _FLOATING, cost=6),
    "HardSigmoid": _of(1, _FLOATING, cost=4),
    "HardSwish": _of(1, _FLOATING, cost=5),
    "Softsign": _of(1, _FLOATING, cost=6),
    "Elu": _of(1, _FLOATING, cost=22),
    "Selu": _of(1, _FLOATING, cost=22),
    "Celu": _of(1, _FLOATING, cost=25),
    "Swish": _of(1, _FLOATING, cost=24),
    "Mish": _of(1, _FLOATING, cost=26),
    "Softplus": _of(1, _FLOATING, cost=40),
    "Gelu": _of(1, _FLOATING, cost=28),
    "SwiGLU": _of(2, _FLOATING, cost=26),
    "Exp": _of(1, _FLOATING, cost=14),
    "Log": _of(1, _FLOATING, cost=22),
    "Erf": _of(1, _FLOATING, cost=20),
    "Tanh": _of(1, _FLOATING, cost=22),
    "Sigmoid": _of(1, _FLOATING, cost=22),
    "Sinh": _of(1, _FLOATING, cost=30),
    "Cosh": _of(1, _FLOATING, cost=26),
    "Asinh": _of(1, _FLOATING, cost=50),
    "Acosh": _of(1, _FLOATING, cost=50),
    "Atanh": _of(1, _FLOATING, cost=40),
    "Sin": _of(1, _NARROW, cost=40),
    "Cos": _of(1, _NARROW, cost=40),
    "Tan": _of(1, _NARROW, cost=50),
    "Asin": _of(1, _NARROW, cost=30),
    "Acos": _of(1, _NARROW, cost=30),
    "Atan": _of(1, _NARROW, cost=30),
}
