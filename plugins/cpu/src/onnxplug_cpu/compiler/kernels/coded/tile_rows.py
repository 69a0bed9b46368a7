"""Rows that meet weights that are codes in tiles of bfloat16, in planes: for each step
of 32 of K and each term one, which has 64 bytes of each row.

Elements are paired as :mod:`~.tile_codes` pairs codes.
"""

from __future__ import annotations

from typing import Final

from onnxplug_cpu.compiler.codegen.emit import (
    F32,
    I8,
    I32,
    U32,
    Function,
    Module,
    Value,
)
from onnxplug_cpu.compiler.codegen.kernel import (
    Generator,
    Integer,
    KernelWords,
    Pointer,
)
from onnxplug_cpu.compiler.codegen.lanes import Lanes, stored
from onnxplug_cpu.compiler.codegen.tile_registers import ROW_BYTES
from onnxplug_cpu.compiler.kernels.coded.tile_codes import (
    codes_of_half,
    exact_pairs,
    places_of_step,
)
from onnxplug_cpu.compiler.kernels.contraction.bf16_terms import (
    STEP,
    split,
    store_terms,
)
from onnxplug_cpu.compiler.kernels.contraction.tile import offset
from onnxplug_cpu.compiler.machine.isa import LANES, Isa

_VECTOR, _BITS = F32.vector(LANES), U32.vector(LANES)

_LARGE: Final = (127 + 100) << 23
"""The bits of 2¹⁰⁰."""


class PlaneWords(KernelWords):
    """Words of what writes planes; strides are in bytes.

    - ``a`` with ``a_row``, rows of ``depth`` elements;
    - ``planes``, each of ``plane`` bytes.
    """

    a: Pointer
    a_row: Integer
    depth: Integer
    planes: Pointer
    plane: Integer


class SplitWords(PlaneWords):
    """Words of :class:`SplitRows`: ``flags`` receives an i32 for each row."""

    flags: Pointer


class SplitRows(Generator):
    """Splits rows of floats into terms of bfloat16.  A chunk is a row.

    A row with elements that are not finite, or so large that sums of products with
    codes might not be, has a flag that is not 0, and planes of zeros: others multiply
    it.

    Attributes:
        element: ``f32``, ``f16`` or ``bf16``.
        bits: of a code.
        terms: of an element.
    """

    element: str
    bits: int
    terms: int

    words = SplitWords.names

    def write(self, module: Module, name: str, isa: Isa) -> None:
        k = SplitWords(module, name)
        k.keep(("plane", "depth"))
        f = k.function
        source = offset(f, k.a, k.chunk * k.a_row)
        begin = offset(f, k.planes, k.chunk * ROW_BYTES)
        distance = k.plane * self.terms
        lanes, type_ = Lanes(f, isa), stored(self.element)

        def step(at: Value, place: Value, top: Value) -> list[Value]:
            whole = [
                lanes.load(self.element, f.at(source, at + first, type_), lanes.whole())
                for first in (0, LANES)
            ]
            found = split(f, *_paired(f, whole, self.bits), self.terms)
            store_terms(f, found, place, k.plane)
            for each in whole:  # without a sign, floats have the order of their bits
                top = f.maximum(top, f.bitcast(each, _BITS) & 0x7FFF_FFFF)
            return [offset(f, place, distance), top]

        none = f.zero(_VECTOR)
        begins = [begin, f.zero(_BITS)]
        _, top = f.loop(k.depth, step, begins, step=STEP, nonempty=True)
        is_large = f.reduce("umax", top).compare("ge", _LARGE)
        flag = f.convert(is_large, U32)
        f.store(flag, f.at(k.flags, k.chunk, I32))

        def clear(_: Value, place: Value) -> list[Value]:
            for term in range(self.terms):
                f.store(none, offset(f, place, k.plane * term))
            return [offset(f, place, distance)]

        def clear_all() -> None:
            f.loop(k.depth, clear, [begin], step=STEP)

        f.branch(flag.compare("ne", 0), clear_all)
        f.finish()


class RoundedWords(PlaneWords):
    """Words of :class:`RoundedPlanes`: ``scales`` with ``scales_row`` and
    ``scales_block`` of the blocks of rows, each of which belongs to ``each`` of
    ``sums``; ``turned``, with ``turned_sum``, receives those of all rows for a sum."""

    scales: Pointer
    scales_row: Integer
    scales_block: Integer
    each: Integer
    sums: Integer
    turned: Pointer
    turned_sum: Integer


class RoundedPlanes(Generator):
    """Writes rows of bytes, which bfloat16 has exactly, and puts the scales of a block
    of all rows next to each other.  A chunk is a row.

    Attributes:
        bits: of a code.
    """

    bits: int

    words = RoundedWords.names

    def write(self, module: Module, name: str, isa: Isa) -> None:
        k = RoundedWords(module, name)
        k.keep(("plane", "scales_block", "each", "turned_sum"))
        f = k.function
        source = offset(f, k.a, k.chunk * k.a_row)
        begin = offset(f, k.planes, k.chunk * ROW_BYTES)

        def step(at: Value, place: Value) -> list[Value]:
            whole = []
            for first in (0, LANES):
                here = offset(f, source, at + first)
                codes = f.load(here, I8.vector(LANES), align=1)
                whole.append(f.convert(f.convert(codes, I32.vector(LANES)), _VECTOR))
            f.store(exact_pairs(f, *_paired(f, whole, self.bits)), place)
            return [offset(f, place, k.plane)]

        f.loop(k.depth, step, [begin], step=STEP, nonempty=True)
        scales = offset(f, k.scales, k.chunk * k.scales_row)
        turned = f.at(k.turned, k.chunk, F32)

        def scale(number: Value) -> None:
            value = f.load(offset(f, scales, number // k.each * k.scales_block), F32)
            f.store(value, offset(f, turned, number * k.turned_sum))

        f.loop(k.sums, scale)
        f.finish()


def _paired(f: Function, whole: list[Value], bits: int) -> tuple[Value, Value]:
    """The first and the second elements of pairs, of 32 that follow each other."""
    places, behind = places_of_step(bits), codes_of_half(bits)
    first, second = whole
    low = f.shuffle(first, second, places)
    return low, f.shuffle(first, second, [place + behind for place in places])
