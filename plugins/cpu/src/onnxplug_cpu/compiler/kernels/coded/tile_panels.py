"""Many rows times weights that are codes, in tiles of bfloat16.

A code, less its zero point, is an integer that bfloat16 has exactly.  So of weights one
term is enough, and products of rows of one term are exact, too; scales are applied to
the sums of tiles.
"""

from __future__ import annotations

import functools
from typing import Final

from onnxplug_cpu.compiler.codegen.emit import F32, I32, I64, Module, Type, Value
from onnxplug_cpu.compiler.codegen.kernel import (
    FunctionArguments,
    Generator,
    Integer,
    Pointer,
)
from onnxplug_cpu.compiler.codegen.lanes import Lanes, stored
from onnxplug_cpu.compiler.codegen.tile_registers import (
    ROW_BYTES,
    TILE_BYTES,
    state_bytes,
    tiles_of,
)
from onnxplug_cpu.compiler.kernels.coded.many import Block, Many, ManyWords
from onnxplug_cpu.compiler.kernels.coded.panels import TOGETHER, Columns, Panel
from onnxplug_cpu.compiler.kernels.coded.tile_codes import (
    Pairs,
    codes_of_half,
    places_of_step,
)
from onnxplug_cpu.compiler.kernels.coded.weights import WEIGHT_WORDS, Form
from onnxplug_cpu.compiler.kernels.contraction.bf16_terms import STEP, load_sum
from onnxplug_cpu.compiler.kernels.contraction.chunk import RowTile
from onnxplug_cpu.compiler.kernels.contraction.tile import multiply_add, offset
from onnxplug_cpu.compiler.machine.isa import LANES, VECTOR_BYTES, Isa

_VECTOR: Final = F32.vector(LANES)
_SUMS_TILE, _A_TILE, _B_TILE = 0, 1, 7
_CACHE_LINE: Final = 64


class CodeTileArguments(FunctionArguments):
    """The arguments of :class:`CodeTile`; strides are in bytes.

    ``state`` of the tiles; ``a``, the first row in the first plane, each of ``plane``;
    ``b``, of each vector of columns ``b_vector`` with a tile for each step, and
    ``b_scales``, ``b_scales_vector`` apart, with a row for each of ``sums`` of so many
    ``steps``; ``a_scales`` of the rows of a sum, ``a_distance`` to those of the next.
    ``c`` receives the product, added to what is there if ``add`` is not 0.
    """

    state: Pointer
    a: Pointer
    plane: Integer
    b: Pointer
    b_vector: Integer
    b_scales: Pointer
    b_scales_vector: Integer
    sums: Integer
    steps: Integer
    a_scales: Pointer
    a_distance: Integer
    c: Pointer
    c_row: Integer
    add: Integer


class CodeTile(Generator):
    """A function that computes a tile; its arguments are :class:`CodeTileArguments`.

    Attributes:
        rows: of the tile.
        vectors: in a row of it.
        terms: of an element of a row.
        scaled: rows have scales.
        steps: of a sum; 0 if there are many.
    """

    rows: int
    vectors: int
    terms: int
    scaled: bool
    steps: int

    def write(self, module: Module, name: str, isa: Isa) -> None:
        _Tile(module, name, isa, self).write()


