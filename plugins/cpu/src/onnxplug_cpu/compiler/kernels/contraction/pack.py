"""Copies matrices into the layouts that the tiles of a matrix product read.

B is packed into *panels*: all of K for as many columns as a tile has, row after row, so
that a tile reads one stream.  The last panel has as many columns as are left, rounded
up to vectors of 64 bytes and filled with zeros.  A is only copied where it must be, to
rows of consecutive elements.
"""

from __future__ import annotations

from typing import NamedTuple

from onnxplug_cpu.compiler.codegen.emit import F32, I64, Function, Module, Type, Value
from onnxplug_cpu.compiler.codegen.kernel import (
    FunctionArguments,
    Generator,
    Integer,
    KernelWords,
    Pointer,
)
from onnxplug_cpu.compiler.codegen.math.narrow import widened
from onnxplug_cpu.compiler.kernels.contraction.tile import offset
from onnxplug_cpu.compiler.machine.isa import LANES, VECTOR_BYTES, Isa

# one panel


class PanelArguments(FunctionArguments):
    """The arguments of a function that copies *rows* × *columns* elements to rows of
    *width* bytes, zeros after the columns.

    Strides are in bytes, *width* is a multiple of those of 16 elements of at most 4
    bytes, or of 64; all bytes of the target rows are written.
    """

    source: Pointer
    row_stride: Integer
    column_stride: Integer
    rows: Integer
    columns: Integer
    target: Pointer
    width: Integer


class PackPanel(Generator):
    """A function that packs one panel.

    Attributes:
        element: as of :class:`~.tile.TileProduct`.
        way: what is consecutive in the source: ``rows`` (a row's elements), ``columns``
            (f32 only) or ``any``.
        source: of elements that become *element*, which is f32 then: ``f16`` or
            ``bf16``; empty if they are that already.
    """

    element: str
    way: str
    source: str = ""

    def write(self, module: Module, name: str, isa: Isa) -> None:
        f = module.function(name, PanelArguments.parameters())
        panel = PanelArguments(*f.parameters)
        copy = {"rows": _copy_rows, "columns": _transpose, "any": _gather}[self.way]
        copy(f, panel, _Elements(f, isa, self.element, self.source))
        f.finish()


class _Elements:
    """Loads elements as the panel has them.

    Attributes:
        scalar: of the panel.
        stored: of the source.
    """

    def __init__(self, f: Function, isa: Isa, element: str, source: str) -> None:
        self.f, self.isa, self.source = f, isa, source
        self.scalar = Type(element)
        self.stored = Type("u16") if source else self.scalar

    def load(
        self, place: Value, index: Value, lanes: int = 0, mask: Value | None = None
    ) -> Value:
        """A vector of *lanes* elements from number *index* on, of which those are zero
        where *mask* is false; without *lanes* one element."""
        f = self.f
        type_ = Type(self.stored.element, lanes)
        at = f.at(place, index, type_)
        raw = f.load(at, type_) if mask is None else f.load_masked(at, mask, type_)
        return widened(f, self.isa, raw, self.source) if self.source else raw


def panel_way(element: str, row_stride: int, column_stride: int, columns: int) -> str:
    """The *way* of :class:`PackPanel` for a matrix of these strides, whose panels have
    *element*."""
    if column_stride == 1 or columns == 1:
        return "rows"
    if row_stride == 1 and element == "f32":
        return "columns"
    return "any"


