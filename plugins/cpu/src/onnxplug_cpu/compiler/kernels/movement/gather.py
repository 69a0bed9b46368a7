"""Reading and writing at indices: Gather, GatherElements, GatherND and their inverses.

All are one walk over the elements of the gathered array.  Each has a row of indices,
which say where along some axes of the data its partner lies; elements that share their
indices are moved as one row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from onnxplug_compiler.ir.elements import COMPUTED, element_of
from onnxplug_compiler.ir.formula import record_cast
from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.codegen.emit import I8, I64, U64, Module, Type, Value
from onnxplug_cpu.compiler.codegen.kernel import Generator, Kernel, KernelFunction
from onnxplug_cpu.compiler.codegen.row_copy import (
    copy_row,
    from_memory,
    move_type,
    row_class,
)
from onnxplug_cpu.compiler.commands.chunks import fewest_chunks
from onnxplug_cpu.compiler.commands.recording import Recorder, call
from onnxplug_cpu.compiler.commands.words import Word
from onnxplug_cpu.compiler.kernels.loop_nest import Axis, Layout, Walk, chunks, collapse
from onnxplug_cpu.compiler.kernels.movement.carry import record_carry
from onnxplug_cpu.compiler.kernels.movement.copy import record_copy
from onnxplug_cpu.compiler.machine.isa import LANES, Isa

_OPERANDS = ("dense", "indices", "data")
_SCATTERS = {"none": "scatter", "add": "add", "mul": "mul", "max": "max", "min": "min"}
"""What is done with an element that is scattered, by ONNX's name of the reduction."""
_NARROW = ("float16", "bfloat16")


class _Indexed(NamedTuple):
    """An axis of the data that indices choose from."""

    axis: int
    size: int
    stride: int  # bytes


def record_gather(
    recorder: Recorder,
    data: View,
    indices: View,
    target: View,
    axis: int,
    *,
    label: str = "Gather",
) -> None:
    """See ``families.Indexing.record_gather``.

    Raises:
        ValueError: Shapes or dtypes do not fit, or the axis is empty and the target
            is not.
        IndexError: After a run that met it, an index out of range.
    """
    axis %= len(data.shape)
    lead, rest = data.shape[:axis], data.shape[axis + 1 :]
    _require(target, data, (*lead, *indices.shape, *rest))
    repeated = (0,) * len(indices.shape)
    strides = (*data.strides[:axis], *repeated, *data.strides[axis + 1 :])
    index_strides = ((0,) * len(lead)) + indices.strides + ((0,) * len(rest))
    _record(
        recorder,
        "gather",
        target,
        _viewed(indices, target.shape, index_strides),
        _viewed(data, target.shape, strides),
        [_indexed(data, axis)],
        0,
        label,
    )


def record_gather_elements(
    recorder: Recorder,
    data: View,
    indices: View,
    target: View,
    axis: int,
    *,
    label: str = "GatherElements",
) -> None:
    """See ``families.Indexing.record_gather_elements``.

    Raises:
        ValueError, IndexError: as :func:`record_gather`.
    """
    _require(target, data, indices.shape)
    axis %= len(data.shape)
    _record(
        recorder,
        "gather",
        target,
        indices,
        _viewed(data, target.shape, _without(data.strides, axis)),
        [_indexed(data, axis)],
        0,
        label,
    )


def record_gather_nd(
    recorder: Recorder,
    data: View,
    indices: View,
    target: View,
    batch_dims: int = 0,
    *,
    label: str = "GatherND",
) -> None:
    """See ``families.Indexing.record_gather_nd``.

    Raises:
        ValueError, IndexError: as :func:`record_gather`.
    """
    *outer, count = indices.shape
    rest = batch_dims + count
    _require(target, data, (*outer, *data.shape[rest:]))
    chosen = len(outer) - batch_dims
    strides = data.strides[:batch_dims] + (0,) * chosen + data.strides[rest:]
    _record(
        recorder,
        "gather",
        target,
        _tuples(indices, target.shape),
        _viewed(data, target.shape, strides),
        [_indexed(data, axis) for axis in range(batch_dims, rest)],
        indices.strides[-1] * indices.dtype.itemsize,
        label,
    )


def record_scatter_elements(
    recorder: Recorder,
    data: View,
    indices: View,
    updates: View,
    target: View,
    axis: int,
    *,
    reduction: str = "none",
    label: str = "ScatterElements",
) -> None:
    """See ``families.Indexing.record_scatter_elements``.

    If the target is the data itself, nothing is copied.

    Raises:
        ValueError, IndexError: as :func:`record_gather`.
    """
    _require(updates, data, indices.shape)
    axis %= len(data.shape)

    def scatter(updates: View, target: View) -> None:
        _record(
            recorder,
            _SCATTERS[reduction],
            updates,
            indices,
            _viewed(target, updates.shape, _without(target.strides, axis)),
            [_indexed(target, axis)],
            0,
            label,
        )

    _record_scatter(recorder, data, updates, target, reduction, scatter, label)


