"""CumSum and CumProd: element after element, in parts where that takes long.

Along rows one element waits for the other; across rows columns lie along the lanes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from onnxplug_compiler.ir.elements import element_of
from onnxplug_compiler.ir.formula import Formula, record_cast
from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.codegen.emit import I8, Module, Type, Value
from onnxplug_cpu.compiler.codegen.kernel import Generator, Kernel, KernelFunction
from onnxplug_cpu.compiler.codegen.lanes import Lanes, Part
from onnxplug_cpu.compiler.commands.chunks import fewest_chunks
from onnxplug_cpu.compiler.commands.recording import Recorder, call
from onnxplug_cpu.compiler.commands.words import Word
from onnxplug_cpu.compiler.kernels.loop_nest import Axis, Layout, Walk, chunks, collapse
from onnxplug_cpu.compiler.kernels.sweep import sweep

if TYPE_CHECKING:
    from onnxplug_cpu.compiler.machine.isa import Isa

_ELEMENTS: Final = {
    "int32": "i32",
    "int64": "i64",
    # which wrap the same way
    "uint32": "i32",
    "uint64": "i64",
    "float32": "f32",
    "float64": "f64",
}
_NARROW: Final = ("float16", "bfloat16")
_COLUMNS: Final = 1024
"""Of a chunk, where they lie along the lanes."""
_FEW: Final = 8
"""Columns that do not."""


def record_cumulative(
    recorder: Recorder,
    source: View,
    target: View,
    axis: int,
    *,
    product: bool = False,
    exclusive: bool = False,
    reverse: bool = False,
    label: str = "",
) -> None:
    """See ``families.Reductions.record_cumulative``: element after element.

    Raises:
        ValueError: other elements than floats and integers of 32 and 64 bits.
    """
    label = label or ("CumProd" if product else "CumSum")
    if target.size == 0:
        return
    axis %= len(target.shape)
    if reverse:
        source, target = _reversed(source, axis), _reversed(target, axis)
    if target.dtype_name in _NARROW:
        f32 = np.dtype(np.float32)
        wide, found = (recorder.temporary(f32, target.shape) for _ in range(2))
        record_cast(recorder, source, wide, label)
        record_cumulative(
            recorder,
            wide,
            found,
            axis,
            product=product,
            exclusive=exclusive,
            label=label,
        )
        record_cast(recorder, found, target, label)
        return
    element = _element_of(target)
    parts = fewest_chunks(1.5e-9 * target.shape[axis] / 2)
    if parts > 1 and target.shape[axis] > parts:
        form = product, exclusive
        _record_in_parts(recorder, source, target, axis, form, parts, label)
        return
    layout = collapse((_without(target, axis), _without(source, axis)))
    axes, itemsize = layout.axes, target.dtype.itemsize
    words: dict[str, Word] = {
        "count": target.shape[axis],
        "target_step": target.strides[axis] * itemsize,
        "source_step": source.strides[axis] * itemsize,
    }
    kernel: _Along | _Across = _Along(len(axes), element, product, exclusive)
    nanoseconds = 1.5 * target.size
    if axes and axes[-1].size >= _FEW and axes[-1].strides == (itemsize, itemsize):
        *outer, columns = axes
        blocks = Axis(-(-columns.size // _COLUMNS), (_COLUMNS * itemsize,) * 2)
        axes = (*outer, blocks)
        words["columns"] = columns.size
        kernel = _Across(len(axes), element, product, exclusive)
        nanoseconds /= 4
    count, each = chunks(recorder, Layout((), axes).size, nanoseconds)
    call(
        recorder,
        Kernel(kernel),
        kernel.walk.values(layout.addresses, axes, each) | words,
        chunks=count,
        label=f"{label} {'×'.join(map(str, target.shape))}",
        flops=target.size,
        nbytes=2 * target.nbytes,
    )


def _element_of(view: View) -> str:
    """The element type of numbers that are combined one by one.

    Raises:
        ValueError: Another dtype.
    """
    if view.dtype_name not in _ELEMENTS:
        raise ValueError(f"expected one of {', '.join(_ELEMENTS)}; got {view.dtype}")
    return _ELEMENTS[view.dtype_name]


def _record_in_parts(
    recorder: Recorder,
    source: View,
    target: View,
    axis: int,
    form: tuple[bool, bool],
    parts: int,
    label: str,
) -> None:
    """What each part of the axis comes to, with which that of the parts before is
    combined."""
    product, exclusive = form
    join, element = "Mul" if product else "Add", element_of(target.dtype)
    assert element is not None
    each = -(-target.shape[axis] // parts)
    pairs = [*zip(source.cut(axis, each), target.cut(axis, each), strict=True)]
    lead = sum(to.shape[0] for _, to in pairs)
    shape = (lead, *target.shape[:axis], 1, *target.shape[axis + 1 :])
    totals, before = (recorder.temporary(target.dtype, shape) for _ in range(2))
    first = 0
    for from_, to in pairs:
        record_cumulative(
            recorder,
            from_,
            to,
            axis + 1,
            product=product,
            exclusive=exclusive,
            label=label,
        )
        formula = Formula(element)
        value = formula.step("Identity", formula.read(_last(to, axis + 1)))
        if exclusive:
            value = formula.step(join, value, formula.read(_last(from_, axis + 1)))
        place = totals.rows(first, to.shape[0])
        formula.record(recorder, value, place, label)
        first += to.shape[0]
    record_cumulative(
        recorder, totals, before, 0, product=product, exclusive=True, label=label
    )
    first = 0
    for _, to in pairs:
        formula = Formula(element)
        place = before.rows(first, to.shape[0])
        value = formula.step(join, formula.read(to), formula.read(place))
        formula.record(recorder, value, to, label)
        first += to.shape[0]


def _reversed(view: View, axis: int) -> View:
    starts, steps = [0] * len(view.shape), [1] * len(view.shape)
    starts[axis], steps[axis] = view.shape[axis] - 1, -1
    return view.slice(starts, view.shape, steps)


def _last(view: View, axis: int) -> View:
    starts, sizes = [0] * len(view.shape), list(view.shape)
    starts[axis], sizes[axis] = sizes[axis] - 1, 1
    return view.slice(starts, sizes)


def _without(view: View, axis: int) -> View:
    return View(
        view.buffer,
        view.offset,
        view.dtype,
        (*view.shape[:axis], *view.shape[axis + 1 :]),
        (*view.strides[:axis], *view.strides[axis + 1 :]),
    )


class _Along(Generator):
    """Row by row.

    Attributes:
        axes: of rows.
        element: of both arrays.
        product: multiply, rather than add.
        exclusive: leave out the element itself.
    """

    axes: int
    element: str
    product: bool
    exclusive: bool

    @property
    def walk(self) -> Walk:
        return Walk(("target", "source"), self.axes)

    @property
    def words(self) -> tuple[str, ...]:
        return (*self.walk.words, "count", "target_step", "source_step")

    def write(self, module: Module, name: str, isa: Isa) -> None:
        k = KernelFunction(module, name, self.words)
        f, type_ = k.function, Type(self.element)
        steps = [k.integer("target_step"), k.integer("source_step")]

        def along(pointers: list[Value], _: list[Value]) -> None:
            def one(_: Value, to: Value, from_: Value, before: Value) -> list[Value]:
                after = _joined(before, f.load(from_, type_), self.product)
                f.store(before if self.exclusive else after, to)
                return [f.at(to, steps[0], I8), f.at(from_, steps[1], I8), after]

            begin = [*pointers, f.value(int(self.product), type_)]
            f.loop(k.integer("count"), one, begin, nonempty=True)

        self.walk.write(k, along)
        f.finish()


class _Across(Generator):
    """Columns side by side; the last axis of the walk counts blocks of them.

    Attributes:
        axes: of blocks.
        element, product, exclusive: as of :class:`_Along`.
    """

    axes: int
    element: str
    product: bool
    exclusive: bool

    @property
    def walk(self) -> Walk:
        return Walk(("target", "source"), self.axes)

    @property
    def words(self) -> tuple[str, ...]:
        return (*self.walk.words, "count", "target_step", "source_step", "columns")

    def write(self, module: Module, name: str, isa: Isa) -> None:
        k = KernelFunction(module, name, self.words)
        f, lanes = k.function, Lanes(k.function, isa)
        lanes.reserve_for(self.element, False)
        type_ = Type(self.element, lanes.width)
        columns, count = k.integer("columns"), k.integer("count")
        steps = [k.integer("target_step"), k.integer("source_step")]

        def block(pointers: list[Value], indices: list[Value]) -> None:
            many = f.minimum(columns - indices[-1] * _COLUMNS, _COLUMNS)

            def row(to: Value, from_: Value, before: Value | None) -> None:
                def some(first: Value, part: Part) -> None:
                    if before is None and self.exclusive:
                        new = f.value(int(self.product), type_)
                    else:
                        at = f.at(from_, first, type_)
                        new = lanes.load(self.element, at, part)
                    if before is not None:
                        old = lanes.load(self.element, f.at(before, first, type_), part)
                        new = _joined(old, new, self.product)
                    lanes.store(self.element, new, f.at(to, first, type_), part)

                sweep(f, lanes, many, some)

            def following(_: Value, before: Value, from_: Value) -> list[Value]:
                to, after = f.at(before, steps[0], I8), f.at(from_, steps[1], I8)
                # the row before is in a near cache
                row(to, from_ if self.exclusive else after, before)
                return [to, after]

            row(pointers[0], pointers[1], None)
            f.loop(count, following, pointers, start=1)

        self.walk.write(k, block)
        f.finish()


def _joined(before: Value, x: Value, product: bool) -> Value:
    return before * x if product else before + x
