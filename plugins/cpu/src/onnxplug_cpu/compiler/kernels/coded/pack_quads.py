"""Packs differences of weights into panels of quads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from onnxplug_cpu.compiler.codegen.emit import I8, I16, I32, I64, Module, Value
from onnxplug_cpu.compiler.codegen.kernel import (
    Generator,
    Integer,
    KernelWords,
    Pointer,
)
from onnxplug_cpu.compiler.kernels.contraction.tile import QuadRemainders
from onnxplug_cpu.compiler.machine.isa import LANES, VECTOR_BYTES, Isa

_MOST: Final = 128
"""What the sizes of two weights of one sign may add up to: times 255 it has 16 bits."""

_HALVES, _WORDS = I16.vector(LANES), I32.vector(LANES)


class QuadWords(KernelWords):
    """Words of :class:`PackQuads`; distances are in bytes.

    - ``source``, rows of int16, ``source_row`` apart, those of a matrix
      ``source_matrix`` apart; a row has whole panels, zeros behind the ``columns``;
    - ``quads`` of rows;
    - ``panels`` of ``panel_columns``, of ``panel_bytes`` each in ``target``; of
      remainders a panel has room for ``capacity``, the first ``remainders`` bytes
      behind the head;
    - ``verdicts``, an i64 of each panel, not 0 if it may not be used.
    """

    source: Pointer
    source_row: Integer
    source_matrix: Integer
    quads: Integer
    columns: Integer
    panels: Integer
    panel_columns: Integer
    panel_bytes: Integer
    capacity: Integer
    remainders: Integer
    target: Pointer
    verdicts: Pointer


class PackQuads(Generator):
    """Packs panels as tiles of quads read them; a chunk is a panel of a matrix.

    A panel that has a difference of more than 8 bits, or more remainders than there is
    room for, is not to be used.

    Attributes:
        saturates: two products may not leave 16 bits; see
            :class:`~..contraction.tile.QuadRemainders`.
        octets: two quads of a column lie side by side; see
            :mod:`~..contraction.square_tile`.  The number of quads is even, and no sum
            saturates.
    """

    words = QuadWords.names

    saturates: bool
    octets: bool = False

    def write(self, module: Module, name: str, isa: Isa) -> None:
        panel = _Panel(QuadWords(module, name), self.saturates)
        panel.write(panel.octet if self.octets else None)


class _Panel:
    """The loops over quads of a panel, and vectors of columns."""

    def __init__(self, words: QuadWords, saturates: bool) -> None:
        self.words, self.saturates = words, saturates
        self.f = f = words.function
        words.keep(("source_row", "capacity", "quads"))
        matrix, panel = words.chunk // words.panels, words.chunk % words.panels
        first = panel * words.panel_columns
        source = f.at(words.source, matrix * words.source_matrix, I8)
        self.source = f.at(source, first, I16)
        self.target = f.at(words.target, words.chunk * words.panel_bytes, I8)
        left = f.minimum(words.columns - first, words.panel_columns)
        self.vectors = (left + (LANES - 1)) // LANES
        self.row = self.vectors * VECTOR_BYTES
        self.head = f.at(self.target, words.quads * self.row, I8)
        self.rows = f.at(self.head, words.remainders, I8)

    def write(self, octet: Callable[[Value, Value], list[Value]] | None) -> None:
        """Pack quads, or two at once by *octet*."""
        f, words = self.f, self.words
        behind = words.panel_bytes - words.quads * self.row
        zero = f.zero(_WORDS)
        f.loop(behind, lambda i: f.store(zero, f.at(self.head, i, I8), 4), step=64)
        none = f.value(0, I64)
        if octet is None:
            count, wrong = f.loop(words.quads, self._quad, [none, none])
        else:
            count, (wrong,) = none, f.loop(words.quads, octet, [none], step=2)
        f.store(f.convert(count, I32), self.head)
        f.store(f.convert(words.remainders, I32), f.at(self.head, 1, I32))
        f.store(wrong, f.at(words.verdicts, words.chunk, I64))
        f.finish()

    def _quad(self, number: Value, count: Value, wrong: Value) -> list[Value]:
        f, words = self.f, self.words
        source = f.at(self.source, number * 4 * words.source_row, I8)
        target = f.at(self.target, number * self.row, I8)
        missing = f.at(self.rows, count * self.row, I8)

        def vector(v: Value, wrong: Value, left: Value) -> list[Value]:
            quads, above, rest = self._vector(f.at(source, v * LANES, _HALVES))
            f.store(quads, f.at(target, v * VECTOR_BYTES, I8), 4)
            f.store(rest, f.at(missing, v * VECTOR_BYTES, I8), 4)
            return [wrong | above, left | f.convert(f.reduce("or", rest), I64)]

        wrong, left = f.loop(self.vectors, vector, [wrong, f.value(0, I64)])
        has_room = count < words.capacity

        def add() -> list[Value]:
            entry = f.at(self.head, count * I32.nbytes + QuadRemainders.HEAD, I8)
            f.store(f.convert(number, I32), entry)
            return [count + 1]

        some = left.compare("ne", 0)
        (after,) = f.branch(some & has_room, add, lambda: [count])
        full = some & (has_room ^ 1)
        return [after, wrong | f.convert(full, I64)]

    def octet(self, number: Value, wrong: Value) -> list[Value]:
        """Pack the quads of this number and the next one."""
        f, words = self.f, self.words
        target = f.at(self.target, number * self.row, I8)
        places = [
            f.at(self.source, (number + n) * 4 * words.source_row, I8) for n in range(2)
        ]

        def vector(v: Value, wrong: Value) -> list[Value]:
            (first, above, _), (second, more, _) = (
                self._vector(f.at(place, v * LANES, _HALVES)) for place in places
            )
            side_by_side = (n + LANES * half for n in range(LANES) for half in range(2))
            both = f.shuffle(first, second, list(side_by_side))
            f.store(both, f.at(target, v * 2 * VECTOR_BYTES, I8), 4)
            return [wrong | above | more]

        return f.loop(self.vectors, vector, [wrong])

    def _vector(self, source: Value) -> tuple[Value, Value, Value]:
        """The quads of sixteen columns; what is not 0 where they have more than 8 bits,
        and what is left of them."""
        f = self.f
        rows = [
            f.load(f.at(source, self.words.source_row * i, I8), _HALVES, 2)
            for i in range(4)
        ]
        bits = [(row + 128) & ~255 for row in rows]
        above = f.reduce("or", (bits[0] | bits[1]) | (bits[2] | bits[3]))
        rest = f.zero(_WORDS)
        if self.saturates:
            for first in (0, 2):
                missing = self._excess(rows[first], rows[first + 1])
                rows[first] = rows[first] - missing
                rest = rest | self._at_byte(missing, first)
        quads = self._at_byte(rows[0], 0)
        for place in (1, 2, 3):
            quads = quads | self._at_byte(rows[place], place)
        return quads, f.convert(above, I64), rest

    def _excess(self, first: Value, second: Value) -> Value:
        """What to take from the first of two, for their products to have 16 bits."""
        f = self.f
        total = first + second
        both = (first ^ second).compare("ge", 0)  # otherwise their signs differ
        high, low = f.maximum(total - _MOST, 0), f.minimum(total + _MOST, 0)
        return f.select(both, high + low, 0)

    def _at_byte(self, values: Value, place: int) -> Value:
        return (self.f.convert(values, _WORDS) & 255) << 8 * place
