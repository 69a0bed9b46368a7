"""Einsum: of two operands after the other the product, and sums over labels.

An operand is seen with its axes in another order, which costs nothing; only where axes
that are one of a product's are no one in memory it is copied.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from onnxplug.authoring.record import Record
from onnxplug_compiler.frontend.call import Call, NotCompiled
from onnxplug_compiler.ir.buffers import Address, Constant
from onnxplug_compiler.ir.elements import is_half
from onnxplug_compiler.ir.formula import Formula, record_cast
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.schedule.copies import record_copy
from onnxplug_compiler.schedule.operations.registry import (
    F32,
    Dtypes,
    Inputs,
    Operation,
    Plan,
    Results,
    alike,
    register,
)
from onnxplug_kernels.matmul import parse_equation

if TYPE_CHECKING:
    from onnxplug_compiler.ir.recorder import Recorder
    from onnxplug_compiler.ir.target import Support

_MOST_BATCHES: Final = 2
_MOST_ROWS: Final = 2
_MOST_INNER: Final = 4
"""Axes that a contraction has."""


class _Labelled(Record):
    """A view whose axes have labels, none twice."""

    view: View
    labels: tuple[str, ...]

    @property
    def sizes(self) -> dict[str, int]:
        """The size of each label."""
        return dict(zip(self.labels, self.view.shape, strict=True))

    def ordered(self, labels: Sequence[str]) -> View:
        """The view with its axes in the order of *labels*, which are its own."""
        return self.view.transpose([self.labels.index(label) for label in labels])

    def seen(self, labels: Sequence[str], sizes: dict[str, int]) -> View:
        """The view with an axis for each of *labels*, repeated where it has none or
        one place of it."""
        mine = [label for label in labels if label in self.labels]
        view = self.ordered(mine)
        shape = tuple(sizes[label] for label in labels)
        found = dict(zip(mine, zip(view.shape, view.strides, strict=True), strict=True))
        strides = []
        for label in labels:
            size, stride = found.get(label, (1, 0))
            strides.append(stride if size == sizes[label] else 0)
        return View(view.buffer, view.offset, view.dtype, shape, tuple(strides))


def _terms(
    call: Call, shapes: Sequence[tuple[int, ...]]
) -> tuple[list[list[str]], list[str]]:
    """The labels of operands and of the result."""
    return parse_equation(str(call.attributes["equation"]), [len(s) for s in shapes])


def _check(call: Call, inputs: Inputs, results: Results) -> None:
    shapes = [value.shape for value in inputs if value is not None]
    terms, _ = _terms(call, shapes)
    sizes: dict[str, int] = {}
    for term, shape in zip(terms, shapes, strict=True):
        for label, size in zip(term, shape, strict=True):
            if sizes.setdefault(label, size) == 1:
                sizes[label] = size
            if size not in (1, sizes[label]):
                raise NotCompiled(f"label {label!r} stands for {size}", call)
        within = dict(zip(term, shape, strict=True))
        if any(within[label] != size for label, size in zip(term, shape, strict=True)):
            raise NotCompiled(f"a label of {term} stands for two sizes", call)


def _record(plan: Plan, call: Call) -> None:
    output = call.outputs[0]
    assert output is not None
    views = [plan.view(name) for name in call.inputs if name is not None]
    terms, labels = _terms(call, [view.shape for view in views])
    out = _Labelled(plan.destination(output), tuple(labels))
    operands = [_diagonal(v, term) for v, term in zip(views, terms, strict=True)]
    label = f"Einsum {call.attributes['equation']}"
    writer = _Writer(plan, label, out.view.dtype)
    found, *others = operands
    if not others:
        writer.finish(writer.wide(found), out)
    for number, other in enumerate(others):
        later = others[number + 1 :]
        needed = {*labels}.union(*(each.labels for each in later))
        found = writer.contract(found, other, needed, None if later else out)


def _diagonal(view: View, term: Sequence[str]) -> _Labelled:
    """The view with one axis for each label."""
    strides: dict[str, int] = {}
    sizes: dict[str, int] = {}
    for label, size, stride in zip(term, view.shape, view.strides, strict=True):
        strides[label] = strides.get(label, 0) + stride
        sizes[label] = size
    shape, steps = tuple(sizes.values()), tuple(strides.values())
    one = View(view.buffer, view.offset, view.dtype, shape, steps)
    return _Labelled(one, tuple(sizes))


class _Writer:
    """Records products and sums.

    Attributes:
        dtype: of the result, and of operands that are no constants of 16 bits.
    """

    def __init__(self, plan: Plan, label: str, dtype: np.dtype[Any]) -> None:
        self.plan, self.recorder, self.label = plan, plan.recorder, label
        self.dtype = dtype

    def wide(self, x: _Labelled) -> _Labelled:
        """*x* as elements of the result, made once of a constant."""
        view = x.view
        if view.dtype == self.dtype:
            return x
        if not isinstance(view.buffer, Constant):
            copy = self.recorder.temporary(self.dtype, view.shape)
            record_cast(self.recorder, view, copy, self.label)
            return _Labelled(copy, x.labels)
        layout = f"{self.dtype} of {view.dtype} {view.shape} {view.strides}"
        nbytes = view.size * self.dtype.itemsize
        fill = functools.partial(_cast_all, self.dtype)
        made = self.recorder.packed(view, layout, nbytes, fill)
        whole = View.contiguous(made.buffer, self.dtype, view.shape)
        return _Labelled(whole, x.labels)

    def finish(self, x: _Labelled, out: _Labelled) -> None:
        """The sum over what *out* has not."""
        axes = [label for label in x.labels if label not in out.labels]
        if not axes:
            record_copy(
                self.recorder, x.ordered(out.labels), out.view, label=self.label
            )
            return
        self._sum([*out.labels, *axes], x, out.view)

    def _sum(self, order: Sequence[str], x: _Labelled, out: View) -> None:
        """Sum over the last of the labels, of which *out* has no axes."""
        rank = len(out.shape)
        self.recorder.target.reductions.record_reduce(
            self.recorder,
            "ReduceSum",
            x.ordered(order),
            out,
            tuple(range(rank, len(order))),
        )

    def summed(self, x: _Labelled, kept: Collection[str]) -> _Labelled:
        """*x* summed over the labels that are not *kept*."""
        labels = tuple(label for label in x.labels if label in kept)
        if len(labels) == len(x.labels):
            return x
        x = self.wide(x)
        sizes = x.sizes
        shape = [sizes[label] for label in labels]
        out = self.recorder.temporary(x.view.dtype, shape)
        rest = [label for label in x.labels if label not in kept]
        self._sum([*labels, *rest], x, out)
        return _Labelled(out, labels)

    def contract(
        self,
        a: _Labelled,
        b: _Labelled,
        needed: Collection[str],
        out: _Labelled | None,
    ) -> _Labelled:
        """The product of two, summed over labels that nobody needs.

        Args:
            out: where to write it; in new memory by default.
        """
        a = self.summed(a, {*needed, *b.labels})
        b = self.summed(b, {*needed, *a.labels})
        sizes = a.sizes
        for label, size in b.sizes.items():
            if sizes.setdefault(label, size) == 1:
                sizes[label] = size
        shared = [label for label in a.labels if label in b.labels]
        batch = [label for label in shared if label in needed]
        inner = [label for label in shared if label not in needed]
        rows = [label for label in a.labels if label not in shared]
        columns = [label for label in b.labels if label not in shared]
        labels = (*batch, *rows, *columns)
        if out is None:
            shape = [sizes[label] for label in labels]
            out = _Labelled(self.recorder.temporary(self.dtype, shape), labels)
        if not out.view.size:
            return out
        if not inner:
            self._multiply(self.wide(a), self.wide(b), out)
            return out
        # a matrix has its columns next to each other
        last = next((n for n in reversed(out.labels) if out.sizes[n] > 1), "")
        if last in rows:
            a, b, rows, columns = b, a, columns, rows
        if not isinstance(b.view.buffer, Constant):
            b = self.wide(b)
        a = self.wide(a)
        _Product(self, a, b, out, batch, rows, inner, columns, sizes).record()
        return out

    def _multiply(self, a: _Labelled, b: _Labelled, out: _Labelled) -> None:
        """Element by element."""
        formula = Formula.of(out.view)
        factors = [formula.read(x.seen(out.labels, out.sizes)) for x in (a, b)]
        product = formula.step("Mul", *factors)
        formula.record(self.recorder, product, out.view, self.label)


def _cast_all(
    dtype: np.dtype[Any], recorder: Recorder[Any], source: View, made: Address
) -> None:
    whole = View.contiguous(made.buffer, dtype, source.shape)
    record_cast(recorder, source, whole, "Cast")


class _Product:
    """A product of matrices whose axes are several each."""

    def __init__(
        self,
        writer: _Writer,
        a: _Labelled,
        b: _Labelled,
        out: _Labelled,
        batch: list[str],
        rows: list[str],
        inner: list[str],
        columns: list[str],
        sizes: dict[str, int],
    ) -> None:
        self.writer = writer
        self.a = a.seen([*batch, *rows, *inner], sizes)
        self.b = b.seen([*batch, *inner, *columns], sizes)
        self.out = out.ordered([*batch, *rows, *columns])
        self.counts = len(batch), len(rows), len(inner), len(columns)

    def record(self) -> None:
        """Record it; of copies where there are more axes than a contraction has."""
        found = self._folded(self.a, self.b, self.out)
        target = self.out
        if found is None:
            recorder = self.writer.recorder
            a, b = self._copied(self.a), self._copied(self.b)
            found = self._folded(a, b, self.out)
            if found is None:
                target = recorder.temporary(self.out.dtype, self.out.shape)
                found = self._folded(a, b, target)
            assert found is not None
        self._record(*found)
        if target is not self.out:
            record_copy(self.writer.recorder, target, self.out, label=self.writer.label)

    def _copied(self, view: View) -> View:
        if view.is_contiguous:
            return view
        copy = self.writer.recorder.temporary(view.dtype, view.shape)
        record_copy(self.writer.recorder, view, copy, label=self.writer.label)
        return copy

    def _folded(
        self, a: View, b: View, out: View
    ) -> tuple[View, View, View, bool] | None:
        """The factors and the product with the axes of a contraction, and whether they
        are matrices; ``None`` if there are too many."""
        n, m, k, c = self.counts
        batch = _merged([(a, 0), (b, 0), (out, 0)], n)
        rows = _merged([(a, n), (out, n)], m)
        inner = _merged([(a, n + m), (b, n)], k)
        columns = _merged([(b, n + k), (out, n + m)], c)
        if (
            len(batch) > _MOST_BATCHES
            or len(rows) > _MOST_ROWS
            or len(inner) > _MOST_INNER
            or len(columns) != 1
            or (columns[0].strides[1] != 1 and columns[0].size > 1)
        ):
            return None
        batch = [*[_Axis(1, (0, 0, 0))] * (_MOST_BATCHES - len(batch)), *batch]
        rows = [*[_Axis(1, (0, 0))] * (_MOST_ROWS - len(rows)), *rows]
        is_matrix = rows[0].size == 1 and len(inner) == 1
        if is_matrix:
            rows = rows[1:]
        left = _view(a, [(x, 0) for x in (*batch, *rows, *inner)])
        right = _view(b, [*((x, 1) for x in (*batch, *inner)), (columns[0], 0)])
        lead = [*((x, 2) for x in batch), *((x, 1) for x in rows)]
        return left, right, _view(out, [*lead, (columns[0], 1)]), is_matrix

    def _record(self, a: View, b: View, out: View, is_matrix: bool) -> None:
        recorder, label = self.writer.recorder, self.writer.label
        contractions = recorder.target.contractions
        if is_matrix:
            contractions.record_matmul(recorder, a, b, out, label=label)
            return
        contractions.record_contraction(recorder, a, b, out, label=label)


class _Axis(Record):
    """An axis of several views: its size, and its strides in elements."""

    size: int
    strides: tuple[int, ...]


def _merged(views: Sequence[tuple[View, int]], count: int) -> list[_Axis]:
    """As few axes as have the same elements: the axes of views from those given on.

    At least one; they are in the order in which they are in memory.
    """
    first, at = views[0]
    axes = [
        _Axis(
            first.shape[at + number],
            tuple(view.strides[start + number] for view, start in views),
        )
        for number in range(count)
        if first.shape[at + number] != 1
    ]
    axes.sort(key=lambda axis: [-stride for stride in axis.strides])
    merged: list[_Axis] = []
    for axis in axes:
        if merged and merged[-1].strides == tuple(s * axis.size for s in axis.strides):
            merged[-1] = _Axis(merged[-1].size * axis.size, axis.strides)
        else:
            merged.append(axis)
    return merged or [_Axis(1, (1,) * len(views))]


def _view(view: View, axes: Sequence[tuple[_Axis, int]]) -> View:
    shape = tuple(axis.size for axis, _ in axes)
    strides = tuple(axis.strides[which] for axis, which in axes)
    assert math.prod(shape) == view.size
    return View(view.buffer, view.offset, view.dtype, shape, strides)


def _accepts(call: Call, dtypes: Dtypes, target: Support) -> str | None:
    """Accepts constants of 16 bits beside float32, too, as widening leaves them."""
    if F32 in dtypes and target.has_narrow_factors:
        dtypes = [F32 if is_half(dtype) else dtype for dtype in dtypes]
    return alike(call, dtypes, target)


register("Einsum", Operation(_record, _accepts, _check))
