"""Reductions over axes.

Two kernels: *across* reduces along the lanes of vectors, *down* keeps the lanes and
reduces from row to row.  Which one depends on whether adjacent elements are reduced.

Sums of floats are cut into blocks; the blocks' sums are added with the rounding errors
carried along (D. E. Knuth, The Art of Computer Programming 2, 4.2.2, theorem B), so
that the error does not grow with the number of elements.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from onnxplug_cpu.compiler.emit import (
    F32,
    I64,
    Function,
    Module,
    Number,
    Type,
    Value,
)
from onnxplug_cpu.compiler.isa import Isa
from onnxplug_cpu.compiler.kernel import Kernel, KernelFunction
from onnxplug_cpu.compiler.kernels.rows import (
    Axes,
    Elements,
    Walk,
    chunk_size,
    element_of,
    lanes_of,
    walk_words,
)
from onnxplug_cpu.compiler.math.exponential import exp
from onnxplug_cpu.compiler.math.logarithm import log
from onnxplug_cpu.compiler.record import Recorder, View, Word

KINDS = (
    "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin "
    "ReduceProd ReduceSum ReduceSumSquare"
).split()
"""The operators of :func:`record_reduce`."""

_FLOATS_ONLY = ("ReduceL2", "ReduceLogSum", "ReduceLogSumExp")
_BLOCK = 32
"""Elements that one lane adds up before the rounding error is looked at."""
_FEW = 32
"""Adjacent elements that are reduced faster from row to row than along the lanes."""


class Fold(NamedTuple):
    """How elements become one.

    Attributes:
        identity: what the result of nothing is, and what padding lanes hold.
        step: the accumulator and the next elements give the new accumulator.
        combine: two accumulators give one.
        blocked: whether *combine* is a sum whose rounding errors are carried along.
    """

    identity: Number
    step: Callable[[Function, Value, Value], Value]
    combine: Callable[[Function, Value, Value], Value]
    blocked: bool = False


def fold_of(kind: str, type_: Type) -> Fold:
    """The fold inside the reduction *kind* of elements of *type_*."""
    floats = type_.is_float
    if kind in ("ReduceMax", "ReduceMin"):
        largest = kind == "ReduceMax"
        extreme = maximum if largest else minimum
        if floats:
            identity: Number = -math.inf if largest else math.inf
        else:
            limits = np.iinfo(f"int{type_.bits}" if type_.is_signed else "u8")
            identity = int(limits.min if largest else limits.max)
        return Fold(identity, extreme, extreme)
    if kind == "ReduceProd":
        return Fold(1, lambda f, a, x: a * x, lambda f, a, b: a * b)
    if kind in ("ReduceSumSquare", "ReduceL2"):
        square = _add_square_float if floats else _add_square
        return Fold(0, square, _add, blocked=floats)
    if kind == "ReduceL1":
        return Fold(0, _add_magnitude, _add, blocked=floats)
    return Fold(0, _add, _add, blocked=floats)


def _add(f: Function, a: Value, x: Value) -> Value:
    return a + x


def _add_square(f: Function, a: Value, x: Value) -> Value:
    return a + x * x


def _add_square_float(f: Function, a: Value, x: Value) -> Value:
    return f.fma(x, x, a)


def _add_magnitude(f: Function, a: Value, x: Value) -> Value:
    if x.type.is_float:
        return a + f.unary("fabs", x)
    return a + f.select(x < 0, -x, x)


def maximum(f: Function, a: Value, x: Value) -> Value:
    """The larger; NaN if either is."""
    if not x.type.is_float:
        return f.maximum(a, x)
    # two comparisons that are one instruction and a blend, unlike llvm.maximum, which
    # also orders zeros
    return f.select(x.compare("ne", x), x, f.select(x > a, x, a))


def minimum(f: Function, a: Value, x: Value) -> Value:
    """The smaller; NaN if either is."""
    if not x.type.is_float:
        return f.minimum(a, x)
    return f.select(x.compare("ne", x), x, f.select(x < a, x, a))


class Accumulator:
    """The vectors in which a fold collects lanes; their values are carried by loops."""

    def __init__(self, f: Function, fold: Fold, type_: Type) -> None:
        self.f, self.fold, self.type = f, fold, type_

    def start(self) -> list[Value]:
        """The state of nothing: the total and, if blocked, its rounding errors."""
        identity = self.f.value(self.fold.identity, self.type)
        if not self.fold.blocked:
            return [identity]
        return [identity, self.f.value(0, self.type)]

    def absorb(self, state: Sequence[Value], block: Value) -> list[Value]:
        """The state with the accumulator of a block added."""
        if not self.fold.blocked:
            return [self.fold.combine(self.f, state[0], block)]
        total, error = state
        added = total + block
        of_block = added - total
        rest = (total - (added - of_block)) + (block - of_block)
        return [added, error + rest]

    def result(self, state: Sequence[Value]) -> Value:
        """The lanes' totals."""
        if not self.fold.blocked:
            return state[0]
        total, error = state
        # the error of an infinite sum is NaN
        finite = (error - error).compare("eq", 0.0)
        return self.f.select(finite, total + error, total)

    def lanes(self, state: Sequence[Value]) -> Value:
        """One scalar from all lanes."""
        f = self.f
        vector = self.result(state)
        while (half := vector.type.lanes // 2) >= 1:
            low = f.shuffle(vector, vector, range(half))
            high = f.shuffle(vector, vector, range(half, 2 * half))
            vector = self.fold.combine(f, low, high)
        return f.lane(vector, 0)

    def run(
        self,
        state: Sequence[Value],
        elements: Elements,
        pointer: Value,
        count: Value,
        change: Callable[[Value], Value] = lambda x: x,
        chains: int = 4,
    ) -> list[Value]:
        """The state with *count* elements from *pointer* on, lanes taking turns.

        Args:
            change: what is done to the elements first.
            chains: accumulators at once.
        """
        f, lanes = self.f, self.type.lanes
        identity = f.value(self.fold.identity, self.type)
        chain_step = chains * lanes

        def step(accumulator: Value, x: Value) -> Value:
            return self.fold.step(f, accumulator, change(x))

        def block(begin: Value, *state: Value) -> list[Value]:
            end = f.minimum(begin + chain_step * _BLOCK, count)
            full = end - ((end - begin) % chain_step)

            def whole(index: Value, *accumulators: Value) -> list[Value]:
                place = elements.at(pointer, index)
                return [
                    step(a, elements.load(elements.at(place, lanes * u)))
                    for u, a in enumerate(accumulators)
                ]

            def part(index: Value, accumulator: Value) -> list[Value]:
                mask = f.first_lanes(count - index, lanes)
                x = elements.load(elements.at(pointer, index), mask, self.fold.identity)
                return [f.select(mask, step(accumulator, x), accumulator)]

            accumulators = f.loop(
                full, whole, [identity] * chains, start=begin, step=chain_step
            )
            accumulators[:1] = f.loop(
                end, part, accumulators[:1], start=full, step=lanes
            )
            while len(accumulators) > 1:
                accumulators = [
                    self.fold.combine(f, *accumulators[i : i + 2])
                    for i in range(0, len(accumulators), 2)
                ]
            return self.absorb(state, accumulators[0])

        return f.loop(count, block, state, step=chain_step * _BLOCK)


def record_reduce(
    recorder: Recorder, kind: str, x: View, out: View, axes: tuple[int, ...]
) -> None:
    """Reduce *axes* of an array.

    Args:
        kind: one of :data:`KINDS`.
        x: f32, f64, i32 or i64, any strides; L2, LogSum and LogSumExp only of floats,
            the logarithms only of f32.
        out: x's dtype, any strides; the reduced axes are of size 1 or left out.
        axes: which, from 0; none reduces each element by itself.
    """
    element = element_of(x)
    if (
        kind not in KINDS
        or element == "i1"
        or (kind in _FLOATS_ONLY and element[0] == "i")
    ):
        raise ValueError(f"{kind} of {element} has no kernel")
    if kind in ("ReduceLogSum", "ReduceLogSumExp") and element != "f32":
        raise ValueError(f"{kind} of {element} has no kernel: expected f32")
    plan = _Plan.of(x, out, axes)
    if not out.size:
        return
    label = f"{kind} {'×'.join(map(str, x.shape))}"
    _record(recorder, plan, kind, element, label)


class _Plan(NamedTuple):
    """Where the elements are, with strides in bytes.

    Attributes:
        across: whether the innermost axis is reduced.
        kept: the axes that stay, of x and out.
        reduced: the axes that go, of x.
        inner: the size of the innermost axis, and its strides in x and out.
    """

    x: View
    out: View
    across: bool
    kept: Axes
    reduced: Axes
    inner: int
    inner_strides: tuple[int, int]

    @classmethod
    def of(cls, x: View, out: View, axes: Sequence[int]) -> _Plan:
        rank = len(x.shape)
        stays = [axis for axis in range(rank) if axis not in axes]
        keepdims = len(out.shape) == rank
        nx, no = x.dtype.itemsize, out.dtype.itemsize
        kept = [
            (x.shape[a], x.strides[a] * nx, out.strides[a if keepdims else i] * no)
            for i, a in enumerate(stays)
            if x.shape[a] != 1
        ]
        gone = [(x.shape[a], x.strides[a] * nx) for a in axes if x.shape[a] != 1]
        # the order of axes is free: the nearest elements go innermost
        kept.sort(key=lambda axis: -abs(axis[1]))
        gone.sort(key=lambda axis: -abs(axis[1]))
        if any(size == 0 for size, _ in gone):
            gone = [(0, nx)]
        reduced = Axes.collapsed([s for s, _ in gone], [[t for _, t in gone]])
        keep = Axes.collapsed(
            [s for s, _, _ in kept], [[t for _, t, _ in kept], [t for _, _, t in kept]]
        )
        across = _prefers_across(keep, reduced, nx)
        if across:
            inner = reduced.shape[-1]
            strides = (reduced.strides[0][-1], 0)
            reduced = _without_last(reduced)
        else:
            inner = keep.shape[-1]
            strides = (keep.strides[0][-1], keep.strides[1][-1])
            keep = _without_last(keep)
        return cls(x, out, across, keep, reduced, inner, strides)


def _prefers_across(kept: Axes, reduced: Axes, nbytes: int) -> bool:
    far = 1 << 62

    def nearness(axes: Axes, operand: int) -> int:
        return abs(axes.strides[operand][-1]) if axes.count > 1 else far

    if reduced.count == 0:
        return kept.count == 1
    if reduced.shape[-1] <= _FEW and kept.shape[-1] >= _FEW:
        # too few elements to fill the lanes and to pay for adding those up
        return False
    return nearness(reduced, 0) <= nearness(kept, 0)


def _without_last(axes: Axes) -> Axes:
    if axes.rank == 1:
        return Axes((1,), tuple((0,) for _ in axes.strides))
    return Axes(axes.shape[:-1], tuple(s[:-1] for s in axes.strides))


def _record(
    recorder: Recorder, plan: _Plan, kind: str, element: str, label: str
) -> None:
    type_ = Type(element)
    count = plan.reduced.count * (plan.inner if plan.across else 1)
    near = plan.inner_strides[0] == type_.nbytes
    out_near = plan.across or plan.inner_strides[1] == type_.nbytes
    kernel = _kernel(
        plan.across, kind, type_, near, out_near, plan.kept.rank, plan.reduced.rank
    )
    words: dict[str, Word] = {
        "x": plan.x.address,
        "out": plan.out.address,
        "rows": plan.kept.count,
        "count": count,
        "inner": plan.inner,
        "x_stride": plan.inner_strides[0],
        **plan.kept.words("kept"),
        **plan.reduced.words("reduced"),
    }
    nanoseconds = _nanoseconds(kind, near) * type_.nbytes / 4
    if plan.across:
        rows = chunk_size(plan.kept.count, 20 + count * nanoseconds, recorder.workers)
        words["chunk_rows"] = rows
        chunks = -(-plan.kept.count // rows)
    else:
        step = 4 * lanes_of(type_)
        columns = plan.inner
        if plan.kept.count < 4 * recorder.workers:
            columns = chunk_size(
                plan.inner,
                plan.kept.count * count * nanoseconds,
                recorder.workers,
                step,
            )
        parts = -(-plan.inner // columns) if columns else 0
        rows = chunk_size(
            plan.kept.count, columns * count * nanoseconds, recorder.workers
        )
        words["chunk_rows"] = rows
        words["chunk_columns"] = columns
        words["parts"] = parts
        words["out_stride"] = plan.inner_strides[1]
        chunks = parts * -(-plan.kept.count // rows)
    recorder.call(
        kernel,
        words,
        chunks=chunks,
        label=label,
        flops=plan.x.size,
        nbytes=plan.x.nbytes + plan.out.nbytes,
    )


def _nanoseconds(kind: str, near: bool) -> float:
    """What one element of f32 takes, about."""
    return (1.0 if kind == "ReduceLogSumExp" else 0.15) * (1 if near else 8)


def _kernel(
    across: bool,
    kind: str,
    type_: Type,
    near: bool,
    out_near: bool,
    kept_rank: int,
    reduced_rank: int,
) -> Kernel:
    words = (
        *("x", "out", "rows", "chunk_rows", "count", "inner", "x_stride"),
        *walk_words("kept", kept_rank, 2),
        *walk_words("reduced", reduced_rank, 1),
    )
    if not across:
        words = (*words, "chunk_columns", "parts", "out_stride")

    def write(module: Module, name: str, isa: Isa) -> None:
        k = KernelFunction(module, name, words)
        vector = type_.vector(lanes_of(type_))
        if across:
            _write_across(k, isa, kind, vector, near, kept_rank, reduced_rank)
        else:
            _write_down(k, isa, kind, vector, near, out_near, kept_rank, reduced_rank)

    way = "across" if across else "down"
    key = f"reduce {way} {kind} {type_.element} {near} {out_near} {kept_rank} "
    return Kernel(f"{key}{reduced_rank}", words, write)


def _write_across(
    k: KernelFunction,
    isa: Isa,
    kind: str,
    vector: Type,
    near: bool,
    kept_rank: int,
    reduced_rank: int,
) -> None:
    f = k.function
    elements = Elements(f, vector, None if near else k.integer("x_stride"))
    inner, count = k.integer("inner"), k.integer("count")
    rows, chunk_rows = k.integer("rows"), k.integer("chunk_rows")
    begin = k.chunk * chunk_rows
    end = f.minimum(begin + chunk_rows, rows)
    kept = Walk(k, "kept", kept_rank, 2)
    reduced = Walk(k, "reduced", reduced_rank, 1)

    def fold_row(
        pointer: Value, fold: Fold, change: Callable[[Value], Value] = lambda x: x
    ) -> Value:
        accumulator = Accumulator(f, fold, vector)
        empty = accumulator.start()

        def turn(_: Value, *state: Value) -> list[Value]:
            place, rest = state[: len(state) - len(empty)], state[-len(empty) :]
            after = accumulator.run(rest, elements, place[0], inner, change)
            return [*reduced.advance(place), *after]

        first = reduced.start([pointer])
        after = f.loop(reduced.count, turn, [*first, *empty])
        return accumulator.lanes(after[-len(empty) :])

    def row(_: Value, *state: Value) -> list[Value]:
        x, out = kept.pointers(state)
        f.store(_reduced_by(f, isa, kind, vector, count, x, fold_row), out)
        return kept.advance(state)

    f.loop(end, row, kept.start([k.pointer("x"), k.pointer("out")], begin), start=begin)
    f.finish()


def _write_down(
    k: KernelFunction,
    isa: Isa,
    kind: str,
    vector: Type,
    near: bool,
    out_near: bool,
    kept_rank: int,
    reduced_rank: int,
) -> None:
    f = k.function
    lanes = vector.lanes
    source = Elements(f, vector, None if near else k.integer("x_stride"))
    target = Elements(f, vector, None if out_near else k.integer("out_stride"))
    inner, count, parts = k.integer("inner"), k.integer("count"), k.integer("parts")
    rows, chunk_rows = k.integer("rows"), k.integer("chunk_rows")
    chunk_columns = k.integer("chunk_columns")
    begin = (k.chunk // parts) * chunk_rows
    end = f.minimum(begin + chunk_rows, rows)
    left = (k.chunk % parts) * chunk_columns
    right = f.minimum(left + chunk_columns, inner)
    kept = Walk(k, "kept", kept_rank, 2)
    reduced = Walk(k, "reduced", reduced_rank, 1)

    def columns(x: Value, out: Value, masks: Sequence[Value | None]) -> None:
        def fold_columns(
            pointer: list[Value],
            fold: Fold,
            change: Callable[[list[Value]], list[Value]] = lambda xs: xs,
        ) -> list[Value]:
            accumulator = Accumulator(f, fold, vector)
            starts = [accumulator.start() for _ in masks]
            width = len(starts[0])
            identity = f.value(fold.identity, vector)

            def block(first: Value, *state: Value) -> list[Value]:
                turns = f.minimum(count - first, f.value(_BLOCK, I64))

                def turn(_: Value, *state: Value) -> list[Value]:
                    place = state[: len(state) - len(masks)]
                    xs = change(
                        [
                            source.load(
                                source.at(place[0], lanes * u), mask, fold.identity
                            )
                            for u, mask in enumerate(masks)
                        ]
                    )
                    accumulators = [
                        fold.step(f, a, x)
                        for a, x in zip(state[-len(masks) :], xs, strict=True)
                    ]
                    return [*reduced.advance(place), *accumulators]

                place = state[: len(state) - width * len(masks)]
                totals = state[len(place) :]
                after = f.loop(
                    turns, turn, [*place, *[identity] * len(masks)], nonempty=True
                )
                result = after[: len(place)]
                for u, a in enumerate(after[len(place) :]):
                    result += accumulator.absorb(totals[width * u : width * (u + 1)], a)
                return result

            first = reduced.start(pointer)
            flat = [value for start in starts for value in start]
            after = f.loop(count, block, [*first, *flat], step=_BLOCK)[len(first) :]
            return [
                accumulator.result(after[width * u : width * (u + 1)])
                for u in range(len(masks))
            ]

        results = _reduced_columns(f, isa, kind, vector, count, [x], fold_columns)
        for u, (result, mask) in enumerate(zip(results, masks, strict=True)):
            target.store(result, target.at(out, lanes * u), mask)

    def row(_: Value, *state: Value) -> list[Value]:
        x, out = kept.pointers(state)
        full = right - ((right - left) % (4 * lanes))

        def whole(column: Value) -> None:
            columns(source.at(x, column), target.at(out, column), [None] * 4)

        def part(column: Value) -> None:
            mask = f.first_lanes(right - column, lanes)
            columns(source.at(x, column), target.at(out, column), [mask])

        f.loop(full, whole, start=left, step=4 * lanes)
        f.loop(right, part, start=full, step=lanes)
        return kept.advance(state)

    f.loop(end, row, kept.start([k.pointer("x"), k.pointer("out")], begin), start=begin)
    f.finish()


def _reduced_by(
    f: Function,
    isa: Isa,
    kind: str,
    vector: Type,
    count: Value,
    x: Value,
    fold_row: Callable[..., Value],
) -> Value:
    """The reduction of a row at *x* as a scalar."""
    if kind != "ReduceLogSumExp":
        return _finish(f, isa, kind, count, fold_row(x, fold_of(kind, vector)))
    shift = _finite(f, fold_row(x, fold_of("ReduceMax", vector)))
    wide = f.splat(shift, vector.lanes)
    total = fold_row(
        x,
        fold_of("ReduceSum", vector)._replace(identity=0),
        lambda e: exp(f, isa, e - wide),
    )
    return _log(f, isa, total) + shift


def _reduced_columns(
    f: Function,
    isa: Isa,
    kind: str,
    vector: Type,
    count: Value,
    x: list[Value],
    fold_columns: Callable[..., list[Value]],
) -> list[Value]:
    """The reductions of the columns at *x*."""
    if kind != "ReduceLogSumExp":
        results = fold_columns(x, fold_of(kind, vector))
        return [_finish(f, isa, kind, count, result) for result in results]
    largest = fold_columns(x, fold_of("ReduceMax", vector))
    shifts = [_finite(f, value) for value in largest]
    totals = fold_columns(
        x,
        fold_of("ReduceSum", vector),
        lambda xs: [exp(f, isa, e - s) for e, s in zip(xs, shifts, strict=True)],
    )
    return [_log(f, isa, t) + s for t, s in zip(totals, shifts, strict=True)]


def _finish(f: Function, isa: Isa, kind: str, count: Value, total: Value) -> Value:
    """The result from the fold of *count* elements, a scalar or lanes."""
    if kind == "ReduceL2":
        return f.unary("sqrt", total)
    if kind == "ReduceLogSum":
        return _log(f, isa, total)
    if kind == "ReduceMean":
        # the mean of nothing is zero
        divisor = f.convert(f.maximum(count, f.value(1, I64)), total.type.scalar)
        if total.type.lanes:
            divisor = f.splat(divisor, total.type.lanes)
        return total / divisor if total.type.is_float else total // divisor
    return total


def _finite(f: Function, value: Value) -> Value:
    """*value*, or 0 where it is not finite."""
    return f.select((value - value).compare("eq", 0.0), value, 0.0)


def _log(f: Function, isa: Isa, x: Value) -> Value:
    if x.type.lanes:
        return log(f, isa, x)
    return f.lane(log(f, isa, f.splat(x, lanes_of(F32))), 0)
