"""Trilu: of each row what is kept is copied, and the rest is zeros."""

from __future__ import annotations

from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.codegen.emit import I8, I64, Module, Type, Value
from onnxplug_cpu.compiler.codegen.kernel import Generator, Kernel, KernelFunction
from onnxplug_cpu.compiler.codegen.row_copy import move_type
from onnxplug_cpu.compiler.commands.recording import Recorder, call
from onnxplug_cpu.compiler.commands.words import Word
from onnxplug_cpu.compiler.kernels.loop_nest import Axis, Layout, Walk, chunks, collapse
from onnxplug_cpu.compiler.machine.isa import VECTOR_BYTES, Isa

_WIDEST = 8
"""Bytes of elements that vectors have."""


def record_trilu(
    recorder: Recorder,
    source: View,
    target: View,
    diagonal: int,
    *,
    upper: bool,
    label: str = "Trilu",
) -> None:
    """See ``families.Movement.record_trilu``."""
    if target.size == 0:
        return
    rows, columns = target.shape[-2:]
    itemsize = target.dtype.itemsize
    batch = collapse([_of_axes(view, target.shape[:-2]) for view in (target, source)])
    row, step = (
        tuple(view.strides[axis] * itemsize for view in (target, source))
        for axis in (-2, -1)
    )
    axes = (*batch.axes, Axis(rows, row))
    items = Layout((), axes).size
    count, each = chunks(recorder, items, 1.0 * target.size)
    near = all(steps == itemsize for steps in step) and itemsize <= _WIDEST
    kernel = _Trilu(len(axes), itemsize, upper, near)
    words: dict[str, Word] = {
        "columns": columns,
        # far outside is as good as just outside, and cannot overflow
        "first": max(-rows, min(diagonal, columns)) + (0 if upper else 1),
        "target_step": step[0],
        "source_step": step[1],
    }
    call(
        recorder,
        Kernel(kernel),
        kernel.walk.values(batch.addresses, axes, each) | words,
        chunks=count,
        label=f"{label} {'×'.join(map(str, target.shape))}",
        nbytes=2 * target.nbytes,
    )


def _of_axes(view: View, shape: tuple[int, ...]) -> View:
    """The leading axes of *shape* alone."""
    strides = view.strides[: len(shape)]
    return View(view.buffer, view.offset, view.dtype, shape, strides)


class _Trilu(Generator):
    """The last axis of the walk counts rows.

    Attributes:
        axes: of rows.
        itemsize: of elements.
        upper: what is above the diagonal is kept, and not what is below.
        near: elements of a row follow each other.
    """

    axes: int
    itemsize: int
    upper: bool
    near: bool

    @property
    def walk(self) -> Walk:
        return Walk(("target", "source"), self.axes)

    @property
    def words(self) -> tuple[str, ...]:
        return (*self.walk.words, "columns", "first", "target_step", "source_step")

    def write(self, module: Module, name: str, isa: Isa) -> None:
        k = KernelFunction(module, name, self.words)
        f, element = k.function, move_type(self.itemsize)
        columns = k.integer("columns")
        steps = [k.integer("target_step"), k.integer("source_step")]

        def row(pointers: list[Value], indices: list[Value]) -> None:
            target, source = pointers
            cut = f.minimum(indices[-1] + k.integer("first"), columns)
            cut = f.maximum(cut, f.value(0, I64))

            def part(kept: bool, begin: Value, end: Value) -> None:
                def some(type_: Type, column: Value) -> None:
                    to = f.at(target, column * steps[0], I8)
                    from_ = f.at(source, column * steps[1], I8)
                    value = f.load(from_, type_, 1) if kept else f.zero(type_)
                    f.store(value, to, align=1)

                rest = begin
                if self.near:
                    lanes = VECTOR_BYTES // self.itemsize
                    vector = element.vector(lanes)
                    whole = f.maximum(end - begin, 0) & -lanes
                    rest = begin + whole
                    f.loop(rest, lambda at: some(vector, at), start=begin, step=lanes)
                f.loop(end, lambda at: some(element, at), start=rest)

            part(not self.upper, f.value(0, I64), cut)
            part(self.upper, cut, columns)

        self.walk.write(k, row)
        f.finish()
