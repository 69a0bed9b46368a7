"""CumSum: element after element, in parts where that takes long."""

from __future__ import annotations

from onnxplug_compiler.ir.formula import Formula
from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.codegen.emit import I8, Module, Type, Value
from onnxplug_cpu.compiler.codegen.kernel import Generator, Kernel, KernelFunction
from onnxplug_cpu.compiler.commands.chunks import fewest_chunks
from onnxplug_cpu.compiler.commands.recording import Recorder, call
from onnxplug_cpu.compiler.commands.words import Word
from onnxplug_cpu.compiler.kernels.loop_nest import Walk, chunks, collapse
from onnxplug_cpu.compiler.machine.isa import Isa

_ELEMENTS = {"int32": "i32", "int64": "i64", "float32": "f32", "float64": "f64"}


def record_cumsum(
    recorder: Recorder,
    source: View,
    target: View,
    axis: int,
    *,
    exclusive: bool = False,
    reverse: bool = False,
    label: str = "CumSum",
) -> None:
    """See ``families.Reductions.record_cumsum``: element after element.

    Raises:
        ValueError: another dtype than int32, int64, float32 and float64.
    """
    element = _element_of(target)
    if target.size == 0:
        return
    axis %= len(target.shape)
    if reverse:
        source, target = _reversed(source, axis), _reversed(target, axis)
    parts = fewest_chunks(1.5e-9 * target.shape[axis] / 2)
    if parts > 1 and target.shape[axis] > parts:
        _record_in_parts(recorder, source, target, axis, exclusive, parts, label)
        return
    layout = collapse((_without(target, axis), _without(source, axis)))
    count, each = chunks(recorder, layout.size, 1.5 * target.size)
    kernel = _CumSum(len(layout.axes), element, exclusive)
    words: dict[str, Word] = {
        "count": target.shape[axis],
        "target_step": target.strides[axis] * target.dtype.itemsize,
        "source_step": source.strides[axis] * target.dtype.itemsize,
    }
    call(
        recorder,
        Kernel(kernel),
        kernel.walk.values(layout.addresses, layout.axes, each) | words,
        chunks=count,
        label=f"{label} {'×'.join(map(str, target.shape))}",
        flops=target.size,
        nbytes=2 * target.nbytes,
    )


def _element_of(view: View) -> str:
    """The element type of numbers that are added one by one.

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
    exclusive: bool,
    parts: int,
    label: str,
) -> None:
    """The sums of each part of the axis, to which those of the parts before are
    added."""
    element = _element_of(target)
    each = -(-target.shape[axis] // parts)
    pairs = [*zip(source.cut(axis, each), target.cut(axis, each), strict=True)]
    lead = sum(to.shape[0] for _, to in pairs)
    shape = (lead, *target.shape[:axis], 1, *target.shape[axis + 1 :])
    totals, before = (recorder.temporary(target.dtype, shape) for _ in range(2))
    first = 0
    for from_, to in pairs:
        record_cumsum(recorder, from_, to, axis + 1, exclusive=exclusive, label=label)
        formula = Formula(element)
        value = formula.step("Identity", formula.read(_last(to, axis + 1)))
        if exclusive:
            value = formula.step("Add", value, formula.read(_last(from_, axis + 1)))
        place = totals.rows(first, to.shape[0])
        formula.record(recorder, value, place, label)
        first += to.shape[0]
    record_cumsum(recorder, totals, before, 0, exclusive=True, label=label)
    first = 0
    for _, to in pairs:
        formula = Formula(element)
        place = before.rows(first, to.shape[0])
        value = formula.step("Add", formula.read(to), formula.read(place))
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


class _CumSum(Generator):
    axes: int
    element: str
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
                after = before + f.load(from_, type_)
                f.store(before if self.exclusive else after, to)
                return [f.at(to, steps[0], I8), f.at(from_, steps[1], I8), after]

            f.loop(k.integer("count"), one, [*pointers, f.zero(type_)], nonempty=True)

        self.walk.write(k, along)
        f.finish()
