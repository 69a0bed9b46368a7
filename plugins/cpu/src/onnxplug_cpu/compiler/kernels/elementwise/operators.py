"""Which of ONNX's element-wise operators are compiled, and about what they cost.

Apart from :mod:`~.emitters`, which emits them, as a plan needs no more than this.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, TypeAlias

from onnxplug.authoring.record import Record
from onnxplug_cpu.compiler.ir.elements import (
    FLOATS,
    INTEGERS,
    NARROW_FLOATS,
    NUMBERS,
    SIGNED,
    UNSIGNED,
)
from onnxplug_cpu.compiler.ir.elementwise import Chain

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
        operand_elements: element types as in :class:`~...ir.elementwise.Chain`; empty
            for an operand that is left out.
        result: the result's element type.
        attributes: as of :class:`~...ir.elementwise.Step`.
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
    return base in NARROW_FLOATS and exponent in NUMBERS


def _accepts_cast(operands: Sequence[str], result: str) -> bool:
    return operands[0] in ANY and result in ANY


def _table() -> dict[str, _Operator]:
    table: dict[str, _Operator] = {}

    def add(
        name: str,
        operands: int | tuple[int, int],
        accepts: _Accepts,
        *,
        cost: int = 1,
    ) -> None:
        count = (operands, operands) if isinstance(operands, int) else operands
        table[name] = _Operator(count, accepts, cost)

    many = (1, 1 << 10)
    numeric, floats = _same(NUMBERS), _same(FLOATS)
    narrow, whole, truth = _same(NARROW_FLOATS), _same(INTEGERS), _same(_BOOL)

    add("Add", 2, numeric)
    add("Sub", 2, numeric)
    add("Mul", 2, numeric)
    add("Div", 2, numeric, cost=6)
    add("Mod", 2, whole, cost=20)
    add("Pow", 2, _accepts_power, cost=60)
    add("Neg", 1, _same(FLOATS | SIGNED))
    add("Abs", 1, numeric)
    add("Sign", 1, numeric, cost=6)
    add("Sqrt", 1, floats, cost=6)
    add("Reciprocal", 1, floats, cost=6)
    add("Floor", 1, floats)
    add("Ceil", 1, floats)
    add("Round", 1, floats)
    add("Max", many, numeric, cost=3)
    add("Min", many, numeric, cost=3)
    add("Sum", many, floats)
    add("Mean", many, floats, cost=2)
    add("Clip", (1, 3), numeric, cost=2)

    add("Greater", 2, _to_bool(NUMBERS))
    add("GreaterOrEqual", 2, _to_bool(NUMBERS))
    add("Less", 2, _to_bool(NUMBERS))
    add("LessOrEqual", 2, _to_bool(NUMBERS))
    add("Equal", 2, _to_bool(ANY))
    add("And", 2, truth)
    add("Or", 2, truth)
    add("Xor", 2, truth)
    add("Not", 1, truth)
    add("BitwiseAnd", 2, whole)
    add("BitwiseOr", 2, whole)
    add("BitwiseXor", 2, whole)
    add("BitwiseNot", 1, whole)
    add("BitShift", 2, _same(UNSIGNED), cost=3)
    add("IsNaN", 1, _to_bool(FLOATS))
    add("IsInf", 1, _to_bool(FLOATS))
    add("Where", 3, _accepts_where)
    add("Identity", 1, _same(ANY), cost=0)
    add("Cast", 1, _accepts_cast)

    add("Relu", 1, _same(FLOATS | SIGNED))
    add("PRelu", 2, numeric, cost=2)
    add("LeakyRelu", 1, floats, cost=2)
    add("ThresholdedRelu", 1, floats, cost=2)
    add("Shrink", 1, floats, cost=6)
    add("HardSigmoid", 1, floats, cost=4)
    add("HardSwish", 1, floats, cost=5)
    add("Softsign", 1, floats, cost=6)
    add("Elu", 1, narrow, cost=22)
    add("Selu", 1, narrow, cost=22)
    add("Celu", 1, narrow, cost=25)
    add("Swish", 1, narrow, cost=24)
    add("Mish", 1, narrow, cost=26)
    add("Softplus", 1, narrow, cost=40)
    add("Gelu", 1, narrow, cost=28)
    add("SwiGLU", 2, narrow, cost=26)
    add("Exp", 1, narrow, cost=14)
    add("Log", 1, narrow, cost=22)
    add("Erf", 1, narrow, cost=20)
    add("Tanh", 1, narrow, cost=22)
    add("Sigmoid", 1, narrow, cost=22)
    add("Sinh", 1, narrow, cost=30)
    add("Cosh", 1, narrow, cost=26)
    add("Asinh", 1, narrow, cost=50)
    add("Acosh", 1, narrow, cost=50)
    add("Atanh", 1, narrow, cost=40)
    add("Sin", 1, narrow, cost=40)
    add("Cos", 1, narrow, cost=40)
    add("Tan", 1, narrow, cost=50)
    add("Asin", 1, narrow, cost=30)
    add("Acos", 1, narrow, cost=30)
    add("Atan", 1, narrow, cost=30)
    return table


OPERATORS: Final = _table()
