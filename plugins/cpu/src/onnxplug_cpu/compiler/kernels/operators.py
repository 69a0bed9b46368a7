"""ONNX's element-wise operators as instructions on vectors of 16 elements.

Semantics are those of the newest opset; results are those of the array kernels, bit by
bit where an operator is exact, and otherwise as near as :mod:`~..math` says.  Floats
narrower than f32 are computed in f32 and rounded once for each operator.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from onnxplug_cpu.compiler import math
from onnxplug_cpu.compiler.chain import Step
from onnxplug_cpu.compiler.emit import Function, Value
from onnxplug_cpu.compiler.isa import Isa
from onnxplug_cpu.compiler.kernels import step_activation as activation
from onnxplug_cpu.compiler.kernels import step_arithmetic as arithmetic
from onnxplug_cpu.compiler.kernels import step_cast, step_logic
from onnxplug_cpu.compiler.kernels.step import (
    FLOATS,
    INTEGERS,
    NARROW_FLOATS,
    NUMBERS,
    SIGNED,
    UNSIGNED,
    Arguments,
)
from onnxplug_cpu.compiler.math.narrow import rounded

ANY: Final = NUMBERS | {"i1"}
_BOOL: Final = frozenset({"i1"})

_Emit: TypeAlias = Callable[[Arguments], Value]
_Accepts: TypeAlias = Callable[[Sequence[str], str], bool]


class _Operator(NamedTuple):
    """How an operator is emitted.

    Attributes:
        emit: emits it.
        operands: the fewest and the most.
        accepts: whether it is compiled for these elements of operands and result.
        is_exact: a narrow float's result needs no rounding.
        cost: about how many vector instructions it is, for f32.
    """

    emit: _Emit
    operands: tuple[int, int]
    accepts: _Accepts
    is_exact: bool = False
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
        operand_elements: element types as in :class:`~..chain.Chain`; empty for an
            operand that is left out.
        result: the result's element type.
        attributes: as of :class:`~..chain.Step`.
    """
    found = _OPERATORS.get(operator)
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


def emit_step(
    f: Function, isa: Isa, step: Step, operands: Sequence[Value | None]
) -> Value:
    """Emit one step that :func:`supports` takes.

    Args:
        operands: vectors as :func:`~.lanes.held` types them; ``None`` for what is left
            out.  A :class:`~.step.Literal` allows cheaper instructions.
    """
    found = _OPERATORS[step.operator]
    arguments = Arguments(f, isa, list(operands), step.element, dict(step.attributes))
    result = found.emit(arguments)
    return result if found.is_exact else rounded(f, isa, result, step.element)