def record_scatter_nd(
    recorder: Recorder,
    data: View,
    indices: View,
    updates: View,
    target: View,
    *,
    reduction: str = "none",
    label: str = "ScatterND",
) -> None:
    """See ``families.Indexing.record_scatter_nd``.

    If the target is the data itself, nothing is copied.

    Raises:
        ValueError, IndexError: as :func:`record_gather`.
    """
    *outer, count = indices.shape
    _require(updates, data, (*outer, *data.shape[count:]))

    def scatter(updates: View, target: View) -> None:
        strides = (0,) * len(outer) + target.strides[count:]
        _record(
            recorder,
            _SCATTERS[reduction],
            updates,
            _tuples(indices, updates.shape),
            _viewed(target, updates.shape, strides),
            [_indexed(target, axis) for axis in range(count)],
            indices.strides[-1] * indices.dtype.itemsize,
            label,
        )

    _record_scatter(recorder, data, updates, target, reduction, scatter, label)


def _record_scatter(
    recorder: Recorder,
    data: View,
    updates: View,
    target: View,
    reduction: str,
    scatter: Callable[[View, View], None],
    label: str,
) -> None:
    """Begin with the data, and scatter; f16 and bf16 are combined as f32, and rounded
    at the end."""
    if reduction == "none" or target.dtype_name not in _NARROW:
        if target != data:
            _begin_with(recorder, data, target, label)
        scatter(updates, target)
        return
    wide = np.dtype(np.float32)
    combined, more = (recorder.temporary(wide, v.shape) for v in (target, updates))
    record_cast(recorder, data, combined, label)
    record_cast(recorder, updates, more, label)
    scatter(more, combined)
    record_cast(recorder, combined, target, label)


def _begin_with(recorder: Recorder, data: View, target: View, label: str) -> None:
    """Copy *data*, unless both turn out to be the same memory."""
    layout, itemsize = collapse((target, data)), target.dtype.itemsize
    alike = len(layout.axes) == 1 and layout.axes[0].strides == (itemsize, itemsize)
    if not alike or min(data.strides) < 1:
        record_copy(recorder, data, target, label=label)
        return
    record_carry(recorder, data, target, label=label)


def _require(view: View, data: View, shape: Sequence[int]) -> None:
    if (view.shape, view.dtype) != (tuple(shape), data.dtype):
        raise ValueError(
            f"for these indices {data.dtype} {tuple(shape)} is expected; "
            f"got {view.dtype} {view.shape}"
        )


def _indexed(data: View, axis: int) -> _Indexed:
    stride = data.strides[axis] * data.dtype.itemsize
    return _Indexed(axis, data.shape[axis], stride)


