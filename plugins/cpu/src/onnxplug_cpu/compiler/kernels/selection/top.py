"""The first elements of rows in order: of keys, the smallest.

A few are kept sorted in registers.  Of more, what is smaller than the last one kept is
collected; when the room for that is full, the number is found below which as many are
as are wanted, and the others are dropped.  What is left is sorted by its digits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from onnxplug_cpu.compiler.codegen.emit import I8, I64, Module, Type, Value
from onnxplug_cpu.compiler.codegen.kernel import Generator, KernelFunction
from onnxplug_cpu.compiler.codegen.lanes import Lanes, Part, stored
from onnxplug_cpu.compiler.codegen.row_copy import move_type
from onnxplug_cpu.compiler.kernels.loop_nest import Walk
from onnxplug_cpu.compiler.kernels.selection.keys import (
    chosen_bits,
    count_bits,
    each_bit,
    key_type,
    keys_of,
)
from onnxplug_cpu.compiler.kernels.selection.sorting import DIGITS, Sort
from onnxplug_cpu.compiler.kernels.sweep import sweep

if TYPE_CHECKING:
    from onnxplug_cpu.compiler.machine.isa import Isa

FEW: Final = 16
"""Elements that are kept in the lanes of a vector."""


def room_for(count: int, size: int) -> int:
    """How many keys there is room for, to select *count* of *size*."""
    wanted = min(size, max(4 * count, 512))
    return -(-wanted // FEW) * FEW


def scratch_bytes(element: str, room: int) -> int:
    """Bytes that a worker needs to select more than :data:`FEW`."""
    # keys and places, twice; a vector may be written behind the last one
    return 4 * key_type(element).nbytes * (room + FEW) + DIGITS * 8


class TopFew(Generator):
    """At most :data:`FEW` of each row.  A chunk is some rows.

    Attributes:
        axes: of rows.
        element: of x.
        largest: not the smallest.
        strided: elements of a row are apart.
    """

    axes: int
    element: str
    largest: bool
    strided: bool

    @property
    def walk(self) -> Walk:
        return Walk(("x", "values", "indices"), self.axes)

    @property
    def words(self) -> tuple[str, ...]:
        more = ("size", "count", "step", "values_step", "indices_step")
        return (*self.walk.words, *more)

    def write(self, module: Module, name: str, isa: Isa) -> None:
        _Few(self, KernelFunction(module, name, self.words), isa)


class TopMany(Generator):
    """Any number of each row, with a worker's memory.  A chunk is some rows.

    Attributes:
        axes, element, largest, strided: as of :class:`TopFew`.
    """

    axes: int
    element: str
    largest: bool
    strided: bool

    @property
    def walk(self) -> Walk:
        return Walk(("x", "values", "indices"), self.axes)

    @property
    def words(self) -> tuple[str, ...]:
        more = ("size", "count", "step", "values_step", "indices_step")
        return (*self.walk.words, *more, "scratch", "distance", "room")

    def write(self, module: Module, name: str, isa: Isa) -> None:
        _Many(self, KernelFunction(module, name, self.words), isa)


class _Rows:
    """What both have in common: keys of rows, and what is written of those found."""

    def __init__(self, form: TopFew | TopMany, k: KernelFunction, isa: Isa) -> None:
        f = self.f = k.function
        self.form = form
        self.element, self.key = form.element, key_type(form.element)
        self.keys = self.key.vector(FEW)
        self.itemsize = stored(form.element).nbytes
        self.lanes = Lanes(f, isa, FEW)
        self.lanes.reserve_for(form.element, form.strided)
        self.size, self.count = k.integer("size"), k.integer("count")
        self.x_step = k.integer("step")
        self.steps = [k.integer("values_step"), k.integer("indices_step")]

    def load(self, x: Value, index: Value, part: Part) -> Value:
        """The keys of elements from *index* on."""
        form, strided = self.form, self.form.strided
        step = self.x_step if strided else self.itemsize
        place = self.f.at(x, index * step, I8)
        found = self.lanes.load(
            self.element, place, part, self.x_step if strided else None
        )
        return keys_of(self.f, found, self.element, largest=form.largest)

    def number(self, index: Value | int) -> Value:
        """A place, as it goes with a key."""
        f = self.f
        narrow = f.convert(f.value(index, I64), Type(f"i{self.key.bits}"))
        return f.bitcast(narrow, self.key)

    def write_found(self, places: Value, x: Value, values: Value, out: Value) -> None:
        """Write the elements at *places*, which are in memory, and where they are."""
        f, moved = self.f, move_type(self.itemsize)

        def one(number: Value, to: Value, at: Value) -> list[Value]:
            place = f.load(f.at(places, number, self.key), self.key)
            index = f.bitcast(f.convert(place, Type("u64")), I64)
            from_ = f.at(x, index * self.x_step, I8)
            f.store(f.load(from_, moved, align=1), to, align=1)
            f.store(index, at)
            return [f.at(to, self.steps[0], I8), f.at(at, self.steps[1], I8)]

        f.loop(self.count, one, [values, out], nonempty=True)


class _Few(_Rows):
    """The last lanes have the keys that are kept, in order, and those before zeros: so
    the last one kept is in the same lane, however many there are."""

    def __init__(self, form: TopFew, k: KernelFunction, isa: Isa) -> None:
        super().__init__(form, k, isa)
        f = self.f
        self.kept = f.stack(self.key, 2 * FEW)
        self.kept_places = f.stack(self.key, 2 * FEW)
        self.met = f.stack(self.keys, 1)
        self.before = FEW - self.count
        form.walk.write(k, self._row)
        f.finish()

    def _row(self, pointers: list[Value], _: list[Value]) -> None:
        f = self.f
        x, values, out = pointers
        self._begin(x)

        def more() -> None:
            begin = [f.load(self.kept, self.keys), f.load(self.kept_places, self.keys)]
            sorted_, places = sweep(
                f, self.lanes, self.size, self._vector(x), begin, start=FEW
            )
            f.store(sorted_, self.kept)
            f.store(places, self.kept_places)

        f.branch(self.size > FEW, more)
        places = f.at(self.kept_places, self.before, self.key)
        self.write_found(places, x, values, out)

    def _begin(self, x: Value) -> None:
        """Sort the first vector: a key's place is how many come before it."""
        f = self.f
        f.store(f.zero(self.keys), self.kept)
        f.store(f.zero(self.keys), self.kept_places)

        def rank(part: Part) -> None:
            keys = self.load(x, f.value(0, I64), part)
            f.store(keys, self.met)

            def one(lane: Value) -> None:
                key = f.load(f.at(self.met, lane, self.key), self.key)
                wanted, here = f.splat(key, FEW), self.number(lane)
                earlier = f.iota(self.keys) < f.splat(here, FEW)
                before = (keys < wanted) | (keys.compare("eq", wanted) & earlier)
                place = count_bits(f, chosen_bits(f, before, part)) + self.before
                f.store(key, f.at(self.kept, place, self.key))
                f.store(here, f.at(self.kept_places, place, self.key))

            f.loop(part.size, one, nonempty=True)

        f.branch(
            self.size < FEW,
            lambda: rank(self.lanes.first(self.size)),
            lambda: rank(self.lanes.whole()),
        )

    def _vector(self, x: Value) -> Callable[..., list[Value]]:
        f = self.f

        def vector(first: Value, part: Part, *kept: Value) -> list[Value]:
            keys = self.load(x, first, part)
            worst = f.splat(f.lane(kept[0], FEW - 1), FEW)
            bits = chosen_bits(f, keys < worst, part)

            def some() -> list[Value]:
                f.store(keys, self.met)

                def insert(lane: Value, *kept: Value) -> list[Value]:
                    key = f.load(f.at(self.met, lane, self.key), self.key)
                    return self._inserted(key, self.number(first + lane), *kept)

                return each_bit(f, bits, insert, list(kept))

            return f.branch(bits.compare("ne", 0), some, lambda: kept)

        return vector

    def _inserted(
        self, key: Value, number: Value, kept: Value, places: Value
    ) -> list[Value]:
        """What is kept with one more, behind those that are equal."""
        f = self.f
        new = [f.splat(value, FEW) for value in (key, number)]
        lanes = [0, *range(FEW, 2 * FEW - 1)]
        shifted = [f.shuffle(f.zero(self.keys), v, lanes) for v in (kept, places)]
        behind, follows = new[0] < kept, new[0] < shifted[0]
        return [
            f.select(behind, f.select(follows, moved, put), old)
            for old, moved, put in zip((kept, places), shifted, new, strict=True)
        ]


