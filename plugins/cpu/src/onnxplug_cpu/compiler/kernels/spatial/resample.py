"""Resampling by tables: each axis is read at places that are known when planning.

Along an axis that is resampled an element of the output is the sum of a few elements
of the input, the *taps*, each with a weight; nearest neighbours have one tap and no
weight.  Several such axes are taken at once: what is summed is every combination of
their taps.  Vectors go along the axis on which neighbours of the output are adjacent.
Where that axis is resampled itself, the sums over the others make a row of the input's
length, from which its taps are then picked.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from onnxplug_compiler.ir.images import ResampledAxis
from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.codegen.emit import F32, I8, I32, I64, Module, Type, Value
from onnxplug_cpu.compiler.codegen.kernel import Generator, Kernel, KernelFunction
from onnxplug_cpu.compiler.commands.recording import Recorder, call, worker_memory
from onnxplug_cpu.compiler.commands.words import Word
from onnxplug_cpu.compiler.kernels.loop_nest import (
    Axis,
    Walk,
    chunks,
    chunks_wanted,
    merge,
)
from onnxplug_cpu.compiler.kernels.movement.copy import record_copy
from onnxplug_cpu.compiler.kernels.rows import Elements
from onnxplug_cpu.compiler.kernels.spatial.weighted_rows import (
    SIDE,
    VECTOR,
    RowList,
    Store,
    add_weighted,
    gather,
    sum_few_rows,
    sum_rows,
    sweep_columns,
)
from onnxplug_cpu.compiler.machine.isa import LANES, Isa

MOST_TAPS = 16
"""Taps of several axes together above which each axis is resampled by itself."""

_COPIED_SIZE = 4096
_FEW = 4  # taps that code is written for one by one


def record_resample(
    recorder: Recorder,
    x: View,
    out: View,
    axes: Sequence[ResampledAxis],
    *,
    label: str = "Resample",
) -> None:
    """Write *x* to *out*, resampled along *axes*.

    Args:
        x: f32, any strides.
        out: f32, of x's shape but for the sizes of *axes*; any strides, but no element
            twice.
        axes: each once.

    Raises:
        ValueError: shapes or dtypes do not fit, or an index is outside its axis.
    """
    _check(x, out, axes)
    if not out.size:
        return
    if not axes:
        record_copy(recorder, x, out, label=label)
        return
    if any(axis.weights is not None for axis in axes):
        axes = [_with_weight(axis) for axis in axes]
    lane = _lane_axis(out)
    down = [axis for axis in axes if axis.axis != lane]
    if len(down) > 1 and math.prod(axis.taps for axis in down) > MOST_TAPS:
        first = min(down, key=lambda axis: out.shape[axis.axis] / x.shape[axis.axis])
        shape = list(x.shape)
        shape[first.axis] = out.shape[first.axis]
        between = recorder.ordered_like(x, shape)
        record_resample(recorder, x, between, [first], label=label)
        rest = [axis for axis in axes if axis is not first]
        record_resample(recorder, between, out, rest, label=label)
        return
    across = next((axis for axis in axes if axis.axis == lane), None)
    if abs(x.strides[lane]) > 1 and x.shape[lane] > 1 and x.size >= _COPIED_SIZE:
        # cache lines are transposed faster than elements are picked from them
        between = recorder.ordered_like(x, out.shape)
        if x.size > out.size and _lane_axis(between) != lane:
            record_resample(recorder, x, between, axes, label=label)
            record_copy(recorder, between, out, label=label)
            return
        copy = recorder.ordered_like(out, x.shape)
        record_copy(recorder, x, copy, label=label)
        x = copy
    _record(recorder, x, out, down, across, lane, label)


def _check(x: View, out: View, axes: Sequence[ResampledAxis]) -> None:
    sizes = list(x.shape)
    for axis, places, weights in axes:
        sizes[axis] = places.shape[1]
        inside = not places.size or (
            places.min() >= 0 and places.max() < x.shape[axis] and len(places) > 0
        )
        if not inside or (weights is not None and weights.shape != places.shape):
            raise ValueError(f"the taps of axis {axis} do not fit {x.shape}")
        if weights is None and len(places) != 1:
            raise ValueError(f"{len(places)} taps of axis {axis} have no weights")
    if (
        tuple(sizes) != out.shape
        or len({axis.axis for axis in axes}) != len(axes)
        or {x.dtype_name, out.dtype_name} != {"float32"}
    ):
        raise ValueError(
            f"{x.dtype} {x.shape} is not resampled to {out.dtype} {out.shape} along "
            f"{[axis.axis for axis in axes]}; expected float32 {sizes}"
        )


def _with_weight(axis: ResampledAxis) -> ResampledAxis:
    if axis.weights is not None:
        return axis
    return axis._replace(weights=np.ones(axis.places.shape, np.float32))


def _lane_axis(out: View) -> int:
    """The axis on which neighbours lie nearest."""
    rank = len(out.shape)
    return min(range(rank), key=lambda a: (out.shape[a] == 1, abs(out.strides[a]), -a))


def _record(
    recorder: Recorder,
    x: View,
    out: View,
    down: Sequence[ResampledAxis],
    across: ResampledAxis | None,
    lane: int,
    label: str,
) -> None:
    size = out.dtype.itemsize
    resampled = {axis.axis for axis in down} | ({lane} if across else set())
    kept = [
        Axis(n, (out.strides[a] * size, x.strides[a] * size))
        for a, n in enumerate(out.shape)
        if a not in resampled and (n != 1 or a == lane)
    ]
    kept.sort(key=lambda axis: -abs(axis.strides[0]))
    if across is None:
        # merging must leave the lanes last, and they have the smallest stride
        *outer, lanes = merge(kept)
    else:
        outer = list(merge(kept))
        strides = (out.strides[lane] * size, x.strides[lane] * size)
        lanes = Axis(out.shape[lane], strides)
    inner = sorted(down, key=lambda axis: -abs(out.strides[axis.axis]))
    outer += [Axis(out.shape[a.axis], (out.strides[a.axis] * size, 0)) for a in inner]
    taps = math.prod(axis.taps for axis in down)
    lane_taps = 0 if across is None else across.taps
    nanoseconds = out.size * (0.15 + 0.04 * taps + 0.4 * lane_taps)
    rows = math.prod(axis.size for axis in outer)
    wanted = chunks_wanted(recorder, nanoseconds)
    block = -(-lanes.size * rows // wanted)
    block = -(-block // (SIDE * LANES)) * SIDE * LANES
    is_blocked = not outer or block < lanes.size
    if is_blocked:
        step = (block * lanes.strides[0], 0 if across else block * lanes.strides[1])
        outer.insert(0, Axis(-(-lanes.size // block), step))
    form = _Resample(
        len(outer),
        len(inner),
        is_blocked,
        any(
            axis.weights is not None for axis in (*down, *([across] if across else ()))
        ),
        tuple(axis.taps for axis in inner) if taps <= _FEW else (),
        lane_taps if lane_taps <= _FEW else -1,
        lanes.strides[1] == size,
        lanes.strides[0] == size,
    )
    words: dict[str, Word] = {"columns": lanes.size, "block": block}
    words |= {"x_step": lanes.strides[1], "out_step": lanes.strides[0]}
    for number, axis in enumerate(inner):
        words |= _down_words(recorder, number, axis, x.strides[axis.axis] * size)
    if across is not None:
        stride = x.strides[lane] if form.picks_from_input else 1
        words |= _across_words(recorder, across, stride, x.shape[lane])
    if form.needs_scratch:
        row = 0 if across is None else 4 * x.shape[lane]
        weights = 8 * taps
        start = -(-(weights + 4 * taps) // 64) * 64
        words["scratch"], words["scratch_distance"] = worker_memory(
            recorder, start + row
        )
        words |= {"list_weights": weights, "row": start}
    items = math.prod(axis.size for axis in outer)
    count, each = chunks(recorder, items, nanoseconds)
    call(
        recorder,
        Kernel(form),
        words | form.walk.values((out.address, x.address), outer, each),
        chunks=count,
        label=f"{label} {'×'.join(map(str, out.shape))}",
        flops=2 * out.size * (taps + lane_taps),
        nbytes=x.nbytes + out.nbytes,
    )


def _down_words(
    recorder: Recorder, number: int, axis: ResampledAxis, stride: int
) -> dict[str, Word]:
    """The table of an axis across vectors: for each place its taps, side by side."""
    words: dict[str, Word] = {
        f"offsets{number}": recorder.constant(axis.places.T * stride).address,
        f"taps{number}": axis.taps,
    }
    if axis.weights is not None:
        words[f"weights{number}"] = recorder.constant(axis.weights.T).address
    return words


def _across_words(
    recorder: Recorder, axis: ResampledAxis, stride: int, length: int
) -> dict[str, Word]:
    """The table of the axis along vectors: of each tap a plane of whole vectors."""
    count = axis.places.shape[1]
    if abs(stride) * length >= 1 << 31:
        raise ValueError(f"{length} elements by {stride} are too far apart")
    plane = -(-count // LANES) * LANES
    padding = ((0, 0), (0, plane - count))
    offsets = np.pad(axis.places * stride, padding).astype(np.int32)
    words: dict[str, Word] = {
        "lane_offsets": recorder.constant(offsets).address,
        "lane_taps": axis.taps,
        "plane": plane,
        "source_columns": length,
    }
    if axis.weights is not None:
        weights = np.pad(axis.weights, padding)
        words["lane_weights"] = recorder.constant(weights).address
    return words


class _Resample(Generator):
    """A chunk is some items of the walk, which make a row of the output, or part of it.

    Attributes:
        axes: of the walk: those that are kept, then those that are resampled.
        resampled: how many of the axes are.
        is_blocked: whether the first axis counts blocks of columns.
        weighted: whether taps have weights.
        taps: of each of these; none where words tell, or nothing is resampled.
        lane_taps: of the axis along vectors; 0 if it is kept, -1 for any number.
        near, out_near: whether columns are adjacent in the input and the output.
    """

    axes: int
    resampled: int
    is_blocked: bool
    weighted: bool
    taps: tuple[int, ...]
    lane_taps: int
    near: bool
    out_near: bool

    @property
    def walk(self) -> Walk:
        """Over rows of the output and where those of the input begin."""
        return Walk(("out", "x"), self.axes)

    @property
    def picks_from_input(self) -> bool:
        """Whether there is nothing to sum before taps are picked along vectors."""
        return not self.resampled or (not self.weighted and bool(self.taps))

    @property
    def needs_scratch(self) -> bool:
        """Whether rows are listed, or one is summed, in memory of the worker's."""
        listed = self.resampled > 0 and not self.taps
        return listed or (self.lane_taps != 0 and not self.picks_from_input)

    @property
    def words(self) -> tuple[str, ...]:
        kinds = ("offsets", "taps", *(("weights",) if self.weighted else ()))
        lanes: tuple[str, ...] = ()
        if self.lane_taps:
            lanes = ("lane_offsets", "lane_taps", "plane", "source_columns")
            lanes += ("lane_weights",) if self.weighted else ()
        scratch = ("scratch", "scratch_distance", "list_weights", "row")
        return (
            *self.walk.words,
            *("columns", "block", "x_step", "out_step"),
            *(f"{kind}{n}" for n in range(self.resampled) for kind in kinds),
            *lanes,
            *(scratch if self.needs_scratch else ()),
        )

    def write(self, module: Module, name: str, isa: Isa) -> None:
        _Writer(KernelFunction(module, name, self.words), self).write()


