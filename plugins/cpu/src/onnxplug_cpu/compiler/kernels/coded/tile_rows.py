"""Rows that meet weights that are codes in tiles of bfloat16, in planes: for each step
of 32 of K and each term one, which has 64 bytes of each row.

A plane has the elements ``p`` and ``16 + p`` of a step as a pair, as
:mod:`~onnxplug_cpu.compiler.kernels.contraction.bf16_terms` says.
"""

from __future__ import annotations

from onnxplug_cpu.compiler.codegen.emit import F32, I32, U32, Module, Type, Value
from onnxplug_cpu.compiler.codegen.kernel import (
    Generator,
    Integer,
    KernelWords,
    Pointer,
)
from onnxplug_cpu.compiler.codegen.tile_registers import ROW_BYTES
from onnxplug_cpu.compiler.kernels.coded.panels import exact_pair
from onnxplug_cpu.compiler.kernels.contraction.bf16_terms import (
    STEP,
    split,
    store_terms,
)
from onnxplug_cpu.compiler.kernels.contraction.tile import offset
from onnxplug_cpu.compiler.machine.isa import LANES, Isa

_VECTOR, _BITS = F32.vector(LANES), U32.vector(LANES)


class PlaneWords(KernelWords):
    """Words of what writes planes; strides are in bytes.

    - ``a`` with ``a_row``, rows as :class:`~.rows.OrderRows` or
      :class:`~.rows.RoundRows` writes them, of ``depth`` elements;
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
    """Splits rows of float32 into terms of bfloat16.  A chunk is a row.

    A row with elements that are infinite as bfloat16, or NaN, has a flag that is not 0,
    and planes of zeros: others multiply it.

    Attributes:
        terms: of an element.
    """

    terms: int

    words = SplitWords.names

    def write(self, module: Module, name: str, isa: Isa) -> None:
        k = SplitWords(module, name)
        k.keep(("plane", "depth"))
        f = k.function
        source = offset(f, k.a, k.chunk * k.a_row)
        begin = offset(f, k.planes, k.chunk * ROW_BYTES)
        distance = k.plane * self.terms

        def step(at: Value, place: Value, left: Value) -> list[Value]:
            halves = [
                f.load(f.at(source, at + first, F32), _VECTOR) for first in (0, LANES)
            ]
            found = split(f, halves[0], halves[1], self.terms)
            store_terms(f, found, place, k.plane)
            return [offset(f, place, distance), left + found.rest]

        none = f.zero(_VECTOR)
        _, left = f.loop(k.depth, step, [begin, none], step=STEP, nonempty=True)
        bits = f.bitcast(left.compare("ne", left), Type("i16"))
        flag = f.convert(bits.compare("ne", 0), U32)
        f.store(flag, f.at(k.flags, k.chunk, I32))

        def clear(_: Value, place: Value) -> list[Value]:
            for term in range(self.terms):
                f.store(none, offset(f, place, k.plane * term))
            return [offset(f, place, distance)]

        f.branch(
            flag.compare("ne", 0),
            lambda: f.loop(k.depth, clear, [begin], step=STEP) and None,
        )
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
    of all rows next to each other.  A chunk is a row."""

    words = RoundedWords.names

    def write(self, module: Module, name: str, isa: Isa) -> None:
        k = RoundedWords(module, name)
        k.keep(("plane", "scales_block", "each", "turned_sum"))
        f = k.function
        source = offset(f, k.a, k.chunk * k.a_row)
        begin = offset(f, k.planes, k.chunk * ROW_BYTES)
        stored = Type("i8", LANES)

        def step(at: Value, place: Value) -> list[Value]:
            halves = [
                f.load(offset(f, source, at + first), stored, align=1)
                for first in (0, LANES)
            ]
            low, high = (
                f.convert(f.convert(each, I32.vector(LANES)), _VECTOR)
                for each in halves
            )
            f.store(exact_pair(f, low, high), place)
            return [offset(f, place, k.plane)]

        f.loop(k.depth, step, [begin], step=STEP, nonempty=True)
        scales = offset(f, k.scales, k.chunk * k.scales_row)
        turned = f.at(k.turned, k.chunk, F32)

        def scale(number: Value) -> None:
            value = f.load(offset(f, scales, number // k.each * k.scales_block), F32)
            f.store(value, offset(f, turned, number * k.turned_sum))

        f.loop(k.sums, scale)
        f.finish()
