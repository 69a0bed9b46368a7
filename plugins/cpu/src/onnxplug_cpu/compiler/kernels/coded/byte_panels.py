"""Many rows that were rounded to bytes times weights that are codes: these are put into
panels of quads, a panel at a time, and multiplied while they are in a cache.

A lane of a vector of a panel has four codes of a column.  Products are summed up as
integers within a block, and exactly; the scales of both are applied to sums of blocks.
"""

from __future__ import annotations

from typing import Final

from onnxplug_cpu.compiler.codegen.emit import F32, I32, Module, Type, Value
from onnxplug_cpu.compiler.codegen.integer_products import add_quads
from onnxplug_cpu.compiler.codegen.kernel import (
    FunctionArguments,
    Generator,
    Integer,
    Pointer,
)
from onnxplug_cpu.compiler.kernels.coded.many import Block, Many, ManyWords
from onnxplug_cpu.compiler.kernels.coded.panels import Columns, Panel
from onnxplug_cpu.compiler.kernels.coded.weights import WEIGHT_WORDS, Form
from onnxplug_cpu.compiler.kernels.contraction.chunk import RowTile
from onnxplug_cpu.compiler.kernels.contraction.tile import multiply_add, offset
from onnxplug_cpu.compiler.machine.isa import LANES, VECTOR_BYTES, Isa

TILE_ROWS: Final = 6
"""With two vectors as many sums of a block, and of all blocks, as registers hold."""

_QUAD: Final = 4
_SUMS: Final = I32.vector(LANES)
_VECTOR: Final = F32.vector(LANES)


class ByteTileArguments(FunctionArguments):
    """The arguments of :class:`ByteTile`; strides are in bytes.

    ``a`` has rows of bytes; ``a_scales`` the scales of their blocks, ``a_distance``
    apart, and ``a_sums`` what takes zero points away: i32 as far apart with which
    products begin, or f32.  ``b`` has ``blocks`` of ``quads`` rows of ``b_row``, and
    ``b_scales`` for each block a row of scales and, for ``a_sums`` of f32, one of what
    these are multiplied with.  ``c`` receives the product, added to what is there if
    ``add`` is not 0.
    """

    a: Pointer
    a_row: Integer
    a_scales: Pointer
    a_scales_row: Integer
    a_distance: Integer
    a_sums: Pointer
    a_sums_row: Integer
    b: Pointer
    b_row: Integer
    b_scales: Pointer
    blocks: Integer
    quads: Integer
    c: Pointer
    c_row: Integer
    add: Integer


class ByteTile(Generator):
    """A function that computes a tile; its arguments are :class:`ByteTileArguments`.

    Attributes:
        rows: of the tile.
        vectors: in a row of it.
        starts: ``a_sums`` are i32.
    """

    rows: int
    vectors: int
    starts: bool

    def write(self, module: Module, name: str, isa: Isa) -> None:
        _Tile(module, name, isa, self).write()


class _Tile:
    """The loops of a tile: blocks, and their quads."""

    def __init__(self, module: Module, name: str, isa: Isa, form: ByteTile) -> None:
        self.f = f = module.function(name, ByteTileArguments.parameters())
        self.isa, self.rows, self.vectors = isa, form.rows, form.vectors
        self.starts = form.starts
        self.arguments = arguments = ByteTileArguments(*f.parameters)
        self.strides = [arguments.a_row * row for row in range(1, form.rows)]
        self.width = form.vectors * VECTOR_BYTES

    def write(self) -> None:
        f, given = self.f, self.arguments
        begin = [given.a, given.a_scales, given.a_sums, given.b, given.b_scales]
        none = [f.zero(_VECTOR)] * (self.rows * self.vectors)
        sums = f.loop(given.blocks, self._block, [*begin, *none], nonempty=True)[5:]

        def store(adds: bool) -> None:
            for row in range(self.rows):
                line = offset(f, given.c, given.c_row * row)
                for j in range(self.vectors):
                    place = offset(f, line, VECTOR_BYTES * j)
                    value = sums[row * self.vectors + j]
                    f.store(f.load(place, _VECTOR) + value if adds else value, place)

        is_first = given.add.compare("eq", 0)
        f.branch(is_first, lambda: store(False), lambda: store(True))
        f.finish()

    def _block(
        self, _: Value, a: Value, a_scales: Value, a_sums: Value, b: Value,
        b_scales: Value, *total: Value,
    ) -> list[Value]:  # fmt: skip
        f, given = self.f, self.arguments
        sums = [f.zero(_SUMS)] * len(total)
        if self.starts:
            lines = [given.a_sums_row * row for row in range(self.rows)]
            begin = [f.load_splat(offset(f, a_sums, line), _SUMS) for line in lines]
            sums = [each for each in begin for _ in range(self.vectors)]
        a, b, *sums = f.loop(given.quads, self._quad, [a, b, *sums], nonempty=True)
        found = self._scaled(a_scales, b_scales, sums, list(total))
        if not self.starts:
            found = self._taken(a_sums, offset(f, b_scales, self.width), found)
        rows = 1 if self.starts else 2
        return [
            a,
            offset(f, a_scales, given.a_distance),
            offset(f, a_sums, given.a_distance if self.starts else F32.nbytes),
            b,
            offset(f, b_scales, rows * self.width),
            *found,
        ]

    def _row_of(self, place: Value) -> list[Value]:
        f, places = self.f, range(0, self.width, VECTOR_BYTES)
        return [f.load(offset(f, place, distance), _VECTOR) for distance in places]

    def _scaled(
        self, a_scales: Value, b_scales: Value, sums: list[Value], total: list[Value]
    ) -> list[Value]:
        """*total* and the sums of a block."""
        f, factors = self.f, self._row_of(b_scales)
        for row in range(self.rows):
            place = offset(f, a_scales, self.arguments.a_scales_row * row)
            scale = f.load_splat(place, _VECTOR)
            for j, factor in enumerate(factors):
                at = row * self.vectors + j
                value = f.convert(sums[at], _VECTOR)
                total[at] = multiply_add(f, self.isa, value, factor * scale, total[at])
        return total

    def _taken(self, a_sums: Value, b_sums: Value, total: list[Value]) -> list[Value]:
        """*total* less what zero points add."""
        f, factors = self.f, self._row_of(b_sums)
        for row in range(self.rows):
            place = offset(f, a_sums, self.arguments.a_sums_row * row)
            sum_ = f.load_splat(place, _VECTOR)
            for j, factor in enumerate(factors):
                at = row * self.vectors + j
                total[at] = multiply_add(f, self.isa, factor, sum_, total[at])
        return total

    def _quad(self, _: Value, a: Value, b: Value, *sums: Value) -> list[Value]:
        f = self.f
        right = [
            f.load(offset(f, b, VECTOR_BYTES * j), _SUMS) for j in range(self.vectors)
        ]
        found = list(sums)
        for row in range(self.rows):
            place = offset(f, a, self.strides[row - 1]) if row else a
            left = f.splat(f.load(place, I32, align=1), LANES)
            for j, codes in enumerate(right):
                at = row * self.vectors + j
                found[at] = add_quads(f, self.isa, codes, left, found[at])
        return [offset(f, a, _QUAD), offset(f, b, self.arguments.b_row), *found]


