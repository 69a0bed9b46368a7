"""Long windows along one axis, in time that does not depend on how long they are.

The axis is cut into blocks as long as a window, so each window is the end of one block
and the beginning of the next.  The ends of a block are combined backwards into scratch
memory, and then the beginnings of the next one forwards, while its windows are taken
(M. van Herk, A fast algorithm for local minimum and maximum filters on rectangular and
octagonal kernels, 1992; J. Gil, M. Werman, Computing 2-D min, median, and max filters,
1993).  Nothing is subtracted, so sums are as good as those of windows one by one.
"""

from __future__ import annotations

from onnxplug_compiler.ir.views import View
from onnxplug_compiler.ir.windows import Combining, Slide
from onnxplug_cpu.compiler.codegen.emit import F32, I64, Module, Value
from onnxplug_cpu.compiler.codegen.kernel import (
    Generator,
    Integer,
    Kernel,
    KernelWords,
    Pointer,
)
from onnxplug_cpu.compiler.commands.recording import Recorder, call, worker_memory
from onnxplug_cpu.compiler.commands.words import Word
from onnxplug_cpu.compiler.kernels.reduction.accumulator import Accumulator, Fold
from onnxplug_cpu.compiler.kernels.rows import (
    Axes,
    Elements,
    Walk,
    byte_strides,
    chunk_size,
    fewest_parts,
    move,
    walk_words,
)
from onnxplug_cpu.compiler.kernels.window.combining import Folding, vector_of
from onnxplug_cpu.compiler.machine.isa import LANES, VECTOR_BYTES, Isa

_NANOSECONDS = 1.0
"""What one element takes, about."""


