"""Codes as rows of tiles: integers, less a zero point, as pairs of bfloat16.

A word has two halves with as many codes.  A row of a tile has for each column a code of
the first half and the one as far in the second half; so of codes of up to four bits the
lanes of 16 bits of a register are shifted, and each looks up a number.
"""

from __future__ import annotations

from typing import Final

from onnxplug_cpu.compiler.codegen.emit import F32, I32, U16, U32, Function, Value
from onnxplug_cpu.compiler.kernels.coded.panels import Numbers, Panel, joined
from onnxplug_cpu.compiler.machine.isa import LANES, Isa

_VECTOR: Final = F32.vector(LANES)
_BITS: Final = U32.vector(LANES)
_HALVES: Final = U16.vector(2 * LANES)
_HIGH_HALF: Final = 0xFFFF_0000


def codes_of_half(bits: int) -> int:
    """Of a word."""
    return 16 // bits


def places_of_step(bits: int) -> list[int]:
    """Which of 32 elements of K are the first of the pairs of a tile; the second ones
    are :func:`codes_of_half` behind."""
    half = codes_of_half(bits)
    return [pair // half * 2 * half + pair % half for pair in range(LANES)]


def exact_pairs(f: Function, low: Value, high: Value) -> Value:
    """Two vectors of f32, which bfloat16 has exactly, as one of pairs of bfloat16."""
    return (f.bitcast(low, _BITS) >> 16) | (f.bitcast(high, _BITS) & _HIGH_HALF)


class Pairs:
    """Rows of tiles from words of codes; make it before any loop."""

    def __init__(self, panel: Panel, isa: Isa) -> None:
        f, form = self.f, self.form = panel.f, panel.codes.form
        self.half = codes_of_half(form.bits)
        self._numbers = Numbers(panel)
        self._top = top = (1 << form.bits) - 1
        self._table: Value | None = None
        if isa.name == "avx512" and form.bits < 8 and form.zero in ("", "packed"):
            # with zero points of blocks, of what differs from them
            less = top if form.zero else 0
            parts = []
            for first in (0, LANES):
                each = range(first, first + LANES)
                codes = [index - less if less else index & top for index in each]
                numbers = f.table(codes, F32)
                if not form.zero:
                    numbers = numbers - panel.middle()
                parts.append(
                    f.convert(f.bitcast(numbers, _BITS) >> 16, U16.vector(LANES))
                )
            self._table = joined(f, parts)

    def away(self, zero: Value) -> Value:
        """Zero points of a block, one of each column, as :meth:`of` takes them."""
        f = self.f
        if self._table is None:
            return zero
        away = f.convert_finite(float(self._top) - zero, I32.vector(LANES))
        return f.bitcast(away | (away << 16), _HALVES)

    def of(self, word: Value, away: Value | None) -> list[Value]:
        """The pairs of a word of each column."""
        f, bits, half = self.f, self.form.bits, self.half
        if self._table is None:
            codes = self._numbers.of(word, 2 * half)
            if away is not None:
                codes = [code - away for code in codes]
            pairs = zip(codes[:half], codes[half:], strict=True)
            return [exact_pairs(f, low, high) for low, high in pairs]
        found, halves = [], f.bitcast(word, _HALVES)
        for number in range(half):
            # the instruction heeds the lowest five bits of a lane
            place = halves >> (bits * number) if number else halves
            if away is not None:
                place = (place & self._top) + away
            name = "llvm.x86.avx512.permvar.hi.512"
            pair = f.intrinsic(_HALVES, name, self._table, place)
            found.append(f.bitcast(pair, _BITS))
        return found
