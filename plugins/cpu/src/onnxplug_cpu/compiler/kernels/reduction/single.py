"""One command that reduces axes: which kernel does it, and in how many chunks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.codegen.emit import F32, Type
from onnxplug_cpu.compiler.codegen.kernel import Kernel
from onnxplug_cpu.compiler.commands.chunks import BYTES_PER_SECOND, fewest_chunks
from onnxplug_cpu.compiler.commands.recording import Recorder, call
from onnxplug_cpu.compiler.commands.words import Word
from onnxplug_cpu.compiler.kernels.reduction.generator import MOMENTS, Reduction
from onnxplug_cpu.compiler.kernels.rows import Axes, chunk_size, element_of, lanes_of

_FEW = 32
"""Adjacent elements that are reduced faster from row to row than along the lanes."""
_SHORT = 4
"""Vectors of rows that are reduced many at a time."""
_SIDE = 4
"""Vectors of columns that are reduced side by side."""


class Plan(NamedTuple):
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
    def of(cls, x: View, out: View, axes: Sequence[int]) -> Plan:
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

    @property
    def elements(self) -> int:
        """How many become one."""
        return self.reduced.count * (self.inner if self.across else 1)

    def seconds(self, kind: str) -> float:
        """How long the smallest chunk may take: a row, or a few columns."""
        columns = 1 if self.across else min(self.inner, _SIDE * lanes_of(F32))
        nbytes = self.elements * columns * self.x.dtype.itemsize
        near = abs(self.inner_strides[0]) <= self.x.dtype.itemsize
        calculated = 1e-9 * nbytes / 4 * _nanoseconds(kind, near)
        return max(calculated, nbytes / BYTES_PER_SECOND)


def _prefers_across(kept: Axes, reduced: Axes, nbytes: int) -> bool:
    far = 1 << 62

    def nearness(axes: Axes, operand: int) -> int:
        return abs(axes.strides[operand][-1]) if axes.count > 1 else far

    if reduced.count == 0:
        return kept.count == 1
    few = _SHORT * lanes_of(F32) if reduced.rank == 1 else _FEW
    if reduced.shape[-1] <= few and kept.shape[-1] >= _FEW:
        # too few elements to fill the lanes and to pay for adding those up
        return False
    return nearness(reduced, 0) <= nearness(kept, 0)


def _without_last(axes: Axes) -> Axes:
    if axes.rank == 1:
        return Axes((1,), tuple((0,) for _ in axes.strides))
    return Axes(axes.shape[:-1], tuple(s[:-1] for s in axes.strides))


def record_single(
    recorder: Recorder, plan: Plan, kind: str, label: str, variances: int = 0
) -> None:
    """Record a reduction as one command.

    Args:
        kind: as :class:`~.generator.Reduction` takes it.
        label: for profiles.
        variances: how far behind a mean its variance is written.
    """
    form = _form_of(plan, kind)
    type_ = Type(form.element)
    lanes, count = lanes_of(type_), plan.elements
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
    if kind == MOMENTS:
        words["variances"] = variances
    nanoseconds = (
        _nanoseconds(kind, form.near or form.way == "short") * type_.nbytes / 4
    )
    if plan.across:
        rows = chunk_size(
            plan.kept.count,
            20 + count * nanoseconds,
            recorder.target.workers,
            nbytes=count * type_.nbytes,
        )
        words["chunk_rows"] = rows
        chunks = -(-plan.kept.count // rows)
    else:
        columns = plan.inner
        long = fewest_chunks(plan.x.nbytes / BYTES_PER_SECOND)
        if plan.kept.count < max(4 * recorder.target.workers, long):
            column = plan.kept.count * count * nanoseconds
            columns = chunk_size(
                plan.inner,
                column,
                recorder.target.workers,
                _SIDE * lanes,
                nbytes=plan.kept.count * count * type_.nbytes,
            )
        parts = -(-plan.inner // columns) if columns else 0
        rows = chunk_size(
            plan.kept.count,
            columns * count * nanoseconds,
            recorder.target.workers,
            nbytes=columns * count * type_.nbytes,
        )
        words["chunk_rows"] = rows
        words["chunk_columns"] = columns
        words["parts"] = parts
        words["out_stride"] = plan.inner_strides[1]
        chunks = parts * -(-plan.kept.count // rows)
    call(
        recorder,
        Kernel(form),
        words,
        chunks=chunks,
        label=label,
        flops=plan.x.size,
        nbytes=plan.x.nbytes + plan.out.nbytes,
    )


def _form_of(plan: Plan, kind: str) -> Reduction:
    element = element_of(plan.x)
    type_ = Type(element)
    lanes = lanes_of(type_)
    count = plan.elements
    near = plan.inner_strides[0] == type_.nbytes
    way = "across" if plan.across else "down"
    if (
        not plan.across
        and kind not in ("ReduceLogSumExp", MOMENTS)
        and plan.reduced.rank == 1
        and plan.reduced.strides[0][0] == type_.nbytes
        and 0 < count <= _SHORT * lanes
        and plan.inner >= _FEW
    ):
        way = "short"
    return Reduction(
        way,
        kind,
        element,
        near,
        plan.across or plan.inner_strides[1] == type_.nbytes,
        plan.kept.rank,
        plan.reduced.rank,
        -(-count // lanes) if way == "short" else 0,
    )


def _nanoseconds(kind: str, near: bool) -> float:
    """What one element of f32 takes, about."""
    return (1.0 if kind == "ReduceLogSumExp" else 0.15) * (1 if near else 8)
