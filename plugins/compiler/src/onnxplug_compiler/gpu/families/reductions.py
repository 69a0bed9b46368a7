"""Elements that become fewer along axes: one workgroup for each result."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from onnxplug_compiler.gpu.command import launch, operand
from onnxplug_compiler.gpu.families.elementwise import LANES
from onnxplug_compiler.gpu.families.neighbours import Neighbours, width_of
from onnxplug_compiler.gpu.families.wide_integers import record_wide_reduce
from onnxplug_compiler.gpu.render import pair_arithmetic, pairs
from onnxplug_compiler.gpu.render.body import KINDS, PAIRED, Body, Operand
from onnxplug_compiler.gpu.render.extremes import largest, smallest
from onnxplug_compiler.gpu.shapes import shapes_of
from onnxplug_compiler.ir.parameters import Parameters
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.views import View

_F32: Final = np.dtype(np.float32)


class _Fold(Parameters):
    """Results of elements along axes; the sizes are how many results there are, how
    many elements each has, and those of the axes, kept and then reduced."""

    element: str
    kept: int
    reduced: int
    lanes_of_result: int
    width: int

    @property
    def lanes(self) -> int:
        return self.lanes_of_result if self.lanes_of_result > 1 else LANES

    @property
    def sizes(self) -> int:
        return 2 + self.kept + self.reduced

    @property
    def result(self) -> str:
        """The number of a lane's result."""
        return "block" if self.lanes_of_result > 1 else f"block * {LANES}u + lane"


class _Loop:
    """The elements of one result, in the order of its lanes."""

    def __init__(self, body: Body, kernel: _Fold) -> None:
        self.body, self.kernel = body, kernel
        kept, reduced = kernel.kept, kernel.reduced
        self.index = body.let("u32", kernel.result)
        self.kept = body.coordinates(self.index, range(2, 2 + kept))
        self.sizes = range(2 + kept, 2 + kept + reduced)
        self.beside = Neighbours(body, kernel.width, (0,))

    def fold(
        self, kind: str, start: str, change: Callable[[str], str], combine: Any
    ) -> str:
        """What *combine* makes of all elements, after *change*."""
        body, lanes = self.body, self.kernel.lanes_of_result
        found = body.var(kind, start)
        loop = body.loop(body.size(1))
        if lanes > 1:
            loop = self.beside.loop(body.size(1), lanes)
        with loop as number:
            coordinates = body.coordinates(number, self.sizes)
            place = body.place(0, [*self.kept, *coordinates])
            for element in self.beside.load(0, place):
                value = body.let(kind, change(element))
                body.assign(found, combine(found, value))
        if lanes == 1:
            return found
        shared = body.array(kind, lanes)
        return body.reduced(kind, found, lanes, combine, shared)


class ReduceKernel(_Fold):
    """A reduction."""

    operator: str
    written: str

    @property
    def operands(self) -> tuple[Operand, ...]:
        return (
            Operand(self.element, self.kept + self.reduced),
            Operand(self.written, self.kept, True),
        )

    def write(self, body: Body) -> None:
        # all lanes of a group go on, or none: they wait for each other
        with body.when(f"{self.result} < {body.size(0)}"):
            loop = _Loop(body, self)
            value = self._value(body, loop)
            if self.lanes_of_result == 1:
                body.store(1, body.place(1, loop.kept), value)
                return
            with body.when("lane == 0u"):
                body.store(1, body.place(1, loop.kept), value)

    def _value(self, body: Body, loop: _Loop) -> str:
        kind, operator = KINDS[self.element], self.operator
        zero = body.number(kind, 0)

        def add(a: str, b: str) -> str:
            return f"{a} + {b}"

        def same(x: str) -> str:
            return x

        if operator in ("ReduceMax", "ReduceMin"):
            larger = operator == "ReduceMax"
            if kind == "i1":
                return self._truth(body, loop, any_of=larger)
            extreme = largest if larger else smallest
            return loop.fold(
                kind,
                _least(body, kind) if larger else _most(body, kind),
                same,
                lambda a, b: extreme(body, kind, a, b),
            )
        if operator == "ReduceProd":
            one = body.number(kind, 1)
            return loop.fold(kind, one, same, lambda a, b: f"{a} * {b}")
        if operator == "ReduceLogSumExp":
            top = loop.fold(
                kind,
                _least(body, kind),
                same,
                lambda a, b: largest(body, kind, a, b),
            )
            # what is infinite would be no number, were it subtracted
            most = sys.float_info.max if kind == "f64" else 3.4028234e38
            infinite = f"abs({top}) > {body.number(kind, most)}"
            base = body.let(kind, body.dialect.select(infinite, zero, top))
            total = loop.fold(
                kind, zero, lambda x: body.dialect.call("exp", f"{x} - {base}"), add
            )
            return body.let(kind, f"{base} + {body.dialect.call('log', total)}")
        change = {
            "ReduceL1": lambda x: f"abs({x})",
            "ReduceL2": lambda x: f"{x} * {x}",
            "ReduceSumSquare": lambda x: f"{x} * {x}",
        }.get(operator, same)
        total = loop.fold(kind, zero, change, add)
        if operator == "ReduceMean":
            count = body.dialect.convert(kind, body.size(1))
            return body.let(kind, f"{total} / {count}")
        if operator == "ReduceL2":
            return body.let(kind, body.dialect.call("sqrt", total))
        if operator == "ReduceLogSum":
            return body.let(kind, body.dialect.call("log", total))
        return total

    def _truth(self, body: Body, loop: _Loop, *, any_of: bool) -> str:
        """Whether any is true, or all are."""
        found = loop.fold(
            "u32",
            "0u" if any_of else "1u",
            lambda x: body.dialect.select(x, "1u", "0u"),
            lambda a, b: f"{a} {'|' if any_of else '&'} {b}",
        )
        return body.let("i1", f"{found} != 0u")


