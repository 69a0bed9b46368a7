"""Writes new rows into a cache, or to where they are attended from, rotated or not."""

from __future__ import annotations

from onnxplug_cpu.compiler.codegen.emit import F32, I64, Module, Type, Value
from onnxplug_cpu.compiler.codegen.kernel import (
    Generator,
    Integer,
    KernelWords,
    Pointer,
)
from onnxplug_cpu.compiler.codegen.lanes import stored
from onnxplug_cpu.compiler.codegen.math.narrow import narrowed
from onnxplug_cpu.compiler.kernels.attention.in_use import Cache, InUse, read_start
from onnxplug_cpu.compiler.kernels.rows import move, opaque
from onnxplug_cpu.compiler.machine.isa import LANES, Isa

_VECTOR = Type("f32", LANES)


class PlaceWords(KernelWords):
    """Words of :class:`PlaceRows`; strides are in bytes.

    - ``new`` and ``out`` with their strides over sequences, heads and rows; ``heads``,
      new ``rows`` of each, and those that ``out`` has;
    - the ``size`` of a row, of which ``half`` is how many pairs are rotated, by the
      tables ``cos`` and ``sin``, of ``positions`` rows, and ``places``, which of them,
      with its strides over sequences and rows;
    - ``lines`` of all heads, which are divided into ``parts``; ``flag``, which receives
      1 where a row has no place, and 2 where it has no angles.
    """

    new: Pointer
    new_batch: Integer
    new_head: Integer
    new_row: Integer
    out: Pointer
    out_batch: Integer
    out_head: Integer
    out_row: Integer
    out_rows: Integer
    heads: Integer
    rows: Integer
    size: Integer
    half: Integer
    cos: Pointer
    cos_row: Integer
    sin: Pointer
    sin_row: Integer
    positions: Integer
    places: Pointer
    places_batch: Integer
    places_row: Integer
    lines: Integer
    parts: Integer
    flag: Pointer


class PlaceRows(Generator):
    """A chunk is some rows.

    Attributes:
        cache: how the first row is read.
        turns: ``halves`` or ``pairs``, which elements are rotated together; or empty.
        placed: rows have angles of their own places.
        shifted: see ``ir.caches.Caches.record_placed``.
        element: of ``out``: ``f32``, ``f16`` or ``bf16``; or ``i8`` or ``u8``, of
            floats that are such integers.
    """

    cache: InUse
    turns: str
    placed: bool
    shifted: bool
    element: str

    @property
    def words(self) -> tuple[str, ...]:
        return (*PlaceWords.names, *self.cache.words)

    def write(self, module: Module, name: str, isa: Isa) -> None:
        _Rows(PlaceWords(module, name, self.cache.words), isa, self).write()