class _Tile:
    """The loops over vectors of columns, sums and their steps."""

    def __init__(self, module: Module, name: str, isa: Isa, form: CodeTile) -> None:
        self.f = f = module.function(name, CodeTileArguments.parameters())
        self.form, self.isa = form, isa
        self.arguments = CodeTileArguments(*f.parameters)
        self.buffer = f.stack(Type("i8"), TILE_BYTES)
        self.tiles = tiles_of(f, isa, self.arguments.state)
        self.distance = self.arguments.plane * form.terms
        self._ahead = f.value(0, I64)

    def write(self) -> None:
        self.f.loop(self.form.vectors, self._vector, nonempty=True)
        self.f.finish()

    def _vector(self, number: Value) -> None:
        f, given, rows = self.f, self.arguments, self.form.rows
        begin = [
            given.a,
            offset(f, given.b, number * given.b_vector),
            offset(f, given.b_scales, number * given.b_scales_vector),
            given.a_scales,
        ]
        none = [f.zero(_VECTOR)] * rows
        # with each vector of columns a part of the next rows comes to the first cache
        self._ahead = TILE_BYTES + number * (TILE_BYTES // self.form.vectors)
        total = f.loop(given.sums, self._sum, [*begin, *none], nonempty=True)[4:]

        def store(adds: bool) -> None:
            for row, value in enumerate(total):
                line = offset(f, given.c, given.c_row * row + number * VECTOR_BYTES)
                f.store(f.load(line, _VECTOR) + value if adds else value, line)

        is_first = given.add.compare("eq", 0)
        f.branch(is_first, lambda: store(False), lambda: store(True))

    def _sum(
        self, _: Value, a: Value, b: Value, b_scales: Value, a_scales: Value,
        *total: Value,
    ) -> list[Value]:  # fmt: skip
        f, form = self.f, self.form
        self.tiles.zero(_SUMS_TILE)
        places = [a, b]
        if form.steps:
            for _step in range(form.steps):
                places = self._step(_, *places)
        else:
            places = f.loop(self.arguments.steps, self._step, places, nonempty=True)
        self.tiles.store(_SUMS_TILE, self.buffer, ROW_BYTES)
        factor, found = f.load(b_scales, _VECTOR), []
        for row, value in enumerate(total):
            scale = factor
            if form.scaled:
                scale = f.load_splat(f.at(a_scales, row, F32), _VECTOR) * factor
            sums = f.load(offset(f, self.buffer, row * ROW_BYTES), _VECTOR)
            found.append(multiply_add(f, self.isa, sums, scale, value))
        return [
            *places,
            offset(f, b_scales, VECTOR_BYTES),
            offset(f, a_scales, self.arguments.a_distance),
            *found,
        ]

    def _step(self, _: Value, a: Value, b: Value) -> list[Value]:
        f, tiles = self.f, self.tiles
        tiles.load(_B_TILE, b, ROW_BYTES)
        for term in reversed(range(self.form.terms)):  # the smallest first
            place = offset(f, a, self.arguments.plane * term)
            tiles.load(_A_TILE + term, place, ROW_BYTES)
            tiles.multiply(_SUMS_TILE, _A_TILE + term, _B_TILE)
            for at in range(0, TILE_BYTES // self.form.vectors, _CACHE_LINE):
                f.prefetch(offset(f, place, self._ahead + at))
        return [offset(f, a, self.distance), offset(f, b, TILE_BYTES)]


class TileManyWords(ManyWords):
    """Words of :class:`TileManyRows`; strides are in bytes.

    - ``planes`` of ``plane``, and the rows' ``flags``, as
      :class:`~.tile_rows.SplitRows` writes them, or, with ``a_scales`` of sums that are
      ``a_distance`` apart, :class:`~.tile_rows.RoundedPlanes`;
    - ``sum_depth``, of how many codes a tile has the sum, a part of a block;
    - of each worker ``scales_made`` is a panel's, behind ``panel_made``.
    """

    planes: Pointer
    plane: Integer
    flags: Pointer
    a_scales: Pointer
    a_distance: Integer
    sum_depth: Integer
    scales_made: Pointer


class TileManyRows(Generator):
    """Computes chunks of the product.

    Attributes:
        form: of the weights, whose lanes are 16.
        element: of a row, ``f32``, ``f16`` or ``bf16``; or ``i8`` if it was rounded.
        terms: of an element.
    """

    form: Form
    element: str
    terms: int

    words = (*TileManyWords.names, *WEIGHT_WORDS)

    def write(self, module: Module, name: str, isa: Isa) -> None:
        _TileMany(TileManyWords(module, name, WEIGHT_WORDS), isa, self).write()


class _TileMany(Many):
    """The loops; a panel has for each vector of columns a tile for each step."""

    k: TileManyWords

    def __init__(self, k: TileManyWords, isa: Isa, form: TileManyRows) -> None:
        super().__init__(k, isa, form.form)
        self.element, self.terms = form.element, form.terms
        f = self.f
        self.lanes = Lanes(f, isa)
        self.state = f.stack(Type("i8"), state_bytes(isa))
        self.tiles = tiles_of(f, isa, self.state)
        self.scales = offset(f, k.scales_made, k.worker * k.made_distance)
        k.keep(("sum_depth", "plane"))
        self.vector = k.block_depth * (TILE_BYTES // STEP)
        self.scales_vector = k.block_depth // k.sum_depth * VECTOR_BYTES
        self.of_block = k.steps * self.form.step

    def write(self) -> None:
        f, rows = self.f, self.chunk.tile_rows
        used = (_SUMS_TILE, *range(_A_TILE, _A_TILE + self.terms))
        self.tiles.configure(dict.fromkeys(used, rows))
        f.loop(self.k.blocks, self._block)
        self.tiles.release()
        f.loop(self.chunk.end_panel, self._finish, start=self.chunk.first_panel)
        f.finish()

    def make_panel(self, panel: Panel, block: Block) -> None:
        f, k = self.f, self.k
        pairs = Pairs(panel, self.isa)
        of_line = _CACHE_LINE * self.form.per_byte

        def columns(group: Value) -> None:
            some, at = panel.columns(group), group // LANES
            target = offset(f, panel.target, at * self.vector)
            scales = offset(f, self.scales, at * self.scales_vector)
            end = block.start + block.length
            f.loop(
                end,
                lambda place: some.prefetch(*self._place(place)),
                start=block.start,
                step=of_line,
            )
            self._make_scales(some, block, scales)

            def one(place: Value, target: Value) -> list[Value]:
                number, rest = self._place(place)
                away = pairs.away(some.zeros(number)) if self.form.zero else None
                step = functools.partial(self._step, some, pairs, away, number)
                turns = k.sum_depth // self.form.step
                return f.loop(turns, step, [rest, target], nonempty=True)[1:]

            f.loop(end, one, [target], start=block.start, step=k.sum_depth)

        f.loop(panel.count, columns, step=LANES)

    def _place(self, code: Value) -> tuple[Value, Value]:
        """The block of a code, and the steps before it there."""
        return code // self.of_block, code % self.of_block // self.form.step

    def _make_scales(self, some: Columns, block: Block, target: Value) -> None:
        """Write the scales of the sums of a block, one of each column."""
        f, k = self.f, self.k
        first, count = block.start // k.sum_depth, block.length // k.sum_depth
        done: Value | int = 0
        if self.form.dense:
            is_whole = k.sum_depth.compare("eq", self.of_block)
            done = f.select(is_whole, count & -TOGETHER, f.value(0, I64))

            def four(number: Value) -> None:
                for index, scale in enumerate(some.scales_of_some(first + number)):
                    f.store(scale, f.at(target, (number + index) * LANES, F32))

            f.loop(done, four, step=TOGETHER)

        def one(number: Value) -> None:
            place = (first + number) * k.sum_depth // self.of_block
            f.store(some.scales(place), f.at(target, number * LANES, F32))

        f.loop(count, one, start=done)

    def _step(
        self, some: Columns, pairs: Pairs, away: Value | None, block: Value,
        _: Value, rest: Value, target: Value,
    ) -> list[Value]:  # fmt: skip
        """Write the rows of a step of codes."""
        f = self.f
        for word in some.words(block, rest):
            for pair in pairs.of(word, away):
                f.store(pair, target)
                target = offset(f, target, ROW_BYTES)
        return [rest + 1, target]

    def multiply(self, tile: RowTile, panel: Panel, block: Block, sums: Value) -> None:
        f, k = self.f, self.k
        step = block.start // STEP
        row = offset(f, k.planes, tile.row * ROW_BYTES)
        number = block.start // k.sum_depth
        a_scales = offset(f, k.a_scales, tile.row * F32.nbytes + number * k.a_distance)
        arguments = CodeTileArguments(
            state=self.state,
            a=offset(f, row, step * (k.plane * self.terms)),
            plane=k.plane,
            b=panel.target,
            b_vector=self.vector,
            b_scales=self.scales,
            b_scales_vector=self.scales_vector,
            sums=block.length // k.sum_depth,
            steps=k.sum_depth // STEP,
            a_scales=a_scales,
            a_distance=k.a_distance,
            c=sums,
            c_row=k.panel_bytes,
            add=block.number,
        )
        f.call_pointer(self.function_of(tile, panel), *arguments)
        if self.element != "i8":
            self._add_flagged(tile, panel, block, sums)

    def _add_flagged(
        self, tile: RowTile, panel: Panel, block: Block, sums: Value
    ) -> None:
        """Add the products of flagged rows, whose planes are zeros."""
        f, k = self.f, self.k
        flags = f.at(k.flags, tile.row, I32)
        wide = I32.vector(LANES)
        all_flags = f.load_masked(flags, f.first_lanes(tile.rows, LANES), wide)
        bits = f.bitcast(all_flags.compare("ne", 0), Type("i16"))

        def row(number: Value) -> None:
            flag = f.load(f.at(flags, number, I32), I32)
            source = offset(f, self.a, (tile.row + number) * k.a_row)
            source = f.at(source, block.start, stored(self.element))
            target = offset(f, sums, number * k.panel_bytes)
            add = functools.partial(self._add_row, source, panel, block, target)
            f.branch(flag.compare("ne", 0), add)

        f.branch(bits.compare("ne", 0), lambda: f.loop(tile.rows, row))

    def _add_row(
        self, source: Value, panel: Panel, block: Block, target: Value
    ) -> None:
        """Add the products of a row of floats."""
        f, k, type_ = self.f, self.k, stored(self.element)
        half = codes_of_half(self.form.bits)

        def step(
            _: Value, scale: Value, x: Value, b: Value, total: Value
        ) -> list[Value]:
            for pair, place in enumerate(places_of_step(self.form.bits)):
                weights = load_sum(f, offset(f, b, pair * ROW_BYTES), 1)
                for at, factor in zip((place, place + half), weights, strict=True):
                    here = f.at(x, at, type_)
                    value = self.lanes.load_splat(self.element, here)
                    total = multiply_add(f, self.isa, value, factor * scale, total)
            return [scale, f.at(x, STEP, type_), offset(f, b, TILE_BYTES), total]

        def one(
            _: Value, x: Value, b: Value, scales: Value, total: Value
        ) -> list[Value]:
            begin = [f.load(scales, _VECTOR), x, b, total]
            _, x, b, total = f.loop(k.sum_depth // STEP, step, begin, nonempty=True)
            return [x, b, offset(f, scales, VECTOR_BYTES), total]

        def columns(group: Value) -> None:
            at, place = group // LANES, f.at(target, group, F32)
            begin = [
                source,
                offset(f, panel.target, at * self.vector),
                offset(f, self.scales, at * self.scales_vector),
                f.load(place, _VECTOR),
            ]
            *_, total = f.loop(block.length // k.sum_depth, one, begin)
            f.store(total, place)

        f.loop(panel.count, columns, step=LANES)
