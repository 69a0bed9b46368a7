"""Floats that become codes: rounded, shifted and limited by one conversion.

``QuantizeLinear`` is a chain of Round, Add of a zero point, Max, Min and Cast.  Limits
from which the zero point is subtracted may be applied before a number is rounded, as
they are whole, and so is what is added; x86 and NEON round while they convert.
"""

from __future__ import annotations

from typing import Final

from onnxplug_compiler.ir.elementwise import Chain, ChainBuilder, Number, Step
from onnxplug_cpu.compiler.codegen.emit import I32, Value
from onnxplug_cpu.compiler.kernels.elementwise.step import Arguments

CODES: Final = "codes"
"""An operator of its own, which no model has: a number, the least and the largest that
it may be, and what is added when it is rounded, an i32 or nothing."""

_NARROW: Final = frozenset({"i8", "u8", "i16", "u16"})


def with_codes(chain: Chain) -> Chain:
    """The chain with :data:`CODES` in the place of what rounds and limits numbers."""
    builder = ChainBuilder()
    values = [builder.input(element) for element in chain.inputs]
    values += [builder.constant(*scalar) for scalar in chain.constants]
    for step in chain.steps:
        made = _codes(chain, step, values, builder)
        if made is None:
            operands = [values[o] if o >= 0 else None for o in step.operands]
            made = builder.step(step.operator, operands, step.element, step.attributes)
        values.append(made)
    return builder.build([values[output] for output in chain.outputs])


def _codes(
    chain: Chain, step: Step, values: list[Number], builder: ChainBuilder
) -> Number | None:
    """What takes the place of *step*, if it is the last one of such a chain."""
    if step.operator != "Cast" or step.element not in _NARROW:
        return None
    least = _made(chain, step.operands[0], "Min")
    most = least and _made(chain, least.operands[0], "Max")
    if not (least and most and len(least.operands) == len(most.operands) == 2):
        return None
    low, high = most.operands[1], least.operands[1]
    if not (_is_constant(chain, low) and _is_constant(chain, high)):
        return None
    limits, zero, place = [values[low], values[high]], None, most.operands[0]
    shifted = _made(chain, place, "Add")
    if shifted is not None:
        place, shift = shifted.operands
        whole = _made(chain, shift, "Cast")
        if whole is None or chain.element(whole.operands[0]) not in _NARROW:
            return None
        limits = [builder.step("Sub", [n, values[shift]], "f32") for n in limits]
        zero = builder.step("Cast", [values[whole.operands[0]]], "i32")
    rounded = _made(chain, place, "Round")
    if rounded is None:
        return None
    operands = [values[rounded.operands[0]], *limits, zero]
    return builder.step(CODES, operands, step.element)


def _made(chain: Chain, value: int, operator: str) -> Step | None:
    """The step that makes a float32 by an operator."""
    number = value - len(chain.inputs) - len(chain.constants)
    if number < 0 or chain.element(value) != "f32":
        return None
    step = chain.steps[number]
    return step if step.operator == operator else None


def _is_constant(chain: Chain, value: int) -> bool:
    return 0 <= value - len(chain.inputs) < len(chain.constants)


def codes(a: Arguments) -> Value:
    """The emitter of :data:`CODES`; of NaN some code."""
    f, x, (low, high) = a.f, a.x, (a.operand(1), a.operand(2))
    x = f.select(low > x, low, x)
    x = f.select(high < x, high, x)
    wide = I32.vector(x.type.lanes)
    name = f"llvm.lrint.{wide.suffix}.{x.type.suffix}"
    found = f.instruction(wide, f"freeze {f.intrinsic(wide, name, x)}")
    if a.operands[3] is not None:
        found = found + a.operand(3)
    narrow = wide.of(a.element)
    return f.convert(found, narrow)