def record_scan(
    recorder: Recorder,
    combining: Combining,
    x: View,
    out: View,
    axis: int,
    slide: Slide,
    *,
    counts_padding: bool = False,
    label: str = "Pool",
) -> None:
    """Combine the elements of windows along *axis*.

    Args:
        combining: how; without weights.
        x: f32, any strides; fastest if another axis has consecutive elements.
        out: f32, of the same shape but for *axis*; any strides.
        slide: of dilation 1; checked by :func:`~.slide.require_reach`.
        counts_padding: for a mean, padding counts as zeros.
        label: for profiles.

    Raises:
        ValueError: shapes do not fit, or there is a dilation.
    """
    _check(x, out, axis, slide)
    if not out.size:
        return
    steps, out_steps = byte_strides(x), byte_strides(out)
    lane, others = _lane_of(x, axis)
    rows = Axes.collapsed(
        [x.shape[a] for a in others],
        [[steps[a] for a in others], [out_steps[a] for a in others]],
    )
    columns = 1 if lane is None else x.shape[lane]
    spacing = F32.nbytes if lane is None else steps[lane]
    out_spacing = F32.nbytes if lane is None else out_steps[lane]
    size, count = x.shape[axis], out.shape[axis]
    parts = fewest_parts(columns * (size + count), _NANOSECONDS)
    if lane is not None and parts > 1 and columns > LANES:
        # each as wide as some vectors
        each = -(-columns // (LANES * parts)) * LANES
        places = out.cut(lane, each)
        for part, place in zip(x.cut(lane, each), places, strict=True):
            record_scan(
                recorder,
                combining,
                part,
                place,
                axis + 1,
                slide,
                counts_padding=counts_padding,
                label=label,
            )
        return
    scratch, distance = worker_memory(recorder, slide.taps * VECTOR_BYTES)
    kernel = WindowScan(
        combining, spacing == F32.nbytes, out_spacing == F32.nbytes, rows.rank
    )
    chunk = chunk_size(
        rows.count, columns * (size + count) * _NANOSECONDS, recorder.target.workers
    )
    words: dict[str, Word] = {
        "x": x.address,
        "x_step": steps[axis],
        "x_spacing": spacing,
        "out": out.address,
        "out_step": out_steps[axis],
        "out_spacing": out_spacing,
        "rows": rows.count,
        "chunk_rows": chunk,
        "columns": columns,
        "size": size,
        "count": count,
        "taps": slide.taps,
        "stride": slide.stride,
        "before": slide.before,
        "low": -slide.before if counts_padding else 0,
        "high": size + slide.after if counts_padding else size,
        "ends": scratch,
        "ends_distance": distance,
        **rows.words("row"),
    }
    call(
        recorder,
        Kernel(kernel),
        words,
        chunks=-(-rows.count // chunk),
        label=f"{label} {'×'.join(map(str, out.shape))}×{slide.taps}",
        flops=3 * x.size,
        nbytes=x.nbytes + out.nbytes,
    )


def _check(x: View, out: View, axis: int, slide: Slide) -> None:
    if (
        x.shape[:axis] != out.shape[:axis]
        or x.shape[axis + 1 :] != out.shape[axis + 1 :]
    ):
        raise ValueError(f"windows along axis {axis} of {x.shape} give no {out.shape}")
    if slide.dilation != 1:
        raise ValueError(f"long windows have no gaps; got {slide}")


def _lane_of(x: View, axis: int) -> tuple[int | None, list[int]]:
    """The axis along the lanes of vectors, if there is any but *axis*; the others."""
    others = [a for a in range(len(x.shape)) if a != axis and x.shape[a] != 1]
    others.sort(key=lambda a: -abs(x.strides[a]))
    near = [a for a in others if x.strides[a] == 1]
    lane = near[0] if near else others[-1] if others else None
    if lane is not None:
        others.remove(lane)
    return lane, others


class ScanWords(KernelWords):
    """Words of :class:`WindowScan`; distances are in bytes.

    Windows of ``taps`` elements along an axis of ``size``, of which ``count`` are
    taken, the first ``before`` the first element; the rows of the other axes, and of
    them those of a chunk; ``ends``, scratch memory, distance of workers.
    """

    x: Pointer
    x_step: Integer
    x_spacing: Integer
    out: Pointer
    out_step: Integer
    out_spacing: Integer
    rows: Integer
    chunk_rows: Integer
    columns: Integer
    size: Integer
    count: Integer
    taps: Integer
    stride: Integer
    before: Integer
    low: Integer
    high: Integer
    ends: Pointer
    ends_distance: Integer


class WindowScan(Generator):
    """Windows along an axis; a chunk is some rows of the other axes.

    Attributes:
        combining: what elements become.
        near, out_near: whether the lanes' elements are adjacent.
        rank: of the rows' axes.
    """

    combining: Combining
    near: bool
    out_near: bool
    rank: int

    @property
    def words(self) -> tuple[str, ...]:
        return (*ScanWords.names, *walk_words("row", self.rank, 2))

    def write(self, module: Module, name: str, isa: Isa) -> None:
        k = ScanWords(module, name, walk_words("row", self.rank, 2))
        f = k.function
        vector = vector_of(isa)
        walk = Walk(k, "row", self.rank, 2)
        source = Elements(f, vector, None if self.near else k.x_spacing)
        target = Elements(f, vector, None if self.out_near else k.out_spacing)
        scan = _Scan(k, isa, self, source, target)
        begin = k.chunk * k.chunk_rows
        end = f.minimum(begin + k.chunk_rows, k.rows)
        columns = k.columns

        def row(_: Value, *state: Value) -> list[Value]:
            x, out = walk.pointers(state)

            def strip(column: Value) -> None:
                mask = f.first_lanes(columns - column, vector.lanes)
                scan.strip(source.at(x, column), target.at(out, column), mask)

            f.loop(columns, strip, step=vector.lanes)
            return walk.advance(state)

        start = walk.start([k.x, k.out], begin)
        f.loop(end, row, start, start=begin)
        f.finish()


class _Scan:
    """The windows of a vector of lanes.

    Positions count from where the first window begins.
    """

    def __init__(
        self,
        k: ScanWords,
        isa: Isa,
        form: WindowScan,
        source: Elements,
        target: Elements,
    ) -> None:
        f = self.f = k.function
        self.form, self.source, self.target = form, source, target
        self.vector = source.type
        self.folding = Folding(f, isa, form.combining, self.vector)
        adds = form.combining.fold == "add"
        start = -float("inf") if not adds else 0
        fold = Fold(
            start, lambda f, a, x: a, lambda f, a, b: self.folding.join(a, b), adds
        )
        self.accumulator = Accumulator(f, fold, self.vector)
        self.x_step, self.out_step = k.x_step, k.out_step
        self.taps, self.stride = k.taps, k.stride
        self.count = k.count
        # where the input is, and what counts
        self.first = k.before
        self.end = self.first + k.size
        self.low = self.first + k.low
        self.high = self.first + k.high
        self.ends = move(f, k.ends, k.worker * k.ends_distance)

    def strip(self, x: Value, out: Value, mask: Value) -> None:
        """All windows of some lanes."""
        strip = _Strip(self, x, out, mask)
        span = (self.count - 1) * self.stride + 1
        blocks = (span + self.taps - 1) // self.taps
        self.f.loop(blocks, lambda number: strip.block(number * self.taps))

    def end_at(self, position: Value) -> Value:
        """Where the end of a block that begins at a *position* of it is kept."""
        return self.f.at(self.ends, position * self.vector.lanes, F32)

    def counted(self, at: Value) -> Value:
        """How many elements of a window count."""
        f = self.f
        elements = f.minimum(at + self.taps, self.high) - f.maximum(at, self.low)
        elements = f.maximum(elements, f.value(0, I64))
        return f.splat(f.convert(elements, F32), self.vector.lanes)


class _Strip:
    """The windows of a vector of lanes, block by block of positions."""

    def __init__(self, scan: _Scan, x: Value, out: Value, mask: Value) -> None:
        self.scan, self.f, self.out, self.mask = scan, scan.f, out, mask
        self.base = move(self.f, x, 0 - scan.first * scan.x_step)

    def block(self, begin: Value) -> None:
        """The windows that begin in the block from *begin* on."""
        f, scan, accumulator = self.f, self.scan, self.scan.accumulator
        middle = begin + scan.taps
        lower = f.minimum(f.maximum(begin, scan.first), middle)
        upper = f.maximum(f.minimum(middle, scan.end), lower)

        # the ends of this block, from the back
        def from_back(turn: Value, *state: Value) -> list[Value]:
            position = (upper - 1) - turn
            after = self._absorb(position, *state)
            f.store(accumulator.result(after), scan.end_at(position - begin))
            return after

        f.loop(upper - lower, from_back, accumulator.start())

        # the beginnings of the next, and the windows that end there
        def window(index: Value, seen: Value, *carried: Value) -> list[Value]:
            at = index * scan.stride
            until = f.minimum(at + scan.taps, scan.end)
            total = f.loop(until, self._absorb, carried, start=seen)
            seen = f.maximum(seen, until)
            # what precedes the input adds nothing, and nothing is behind it
            start = f.maximum(at, lower)

            def with_end() -> list[Value]:
                end = f.load(scan.end_at(start - begin), scan.vector)
                return [scan.folding.join(end, accumulator.result(total))]

            (result,) = f.branch(
                start < upper, with_end, lambda: [accumulator.result(total)]
            )
            self._store(index, at, result)
            return [seen, *total]

        first = (begin + scan.stride - 1) // scan.stride
        last = f.minimum((middle + scan.stride - 1) // scan.stride, scan.count)
        seen = f.maximum(middle, scan.first)
        f.loop(last, window, [seen, *accumulator.start()], start=first)

    def _absorb(self, position: Value, *total: Value) -> list[Value]:
        """*total* with the element at a position."""
        scan = self.scan
        place = move(self.f, self.base, position * scan.x_step)
        element = scan.source.load(place, self.mask)
        one = scan.folding.step(scan.folding.start(), element, None)
        return scan.accumulator.absorb(total, one)

    def _store(self, index: Value, at: Value, result: Value) -> None:
        scan = self.scan
        place = move(self.f, self.out, index * scan.out_step)
        result = scan.folding.finish(result, lambda: scan.counted(at))
        scan.target.store(result, place, self.mask)