class ByteManyWords(ManyWords):
    """Words of :class:`ByteManyRows`: ``a_scales`` with ``a_scales_row`` and
    ``a_distance``, and ``a_sums`` with ``a_sums_row``, are those of the rows; and of
    each worker ``scales_made`` is a panel's, behind ``panel_made``."""

    a_scales: Pointer
    a_scales_row: Integer
    a_distance: Integer
    a_sums: Pointer
    a_sums_row: Integer
    scales_made: Pointer


class ByteManyRows(Generator):
    """Computes chunks of the product; ``a`` is as :class:`~.rows.RoundRows` writes it.

    Attributes:
        form: of the weights, whose lanes are 16.
    """

    form: Form

    words = (*ByteManyWords.names, *WEIGHT_WORDS)

    def write(self, module: Module, name: str, isa: Isa) -> None:
        _ByteMany(ByteManyWords(module, name, WEIGHT_WORDS), isa, self.form).write()


class _ByteMany(Many):
    """The loops, of whose blocks of K each has whole blocks of the weights."""

    k: ByteManyWords

    def __init__(self, k: ByteManyWords, isa: Isa, form: Form) -> None:
        super().__init__(k, isa, form)
        self.scales = offset(self.f, k.scales_made, k.worker * k.made_distance)
        self.of_block = k.steps * form.step
        self.quads = k.steps * (form.step // _QUAD)

    def make_panel(self, panel: Panel, block: Block) -> None:
        f, form, width = self.f, self.form, panel.width
        first, count = block.start // self.of_block, block.length // self.of_block

        def columns(group: Value) -> None:
            some = panel.columns(group)
            target = f.at(panel.target, group, F32)
            scales = f.at(self.scales, group, F32)

            def one(number: Value) -> None:
                scale = some.scales(first + number)
                place = offset(f, scales, number * (width * (2 if form.zero else 1)))
                f.store(scale, place)
                if form.zero:
                    away = -(some.zeros(first + number) * scale)
                    f.store(away, offset(f, place, width))
                begin = offset(f, target, number * (self.quads * width))

                def step(rest: Value, place: Value) -> list[Value]:
                    return [self._quads(some, first + number, rest, place, width)]

                f.loop(self.k.steps, step, [begin], nonempty=True)

            f.loop(count, one)

        f.loop(panel.count, columns, step=LANES)

    def _quads(
        self, some: Columns, block: Value, rest: Value, target: Value, width: Value
    ) -> Value:
        """Write those of a step, in the order of the rows' bytes; where the next ones
        begin."""
        f, form = self.f, self.form
        some.prefetch(block, rest)
        words = some.words(block, rest)
        octets = Type("u8", VECTOR_BYTES)
        parts = [self.codes.parts(f.bitcast(word, octets)) for word in words]
        for part in range(form.per_byte):
            for word in parts:
                f.store(word[part], target, align=4)
                target = offset(f, target, width)
        return target

    def multiply(self, tile: RowTile, panel: Panel, block: Block, sums: Value) -> None:
        f, k = self.f, self.k
        first = block.start // self.of_block
        row = offset(f, self.a, tile.row * k.a_row)
        scales = offset(f, k.a_scales, tile.row * k.a_scales_row)
        a_sums = offset(f, k.a_sums, tile.row * k.a_sums_row)
        arguments = ByteTileArguments(
            a=offset(f, row, block.start),
            a_row=k.a_row,
            a_scales=offset(f, scales, first * k.a_distance),
            a_scales_row=k.a_scales_row,
            a_distance=k.a_distance,
            a_sums=offset(
                f, a_sums, first * (F32.nbytes if self.form.zero else k.a_distance)
            ),
            a_sums_row=k.a_sums_row,
            b=panel.target,
            b_row=panel.width,
            b_scales=self.scales,
            blocks=block.length // self.of_block,
            quads=self.quads,
            c=sums,
            c_row=k.panel_bytes,
            add=block.number,
        )
        f.call_pointer(self.function_of(tile, panel), *arguments)