class _Writer:
    def __init__(self, k: KernelFunction, form: _Resample) -> None:
        self.k, self.f, self.form = k, k.function, form
        f = self.f
        step = None if form.near else k.integer("x_step")
        self.source = Elements(f, VECTOR, step)
        step = None if form.out_near else k.integer("out_step")
        self.target = Elements(f, VECTOR, step)
        if form.lane_taps:
            self.plane, self.lane_taps = k.integer("plane"), k.integer("lane_taps")
            self.lane_offsets = k.pointer("lane_offsets")
            self.source_columns = k.integer("source_columns")
            if form.weighted:
                self.lane_weights = k.pointer("lane_weights")
        self.columns, self.block = k.integer("columns"), k.integer("block")
        kinds = ("offsets", *(("weights",) if form.weighted else ()))
        self.tables = [
            [k.pointer(f"{kind}{number}") for kind in kinds]
            for number in range(form.resampled)
        ]
        self.taps = [k.integer(f"taps{number}") for number in range(form.resampled)]
        if form.needs_scratch:
            mine = k.worker * k.integer("scratch_distance")
            scratch = f.at(k.pointer("scratch"), mine, I8)
            weights = f.at(scratch, k.integer("list_weights"), I8)
            self.listed = RowList(f, scratch, weights)
            self.row = f.at(scratch, k.integer("row"), I8)

    def write(self) -> None:
        """Emit the function."""
        self.form.walk.write(self.k, self._item)
        self.f.finish()

    def _item(self, pointers: list[Value], indices: list[Value]) -> None:
        f, form = self.f, self.form
        out, x = pointers
        columns, begin = self.columns, f.value(0, I64)
        if form.is_blocked:
            begin = indices[0] * self.block
            columns = f.minimum(self.block, columns - begin)
        places = indices[len(indices) - form.resampled :]

        def store(value: Value, column: Value, mask: Value | None) -> None:
            self.target.store(value, self.target.at(out, column), mask)

        if not form.lane_taps:
            self._sum(x, places, columns, store)
            return
        if form.picks_from_input:
            ((row, _),) = self._few(x, places)
        else:
            row, near = self.row, Elements(f, VECTOR)

            def keep(value: Value, column: Value, mask: Value | None) -> None:
                near.store(value, near.at(row, column), mask)

            self._sum(x, places, self.source_columns, keep)

        def vectors(column: Value, number: int, mask: Value | None) -> None:
            for n in range(number):
                store(
                    self._picked(row, begin + column + LANES * n),
                    column + LANES * n,
                    mask,
                )

        sweep_columns(f, columns, vectors)

    def _sum(
        self, x: Value, places: Sequence[Value], columns: Value, store: Store
    ) -> None:
        """Sum the rows that the taps of *places* choose."""
        if self.form.taps or not self.form.resampled:
            rows = self._few(x, places)
            sum_few_rows(self.f, rows, self.source, columns, store)
        else:
            count = self._list(x, places)
            sum_rows(self.f, self.listed, count, self.source, columns, store)

    def _table(self, number: int, place: Value) -> tuple[Value, Value | None, Value]:
        """Offsets and weights of a place of an axis, and how many there are."""
        f, taps = self.f, self.taps[number]
        first = place * taps
        offsets, *weights = self.tables[number]
        weight = f.at(weights[0], first, F32) if weights else None
        return f.at(offsets, first, I64), weight, taps

    def _few(
        self, x: Value, places: Sequence[Value]
    ) -> list[tuple[Value, Value | None]]:
        """Addresses and weights of all combinations, as many as the code knows of."""
        f = self.f
        tables = [self._table(n, place) for n, place in enumerate(places)]
        rows: list[tuple[Value, Value | None]] = []
        for combination in itertools.product(*map(range, self.form.taps)):
            address, weight = x, None
            for tap, (offsets, weights, _) in zip(combination, tables, strict=True):
                offset = f.load(f.at(offsets, tap, I64), I64)
                address = f.at(address, offset, I8)
                if weights is not None:
                    one = f.load(f.at(weights, tap, F32), F32)
                    weight = one if weight is None else weight * one
            rows.append((address, None if weight is None else f.splat(weight, LANES)))
        return rows

    def _list(self, x: Value, places: Sequence[Value]) -> Value:
        """List all combinations; how many there are."""
        f = self.f
        tables = [self._table(number, place) for number, place in enumerate(places)]

        def level(
            number: int, address: Value, weight: Value | None, position: Value
        ) -> Value:
            if number == len(tables):
                assert weight is not None
                self.listed.put(position, address, weight)
                return position + 1
            offsets, weights, taps = tables[number]
            assert weights is not None

            def tap(turn: Value, position: Value) -> list[Value]:
                one = f.load(f.at(weights, turn, F32), F32)
                after = f.at(address, f.load(f.at(offsets, turn, I64), I64), I8)
                product = one if weight is None else weight * one
                return [level(number + 1, after, product, position)]

            return f.loop(taps, tap, [position], nonempty=True)[0]

        return level(0, x, None, f.value(0, I64))

    def _picked(self, row: Value, column: Value) -> Value:
        """A vector of the taps of the axis along vectors."""
        f, form = self.f, self.form
        indices = Type("i32", LANES)

        def tap(turn: int | Value) -> tuple[Value, Value | None]:
            place = column + self.plane * turn
            x = gather(f, row, f.load(f.at(self.lane_offsets, place, I32), indices))
            if not form.weighted:
                return x, None
            return x, f.load(f.at(self.lane_weights, place, F32), VECTOR)

        if form.lane_taps < 0:

            def more(turn: Value, total: Value) -> list[Value]:
                x, weight = tap(turn)
                assert weight is not None
                return [f.fma(x, weight, total)]

            return f.loop(self.lane_taps, more, [f.zero(VECTOR)])[0]
        total: Value | None = None
        for turn in range(form.lane_taps):
            x, weight = tap(turn)
            total = x if weight is None else add_weighted(f, total, x, weight)
        assert total is not None
        return total