def _copy_rows(f: Function, panel: PanelArguments, elements: _Elements) -> None:
    words, nbytes, copied = panel.columns, elements.scalar.nbytes, elements
    if nbytes >= F32.nbytes:
        words = words * (nbytes // F32.nbytes)
    if not elements.source:  # whatever they are, they are moved
        moved = "f32" if nbytes >= F32.nbytes else "u16"
        copied = _Elements(f, elements.isa, moved, "")
    vector = copied.scalar.vector(LANES)
    full = words & ~(LANES - 1)
    rest = f.first_lanes(words - full, LANES)
    whole = full.compare("eq", words)
    further = panel.rows * panel.row_stride  # the next call for this panel

    def row(i: Value) -> None:
        start = offset(f, panel.source, i * panel.row_stride)
        place = offset(f, panel.target, i * panel.width)

        soon = offset(f, start, further)

        def chunk(j: Value) -> None:
            f.prefetch(f.at(soon, j, copied.stored), 2)
            f.store(copied.load(start, j, LANES), f.at(place, j, vector))

        f.loop(full, chunk, step=LANES)

        def tail() -> None:
            value = copied.load(start, full, LANES, rest)
            f.store(value, f.at(place, full, vector))

        f.branch(whole, lambda: None, tail)

    f.loop(panel.rows, row)


def _gather(f: Function, panel: PanelArguments, elements: _Elements) -> None:
    scalar = elements.scalar
    padded = panel.width // scalar.nbytes

    def row(i: Value) -> None:
        start = offset(f, panel.source, i * panel.row_stride)
        place = offset(f, panel.target, i * panel.width)

        def element(j: Value) -> None:
            here = offset(f, start, j * panel.column_stride)
            f.store(elements.load(here, f.value(0, I64)), f.at(place, j, scalar))

        f.loop(panel.columns, element)
        f.loop(
            padded,
            lambda j: f.store(f.zero(scalar), f.at(place, j, scalar)),
            start=panel.columns,
        )

    f.loop(panel.rows, row)


def _transpose(f: Function, panel: PanelArguments, elements: _Elements) -> None:
    """Blocks of 4 rows × 16 columns by shuffles within 128 bits."""
    whole = panel.rows & ~3

    def block(j: Value) -> None:
        columns = _Columns(f, panel, elements, j)
        columns.prefetch_next()
        f.loop(whole, columns.transpose_four, step=4)
        f.loop(panel.rows, columns.gather_one, start=whole)

    f.loop(panel.columns, block, step=LANES)


class _Columns:
    """16 columns from the one with number *first* on, which become vectors of f32."""

    def __init__(
        self, f: Function, panel: PanelArguments, elements: _Elements, first: Value
    ) -> None:
        self.f, self.panel, self.elements, self.first = f, panel, elements, first
        self.target = f.at(panel.target, first, F32)
        left = f.minimum(panel.columns - first, f.value(LANES, I64))
        self.mask = f.first_lanes(left, LANES)
        # a missing column is read at the last one's place, and is zero in the target
        self.places = [
            self._at(first + f.minimum(left - 1, f.value(lane, I64)))
            for lane in range(LANES)
        ]

    def _at(self, column: Value) -> Value:
        return offset(self.f, self.panel.source, column * self.panel.column_stride)

    def prefetch_next(self) -> None:
        """Ask for the next block's columns, a line at a time."""
        f, panel = self.f, self.panel
        following = self._at(self.first + LANES)

        def ask(lane: Value) -> None:
            column = offset(f, following, lane * panel.column_stride)
            f.loop(
                panel.rows,
                lambda i: f.prefetch(f.at(column, i, self.elements.stored), 2),
                step=LANES,
            )

        f.loop(LANES, ask)

    def transpose_four(self, i: Value) -> None:
        """Four rows, by shuffles."""
        f = self.f
        quarters = [self.elements.load(place, i, 4) for place in self.places]
        # lane 4g+e of vector r is column 4g+r, row i+e
        mixed = [
            _concatenate(f, [quarters[4 * g + r] for g in range(4)]) for r in range(4)
        ]
        for e, value in enumerate(transpose_quarters(f, mixed)):
            value = f.select(self.mask, value, 0)
            f.store(value, offset(f, self.target, (i + e) * self.panel.width))

    def gather_one(self, i: Value) -> None:
        """One row, element by element."""
        f = self.f
        value = f.zero(F32.vector(LANES))
        for lane, place in enumerate(self.places):
            value = f.insert(value, self.elements.load(place, i), lane)
        value = f.select(self.mask, value, 0)
        f.store(value, offset(f, self.target, i * self.panel.width))


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


class MatrixWords(KernelWords):
    """``source``, its strides in bytes over two batch axes, rows and columns, and
    ``target``."""

    source: Pointer
    batch0: Integer
    batch1: Integer
    row: Integer
    column: Integer
    target: Pointer

    def source_of(self, matrix: Value, batches1: Value) -> Value:
        """Where a matrix begins; *batches1* is the size of the second batch axis."""
        f = self.function
        source = offset(f, self.source, (matrix // batches1) * self.batch0)
        return offset(f, source, (matrix % batches1) * self.batch1)


class PackWords(MatrixWords):
    """Words of :class:`PackMatrices`.

    ``target_batch``, the bytes of one packed matrix; the sizes of the matrix of a tap,
    and how many rows are packed into all panels before the next ones; ``panel``, the
    bytes of a row of a panel; ``element``, the bytes of an element; how many ``taps``
    follow each other in a panel, and their ``offsets`` in the source; the size of the
    second batch axis; into how many parts panels are divided; and ``pack``, the
    function that packs a panel.
    """

    target_batch: Integer
    rows: Integer
    rows_together: Integer
    columns: Integer
    panel: Integer
    element: Integer
    taps: Integer
    offsets: Pointer
    batches1: Integer
    parts: Integer
    pack: Pointer


class PackMatrices(Generator):
    """Packs matrices into panels; a chunk is a part of the panels of one matrix.

    Attributes:
        vector: bytes of which the width of each row of a panel is a multiple.
    """

    vector: int = VECTOR_BYTES

    words = PackWords.names

    def write(self, module: Module, name: str, isa: Isa) -> None:
        k = PackWords(module, name)
        f = k.function
        parts, batches1 = k.parts, k.batches1
        matrix, part = k.chunk // parts, k.chunk % parts
        source = k.source_of(matrix, batches1)
        columns, element, rows, panel = k.columns, k.element, k.rows, k.panel
        taps, offsets = k.taps, k.offsets
        panels = Panels(
            function=k.pack,
            source=source,
            row=k.row,
            column=k.column,
            rows=rows,
            rows_together=k.rows_together,
            columns=columns,
            target=offset(f, k.target, matrix * k.target_batch),
            panel=panel,
            element=element,
            panel_rows=taps * rows,
        )
        count = (columns * element + (panel - 1)) // panel

        def one_tap(tap: Value) -> None:
            distance = f.load(f.at(offsets, tap, I64), I64)
            here = panels._replace(
                source=offset(f, source, distance), first_row=tap * rows
            )
            first, end = count * part // parts, count * (part + 1) // parts
            pack_panels(f, here, first, end, self.vector)

        f.loop(taps, one_tap)
        f.finish()


class Panels(NamedTuple):
    """The panels of one matrix, as :class:`PackWords` calls their properties.

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


def pack_panels(
    f: Function,
    panels: Panels,
    first: Value,
    end: Value,
    vector: int = VECTOR_BYTES,
) -> None:
    """Emit the loops that pack the panels from *first* up to *end*, their rows as wide
    as some *vector* bytes."""
    per_panel = panels.panel // panels.element
    together = panels.rows_together

    def some_rows(turn: Value) -> None:
        start = turn * together
        rows = f.minimum(panels.rows - start, together)
        here = panels._replace(
            rows=rows,
            panel_rows=panels.panel_rows or panels.rows,
            source=offset(f, panels.source, start * panels.row),
            first_row=start if panels.first_row is None else panels.first_row + start,
        )
        f.loop(
            end,
            lambda index: _pack_one(f, here, per_panel, index, vector),
            start=first,
        )

    f.loop((panels.rows + together - 1) // together, some_rows)


def _pack_one(
    f: Function, panels: Panels, per_panel: Value, index: Value, vector: int
) -> None:
    """The rows of one panel, of which *panel_rows* and *first_row* are stated."""
    assert panels.panel_rows is not None
    assert panels.first_row is not None
    column = index * per_panel
    count = f.minimum(panels.columns - column, per_panel)
    width = (count * panels.element + (vector - 1)) & -vector
    source = offset(f, panels.source, column * panels.column)
    place = index * (panels.panel_rows * panels.panel) + panels.first_row * width
    arguments = PanelArguments(
        source=source,
        row_stride=panels.row,
        column_stride=panels.column,
        rows=panels.rows,
        columns=count,
        target=offset(f, panels.target, place),
        width=width,
    )
    f.call_pointer(panels.function, *arguments)


# A


class CopyWords(MatrixWords):
    """Words of :class:`CopyMatrices`, as those of :class:`PackMatrices`;
    ``target_row`` is the bytes of a target row, a multiple of 64."""

    target_row: Integer
    rows: Integer
    columns: Integer
    batches1: Integer
    parts: Integer
    pack: Pointer


class CopyMatrices(Generator):
    """Copies matrices to rows of consecutive elements; a chunk is some rows of one."""

    words = CopyWords.names

    def write(self, module: Module, name: str, isa: Isa) -> None:
        k = CopyWords(module, name)
        f = k.function
        rows, parts = k.rows, k.parts
        matrix, part = k.chunk // parts, k.chunk % parts
        batches1, width = k.batches1, k.target_row
        source = k.source_of(matrix, batches1)
        first = rows * part // parts
        count = rows * (part + 1) // parts - first
        pack = k.pack
        arguments = PanelArguments(
            source=offset(f, source, first * k.row),
            row_stride=k.row,
            column_stride=k.column,
            rows=count,
            columns=k.columns,
            target=offset(f, k.target, (matrix * rows + first) * width),
            width=width,
        )
        f.call_pointer(pack, *arguments)
        f.finish()
