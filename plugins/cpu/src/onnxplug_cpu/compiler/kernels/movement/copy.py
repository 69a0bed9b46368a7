"""Copies between strided arrays of one shape: transposition, slices, concatenation.

Elements are moved as bits, so a kernel depends on their size and on the structure of
the strides only.  Five ways, by what is left of the axes after collapsing:

- *rows*: both arrays have runs of neighbouring bytes;
- *repeated*: the target has runs, in which the source repeats one element;
- *transposed*: the target's runs cross the source's; square blocks are transposed in
  registers by exchanging one bit of the row with one bit of the column per step
  (Eklundh 1972, "A fast computer method for matrix transposing");
- *interleaved*: of a few rows of either the elements follow each other in turn;
- *strided*: element after element.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onnxplug_compiler.ir.buffers import Address
from onnxplug_compiler.ir.traced import larger, smaller
from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.codegen.emit import I8, I64, Function, Module, Value
from onnxplug_cpu.compiler.codegen.kernel import Generator, Kernel, KernelFunction
from onnxplug_cpu.compiler.codegen.row_copy import (
    copy_row,
    from_memory,
    move_type,
    repeated,
    row_class,
)
from onnxplug_cpu.compiler.commands.chunks import fewest_chunks
from onnxplug_cpu.compiler.commands.recording import Recorder, call
from onnxplug_cpu.compiler.kernels.horizontal_fusion import record_together
from onnxplug_cpu.compiler.kernels.loop_nest import Axis, Layout, Walk, chunks, collapse
from onnxplug_cpu.compiler.kernels.loop_nest import merge as merge_axes
from onnxplug_cpu.compiler.kernels.movement.interleave import (
    InterleavedCopy,
    Interleaving,
)
from onnxplug_cpu.compiler.machine.isa import LANES, Isa

_LINE = 64
_LONG_ROW = 64 << 10  # bytes from which a row is worth cutting for several workers


def record_copy(
    recorder: Recorder, source: View, target: View, *, label: str = "Copy"
) -> None:
    """Copy *source* to *target*.

    Args:
        source: any strides.
        target: the same shape and dtype; any strides, but no element twice, and no
            byte of the source.

    Raises:
        ValueError: The shapes or dtypes differ, or the target repeats an element.
    """
    if (source.shape, source.dtype) != (target.shape, target.dtype):
        raise ValueError(
            f"a copy takes two arrays of one shape and dtype; got {source.dtype} "
            f"{source.shape} and {target.dtype} {target.shape}"
        )
    if target.size == 0:
        return
    layout, itemsize = _widened(collapse((target, source)), target.dtype.itemsize)
    if any(axis.strides[0] == 0 for axis in layout.axes):
        raise ValueError(f"a copy's target repeats elements: strides {target.strides}")
    for part in _divided(layout, itemsize):
        _Copy(recorder, part, itemsize, f"{label} {_sizes(target.shape)}").record()


def record_copies(
    recorder: Recorder, pairs: Sequence[tuple[View, View]], *, label: str = "Copy"
) -> None:
    """See ``families.Movement.record_copies``; in one command."""

    def record(inner: Recorder) -> None:
        for source, target in pairs:
            record_copy(inner, source, target)

    record_together(recorder, record, label=label)


def _sizes(shape: Sequence[int]) -> str:
    return "×".join(map(str, shape))


def _widened(layout: Layout, itemsize: int) -> tuple[Layout, int]:
    """Neighbouring elements that always move together as one of 2, 4 or 8 bytes."""
    if not layout.axes:
        return layout, itemsize
    *outer, inner = layout.axes
    run = itemsize * inner.size
    if (
        run not in (2, 4, 8)
        or inner.strides != (itemsize, itemsize)
        or any(stride % run for axis in outer for stride in axis.strides)
    ):
        return layout, itemsize
    return Layout(layout.addresses, merge_axes(outer)), run


def _divided(layout: Layout, itemsize: int) -> Iterator[Layout]:
    """The layout with more axes, and what does not fit into them, if all of it takes
    long and has an axis that most of it is along."""
    seconds = 1e-9 * layout.size * max(itemsize / 4, 1)
    parts = fewest_chunks(seconds / 2)
    if parts < 2:
        yield layout
        return
    longest = max(layout.axes, key=lambda axis: axis.size, default=Axis(1, ()))
    if layout.size >= parts * longest.size:
        yield layout
        return
    place = layout.axes.index(longest)
    before, behind = layout.axes[:place], layout.axes[place + 1 :]
    parts = min(parts, longest.size)
    each = longest.size // parts
    strides = longest.strides
    many = Axis(parts, tuple(stride * each for stride in strides))
    whole = (many, *before, Axis(each, strides), *behind)
    yield Layout(layout.addresses, whole)
    rest = longest.size - parts * each
    if rest:
        addresses = tuple(
            Address(address.buffer, address.offset + parts * each * stride)
            for address, stride in zip(layout.addresses, strides, strict=True)
        )
        yield Layout(addresses, (*before, Axis(rest, strides), *behind))


class _Copy:
    """One copy, target first, on its way to a command."""

    def __init__(
        self, recorder: Recorder, layout: Layout, itemsize: int, label: str
    ) -> None:
        self.recorder = recorder
        self.layout = layout
        self.itemsize = itemsize
        self.label = label
        self.nbytes = layout.size * itemsize

    def record(self) -> None:
        """Choose a way and record it."""
        axes, width = self.layout.axes, self.itemsize
        if not axes:
            self._rows([], Axis(1, (width, width)))
            return
        *outer, inner = axes
        if inner.strides == (width, width):
            self._rows(outer, inner)
            return
        found = Interleaving.find(axes, width) if width <= 8 else None
        if found is not None:
            self._interleaved(found)
            return
        if inner.strides[0] == width:
            if inner.strides[1] == 0:
                self._repeated(outer, inner)
                return
            # one element of 16 bytes is a register, of which blocks gain nothing
            for place, axis in enumerate(outer if width <= 8 else ()):
                if axis.strides[1] == width and min(axis.size, inner.size) >= 4:
                    rest = [*outer[:place], *outer[place + 1 :]]
                    self._transposed(rest, axis, inner)
                    return
        self._strided(axes)

    def _rows(self, outer: list[Axis], inner: Axis) -> None:
        nbytes = inner.size * self.itemsize
        nanoseconds = self.nbytes / 8
        outer, nbytes = self._cut(outer, inner, nbytes, nanoseconds)
        kernel = _RowsCopy(len(outer), row_class(nbytes))
        self._call(kernel, outer, {"nbytes": nbytes}, nanoseconds)

    def _repeated(self, outer: list[Axis], inner: Axis) -> None:
        nbytes = inner.size * self.itemsize
        nanoseconds = self.nbytes / 12
        outer, nbytes = self._cut(outer, inner, nbytes, nanoseconds)
        kernel = _RepeatedCopy(len(outer), self.itemsize, row_class(nbytes))
        self._call(kernel, outer, {"nbytes": nbytes}, nanoseconds)

    def _cut(
        self, outer: list[Axis], inner: Axis, nbytes: int, nanoseconds: float
    ) -> tuple[list[Axis], int]:
        """Long rows as several short ones, if there are not enough for all workers, or
        they take too long for one."""
        rows = self.layout.size // inner.size
        wanted = fewest_chunks(1e-9 * nanoseconds)
        if self.recorder.target.workers > 1:
            wanted = larger(wanted, 4 * self.recorder.target.workers)
        wanted = smaller(wanted // rows, nbytes // _LONG_ROW)
        if wanted < 2:
            return outer, nbytes
        for pieces in range(wanted, 1, -1):
            if inner.size % pieces == 0:
                each = inner.size // pieces
                strides = tuple(stride * each for stride in inner.strides)
                return [*outer, Axis(pieces, strides)], nbytes // pieces
        return outer, nbytes

    def _transposed(self, outer: list[Axis], rows: Axis, columns: Axis) -> None:
        width = self.itemsize
        block = _block(self.recorder.target.isa, width, min(rows.size, columns.size))
        band = max(block, _LINE // width)
        bands = Axis(
            -(-rows.size // band), tuple(stride * band for stride in rows.strides)
        )
        self._call(
            _TransposedCopy(len(outer) + 1, width, block, band),
            [*outer, bands],
            {
                "rows": rows.size,
                "columns": columns.size,
                "target_row": rows.strides[0],
                "source_column": columns.strides[1],
            },
            self.nbytes / 4,
        )

    def _interleaved(self, found: Interleaving) -> None:
        kernel = InterleavedCopy(
            len(found.others), self.itemsize, found.rows.size, found.joins
        )
        self._call(kernel, found.others, found.words(), self.nbytes / 4)

    def _strided(self, axes: Sequence[Axis]) -> None:
        inner = len(axes) - 1
        if axes[inner].size < 8:  # the innermost loop should be a long one
            inner = max(range(len(axes)), key=lambda axis: axes[axis].size)
        outer = [*axes[:inner], *axes[inner + 1 :]]
        step = dict(
            zip(("target_step", "source_step"), axes[inner].strides, strict=True)
        )
        kernel = _StridedCopy(len(outer), self.itemsize)
        words = {"count": axes[inner].size, **step}
        self._call(kernel, outer, words, self.nbytes / self.itemsize)

    def _call(
        self,
        kernel: _CopyKernel | InterleavedCopy,
        outer: Sequence[Axis],
        words: dict[str, int],
        nanoseconds: float,
    ) -> None:
        items = Layout((), tuple(outer)).size
        count, each = chunks(self.recorder, items, nanoseconds)
        walk = kernel.walk.values(self.layout.addresses, outer, each)
        call(
            self.recorder,
            Kernel(kernel),
            {**walk, **words},
            chunks=count,
            label=self.label,
            nbytes=2 * self.nbytes,
        )


class _CopyKernel(Generator):
    """What copies have in common."""

    axes: int

    @property
    def walk(self) -> Walk:
        """Over the items."""
        return Walk(("target", "source"), self.axes)


class _RowsCopy(_CopyKernel):
    """Copies rows of consecutive bytes, the length of which is of a class."""

    axes: int
    class_: str

    @property
    def words(self) -> tuple[str, ...]:
        return (*self.walk.words, "nbytes")

    def write(self, module: Module, name: str, isa: Isa) -> None:
        k = KernelFunction(module, name, self.words)
        f, nbytes = k.function, k.integer("nbytes")

        def row(pointers: list[Value], _: list[Value]) -> None:
            target, source = pointers
            copy_row(f, target, from_memory(f, source), nbytes, self.class_)

        self.walk.write(k, row)
        f.finish()


class _RepeatedCopy(_CopyKernel):
    """Fills rows with one element each."""

    axes: int
    itemsize: int
    class_: str

    @property
    def words(self) -> tuple[str, ...]:
        return (*self.walk.words, "nbytes")

    def write(self, module: Module, name: str, isa: Isa) -> None:
        k = KernelFunction(module, name, self.words)
        f, nbytes = k.function, k.integer("nbytes")

        def row(pointers: list[Value], _: list[Value]) -> None:
            target, source = pointers
            item = f.load(source, move_type(self.itemsize), align=1)
            copy_row(f, target, repeated(f, item), nbytes, self.class_)

        self.walk.write(k, row)
        f.finish()


class _StridedCopy(_CopyKernel):
    """Copies rows of elements that are apart."""

    axes: int
    itemsize: int

    @property
    def words(self) -> tuple[str, ...]:
        return (*self.walk.words, "count", "target_step", "source_step")

    def write(self, module: Module, name: str, isa: Isa) -> None:
        k = KernelFunction(module, name, self.words)
        f, count = k.function, k.integer("count")
        steps = k.integer("target_step"), k.integer("source_step")
        element = move_type(self.itemsize)
        whole = count & -4

        def move(target: Value, source: Value) -> list[Value]:
            f.store(f.load(source, element, align=1), target, align=1)
            return [f.at(target, steps[0], I8), f.at(source, steps[1], I8)]

        def four(_: Value, target: Value, source: Value) -> list[Value]:
            at = [target, source]
            for _turn in range(4):
                at = move(*at)
            return at

        def row(pointers: list[Value], _: list[Value]) -> None:
            after = f.loop(whole, four, pointers, step=4)
            f.loop(count, lambda _, *at: move(*at), after, start=whole)

        self.walk.write(k, row)
        f.finish()


def _block(isa: Isa, itemsize: int, smaller: int) -> int:
    """The side of the square that is transposed in registers."""
    most = LANES if itemsize in (2, 4) else LANES // 2
    if isa.registers_per_vector > 1 and itemsize > 1:
        most //= 2
    block = 4
    while block * 2 <= min(most, smaller):
        block *= 2
    return block


class _TransposedCopy(_CopyKernel):
    """The last axis of the walk counts bands of *band* rows of the target.

    A band's last block begins where it ends with the array, so blocks may overlap.
    """

    axes: int
    itemsize: int
    block: int
    band: int

    @property
    def words(self) -> tuple[str, ...]:
        return (*self.walk.words, "rows", "columns", "target_row", "source_column")

    def write(self, module: Module, name: str, isa: Isa) -> None:
        _Bands(KernelFunction(module, name, self.words), self).write()


class _Bands:
    """The loops over bands, and squares of them."""

    def __init__(self, k: KernelFunction, form: _TransposedCopy) -> None:
        self.k, self.f, self.form = k, k.function, form
        self.last_row = k.integer("rows") - form.block
        self.last_column = k.integer("columns") - form.block
        self.target_row = k.integer("target_row")
        self.source_column = k.integer("source_column")

    def write(self) -> None:
        self.form.walk.write(self.k, self._band)
        self.f.finish()

    def _band(self, pointers: list[Value], indices: list[Value]) -> None:
        f, (_, itemsize, block, band) = self.f, self.form
        target, source = pointers
        first = indices[-1] * band
        end = f.minimum(self.k.integer("rows") - first, f.value(band, I64))

        def column(wanted: Value) -> None:
            j = f.minimum(wanted, self.last_column)
            to = f.at(target, j * itemsize, I8)
            from_ = f.at(source, j * self.source_column, I8)

            def square(wanted: Value) -> None:
                i = f.minimum(wanted + first, self.last_row) - first
                self._transpose(from_, to, i)

            if band == block:
                square(f.value(0, I64))
            else:
                f.loop(end, square, step=block, nonempty=True)

        f.loop(self.k.integer("columns"), column, step=block, nonempty=True)

    def _transpose(self, source: Value, target: Value, row: Value) -> None:
        """A square, from *row* of the band on."""
        f, (_, itemsize, block, _) = self.f, self.form
        vector = move_type(itemsize).vector(block)
        at = f.at(source, row * itemsize, I8)
        lines = []
        for _unused in range(block):
            lines.append(f.load(at, vector, align=1))
            at = f.at(at, self.source_column, I8)
        at = f.at(target, row * self.target_row, I8)
        for line in _transposed_lines(f, lines):
            f.store(line, at, align=1)
            at = f.at(at, self.target_row, I8)


def _transposed_lines(f: Function, lines: list[Value]) -> list[Value]:
    """The columns of a square of as many vectors as each has lanes."""
    size = len(lines)
    bit = 1
    while bit < size:
        lanes = range(size)
        even = [lane if not lane & bit else size + lane - bit for lane in lanes]
        odd = [lane + bit if not lane & bit else size + lane for lane in lanes]
        after = list(lines)
        for row in range(size):
            if not row & bit:
                pair = lines[row], lines[row + bit]
                after[row] = f.shuffle(*pair, even)
                after[row + bit] = f.shuffle(*pair, odd)
        lines = after
        bit *= 2
    return lines