def cost(step: Step) -> int:
    """About how many vector instructions a step is, for f32."""
    return _OPERATORS[step.operator].cost


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
        emit: _Emit,
        operands: int | tuple[int, int],
        accepts: _Accepts,
        *,
        exact: bool = False,
        cost: int = 1,
    ) -> None:
        count = (operands, operands) if isinstance(operands, int) else operands
        table[name] = _Operator(emit, count, accepts, exact, cost)

    many = (1, 1 << 10)
    numeric, floats = _same(NUMBERS), _same(FLOATS)
    narrow, whole, truth = _same(NARROW_FLOATS), _same(INTEGERS), _same(_BOOL)

    add("Add", arithmetic.add, 2, numeric)
    add("Sub", arithmetic.sub, 2, numeric)
    add("Mul", arithmetic.mul, 2, numeric)
    add("Div", arithmetic.div, 2, numeric, cost=6)
    add("Mod", arithmetic.mod, 2, whole, cost=20)
    add("Pow", arithmetic.power, 2, _accepts_power, cost=60)
    add("Neg", arithmetic.negate, 1, _same(FLOATS | SIGNED), exact=True)
    add("Abs", arithmetic.absolute, 1, numeric, exact=True)
    add("Sign", arithmetic.sign, 1, numeric, exact=True, cost=6)
    add("Sqrt", arithmetic.square_root, 1, floats, cost=6)
    add("Reciprocal", arithmetic.reciprocal, 1, floats, cost=6)
    add("Floor", arithmetic.floor, 1, floats, exact=True)
    add("Ceil", arithmetic.ceiling, 1, floats, exact=True)
    add("Round", arithmetic.round_to_even, 1, floats, exact=True)
    add("Max", arithmetic.maximum, many, numeric, exact=True, cost=3)
    add("Min", arithmetic.minimum, many, numeric, exact=True, cost=3)
    add("Sum", arithmetic.total, many, floats)
    add("Mean", arithmetic.mean, many, floats, cost=2)
    add("Clip", arithmetic.clip, (1, 3), numeric, exact=True, cost=2)

    for name, emit in (
        ("Greater", step_logic.greater),
        ("GreaterOrEqual", step_logic.greater_or_equal),
        ("Less", step_logic.less),
        ("LessOrEqual", step_logic.less_or_equal),
    ):
        add(name, emit, 2, _to_bool(NUMBERS))
    add("Equal", step_logic.equal, 2, _to_bool(ANY))
    add("And", step_logic.both, 2, truth)
    add("Or", step_logic.either, 2, truth)
    add("Xor", step_logic.exclusive, 2, truth)
    add("Not", step_logic.inverted, 1, truth)
    add("BitwiseAnd", step_logic.both, 2, whole)
    add("BitwiseOr", step_logic.either, 2, whole)
    add("BitwiseXor", step_logic.exclusive, 2, whole)
    add("BitwiseNot", step_logic.inverted, 1, whole)
    add("BitShift", step_logic.shifted, 2, _same(UNSIGNED), cost=3)
    add("IsNaN", step_logic.is_nan, 1, _to_bool(FLOATS))
    add("IsInf", step_logic.is_infinite, 1, _to_bool(FLOATS))
    add("Where", step_logic.where, 3, _accepts_where, exact=True)
    add("Identity", step_logic.identity, 1, _same(ANY), exact=True, cost=0)
    add("Cast", step_cast.cast, 1, _accepts_cast, exact=True)

    add("Relu", activation.relu, 1, _same(FLOATS | SIGNED), exact=True)
    add("PRelu", activation.prelu, 2, numeric, cost=2)
    add("LeakyRelu", activation.leaky_relu, 1, floats, cost=2)
    add("ThresholdedRelu", activation.thresholded_relu, 1, floats, cost=2)
    add("Shrink", activation.shrink, 1, floats, cost=6)
    add("HardSigmoid", activation.hard_sigmoid, 1, floats, cost=4)
    add("HardSwish", activation.hard_swish, 1, floats, cost=5)
    add("Softsign", activation.softsign, 1, floats, cost=6)
    for name, emit, cost_ in (
        ("Elu", activation.elu, 22),
        ("Selu", activation.selu, 22),
        ("Celu", activation.celu, 25),
        ("Swish", activation.swish, 24),
        ("Mish", activation.mish, 26),
        ("Softplus", activation.softplus, 40),
        ("Gelu", activation.gelu, 28),
    ):
        add(name, emit, 1, narrow, cost=cost_)
    add("SwiGLU", activation.swiglu, 2, narrow, cost=26)
    for name, function, cost_ in (
        ("Exp", math.exp, 14),
        ("Log", math.log, 22),
        ("Erf", math.erf, 20),
        ("Tanh", math.tanh, 22),
        ("Sigmoid", math.sigmoid, 22),
        ("Sinh", math.sinh, 30),
        ("Cosh", math.cosh, 26),
        ("Asinh", math.asinh, 50),
        ("Acosh", math.acosh, 50),
        ("Atanh", math.atanh, 40),
        ("Sin", math.sin, 40),
        ("Cos", math.cos, 40),
        ("Tan", math.tan, 50),
        ("Asin", math.asin, 30),
        ("Acos", math.acos, 30),
        ("Atan", math.atan, 30),
    ):
        add(name, activation.of_math(function), 1, narrow, cost=cost_)
    return table


_OPERATORS: Final = _table()
