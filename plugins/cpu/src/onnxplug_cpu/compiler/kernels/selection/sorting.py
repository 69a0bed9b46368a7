"""Sorting by digits, the last one first (LSD radix sort), and of a few keys by counting
for each how many come before it: equal keys stay in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from onnxplug_cpu.compiler.codegen.emit import I64, Function, Type, Value
from onnxplug_cpu.compiler.codegen.lanes import Lanes, Part
from onnxplug_cpu.compiler.kernels.selection.keys import chosen_bits, count_bits
from onnxplug_cpu.compiler.kernels.sweep import sweep

DIGITS: Final = 256
"""Values of a digit."""
_FEW: Final = 64
"""Keys that are compared with each other."""


class Sort:
    """Sorts keys and what goes with each, in memory of its own.

    Args:
        key: the type of both.
        memory: of keys and companions, which are sorted; and as much beside.  A whole
            vector may be read from each place.
        histogram: :data:`DIGITS` integers of 8 bytes.
    """

    def __init__(
        self,
        f: Function,
        lanes: Lanes,
        key: Type,
        memory: Sequence[tuple[Value, Value]],
        histogram: Value,
    ) -> None:
        self.f, self.lanes, self.key = f, lanes, key
        self.memory = memory
        self.histogram = histogram

    def sort(self, count: Value) -> Value:
        """Sort *count* keys, at least one; where the companions are then."""
        return self.f.branch(
            count <= _FEW,
            lambda: [self._compare(count)],
            lambda: [self._by_digits(count)],
        )[0]

    def _compare(self, count: Value) -> Value:
        """Sort a few keys."""
        f = self.f
        (keys, others), (_, more) = self.memory
        vector = self.key.vector(self.lanes.width)

        def one(index: Value) -> None:
            key = f.splat(f.load(f.at(keys, index, self.key), self.key), vector.lanes)

            def some(first: Value, part: Part, total: Value) -> list[Value]:
                met = f.load(f.at(keys, first, self.key), vector)
                earlier = f.first_lanes(f.maximum(index - first, 0), vector.lanes)
                before = (met < key) | (met.compare("eq", key) & earlier)
                return [total + count_bits(f, chosen_bits(f, before, part))]

            (place,) = sweep(f, self.lanes, count, some, [f.value(0, I64)])
            other = f.load(f.at(others, index, self.key), self.key)
            f.store(other, f.at(more, place, self.key))

        f.loop(count, one, nonempty=True)
        return more

    def _by_digits(self, count: Value) -> Value:
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
