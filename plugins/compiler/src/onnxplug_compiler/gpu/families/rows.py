"""Softmax and norms: one workgroup for each row."""

from __future__ import annotations

import math
from typing import Any

from onnxplug_compiler.gpu.command import launch, operand
from onnxplug_compiler.gpu.families.neighbours import Neighbours, width_of
from onnxplug_compiler.gpu.render.body import KINDS, Body, Operand
from onnxplug_compiler.gpu.render.extremes import is_least, is_nan, largest
from onnxplug_compiler.gpu.shapes import shapes_of
from onnxplug_compiler.ir.parameters import Parameters
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.views import View


def _add(a: str, b: str) -> str:
    return f"{a} + {b}"


class SoftmaxKernel(Parameters):
    """Softmax of rows; the sizes are how many rows there are, how many elements each
    has, and those of the axes before."""

    read: str
    written: str
    rank: int
    log: bool
    undefined: str
    lanes: int
    width: int

    @property
    def operands(self) -> tuple[Operand, ...]:
        rank = self.rank + 1
        return Operand(self.read, rank), Operand(self.written, rank, True)

    @property
    def sizes(self) -> int:
        return 2 + self.rank

    def write(self, body: Body) -> None:
        length, call = body.let("u32", body.size(1)), body.dialect.call
        row = body.coordinates("block", range(2, 2 + self.rank))
        kind = KINDS[self.read]
        shared = body.array(kind, self.lanes)

        beside = Neighbours(body, self.width, (0, 1))

        def loop() -> Any:
            return beside.loop(length, self.lanes)

        def load(at: str) -> list[str]:
            return beside.load(0, body.place(0, [*row, at]))

        def larger(a: str, b: str) -> str:
            return largest(body, kind, a, b)

        with body.when(f"block < {body.size(0)}"):
            top = body.var(kind, body.number(kind, -math.inf))
            with loop() as at:
                for value in load(at):
                    body.assign(top, larger(top, value))
            most = body.reduced(kind, top, self.lanes, larger, shared)
            total = body.var(kind, body.number(kind, 0))
            with loop() as at:
                for value in load(at):
                    body.assign(total, f"{total} + {call('exp', f'{value} - {most}')}")
            whole = body.reduced(kind, total, self.lanes, _add, shared)
            if self.log:
                whole = body.let(kind, call("log", whole))
            with loop() as at:
                values = [self._value(body, most, whole, x) for x in load(at)]
                beside.store(1, body.place(1, [*row, at]), values)

    def _value(self, body: Body, most: str, whole: str, value: str) -> str:
        """What an element gives."""
        apart = f"{value} - {most}"
        found = f"{apart} - {whole}"
        if not self.log:
            found = f"{body.dialect.call('exp', apart)} / {whole}"
        return self._defined(body, most, body.let(KINDS[self.read], found))

    def _defined(self, body: Body, most: str, found: str) -> str:
        """What a row without a softmax gives; see ``ir.families.Undefined``."""
        if self.undefined == "nan":
            return found
        kind = KINDS[self.read]
        empty = is_least(body, most, kind)
        if self.undefined == "zero":
            empty = is_nan(body, found, kind)
        return body.let(kind, body.dialect.select(empty, body.number(kind, 0), found))


