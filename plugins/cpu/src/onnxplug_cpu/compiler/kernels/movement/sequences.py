"""Range and Trilu: element after element, for the small arrays they make."""

from __future__ import annotations

from onnxplug_cpu.compiler.codegen.emit import F64, I8, I64, Module, Type, Value
from onnxplug_cpu.compiler.codegen.kernel import Generator, Kernel, KernelFunction
from onnxplug_cpu.compiler.codegen.row_copy import move_type
from onnxplug_cpu.compiler.ir.commands import Word
from onnxplug_cpu.compiler.ir.recorder import Recorder
from onnxplug_cpu.compiler.ir.views import View
from onnxplug_cpu.compiler.kernels.loop_nest import Axis, Layout, Walk, chunks, collapse
from onnxplug_cpu.compiler.target.isa import Isa

_ELEMENTS = {
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "float32": "f32",
    "float64": "f64",
}


def record_range(
    recorder: Recorder, start: View, delta: View, target: View, *, label: str = "Range"
) -> None:
    """``target[i] = start + i * delta``; floats are computed in f64 and rounded once.

    Args:
        start, delta: one element each, of the target's dtype.
        target: int16, int32, int64, float32 or float64; of rank 1 and any stride.

    Raises:
        ValueError: Another dtype.
    """
    element = element_of(target)
    if target.size == 0:
        return
    (step,) = target.strides
    axis = Axis(target.size, (step * target.dtype.itemsize,))
    count, each = chunks(recorder, target.size, 2.0 * target.size)
    kernel = _Range(element)
    words: dict[str, Word] = {"start": start.address, "delta": delta.address}
    recorder.call(
        Kernel(kernel),
        kernel.walk.values([target.address], [axis], each) | words,
        chunks=count,
        label=f"{label} {target.size}",
        nbytes=target.nbytes,
    )


def record_trilu(
    recorder: Recorder,
    source: View,
    target: View,
    diagonal: int,
    *,
    upper: bool,
    label: str = "Trilu",
) -> None:
    """The elements on one side of a diagonal, and on it; zero bits elsewhere.

    Args:
        source: matrices along the last two axes, of any dtype and any strides.
        target: of the same shape and dtype; any strides, but no element twice.
        diagonal: how far the diagonal lies above the main one.
        upper: keep what is above, not below.
    """
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
    kernel = _Trilu(len(axes), itemsize, upper)
    words: dict[str, Word] = {
        "columns": columns,
        # far outside is as good as just outside, and cannot overflow
        "first": max(-rows, min(diagonal, columns)) + (0 if upper else 1),
        "target_step": step[0],
        "source_step": step[1],
    }
    recorder.call(
        Kernel(kernel),
        kernel.walk.values(batch.addresses, axes, each) | words,
        chunks=count,
        label=f"{label} {'×'.join(map(str, target.shape))}",
        nbytes=2 * target.nbytes,
    )


def element_of(view: View) -> str:
    """The element type of numbers that are computed one by one.

    Raises:
        ValueError: Another dtype.
    """
    if view.dtype_name not in _ELEMENTS:
        raise ValueError(f"expected one of {', '.join(_ELEMENTS)}; got {view.dtype}")
    return _ELEMENTS[view.dtype_name]


def _of_axes(view: View, shape: tuple[int, ...]) -> View:
    """The leading axes of *shape* alone."""
    strides = view.strides[: len(shape)]
    return View(view.buffer, view.offset, view.dtype, shape, strides)


class _Range(Generator):
    element: str

    @property
    def walk(self) -> Walk:
        return Walk(("target",), 1)

    @property
    def words(self) -> tuple[str, ...]:
        return (*self.walk.words, "start", "delta")

    def write(self, module: Module, name: str, isa: Isa) -> None:
        k = KernelFunction(module, name, self.words)
        f = k.function
        type_ = Type(self.element)
        wide = F64 if type_.is_float else type_
        start, delta = (
            f.convert(f.load(k.pointer(word), type_), wide)
            for word in ("start", "delta")
        )

        def one(pointers: list[Value], indices: list[Value]) -> None:
            value = start + f.convert(indices[0], wide) * delta
            f.store(f.convert(value, type_), pointers[0])

        self.walk.write(k, one)
        f.finish()


class _Trilu(Generator):
    """The last axis of the walk counts rows."""

    axes: int
    itemsize: int
    upper: bool

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
                def one(column: Value) -> None:
                    to = f.at(target, column * steps[0], I8)
                    from_ = f.at(source, column * steps[1], I8)
                    value = f.load(from_, element, 1) if kept else f.zero(element)
                    f.store(value, to, align=1)

                f.loop(end, one, start=begin)

            part(not self.upper, f.value(0, I64), cut)
            part(self.upper, cut, columns)

        self.walk.write(k, row)
        f.finish()
