"""Copies matrices into the layouts that the tiles of a matrix product read.

B is packed into *panels*: all of K for as many columns as a tile has, row after row, so
that a tile reads one stream.  The last panel has as many columns as are left, rounded
up to vectors of 64 bytes and filled with zeros.  A is only copied where it must be, to
rows of consecutive elements.
"""

from __future__ import annotations

from typing import NamedTuple

from onnxplug_cpu.compiler.codegen.emit import I64, PTR, Function, Module, Type, Value
from onnxplug_cpu.compiler.codegen.kernel import Generator, KernelFunction
from onnxplug_cpu.compiler.kernels.contraction.tile import offset
from onnxplug_cpu.compiler.target.isa import LANES, VECTOR_BYTES, Isa

# one panel: function (source, row stride, column stride, rows, columns, target, width)

_PANEL = (
    ("source", PTR),
    ("row_stride", I64),
    ("column_stride", I64),
    ("rows", I64),
    ("columns", I64),
    ("target", PTR),
    ("width", I64),
)
"""The arguments of a function that copies *rows* × *columns* elements to rows of
*width* bytes, zeros after the columns.  Strides are in bytes, *width* is a multiple of
64; all bytes of the target rows are written."""


class PackPanel(Generator):
    """A function that packs one panel.

    Attributes:
        element: ``f32`` or ``f64``.
        way: what is consecutive in the source: ``rows`` (a row's elements), ``columns``
            (f32 only) or ``any``.
    """

    element: str
    way: str

    def write(self, module: Module, name: str, isa: Isa) -> None:
        f = module.function(name, _PANEL)
        copy = {"rows": _copy_rows, "columns": _transpose, "any": _gather}[self.way]
        copy(f, Type(self.element))
        f.finish()


def panel_way(element: str, row_stride: int, column_stride: int, columns: int) -> str:
    """The *way* of :class:`PackPanel` for a matrix of these strides."""
    if column_stride == 1 or columns == 1:
        return "rows"
    if row_stride == 1 and element == "f32":
        return "columns"
    return "any"