def _least(body: Body, kind: str) -> str:
    found = {"f64": -math.inf, "f32": -math.inf, "i32": -(2**31), "u32": 0}
    return body.number(kind, found[kind])


def _most(body: Body, kind: str) -> str:
    found = {"f64": math.inf, "f32": math.inf, "i32": 2**31 - 1, "u32": 2**32 - 1}
    return body.number(kind, found[kind])


def record_reduce(
    recorder: Recorder[Any], kind: str, x: View, out: View, axes: tuple[int, ...]
) -> None:
    """Reduce *axes*; see ``ir.families.Reductions``."""
    if not out.size:
        return
    if not x.size and kind not in ("ReduceSum", "ReduceProd"):
        raise ValueError(f"{kind} of no elements")
    element = operand(x).element
    if KINDS.get(element) not in ("f32", "f64") and kind in (
        "ReduceMean",
        "ReduceL2",
        "ReduceLogSum",
        "ReduceLogSumExp",
    ):
        raise ValueError(f"{kind} is not computed of {x.dtype}")
    source, target, kept, reduced = _split(x, out, axes)
    if element in PAIRED:
        record_wide_reduce(recorder, kind, element, source, target, kept)
        return
    count = math.prod(source.shape[kept:])
    lanes = shapes_of(recorder).lanes_of(count)
    written = operand(out).element
    width = width_of(recorder, [source], count // lanes) if lanes > 1 else 1
    kernel = ReduceKernel(element, kept, reduced, lanes, width, kind, written)
    results = target.size
    groups = results if lanes > 1 else math.ceil(results / LANES)
    launch(
        recorder,
        kernel,
        [source, target],
        (results, count, *source.shape),
        groups,
        kind,
        x.size,
    )


def _split(x: View, out: View, axes: tuple[int, ...]) -> tuple[View, View, int, int]:
    """The array with what is reduced last, the result with what is kept only, and how
    many axes are kept and reduced."""
    kept = [axis for axis in range(len(x.shape)) if axis not in axes]
    source = x.transpose([*kept, *axes])
    sizes = tuple(x.shape[axis] for axis in kept)
    if len(out.shape) == len(x.shape):
        strides = tuple(out.strides[axis] for axis in kept)
        out = View(out.buffer, out.offset, out.dtype, sizes, strides)
    return source, out, len(kept), len(axes)


class MomentsKernel(_Fold):
    """The mean, and the mean square of what differs from it."""

    @property
    def operands(self) -> tuple[Operand, ...]:
        result = Operand("f32", self.kept, True)
        return Operand(self.element, self.kept + self.reduced), result, result

    def write(self, body: Body) -> None:
        with body.when(f"{self.result} < {body.size(0)}"):
            loop = _Loop(body, self)
            count = body.let("f32", body.dialect.convert("f32", body.size(1)))

            def add(a: str, b: str) -> str:
                return f"{a} + {b}"

            total = loop.fold("f32", "0.0f", lambda x: x, add)
            mean = body.let("f32", f"{total} / {count}")
            squares = loop.fold(
                "f32", "0.0f", lambda x: f"({x} - {mean}) * ({x} - {mean})", add
            )
            with body.when("lane == 0u" if self.lanes_of_result > 1 else "true"):
                body.store(1, body.place(1, loop.kept), mean)
                body.store(2, body.place(2, loop.kept), f"{squares} / {count}")


def record_moments(
    recorder: Recorder[Any], x: View, axes: tuple[int, ...], *, label: str = ""
) -> tuple[View, View]:
    """The mean and the variance; see ``ir.families.Reductions``."""
    shape = [1 if axis in axes else size for axis, size in enumerate(x.shape)]
    mean, variance = (recorder.temporary(_F32, shape) for _ in range(2))
    if not mean.size:
        return mean, variance
    if not x.size:
        raise ValueError("moments of no elements")
    source, target, kept, reduced = _split(x, mean, axes)
    _, second, *_ = _split(x, variance, axes)
    count = math.prod(source.shape[kept:])
    lanes = shapes_of(recorder).lanes_of(count)
    width = width_of(recorder, [source], count // lanes) if lanes > 1 else 1
    kernel = MomentsKernel(operand(x).element, kept, reduced, lanes, width)
    groups = target.size if lanes > 1 else math.ceil(target.size / LANES)
    launch(
        recorder,
        kernel,
        [source, target, second],
        (target.size, count, *source.shape),
        groups,
        label or "Moments",
        4 * x.size,
    )
    return mean, variance


class CumulativeKernel(Parameters):
    """Sums or products up to each element of a line; the sizes are how many lines there
    are, how many elements each has, and those of the axes but that of the lines."""

    element: str
    rank: int
    exclusive: bool
    reverse: bool
    product: bool

    lanes = LANES

    @property
    def operands(self) -> tuple[Operand, ...]:
        rank = self.rank + 1
        return Operand(self.element, rank), Operand(self.element, rank, True)

    @property
    def sizes(self) -> int:
        return 2 + self.rank

    def write(self, body: Body) -> None:
        index = body.let("u32", f"block * {LANES}u + lane")
        with body.when(f"{index} < {body.size(0)}"):
            line = body.coordinates(index, range(2, 2 + self.rank))
            total = self._start(body)
            with body.loop(body.size(1)) as number:
                at = number
                if self.reverse:
                    at = body.let("u32", f"{body.size(1)} - 1u - {number}")
                value = body.load(0, body.place(0, [*line, at]))
                if self.exclusive:
                    body.store(1, body.place(1, [*line, at]), total)
                self._join(body, total, value)
                if not self.exclusive:
                    body.store(1, body.place(1, [*line, at]), total)

    def _start(self, body: Body) -> Any:
        if self.element in PAIRED:
            start = pairs.constant(body, int(self.product))
            return pair_arithmetic.variable(body, start)
        kind = KINDS[self.element]
        return body.var(kind, body.number(kind, self.product))

    def _join(self, body: Body, total: Any, value: Any) -> None:
        """Take one more into the total."""
        if self.element in PAIRED:
            join = pairs.product if self.product else pairs.total
            pair_arithmetic.assign(body, total, join(body, total, value))
            return
        sign = "*" if self.product else "+"
        body.assign(total, f"{total} {sign} {value}")


def record_cumulative(
    recorder: Recorder[Any],
    source: View,
    target: View,
    axis: int,
    *,
    exclusive: bool = False,
    reverse: bool = False,
    product: bool = False,
    label: str = "",
) -> None:
    """Sums or products up to each element; see ``ir.families.Reductions``."""
    if not target.size:
        return
    axis %= len(source.shape)
    order = [*(each for each in range(len(source.shape)) if each != axis), axis]
    x, out = source.transpose(order), target.transpose(order)
    lines = math.prod(x.shape[:-1])
    kernel = CumulativeKernel(
        operand(x).element, len(order) - 1, exclusive, reverse, product
    )
    launch(
        recorder,
        kernel,
        [x, out],
        (lines, x.shape[-1], *x.shape[:-1]),
        math.ceil(lines / LANES),
        label or ("CumProd" if product else "CumSum"),
        x.size,
    )
