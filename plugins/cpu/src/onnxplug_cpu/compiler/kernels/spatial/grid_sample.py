"""GridSample: an array read at points that another array gives.

Places and weights are computed for as many points at once as a vector has lanes, and
kept in memory.  Then either the lanes stay points, and one channel is picked after
another; or, where channels are adjacent, each point is a weighted sum of rows.

Places are computed in float32 as the formulas say; each is checked, or brought within
its axis, as an integer, so nothing outside the array is read whatever the grid has.
"""

from __future__ import annotations

from onnxplug_compiler.ir.views import View
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
    Kernel,
    KernelWords,
    Pointer,
)
from onnxplug_cpu.compiler.commands.recording import Recorder, call
from onnxplug_cpu.compiler.commands.words import Word
from onnxplug_cpu.compiler.kernels.loop_nest import chunks
from onnxplug_cpu.compiler.kernels.movement.copy import record_copy
from onnxplug_cpu.compiler.kernels.rows import Elements
from onnxplug_cpu.compiler.kernels.spatial.weighted_rows import (
    VECTOR,
    RowList,
    gather,
    sum_rows,
)
from onnxplug_cpu.compiler.machine.isa import LANES, Isa

MOST_ELEMENTS = 1 << 21
"""Of a spatial axis: places are computed in float32, halves too."""

_TAPS = {"nearest": 1, "linear": 2, "cubic": 4}
_FAR = 1e6  # a place outside any axis
_CUBIC_A = -0.75
_NUMBERS = Type("i32", LANES)