def _copy_rows(f: Function, scalar: Type) -> None:
    source, row_stride, _, rows, columns, target, width = f.parameters
    words = columns * (scalar.nbytes // 4)
    vector = Type("f32", LANES)
    full = words & ~(LANES - 1)
    rest = f.first_lanes(words - full, LANES)
    whole = full.compare("eq", words)
    further = rows * row_stride  # the next call for this panel

    def row(i: Value) -> None:
        start = offset(f, source, i * row_stride)
        place = offset(f, target, i * width)

        soon = offset(f, start, further)

        def chunk(j: Value) -> None:
            f.prefetch(f.at(soon, j, vector), 2)
            f.store(f.load(f.at(start, j, vector), vector), f.at(place, j, vector))

        f.loop(full, chunk, step=LANES)

        def tail() -> None:
            value = f.load_masked(f.at(start, full, vector), rest, vector)
            f.store(value, f.at(place, full, vector))

        f.branch(whole, lambda: None, tail)

    f.loop(rows, row)


def _gather(f: Function, scalar: Type) -> None:
    source, row_stride, column_stride, rows, columns, target, width = f.parameters
    padded = width // scalar.nbytes

    def row(i: Value) -> None:
        start = offset(f, source, i * row_stride)
        place = offset(f, target, i * width)

        def element(j: Value) -> None:
            value = f.load(offset(f, start, j * column_stride), scalar)
            f.store(value, f.at(place, j, scalar))

        f.loop(columns, element)
        f.loop(
            padded,
            lambda j: f.store(f.zero(scalar), f.at(place, j, scalar)),
            start=columns,
        )

    f.loop(rows, row)


def _transpose(f: Function, scalar: Type) -> None:
    """Blocks of 4 rows × 16 columns by shuffles within 128 bits."""
    source, _, column_stride, rows, columns, target, width = f.parameters
    vector, quarter = Type("f32", LANES), Type("f32", 4)
    whole = rows & ~3

    def block(j: Value) -> None:
        """16 columns, the missing ones zero."""
        place = f.at(target, j, scalar)
        left = f.minimum(columns - j, f.value(LANES, I64))
        mask = f.first_lanes(left, LANES)
        # a missing column is read at the last one's place, and not kept
        columns_at = [
            offset(
                f,
                source,
                (j + f.minimum(left - 1, f.value(lane, I64))) * column_stride,
            )
            for lane in range(LANES)
        ]

        # the next block's columns, a line at a time
        following = offset(f, source, (j + LANES) * column_stride)

        def ask(lane: Value) -> None:
            column = offset(f, following, lane * column_stride)
            f.loop(rows, lambda i: f.prefetch(f.at(column, i, scalar), 2), step=LANES)

        f.loop(LANES, ask)

        def four(i: Value) -> None:
            quarters = [f.load(f.at(at, i, scalar), quarter) for at in columns_at]
            # lane 4g+e of vector r is column 4g+r, row i+e
            mixed = [
                _concatenate(f, [quarters[4 * g + r] for g in range(4)])
                for r in range(4)
            ]
            for e, value in enumerate(transpose_quarters(f, mixed)):
                value = f.select(mask, value, 0)
                f.store(value, offset(f, place, (i + e) * width))

        def one(i: Value) -> None:
            value = f.zero(vector)
            for lane, at in enumerate(columns_at):
                value = f.insert(value, f.load(f.at(at, i, scalar), scalar), lane)
            f.store(f.select(mask, value, 0), offset(f, place, i * width))

        f.loop(whole, four, step=4)
        f.loop(rows, one, start=whole)

    f.loop(columns, block, step=LANES)


def _concatenate(f: Function, parts: list[Value]) -> Value:
    while len(parts) > 1:
        parts = [
            f.shuffle(a, b, range(2 * a.type.lanes))
            for a, b in zip(parts[::2], parts[1::2], strict=True)
        ]
    return parts[0]


def transpose_quarters(f: Function, rows: list[Value]) -> list[Value]:
    """Within each 128 bits, 4 × 4 elements transposed."""

    def pick(a: Value, b: Value, lanes: tuple[int, int, int, int]) -> Value:
        return f.shuffle(
            a,
            b,
            [
                4 * group + (lane % 4) + (LANES if lane >= 4 else 0)
                for group in range(LANES // 4)
                for lane in lanes
            ],
        )

    low01 = pick(rows[0], rows[1], (0, 4, 1, 5))
    high01 = pick(rows[0], rows[1], (2, 6, 3, 7))
    low23 = pick(rows[2], rows[3], (0, 4, 1, 5))
    high23 = pick(rows[2], rows[3], (2, 6, 3, 7))
    return [
        pick(low01, low23, (0, 1, 4, 5)),
        pick(low01, low23, (2, 3, 6, 7)),
        pick(high01, high23, (0, 1, 4, 5)),
        pick(high01, high23, (2, 3, 6, 7)),
    ]


# all panels

PACK_WORDS = (
    "source",
    "batch0",
    "batch1",
    "row",
    "column",
    "target",
    "target_batch",
    "rows",
    "rows_together",
    "columns",
    "panel",
    "element",
    "taps",
    "offsets",
    "batches1",
    "parts",
    "function",
)


class PackMatrices(Generator):
    """Packs matrices into panels; a chunk is a part of the panels of one matrix.

    Words: ``source`` and its strides in bytes over two batch axes, rows and columns;
    ``target`` and the bytes of one packed matrix; the sizes of the matrix of a tap, and
    how many rows are packed into all panels before the next ones; ``panel``, the bytes
    of a row of a panel; ``element``, the bytes of an element; how many ``taps`` follow
    each other in a panel, and their ``offsets`` in the source; the size of the second
    batch axis; into how many parts panels are divided; and the function that packs a
    panel.
    """

    words = PACK_WORDS

    def write(self, module: Module, name: str, isa: Isa) -> None:
        k = KernelFunction(module, name, self.words)
        f = k.function
        parts, batches1 = k.integer("parts"), k.integer("batches1")
        matrix, part = k.chunk // parts, k.chunk % parts
        source = offset(
            f, k.pointer("source"), (matrix // batches1) * k.integer("batch0")
        )
        source = offset(f, source, (matrix % batches1) * k.integer("batch1"))
        columns, element = k.integer("columns"), k.integer("element")
        rows, panel = k.integer("rows"), k.integer("panel")
        taps, offsets = k.integer("taps"), k.pointer("offsets")
        panels = Panels(
            k.pointer("function"),
            source,
            k.integer("row"),
            k.integer("column"),
            rows,
            k.integer("rows_together"),
            columns,
            offset(f, k.pointer("target"), matrix * k.integer("target_batch")),
            panel,
            element,
            taps * rows,
        )
        count = (columns * element + (panel - 1)) // panel

        def one_tap(tap: Value) -> None:
            distance = f.load(f.at(offsets, tap, I64), I64)
            here = panels._replace(
                source=offset(f, source, distance), first_row=tap * rows
            )
            pack_panels(f, here, count * part // parts, count * (part + 1) // parts)

        f.loop(taps, one_tap)
        f.finish()


class Panels(NamedTuple):
    """The panels of one matrix, as :class:`PackMatrices` calls their properties.

    Attributes:
        panel_rows: of a whole panel, if it has more than *rows*.
        first_row: where in a panel *rows* begin.
    """

    function: Value
    source: Value
    row: Value
    column: Value
    rows: Value
    rows_together: Value
    columns: Value
    target: Value
    panel: Value
    element: Value
    panel_rows: Value | None = None
    first_row: Value | None = None


def pack_panels(f: Function, panels: Panels, first: Value, end: Value) -> None:
    """Emit the loops that pack the panels from *first* up to *end*."""
    per_panel = panels.panel // panels.element
    panel_rows = panels.rows if panels.panel_rows is None else panels.panel_rows

    def some_rows(start: Value) -> None:
        rows = f.minimum(panels.rows - start, panels.rows_together)
        source = offset(f, panels.source, start * panels.row)
        row = start if panels.first_row is None else panels.first_row + start

        def one(index: Value) -> None:
            column = index * per_panel
            count = f.minimum(panels.columns - column, per_panel)
            width = (count * panels.element + (VECTOR_BYTES - 1)) & -VECTOR_BYTES
            f.call_pointer(
                panels.function,
                offset(f, source, column * panels.column),
                panels.row,
                panels.column,
                rows,
                count,
                offset(
                    f,
                    panels.target,
                    index * (panel_rows * panels.panel) + row * width,
                ),
                width,
            )

        f.loop(end, one, start=first)

    together = panels.rows_together
    turns = (panels.rows + together - 1) // together
    f.loop(turns, lambda turn: some_rows(turn * together))


# A

COPY_WORDS = (
    "source",
    "batch0",
    "batch1",
    "row",
    "column",
    "target",
    "target_row",
    "rows",
    "columns",
    "batches1",
    "parts",
    "function",
)


class CopyMatrices(Generator):
    """Copies matrices to rows of consecutive elements; a chunk is some rows of one.

    Words as those of :class:`PackMatrices`; ``target_row`` is the bytes of a target
    row, a multiple of 64.
    """

    words = COPY_WORDS

    def write(self, module: Module, name: str, isa: Isa) -> None:
        k = KernelFunction(module, name, self.words)
        f = k.function
        rows, parts = k.integer("rows"), k.integer("parts")
        matrix, part = k.chunk // parts, k.chunk % parts
        batches1, width = k.integer("batches1"), k.integer("target_row")
        source = offset(
            f, k.pointer("source"), (matrix // batches1) * k.integer("batch0")
        )
        source = offset(f, source, (matrix % batches1) * k.integer("batch1"))
        first = rows * part // parts
        count = rows * (part + 1) // parts - first
        f.call_pointer(
            k.pointer("function"),
            offset(f, source, first * k.integer("row")),
            k.integer("row"),
            k.integer("column"),
            count,
            k.integer("columns"),
            offset(f, k.pointer("target"), (matrix * rows + first) * width),
            width,
        )
        f.finish()