def _without(strides: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return (*strides[:axis], 0, *strides[axis + 1 :])


def _viewed(view: View, shape: tuple[int, ...], strides: Sequence[int]) -> View:
    return View(view.buffer, view.offset, view.dtype, shape, tuple(strides))


def _tuples(indices: View, shape: tuple[int, ...]) -> View:
    """The first of each row of indices, for each element of *shape*."""
    outer = indices.strides[:-1]
    return _viewed(indices, shape, outer + (0,) * (len(shape) - len(outer)))


def _out_of_range(axis: int, size: int) -> Callable[[int], Exception]:
    return lambda index: IndexError(
        f"index {index} is out of range for axis {axis} of size {size}; "
        f"expected {-size} to {size - 1}"
    )


def _record(
    recorder: Recorder,
    operation: str,
    dense: View,
    indices: View,
    data: View,
    indexed: Sequence[_Indexed],
    index_step: int,
    label: str,
) -> None:
    """Move between *dense* and *data*, both seen in the shape of *dense*."""
    if indices.dtype_name not in ("int32", "int64"):
        raise ValueError(f"indices are int32 or int64; got {indices.dtype}")
    if dense.size == 0:
        return
    parts = _parts_if_long(operation, dense, indices, data)
    if parts:
        for views in parts:
            _record(recorder, operation, *views, indexed, index_step, label)
        return
    words: dict[str, Word] = {"index_step": index_step}
    for number, (axis, size, stride) in enumerate(indexed):
        words |= {f"limit{number}": size, f"stride{number}": stride}
        # 0 is in range, so an index that is not can stand for itself
        words[f"flag{number}"] = recorder.check(_out_of_range(axis, size))
    layout = collapse((dense, indices, data))
    axes, itemsize = list(layout.axes), dense.dtype.itemsize
    row = Axis(1, (itemsize, 0, itemsize))
    if axes and axes[-1].strides[1] == 0:
        row = axes.pop()
    index = "i32" if indices.dtype_name == "int32" else "i64"
    combines = operation not in ("gather", "scatter")
    near = row.strides[0] == row.strides[2] == itemsize
    if combines:
        element = element_of(dense.dtype)
        if element is None or element not in COMPUTED:
            raise ValueError(f"no elements of {dense.dtype} are combined")
        class_ = f"{'near' if near else 'far'} {element}"
        words["count"] = row.size
        words["dense_step"], words["data_step"] = row.strides[0], row.strides[2]
    elif near:
        class_ = row_class(row.size * itemsize)
        words["nbytes"] = row.size * itemsize
    else:
        class_ = f"strided{itemsize}"
        words["count"], words["dense_step"], _, words["data_step"] = (
            row.size,
            *row.strides,
        )
    # single elements are met in an inner loop, which is cheaper than the walk
    inner = row.size == 1 and len(axes) > 1
    if inner:
        each_index = axes.pop()
        words["run"] = each_index.size
        for name, stride in zip(_OPERANDS, each_index.strides, strict=True):
            words[f"{name}_run"] = stride
    kernel = _IndexedMove(operation, len(axes), index, len(indexed), class_, inner)
    items = Layout((), tuple(axes)).size
    bytes_ = dense.nbytes
    rate = 8 if "nbytes" in words else itemsize
    # one worker writes all, so that which value stays does not depend on chance
    places = dense.size // row.size
    cost = places * 3 + bytes_ / rate if operation == "gather" else 0
    count, each = chunks(recorder, items, cost)
    call(
        recorder,
        Kernel(kernel),
        {**kernel.walk.values(layout.addresses, axes, each), **words},
        chunks=count,
        label=f"{label} {'×'.join(map(str, dense.shape))}",
        nbytes=2 * bytes_ + indices.dtype.itemsize * places,
    )


def _parts_if_long(
    operation: str, dense: View, indices: View, data: View
) -> list[tuple[View, View, View]]:
    """The views in parts, if one worker would take long: for what is moved for an
    index, or, as the order matters, for all that is scattered."""
    views = dense, indices, data
    if operation != "gather":
        axes = [axis for axis, size in enumerate(dense.shape) if size > 1][:1]
        count = dense.size
    else:
        axes = [axis for axis, stride in enumerate(indices.strides) if stride == 0]
        axes = sorted(axes, key=lambda axis: -dense.shape[axis])[:1]
        count = dense.shape[axes[0]] if axes else 1
    nanoseconds = count * max(dense.dtype.itemsize / 4, 3 * (operation != "gather"))
    parts = fewest_chunks(1e-9 * nanoseconds / 2)
    if parts < 2 or not axes:
        return []
    (axis,) = axes
    each = -(-dense.shape[axis] // parts)
    starts = range(0, dense.shape[axis], each)
    return [
        tuple(_some(view, axis, start, each) for view in views)  # type: ignore[misc]
        for start in starts
    ]


def _some(view: View, axis: int, start: int, count: int) -> View:
    starts, sizes = [0] * len(view.shape), list(view.shape)
    starts[axis], sizes[axis] = start, min(count, sizes[axis] - start)
    return view.slice(starts, sizes)


class _IndexedMove(Generator):
    """Moves what indices choose.

    Attributes:
        operation: ``gather`` or ``scatter``; or how scattered elements are combined
            with those that are there.
        element: of the indices.
        indices: how many choose one place.
        class_: of the length of what is moved; or ``strided`` and an item's bytes; of
            what is combined ``near`` or ``far``, and the elements.
        inner: whether the last axis is a loop in each item.
    """

    operation: str
    axes: int
    element: str
    indices: int
    class_: str
    inner: bool

    @property
    def walk(self) -> Walk:
        return Walk(_OPERANDS, self.axes)

    @property
    def moved(self) -> tuple[str, ...]:
        if self.class_.startswith(("strided", "near ", "far ")):
            return "count", "dense_step", "data_step"
        return ("nbytes",)

    @property
    def run(self) -> tuple[str, ...]:
        return ("run", *(f"{name}_run" for name in _OPERANDS)) if self.inner else ()

    @property
    def words(self) -> tuple[str, ...]:
        per_index = ("limit", "stride", "flag")
        return (
            *self.walk.words,
            "index_step",
            *self.moved,
            *self.run,
            *(
                f"{name}{number}"
                for number in range(self.indices)
                for name in per_index
            ),
        )

    def write(self, module: Module, name: str, isa: Isa) -> None:
        _Move(KernelFunction(module, name, self.words), self).write()


class _Move:
    """The loops over items, and what each index of an item leads to."""

    def __init__(self, k: KernelFunction, form: _IndexedMove) -> None:
        self.k, self.f, self.form = k, k.function, form
        # loaded once: nothing moves loads out of loops
        self.moved = [k.integer(word) for word in form.moved]
        self.run = [k.integer(word) for word in form.run]
        self.index_step = k.integer("index_step")
        numbers = range(form.indices)
        self.limits = [k.integer(f"limit{number}") for number in numbers]
        self.strides = [k.integer(f"stride{number}") for number in numbers]

    def write(self) -> None:
        self.form.walk.write(self.k, self._item)
        self.f.finish()

    def _item(self, pointers: list[Value], _: list[Value]) -> None:
        if not self.form.inner:
            self._choose(0, *pointers)
            return
        count, *steps = self.run

        def one(_: Value, *at: Value) -> list[Value]:
            self._choose(0, *at)
            return [self.f.at(p, s, I8) for p, s in zip(at, steps, strict=True)]

        self.f.loop(count, one, pointers, nonempty=True)

    def _choose(self, number: int, dense: Value, at: Value, data: Value) -> None:
        """Follow the index numbered *number*, then the others, then move."""
        f, count = self.f, self.form.indices
        if number == count:
            self._copy(dense, data)
            return
        found = f.convert(f.load(at, Type(self.form.element), align=1), I64)
        wrapped = f.select(found < 0, found + self.limits[number], found)
        # as unsigned numbers, negative ones are above all limits
        unsigned = f.bitcast(wrapped, U64)

        def inside() -> None:
            following = f.at(at, self.index_step, I8) if number + 1 < count else at
            chosen = f.at(data, wrapped * self.strides[number], I8)
            self._choose(number + 1, dense, following, chosen)

        def outside() -> None:
            f.store(found, self.k.pointer(f"flag{number}"))

        f.branch(unsigned < f.bitcast(self.limits[number], U64), inside, outside)

    def _copy(self, dense: Value, data: Value) -> None:
        f, class_ = self.f, self.form.class_
        if class_.startswith(("near ", "far ")):
            self._combine(dense, data)
            return
        gathers = self.form.operation == "gather"
        to, from_ = (dense, data) if gathers else (data, dense)
        if not class_.startswith("strided"):
            copy_row(f, to, from_memory(f, from_), self.moved[0], class_)
            return
        count, *steps = self.moved
        to_step, from_step = steps if gathers else steps[::-1]
        element = move_type(int(class_.removeprefix("strided")))

        def one(_: Value, to: Value, from_: Value) -> list[Value]:
            f.store(f.load(from_, element, align=1), to, align=1)
            return [f.at(to, to_step, I8), f.at(from_, from_step, I8)]

        f.loop(count, one, [to, from_], nonempty=True)

    def _combine(self, dense: Value, data: Value) -> None:
        """Combine a row of updates with what is there."""
        f = self.f
        count, *steps = self.moved
        spacing, element = self.form.class_.split()

        def some(type_: Type, to: Value, from_: Value) -> None:
            there, more = f.load(to, type_, align=1), f.load(from_, type_, align=1)
            f.store(self._combined(there, more), to, align=1)

        def vector(first: Value) -> None:
            type_ = Type(element, LANES)
            some(type_, f.at(data, first, type_), f.at(dense, first, type_))

        def one(_: Value, to: Value, from_: Value) -> list[Value]:
            some(Type(element), to, from_)
            return [f.at(to, steps[1], I8), f.at(from_, steps[0], I8)]

        rest = f.value(0, I64)
        if spacing == "near":
            rest = count & -LANES
            f.loop(rest, vector, step=LANES)
        begin = [f.at(data, rest * steps[1], I8), f.at(dense, rest * steps[0], I8)]
        f.loop(count, one, begin, start=rest)

    def _combined(self, there: Value, more: Value) -> Value:
        f, how = self.f, self.form.operation
        if there.type.element == "i1":
            return there | more if how in ("add", "max") else there & more
        if how == "add":
            return there + more
        if how == "mul":
            return there * more
        # NaN stays
        better = more > there if how == "max" else more < there
        if more.type.is_float:
            better = better | more.compare("ne", more)
        return f.select(better, more, there)