class _Many(_Rows):
    """Keys are collected, and dropped where there is no room left."""

    def __init__(self, form: TopMany, k: KernelFunction, isa: Isa) -> None:
        super().__init__(form, k, isa)
        f = self.f
        self.room = k.integer("room")
        scratch = f.at(k.pointer("scratch"), k.worker * k.integer("distance"), I8)
        each = (self.room + FEW) * self.key.nbytes
        self.found, self.found_places, *others = (
            f.at(scratch, each * number, I8) for number in range(4)
        )
        histogram = f.at(scratch, each * 4, I8)
        self.met = f.stack(self.keys, 1)
        sorted_ = [(self.found, self.found_places), (others[0], others[1])]
        self.sort = Sort(f, self.lanes, self.key, sorted_, histogram)
        form.walk.write(k, self._row)
        f.finish()

    def _row(self, pointers: list[Value], _: list[Value]) -> None:
        f = self.f
        x, values, out = pointers

        def fill(first: Value, part: Part) -> None:
            numbers = f.splat(self.number(first), FEW) + f.iota(self.keys)
            self._put(first, self.load(x, first, part), numbers)

        begin = f.minimum(self.size, self.room)
        sweep(f, self.lanes, begin, fill)
        start = self._drop(begin)

        def rest() -> None:
            body = self._vector(x)
            count, _ = sweep(f, self.lanes, self.size, body, start, start=begin)
            self._drop(count)

        f.branch(self.size > begin, rest)
        self.write_found(self.sort.sort(self.count), x, values, out)

    def _vector(self, x: Value) -> Callable[..., list[Value]]:
        f = self.f

        def vector(first: Value, part: Part, *now: Value) -> list[Value]:
            count, worst = now
            keys = self.load(x, first, part)
            bits = chosen_bits(f, keys < f.splat(worst, FEW), part)

            def append(lane: Value, count: Value) -> list[Value]:
                key = f.load(f.at(self.met, lane, self.key), self.key)
                self._put(count, key, self.number(first + lane))
                return [count + 1]

            def some() -> list[Value]:
                f.store(keys, self.met)
                (after,) = each_bit(f, bits, append, [count])
                full = after > self.room
                return f.branch(full, lambda: self._drop(after), lambda: [after, worst])

            return f.branch(bits.compare("ne", 0), some, lambda: now)

        return vector

    def _put(self, place: Value, keys: Value, numbers: Value) -> None:
        f = self.f
        f.store(keys, f.at(self.found, place, self.key))
        f.store(numbers, f.at(self.found_places, place, self.key))

    def _drop(self, count: Value) -> list[Value]:
        """Keep as many as are wanted, in their order; how many are left, and the last
        of their keys."""
        f = self.f
        return f.branch(
            count > self.count,
            lambda: self._kept(count),
            lambda: [count, f.value((1 << self.key.bits) - 1, self.key)],
        )

    def _kept(self, count: Value) -> list[Value]:
        f = self.f
        worst = self._last_wanted(count)
        equal = self.count - self._below(count, worst)

        def keep(index: Value, kept: Value, equal: Value) -> list[Value]:
            key = f.load(f.at(self.found, index, self.key), self.key)
            number = f.load(f.at(self.found_places, index, self.key), self.key)
            same = key.compare("eq", worst) & (equal > 0)
            self._put(kept, key, number)
            stays = (key < worst) | same
            return [kept + self._as_number(stays), equal - self._as_number(same)]

        begin = [f.value(0, I64), equal]
        kept, _ = f.loop(count, keep, begin, nonempty=True)
        return [kept, worst]

    def _last_wanted(self, count: Value) -> Value:
        """The last key that is wanted, bit by bit."""
        f = self.f

        def bit(number: Value, worst: Value) -> list[Value]:
            place = self.number(self.key.bits - 1 - number)
            tried = worst | (f.value(1, self.key) << place)
            fits = self._below(count, tried) < self.count
            return [f.select(fits, tried, worst)]

        return f.loop(self.key.bits, bit, [f.zero(self.key)], nonempty=True)[0]

    def _below(self, count: Value, limit: Value) -> Value:
        """How many of *count* keys are below *limit*."""
        f = self.f
        wanted = f.splat(limit, FEW)

        def some(first: Value, part: Part, total: Value) -> list[Value]:
            keys = f.load(f.at(self.found, first, self.key), self.keys)
            return [total + count_bits(f, chosen_bits(f, keys < wanted, part))]

        return sweep(f, self.lanes, count, some, [f.value(0, I64)])[0]

    def _as_number(self, truth: Value) -> Value:
        f = self.f
        return f.bitcast(f.convert(truth, Type("u64")), I64)
