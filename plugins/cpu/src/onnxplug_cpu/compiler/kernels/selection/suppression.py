"""Non-maximum suppression: of each image and class the best boxes, none of which shares
much with a better one.

Boxes that were selected lie along the lanes, so that a candidate meets many at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from onnxplug_cpu.compiler.codegen.emit import (
    F32,
    I8,
    I32,
    I64,
    Function,
    Module,
    Type,
    Value,
)
from onnxplug_cpu.compiler.codegen.kernel import (
    Generator,
    Integer,
    KernelWords,
    Pointer,
)
from onnxplug_cpu.compiler.codegen.lanes import Lanes, Part
from onnxplug_cpu.compiler.kernels.reduction.accumulator import maximum, minimum
from onnxplug_cpu.compiler.kernels.selection.keys import (
    chosen_bits,
    each_bit,
    key_type,
    keys_of,
)
from onnxplug_cpu.compiler.kernels.selection.sorting import DIGITS, Sort
from onnxplug_cpu.compiler.kernels.sweep import sweep
from onnxplug_cpu.compiler.machine.isa import LANES

if TYPE_CHECKING:
    from onnxplug_cpu.compiler.machine.isa import Isa

_SIDES: Final = 5
"""Of a selected box: low corner, high corner, area."""


def scratch_bytes(boxes: int, most: int) -> int:
    """Bytes that a worker needs for candidates and what is selected of them."""
    return 16 * (boxes + LANES) + 8 * DIGITS + 4 * _SIDES * (most + LANES)


class _Words(KernelWords):
    boxes: Pointer
    box_image: Integer
    box_step: Integer
    box_side: Integer
    scores: Pointer
    score_image: Integer
    score_class: Integer
    count: Integer
    classes: Integer
    tasks: Integer
    each: Integer
    most: Integer
    limit: Pointer
    overlap: Pointer
    least: Pointer
    bad_overlap: Pointer
    scratch: Pointer
    distance: Integer
    chosen: Pointer
    chosen_counts: Pointer


class Suppression(Generator):
    """The numbers of the boxes that remain.  A chunk is some classes of images.

    Attributes:
        centers: boxes are a centre and sizes, and not two corners.
    """

    centers: bool

    @property
    def words(self) -> tuple[str, ...]:
        return _Words.names

    def write(self, module: Module, name: str, isa: Isa) -> None:
        _Writer(self, _Words(module, name), isa)


class _Writer:
    """Writes the function."""

    def __init__(self, form: Suppression, k: _Words, isa: Isa) -> None:
        f = self.f = k.function
        self.form, self.k = form, k
        self.key = key_type("f32")
        self.lanes = Lanes(f, isa)
        self.lanes.reserve_for("f32", False)
        self.met = f.stack(self.key, LANES)
        self.count, self.most = k.count, k.most
        self.least = f.splat(f.load(k.least, F32), LANES)
        overlap = f.load(k.overlap, F32)
        self.overlap = f.splat(overlap, LANES)
        self._begin(overlap)
        scratch = f.at(k.scratch, k.worker * k.distance, I8)
        room = (self.count + LANES) * self.key.nbytes
        places = [f.at(scratch, room * number, I8) for number in range(5)]
        self.found, self.found_places = places[:2]
        memory = [(places[0], places[1]), (places[2], places[3])]
        self.sort = Sort(f, self.lanes, self.key, memory, places[4])
        sides, side = f.at(places[4], DIGITS, I64), (self.most + LANES) * F32.nbytes
        self.sides = [f.at(sides, side * number, I8) for number in range(_SIDES)]
        limit = f.minimum(f.load(k.limit, I64), self.most)
        self.limit = limit
        begin = k.chunk * k.each
        f.loop(f.minimum(begin + k.each, k.tasks), self._task, start=begin)
        f.finish()

    def _begin(self, overlap: Value) -> None:
        """Tell of an overlap that is no share; -0.0 is 0."""
        f = self.f
        allowed = (overlap >= 0.0) & (overlap <= 1.0)

        def refuse() -> None:
            bits = f.convert(f.bitcast(overlap, Type("u32")), Type("u64"))
            f.store(f.bitcast(bits, I64), self.k.bad_overlap)

        f.branch(allowed, lambda: None, refuse)

    def _task(self, task: Value) -> None:
        f, k = self.f, self.k
        image, class_ = task // k.classes, task % k.classes
        boxes = f.at(k.boxes, image * k.box_image, I8)
        scores = f.at(k.scores, image * k.score_image + class_ * k.score_class, I8)
        chosen = f.at(k.chosen, task * self.most, I32)

        def some() -> list[Value]:
            candidates = self._candidates(scores)

            def any_() -> list[Value]:
                order = self.sort.sort(candidates)
                return [self._select(boxes, order, candidates, chosen)]

            return f.branch(candidates > 0, any_, lambda: [f.value(0, I64)])

        (count,) = f.branch(self.limit > 0, some, lambda: [f.value(0, I64)])
        f.store(count, f.at(k.chosen_counts, task, I64))

    def _candidates(self, scores: Value) -> Value:
        """Collect the boxes whose scores are high enough; how many they are."""
        f = self.f

        def vector(first: Value, part: Part, count: Value) -> list[Value]:
            found = self.lanes.load("f32", f.at(scores, first, F32), part)
            bits = chosen_bits(f, found > self.least, part)

            def append(lane: Value, count: Value) -> list[Value]:
                key = f.load(f.at(self.met, lane, self.key), self.key)
                number = f.convert(first + lane, I32)
                f.store(key, f.at(self.found, count, self.key))
                f.store(number, f.at(self.found_places, count, self.key))
                return [count + 1]

            def some() -> list[Value]:
                f.store(keys_of(f, found, "f32", largest=True), self.met)
                return each_bit(f, bits, append, [count])

            return f.branch(bits.compare("ne", 0), some, lambda: [count])

        return sweep(f, self.lanes, self.count, vector, [f.value(0, I64)])[0]

    def _select(
        self, boxes: Value, order: Value, candidates: Value, chosen: Value
    ) -> Value:
        """Select boxes, the best ones first, up to the limit; how many they are."""
        f = self.f

        def turn(index: Value, count: Value) -> tuple[Value, list[Value]]:
            place = f.load(f.at(order, index, I32), Type("u32"))
            number = f.bitcast(f.convert(place, Type("u64")), I64)
            sides = self._sides(f.at(boxes, number * self.k.box_step, I8))
            taken = self._is_taken(sides, count)

            def take() -> list[Value]:
                for side, to in zip(sides, self.sides, strict=True):
                    f.store(side, f.at(to, count, F32))
                f.store(f.convert(number, I32), f.at(chosen, count, I32))
                return [count + 1]

            (after,) = f.branch(taken, lambda: [count], take)
            following = index + 1
            goes_on = (following < candidates) & (after < self.limit)
            return goes_on, [following, after]

        return f.repeat(turn, [f.value(0, I64), f.value(0, I64)])[1]

    def _sides(self, box: Value) -> list[Value]:
        """The corners and the area of a box; NaN in one is NaN in all that counts."""
        f, step = self.f, self.k.box_side
        a, b, c, d = (f.load(f.at(box, step * n, I8), F32) for n in range(4))
        if self.form.centers:
            half = [c / 2.0, d / 2.0]
            low = [a - half[0], b - half[1]]
            high = [a + half[0], b + half[1]]
        else:
            low = [minimum(f, c, a), minimum(f, d, b)]
            high = [maximum(f, c, a), maximum(f, d, b)]
        area = (high[0] - low[0]) * (high[1] - low[1])
        return [*low, *high, area]

    def _is_taken(self, sides: list[Value], count: Value) -> Value:
        """Whether one of *count* selected boxes shares too much with a box."""
        f = self.f
        top, left, bottom, right, area = (f.splat(side, LANES) for side in sides)

        def some(first: Value) -> tuple[Value, list[Value]]:
            places = [f.at(side, first, F32) for side in self.sides]
            others = [f.load(place, F32.vector(LANES)) for place in places]
            # what is NaN is so in the area, too
            height = _least(f, bottom, others[2]) - _most(f, top, others[0])
            width = _least(f, right, others[3]) - _most(f, left, others[1])
            common = _most(f, height, f.zero(height.type)) * _most(
                f, width, f.zero(width.type)
            )
            left_ = f.first_lanes(count - first, LANES)
            share = left_ & (common > 0.0)

            def divide() -> list[Value]:
                union = area + others[4] - common
                much = common / union > self.overlap
                found = chosen_bits(f, share & (union > 0.0) & much)
                return [found.compare("ne", 0)]

            any_ = chosen_bits(f, share).compare("ne", 0)
            (taken,) = f.branch(any_, divide, lambda: [any_])
            following = first + LANES
            again = following < count
            return again & taken.compare("eq", 0), [following, taken]

        def look() -> list[Value]:
            def turn(first: Value, _: Value) -> tuple[Value, list[Value]]:
                return some(first)

            none = f.value(0, I64)
            return f.repeat(turn, [none, none.compare("ne", 0)])[1:]

        none = count.compare("eq", 0)
        return f.branch(none, lambda: [count.compare("ne", 0)], look)[0]


def _least(f: Function, a: Value, b: Value) -> Value:
    return f.select(a < b, a, b)


def _most(f: Function, a: Value, b: Value) -> Value:
    return f.select(a > b, a, b)


class _ListWords(KernelWords):
    chosen: Pointer
    chosen_counts: Pointer
    tasks: Integer
    classes: Integer
    most: Integer
    out: Pointer
    total: Pointer


class SelectedList(Generator):
    """Image, class and number of all boxes that were selected, and how many they are;
    one chunk."""

    @property
    def words(self) -> tuple[str, ...]:
        return _ListWords.names

    def write(self, module: Module, name: str, isa: Isa) -> None:
        k = _ListWords(module, name)
        f = k.function
        k.keep(_ListWords.names)

        def task(number: Value, total: Value) -> list[Value]:
            image, class_ = number // k.classes, number % k.classes
            chosen = f.at(k.chosen, number * k.most, I32)
            count = f.load(f.at(k.chosen_counts, number, I64), I64)

            def one(index: Value) -> None:
                box = f.convert(f.load(f.at(chosen, index, I32), I32), I64)
                row = f.at(k.out, (total + index) * 3, I64)
                for column, value in enumerate((image, class_, box)):
                    f.store(value, f.at(row, column, I64))

            f.loop(count, one)
            return [total + count]

        (total,) = f.loop(k.tasks, task, [f.value(0, I64)])
        f.store(total, k.total)
        f.finish()
