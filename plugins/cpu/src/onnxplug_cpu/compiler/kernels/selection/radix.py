"""Sorting by digits, the last one first (LSD radix sort): equal keys stay in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from onnxplug_cpu.compiler.codegen.emit import I64, Function, Type, Value

DIGITS: Final = 256
"""Values of a digit."""


class RadixSort:
    """Sorts keys and what goes with each, in memory of its own.

    Args:
        key: the type of both.
        memory: of keys and companions, which are sorted; and as much beside.
        histogram: :data:`DIGITS` integers of 8 bytes.
    """

    def __init__(
        self,
        f: Function,
        key: Type,
        memory: Sequence[tuple[Value, Value]],
        histogram: Value,
    ) -> None:
        self.f, self.key = f, key
        self.memory = memory
        self.histogram = histogram

    def sort(self, count: Value) -> Value:
        """Sort *count* keys, at least one; where the companions are then."""
        f = self.f
        (keys, others), (free, more) = self.memory

        def digit(number: Value, *at: Value) -> list[Value]:
            keys, others, free, more = at
            shift = f.convert(number * 8, Type(f"i{self.key.bits}"))
            shift = f.bitcast(shift, self.key)
            self._count(keys, count, shift)
            first = self._digit(f.load(keys, self.key), shift)
            alike = f.load(f.at(self.histogram, first, I64), I64)

            def move() -> list[Value]:
                self._add_up()
                self._move(keys, others, free, more, count, shift)
                return [free, more, keys, others]

            return f.branch(alike.compare("eq", count), lambda: list(at), move)

        digits = f.value(self.key.nbytes, I64)
        begin = [keys, others, free, more]
        return f.loop(digits, digit, begin, nonempty=True)[1]

    def _digit(self, key: Value, shift: Value) -> Value:
        f = self.f
        wide = f.convert((key >> shift) & (DIGITS - 1), Type("u64"))
        return f.bitcast(wide, I64)

    def _count(self, keys: Value, count: Value, shift: Value) -> None:
        """How often each value of a digit is there."""
        f = self.f
        zeros = I64.vector(8)

        def clear(first: Value) -> None:
            f.store(f.zero(zeros), f.at(self.histogram, first, I64))

        f.loop(DIGITS, clear, step=8, nonempty=True)

        def one(index: Value) -> None:
            key = f.load(f.at(keys, index, self.key), self.key)
            place = f.at(self.histogram, self._digit(key, shift), I64)
            f.store(f.load(place, I64) + 1, place)

        f.loop(count, one, nonempty=True)

    def _add_up(self) -> None:
        """Where the keys of each value of a digit begin."""
        f = self.f

        def one(value: Value, before: Value) -> list[Value]:
            place = f.at(self.histogram, value, I64)
            after = before + f.load(place, I64)
            f.store(before, place)
            return [after]

        f.loop(DIGITS, one, [f.value(0, I64)], nonempty=True)

    def _move(
        self,
        keys: Value,
        others: Value,
        to: Value,
        more: Value,
        count: Value,
        shift: Value,
    ) -> None:
        f = self.f

        def one(index: Value) -> None:
            key = f.load(f.at(keys, index, self.key), self.key)
            other = f.load(f.at(others, index, self.key), self.key)
            slot = f.at(self.histogram, self._digit(key, shift), I64)
            place = f.load(slot, I64)
            f.store(key, f.at(to, place, self.key))
            f.store(other, f.at(more, place, self.key))
            f.store(place + 1, slot)

        f.loop(count, one, nonempty=True)
