"""Floats that become codes: rounded, shifted and limited by one conversion.

``QuantizeLinear`` is a chain of Round, Add of a zero point, Max, Min and Cast.  Limits
from which the zero point is subtracted may be applied before a number is rounded, as
they are whole, and so is what is added; x86 and NEON round while they convert.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any, Final

from onnxplug_compiler.ir.elementwise import Chain, ChainBuilder, Number, Step
from onnxplug_compiler.ir.quantization import CODE_LIMITS
from onnxplug_cpu.compiler.codegen.emit import I8, I16, I32, Function, Value
from onnxplug_cpu.compiler.kernels.elementwise.step import Arguments
from onnxplug_cpu.compiler.machine.isa import LANES, VECTOR_BYTES, Isa

CODES: Final = "codes"
"""An operator of its own, which no model has: a number, the least and the largest that
it may be, and what is added when it is rounded, an i32 or nothing."""

_WHOLE: Final = "whole"
"""The attribute of codes whose limits are those of their type."""

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


def quotients(chain: Chain, live: Set[int]) -> dict[int, int]:
    """The divisors of those values of a chain that :func:`with_codes` gives that are
    quotients of float32, of which nothing but whole numbers are made."""
    first = len(chain.inputs) + len(chain.constants)
    steps = dict(enumerate(chain.steps, first))
    others = set(chain.outputs)
    for number in live & steps.keys():
        step = steps[number]
        others.update(step.operands[step.operator in (CODES, "Round") :])
    return {
        number: step.operands[1]
        for number, step in steps.items()
        if number in live - others and step.operator == "Div" and step.element == "f32"
    }


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
    first = len(chain.inputs)
    ends = tuple(chain.constants[number - first].value for number in (low, high))
    attributes = {_WHOLE: 1} if ends == CODE_LIMITS[step.element] else {}
    return builder.step(CODES, operands, step.element, attributes)


def _made(chain: Chain, value: int, operator: str) -> Step | None:
    """The step that makes a float32 by an operator."""
    number = value - len(chain.inputs) - len(chain.constants)
    if number < 0 or chain.element(value) != "f32":
        return None
    step = chain.steps[number]
    return step if step.operator == operator else None


def _is_constant(chain: Chain, value: int) -> bool:
    return 0 <= value - len(chain.inputs) < len(chain.constants)


def packed_lanes(isa: Isa) -> int:
    """Lanes of vectors whose codes of a byte are limited while they are packed, which
    takes fewer instructions; 0 if none are."""
    return VECTOR_BYTES if isa.name == "avx512" else 0


def is_packed(chain: Chain, isa: Isa) -> bool:
    """Whether a chain :func:`with_codes` gives codes that :func:`packed_lanes` are
    for, and nothing else."""
    first = len(chain.inputs) + len(chain.constants)
    made = [chain.steps[output - first] for output in chain.outputs if output >= first]
    return (
        packed_lanes(isa) > 0
        and len(made) == len(chain.outputs)
        and all(_may_be_packed(step.element, dict(step.attributes)) for step in made)
    )


def _may_be_packed(element: str, attributes: Mapping[str, Any]) -> bool:
    """Whether packing limits codes as they are to be."""
    return element in _PACKED and _WHOLE in attributes


_PACKED: Final = {
    "i8": "llvm.x86.avx512.packsswb.512",
    "u8": "llvm.x86.avx512.packuswb.512",
}
"""What makes bytes of words with a sign, and limits them."""


def codes(a: Arguments) -> Value:
    """The emitter of :data:`CODES`; of NaN some code."""
    f, x, (low, high) = a.f, a.x, (a.operand(1), a.operand(2))
    has_lanes = x.type.lanes == packed_lanes(a.isa)
    packs = has_lanes and _may_be_packed(a.element, a.attributes)
    if not packs:
        x = f.select(low > x, low, x)
    # what is too large for an i32 would become the least one
    x = f.select(high < x, high, x)
    wide = I32.vector(x.type.lanes)
    name = f"llvm.lrint.{wide.suffix}.{x.type.suffix}"
    found = f.instruction(wide, f"freeze {f.intrinsic(wide, name, x)}")
    if packs:
        return _packed(f, found, a.operands[3], a.element)
    if a.operands[3] is not None:
        found = found + a.operand(3)
    narrow = wide.of(a.element)
    return f.convert(found, narrow)


def _packed(f: Function, wide: Value, zero: Value | None, element: str) -> Value:
    """The codes of four registers of i32, *zero* added, within what *element* has.

    Instructions take 128 bits of one register, and then of the other.
    """
    words = _words(f, wide)
    if zero is not None:
        adds = f"llvm.sadd.sat.{words[0].type.suffix}"
        words = [
            f.intrinsic(word.type, adds, word, more)
            for word, more in zip(words, _words(f, zero), strict=True)
        ]
    octets = f.intrinsic(I8.vector(wide.type.lanes), _PACKED[element], *words)
    order = [
        16 * part + 4 * register + byte
        for register in range(4)
        for part in range(4)
        for byte in range(4)
    ]
    found = f.shuffle(octets, octets, order)
    return f.bitcast(found, found.type.of(element))


def _words(f: Function, wide: Value) -> list[Value]:
    """Two registers of words with a sign of four of i32, as they are packed."""
    registers = [
        f.shuffle(wide, wide, range(first, first + LANES))
        for first in range(0, wide.type.lanes, LANES)
    ]
    name, words = "llvm.x86.avx512.packssdw.512", I16.vector(2 * LANES)
    return [f.intrinsic(words, name, *registers[at : at + 2]) for at in (0, 2)]