def record_grid_sample(
    recorder: Recorder,
    x: View,
    grid: View,
    out: View,
    *,
    mode: str,
    padding: str,
    align_corners: bool,
    label: str = "GridSample",
) -> None:
    """Read *x* at the points of *grid*, which reach from -1 to 1 along each axis.

    Args:
        x: f32 [N, C, *spatial], of one to three spatial axes; any strides.
        grid: f32 [N, points, axes], the innermost axis first; any strides.
        out: f32 [N, C, points], any strides, but no element twice.
        mode: ``nearest``, ``linear`` or ``cubic`` (R. Keys, "Cubic Convolution
            Interpolation for Digital Image Processing", 1981).
        padding: ``zeros``, ``border`` or ``reflection``: what is outside.
        align_corners: whether -1 and 1 are the centres of the outermost elements, not
            their edges.

    Raises:
        ValueError: shapes, dtypes or options are none of these, or an axis is empty or
            longer than :data:`MOST_ELEMENTS`.
    """
    _check(x, grid, out, mode, padding)
    if not out.size:
        return
    if min(x.strides) < 0:
        copy = recorder.temporary(x.dtype, x.shape)
        record_copy(recorder, x, copy, label=label)
        x = copy
    rank, count, channels = len(x.shape) - 2, out.shape[-1], x.shape[1]
    by_channels = x.strides[1] == 1 and channels >= LANES // 2
    taps = _TAPS[mode] ** rank
    form = _GridSample(
        rank,
        mode,
        padding,
        align_corners,
        by_channels,
        (out.strides[1] if by_channels else out.strides[2]) == 1,
    )
    nanoseconds = out.size * (0.15 + taps * (0.06 if by_channels else 0.4))
    blocks = -(-count // LANES)
    items = x.shape[0] * blocks
    number, each = chunks(recorder, items, nanoseconds + 5 * x.shape[0] * count * taps)
    words: dict[str, Word] = {
        "x": x.address,
        "grid": grid.address,
        "out": out.address,
        "items": items,
        "each": each,
        "blocks": blocks,
        "points": count,
        "channels": channels,
        "x_image": 4 * x.strides[0],
        "x_channel": 4 * x.strides[1],
        "grid_image": 4 * grid.strides[0],
        "grid_point": 4 * grid.strides[1],
        "grid_axis": 4 * grid.strides[2],
        "out_image": 4 * out.strides[0],
        "out_channel": 4 * out.strides[1],
        "out_point": 4 * out.strides[2],
        **{f"size{axis}": x.shape[2 + axis] for axis in range(rank)},
        **{f"stride{axis}": x.strides[2 + axis] for axis in range(rank)},
    }
    call(
        recorder,
        Kernel(form),
        words,
        chunks=number,
        label=f"{label} {'×'.join(map(str, out.shape))}",
        flops=2 * out.size * taps,
        nbytes=x.nbytes + grid.nbytes + out.nbytes,
    )


def _check(x: View, grid: View, out: View, mode: str, padding: str) -> None:
    rank = len(x.shape) - 2
    count = out.shape[-1]
    if (
        not 1 <= rank <= 3
        or mode not in _TAPS
        or padding not in ("zeros", "border", "reflection")
        or grid.shape != (x.shape[0], count, rank)
        or out.shape != (*x.shape[:2], count)
        or any(view.dtype_name != "float32" for view in (x, grid, out))
        or not all(0 < size <= MOST_ELEMENTS for size in x.shape[2:])
    ):
        raise ValueError(
            f"GridSample of {x.dtype} {x.shape} at {grid.dtype} {grid.shape} to "
            f"{out.dtype} {out.shape}, {mode} and {padding}"
        )
    span = sum(
        abs(stride) * size
        for stride, size in zip(x.strides[2:], x.shape[2:], strict=True)
    )
    if span >= 1 << 31:
        raise ValueError(f"the elements of {x.shape} are too far apart")


class GridWords(KernelWords):
    """Words of :class:`_GridSample`, distances in bytes.

    Those of the spatial axes follow: sizes, and strides in elements.
    """

    x: Pointer
    grid: Pointer
    out: Pointer
    items: Integer
    each: Integer
    blocks: Integer
    points: Integer
    channels: Integer
    x_image: Integer
    x_channel: Integer
    grid_image: Integer
    grid_point: Integer
    grid_axis: Integer
    out_image: Integer
    out_channel: Integer
    out_point: Integer


class _GridSample(Generator):
    """A chunk is some blocks, each of as many points of an image as there are lanes.

    Attributes:
        rank: of the spatial axes.
        mode, padding, align_corners: as of :func:`record_grid_sample`.
        by_channels: whether vectors go along channels, not points.
        out_near: whether what a vector of the output has is adjacent.
    """

    rank: int
    mode: str
    padding: str
    align_corners: bool
    by_channels: bool
    out_near: bool

    @property
    def words(self) -> tuple[str, ...]:
        return (*GridWords.names, *self._axis_words)

    @property
    def _axis_words(self) -> tuple[str, ...]:
        axes = range(self.rank)
        return (*(f"size{axis}" for axis in axes), *(f"stride{axis}" for axis in axes))

    def write(self, module: Module, name: str, isa: Isa) -> None:
        _Writer(GridWords(module, name, self._axis_words), self).write()


class _Tap:
    """An element along one axis, for each lane.

    Attributes:
        index: i32, within the axis wherever *inside*.
        weight: f32; ``None`` is 1.
        inside: ``None`` is everywhere.
    """

    def __init__(self, index: Value, weight: Value | None, inside: Value | None):
        self.index, self.weight, self.inside = index, weight, inside


class _Writer:
    def __init__(self, k: GridWords, form: _GridSample) -> None:
        self.k, self.f, self.form = k, k.function, form
        f = self.f
        self.taps = _TAPS[form.mode] ** form.rank
        self.offsets = f.stack(I32, LANES * self.taps)
        self.weights = f.stack(F32, LANES * self.taps)
        self.listed = RowList(f, f.stack(I64, self.taps), f.stack(F32, self.taps))
        k.keep(k.names[3:])
        self.sizes = [k.integer(f"size{axis}") for axis in range(form.rank)]
        self.strides = [k.integer(f"stride{axis}") for axis in range(form.rank)]
        step = k.out_channel if form.by_channels else k.out_point
        self.grid = Elements(f, VECTOR, k.grid_point)
        self.target = Elements(f, VECTOR, None if form.out_near else step)

    def write(self) -> None:
        """Emit the function."""
        f, k = self.f, self.k
        x, grid, out = k.x, k.grid, k.out
        begin = k.chunk * k.each
        end = f.minimum(begin + k.each, k.items)

        def block(item: Value) -> None:
            image, first = item // k.blocks, (item % k.blocks) * LANES
            left = f.minimum(k.points - first, LANES)
            mask = f.first_lanes(left, LANES)
            points = f.at(grid, image * k.grid_image, I8)
            points = f.at(points, first * k.grid_point, I8)
            self._place(points, mask)
            target = f.at(out, image * k.out_image, I8)
            target = f.at(target, first * k.out_point, I8)
            source = f.at(x, image * k.x_image, I8)
            if self.form.by_channels:
                self._sum_rows(source, target, left)
            else:
                self._pick(source, target, mask)

        f.loop(end, block, start=begin)
        f.finish()

    # what is read with which weight

    def _place(self, points: Value, mask: Value) -> None:
        """Keep the offsets of all combinations of taps, -1 outside, and weights."""
        f, form, k = self.f, self.form, self.k
        axes = []
        for axis in range(form.rank):
            inner = form.rank - 1 - axis
            place = f.at(points, k.grid_axis * inner, I8)
            coordinate = self.grid.load(place, mask)
            axes.append(_Axis(f, form, self.sizes[axis]).taps(coordinate))
        strides = [f.splat(f.convert(stride, I32), LANES) for stride in self.strides]
        number = 0

        def level(axis: int, offset: Value | None, tap: _Tap | None) -> None:
            nonlocal number
            if axis == form.rank:
                assert offset is not None and tap is not None
                if tap.inside is not None:
                    offset = f.select(tap.inside, offset, -1)
                at = LANES * number
                f.store(offset, f.at(self.offsets, at, I32))
                f.store(tap.weight or f.value(1.0, VECTOR), f.at(self.weights, at, F32))
                number += 1
                return
            for this in axes[axis]:
                step = this.index * strides[axis]
                level(
                    axis + 1,
                    step if offset is None else offset + step,
                    this if tap is None else _both(tap, this),
                )

        level(0, None, None)

    # what is made of it

    def _pick(self, source: Value, target: Value, mask: Value) -> None:
        """One channel after another, a point in each lane."""
        f, k = self.f, self.k

        def tap(number: int | Value, base: Value, total: Value) -> Value:
            at = number * LANES
            offsets = f.load(f.at(self.offsets, at, I32), _NUMBERS)
            x = gather(f, base, offsets, self._is_inside(offsets))
            if self.form.mode == "nearest":
                return x
            return f.fma(x, f.load(f.at(self.weights, at, F32), VECTOR), total)

        def channel(_: Value, base: Value, to: Value) -> list[Value]:
            total = f.zero(VECTOR)
            if self.taps <= _FEW:
                for number in range(self.taps):
                    total = tap(number, base, total)
            else:
                (total,) = f.loop(
                    self.taps, lambda n, total: [tap(n, base, total)], [total]
                )
            self.target.store(total, to, mask)
            steps = k.x_channel, k.out_channel
            return [f.at(base, steps[0], I8), f.at(to, steps[1], I8)]

        f.loop(k.channels, channel, [source, target])

    def _is_inside(self, offsets: Value) -> Value | None:
        if self.form.padding != "zeros":
            return None
        return offsets.compare("ge", 0)

    def _sum_rows(self, source: Value, target: Value, left: Value) -> None:
        """One point after another, channels in the lanes."""
        f, k = self.f, self.k
        near = Elements(f, VECTOR)

        def point(lane: Value, to: Value) -> list[Value]:
            def listed(number: Value, count: Value) -> list[Value]:
                at = number * LANES + lane
                offset = f.convert(f.load(f.at(self.offsets, at, I32), I32), I64)
                weight = f.load(f.at(self.weights, at, F32), F32)
                self.listed.put(count, f.at(source, offset, F32), weight)
                if self.form.padding != "zeros":
                    return [count + 1]
                # one that is outside is written over by the next
                return [count + f.convert(offset.compare("ge", 0), I64)]

            (count,) = f.loop(self.taps, listed, [f.value(0, I64)])

            def store(value: Value, column: Value, mask: Value | None) -> None:
                self.target.store(value, self.target.at(to, column), mask)

            sum_rows(f, self.listed, count, near, k.channels, store)
            return [f.at(to, k.out_point, I8)]

        f.loop(left, point, [target])


_FEW = 8  # taps whose code is written one by one


def _both(one: _Tap, other: _Tap) -> _Tap:
    """What two axes say together; the index is of no use then."""
    weight, inside = one.weight, one.inside
    if weight is None or other.weight is None:
        weight = weight or other.weight
    else:
        weight = weight * other.weight
    if inside is None or other.inside is None:
        inside = inside or other.inside
    else:
        inside = inside & other.inside
    return _Tap(one.index, weight, inside)


class _Axis:
    """Computes the taps along an axis of *size* elements."""

    def __init__(self, f: Function, form: _GridSample, size: Value) -> None:
        self.f, self.form = f, form
        self.count = f.splat(f.convert(size, I32), LANES)
        self.size = f.convert(self.count, VECTOR)
        self.last = self.size - 1.0
        self.low = 0.0 if form.align_corners else -0.5
        self.span = self.last if form.align_corners else self.size

    def taps(self, coordinate: Value) -> list[_Tap]:
        """What is read at coordinates from -1 to 1."""
        f, mode, padding = self.f, self.form.mode, self.form.padding
        place = (coordinate + 1.0) * 0.5 * self.span + self.low
        if padding == "reflection":
            # infinity has no mirror image
            finite = (place - place).compare("eq", 0.0)
            place = f.select(finite, place, self.low)
        if mode == "nearest":
            place = f.unary("roundeven", place)
        if padding == "reflection":
            place = self._reflected(place)
        # the cubic curve goes on beyond the border
        if padding == "border" and mode != "cubic":
            place = f.select(place < 0.0, f.zero(VECTOR), place)
            place = f.select(place > self.last, self.last, place)
        # NaN has no place, so it goes outside
        far = f.value(_FAR, VECTOR)
        place = f.select(place > -_FAR, place, -_FAR)
        place = f.select(place > self.size + far, self.size + far, place)
        whole = f.unary("floor", place)
        index, rest = f.convert_finite(whole, _NUMBERS), place - whole
        if mode == "nearest":
            return [self._tap(index, None)]
        if mode == "linear":
            return [self._tap(index, 1.0 - rest), self._tap(index + 1, rest)]
        return [
            self._tap(index - 1, _far(f, rest + 1.0)),
            self._tap(index, _near(f, rest)),
            self._tap(index + 1, _near(f, 1.0 - rest)),
            self._tap(index + 2, _far(f, 2.0 - rest)),
        ]

    def _tap(self, index: Value, weight: Value | None) -> _Tap:
        f = self.f
        if self.form.padding == "zeros":
            inside = index.compare("ge", 0) & (index < self.count)
            return _Tap(index, weight, inside)
        if self.form.padding == "reflection":
            mirrored = self._reflected(f.convert(index, VECTOR))
            index = f.convert_finite(mirrored, _NUMBERS)
        index = f.maximum(f.minimum(index, self.count - 1), 0)
        return _Tap(index, weight, None)

    def _reflected(self, place: Value) -> Value:
        """*place* mirrored at both ends until it is between."""
        f, span = self.f, self.span
        period = span + span
        around = place - self.low
        turns = f.unary("floor", around / period)
        # the quotient may be rounded to the next whole number
        around = f.fma(-turns, period, around)
        around = f.select(around < 0.0, around + period, around)
        around = f.select(around < period, around, around - period)
        around = f.select(around > span, period - around, around)
        # one element has no mirror image but itself
        return f.select(span > 0.0, around + self.low, self.low)


def _near(f: Function, distance: Value) -> Value:
    """Keys's kernel from 0 to 1."""
    bent = f.fma(distance, _CUBIC_A + 2, -(_CUBIC_A + 3))
    return f.fma(bent * distance, distance, 1.0)


def _far(f: Function, distance: Value) -> Value:
    """Keys's kernel from 1 to 2."""
    bent = f.fma(distance, _CUBIC_A, -5 * _CUBIC_A)
    return f.fma(f.fma(bent, distance, 8 * _CUBIC_A), distance, -4 * _CUBIC_A)