class _Rows:
    """The loop over rows."""

    def __init__(self, k: PlaceWords, isa: Isa, form: PlaceRows) -> None:
        self.k, self.f, self.isa, self.form = k, k.function, isa, form
        self.stored = stored(form.element)

    def write(self) -> None:
        k, f = self.k, self.f
        lines, parts = k.lines, k.parts
        first, end = lines * k.chunk // parts, lines * (k.chunk + 1) // parts
        f.loop(end, self._line, start=first)
        f.finish()

    def _line(self, number: Value) -> None:
        k, f, form = self.k, self.f, self.form
        rest, row = number // k.rows, number % k.rows
        batch, head = rest // k.heads, rest % k.heads
        cache = Cache(k, form.cache, batch)
        own = cache.first + row
        target_row = own if form.shifted else row
        fits = (target_row >= 0) & (target_row < k.out_rows)
        fits = fits & (read_start(k, form.cache, batch) >= 0)
        source = batch * k.new_batch + head * k.new_head + row * k.new_row
        x = opaque(f, move(f, k.new, source))

        def place() -> None:
            target = batch * k.out_batch + head * k.out_head + target_row * k.out_row
            y = opaque(f, move(f, k.out, target))
            self._place(x, y, batch, row, own)

        def refuse() -> None:
            f.store(f.value(1, I64), k.flag)

        f.branch(fits, place, refuse)

    def _place(self, x: Value, y: Value, batch: Value, row: Value, own: Value) -> None:
        k, f, form = self.k, self.f, self.form
        if not form.turns:
            self._copy(x, y, f.value(0, I64))
            return
        position = own
        if form.placed:
            at = move(f, k.places, batch * k.places_batch + row * k.places_row)
            position = f.load(at, I64)
        is_known = (position >= 0) & (position < k.positions)

        def turn() -> None:
            tables = [
                opaque(f, move(f, k.cos, position * k.cos_row)),
                opaque(f, move(f, k.sin, position * k.sin_row)),
            ]
            if form.turns == "pairs":
                self._turn_pairs(x, y, tables)
            else:
                self._turn_halves(x, y, tables)
            self._copy(x, y, k.half * 2)

        def refuse() -> None:
            f.store(f.value(2, I64), k.flag)

        f.branch(is_known, turn, refuse)

    def _copy(self, x: Value, y: Value, first: Value) -> None:
        """The elements from *first* on."""
        f, size = self.f, self.k.size

        def some(j: Value) -> None:
            left = size - j
            value = f.load_masked(f.at(x, j, F32), f.first_lanes(left, LANES), _VECTOR)
            self._store(value, y, j, left)

        f.loop(size, some, start=first, step=LANES)

    def _store(self, value: Value, y: Value, index: Value, count: Value) -> None:
        """Write the first *count* elements from number *index* of a row on."""
        f, element = self.f, self.form.element
        place, mask = f.at(y, index, self.stored), f.first_lanes(count, LANES)
        if element in ("i8", "u8"):
            value = f.convert(f.convert(value, Type("i32", LANES)), self.stored)
        elif element != "f32":
            value = narrowed(f, self.isa, value, element)
        if element == "f32" or self.isa.name == "avx512":
            f.store_masked(value, place, mask)
            return
        # others have no masks for narrower elements
        f.branch(
            count >= LANES,
            lambda: f.store(value, place),
            lambda: f.store_masked(value, place, mask),
        )

    def _turn_halves(self, x: Value, y: Value, tables: list[Value]) -> None:
        """Elements of the first half, each with its counterpart in the second."""
        f, half = self.f, self.k.half

        def some(j: Value) -> None:
            left = half - j
            mask = f.first_lanes(left, LANES)

            def load(place: Value, at: Value) -> Value:
                return f.load_masked(f.at(place, at, F32), mask, _VECTOR)

            cos, sin = (load(table, j) for table in tables)
            a, b = load(x, j), load(x, half + j)
            self._store(a * cos - b * sin, y, j, left)
            self._store(b * cos + a * sin, y, half + j, left)

        f.loop(half, some, step=LANES)

    def _turn_pairs(self, x: Value, y: Value, tables: list[Value]) -> None:
        """Neighbours: the even one takes the sine of the odd one away."""
        f, half, pairs = self.f, self.k.half, LANES // 2
        signs = f.table([-1.0, 1.0] * pairs, F32)
        each = [lane // 2 for lane in range(LANES)]
        beside = [lane ^ 1 for lane in range(LANES)]

        def some(j: Value) -> None:
            few = f.first_lanes(half - j, pairs)
            left = (half - j) * 2
            cos, sin = (
                f.load_masked(f.at(table, j, F32), few, F32.vector(pairs))
                for table in tables
            )
            cos, sin = f.shuffle(cos, cos, each), f.shuffle(sin, sin, each)
            mask = f.first_lanes(left, LANES)
            value = f.load_masked(f.at(x, j * 2, F32), mask, _VECTOR)
            other = f.shuffle(value, value, beside) * signs
            self._store(value * cos + other * sin, y, j * 2, left)

        f.loop(half, some, step=pairs)