def record_softmax(
    recorder: Recorder[Any],
    x: View,
    out: View,
    *,
    axis: int = -1,
    log: bool = False,
    label: str = "",
    undefined: str = "nan",
) -> None:
    """Softmax along an axis; see ``ir.families.Rows``.

    Args:
        undefined: what rows without a softmax give; see ``ir.families.Undefined``.
    """
    if not out.size:
        return
    axis %= len(x.shape)
    order = [*(each for each in range(len(x.shape)) if each != axis), axis]
    x, out = x.transpose(order), out.transpose(order)
    rows = math.prod(x.shape[:-1])
    read, written = operand(x).element, operand(out).element
    if KINDS.get(read) != KINDS.get(written):
        raise ValueError(f"{label} of {x.dtype} is not written as {out.dtype}")
    lanes = shapes_of(recorder).row_lanes
    width = width_of(recorder, [x, out], x.shape[-1] // lanes)
    kernel = SoftmaxKernel(read, written, len(order) - 1, log, undefined, lanes, width)
    sizes = (rows, x.shape[-1], *x.shape[:-1])
    name = label or ("LogSoftmax" if log else "Softmax")
    launch(recorder, kernel, [x, out], sizes, rows, name, 5 * x.size)


class NormKernel(Parameters):
    """Norms of rows; sizes as of :class:`SoftmaxKernel`.  The arrays are the rows, the
    result, and those of scale, bias, mean and inverse deviation that there are."""

    elements: tuple[str, ...]
    rank: int
    epsilon: float
    centered: bool
    scale: bool
    bias: bool
    mean: bool
    inverse: bool
    lanes: int
    width: int

    @property
    def operands(self) -> tuple[Operand, ...]:
        written = [False, True, *[False] * (self.scale + self.bias)]
        written += [True] * (self.mean + self.inverse)
        return tuple(
            Operand(element, self.rank + 1, is_written)
            for element, is_written in zip(self.elements, written, strict=True)
        )

    @property
    def sizes(self) -> int:
        return 2 + self.rank

    def write(self, body: Body) -> None:
        length = body.let("u32", body.size(1))
        count = body.let("f32", body.dialect.convert("f32", length))
        row = body.coordinates("block", range(2, 2 + self.rank))
        shared = body.array("f32", self.lanes)
        statistics = 2 + self.scale + self.bias
        beside = Neighbours(body, self.width, range(statistics))

        def mean_of(change: str) -> str:
            total = body.var("f32", "0.0f")
            with beside.loop(length, self.lanes) as at:
                for value in beside.load(0, body.place(0, [*row, at])):
                    body.assign(total, f"{total} + {change.format(x=value)}")
            whole = body.reduced("f32", total, self.lanes, _add, shared)
            return body.let("f32", f"{whole} / {count}")

        with body.when(f"block < {body.size(0)}"):
            middle = mean_of("{x}") if self.centered else "0.0f"
            variance = mean_of(f"({{x}} - {middle}) * ({{x}} - {middle})")
            epsilon = body.number("f32", self.epsilon)
            root = body.dialect.call("sqrt", f"{variance} + {epsilon}")
            inverse = body.let("f32", f"1.0f / {root}")
            with beside.loop(length, self.lanes) as at:
                self._elements(body, beside, [*row, at], middle, inverse)
            with body.when("lane == 0u"):
                for number, value in enumerate(
                    [middle] * self.mean + [inverse] * self.inverse, statistics
                ):
                    body.store(number, body.place(number, [*row, "0u"]), value)

    def _elements(
        self,
        body: Body,
        beside: Neighbours,
        at: list[str],
        middle: str,
        inverse: str,
    ) -> None:
        values = beside.load(0, body.place(0, at))
        found = [f"({value} - {middle}) * {inverse}" for value in values]
        for number, sign in enumerate(["*"] * self.scale + ["+"] * self.bias, 2):
            others = beside.load(number, body.place(number, at))
            pairs = zip(found, others, strict=True)
            found = [f"{value} {sign} {other}" for value, other in pairs]
        beside.store(1, body.place(1, at), found)


def record_norm(
    recorder: Recorder[Any],
    x: View,
    out: View,
    *,
    epsilon: float,
    centered: bool = True,
    scale: View | None = None,
    bias: View | None = None,
    mean: View | None = None,
    inverse: View | None = None,
    label: str = "",
) -> None:
    """The norm of each row; see ``ir.families.Rows``."""
    if not out.size:
        return
    parameters = [view.broadcast_to(x.shape) for view in (scale, bias) if view]
    statistics = [view for view in (mean, inverse) if view]
    views = [x, out, *parameters, *statistics]
    elements = tuple(operand(view).element for view in views)
    for view, element in zip(views, elements, strict=True):
        if KINDS.get(element) != "f32":
            raise ValueError(f"norms are not computed of {view.dtype}")
    rows = math.prod(x.shape[:-1])
    lanes = shapes_of(recorder).row_lanes
    kernel = NormKernel(
        elements,
        len(x.shape) - 1,
        float(epsilon),
        centered,
        scale is not None,
        bias is not None,
        mean is not None,
        inverse is not None,
        lanes,
        width_of(recorder, [x, out, *parameters], x.shape[-1] // lanes),
    )
    launch(
        recorder,
        kernel,
        views,
        (rows, x.shape[-1], *x.shape[:-1]),
        rows,
        label or "Norm",
        8 * x.size,
    )
