"""Reductions and products of integers of two words: one invocation for each result."""

from __future__ import annotations

import math
from typing import Any, Final

from onnxplug_compiler.gpu.command import launch, operand
from onnxplug_compiler.gpu.families.elementwise import LANES
from onnxplug_compiler.gpu.render import pair_arithmetic, pairs, wide_steps
from onnxplug_compiler.gpu.render.body import Body, Operand, Pair
from onnxplug_compiler.ir.parameters import Parameters
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.views import View

_COMBINING: Final = {
    "ReduceSum": "Add",
    "ReduceL1": "Add",
    "ReduceSumSquare": "Add",
    "ReduceProd": "Mul",
    "ReduceMax": "Max",
    "ReduceMin": "Min",
}


class WideReduceKernel(Parameters):
    """A reduction; the sizes are how many results there are, how many elements each
    has, and those of the axes, kept and then reduced."""

    operator: str
    element: str
    kept: int
    reduced: int

    lanes = LANES

    @property
    def operands(self) -> tuple[Operand, ...]:
        source = Operand(self.element, self.kept + self.reduced)
        return source, Operand(self.element, self.kept, True)

    @property
    def sizes(self) -> int:
        return 2 + self.kept + self.reduced

    def write(self, body: Body) -> None:
        index = body.let("u32", f"block * {LANES}u + lane")
        signed, combining = self.element == "i64", _COMBINING[self.operator]
        with body.when(f"{index} < {body.size(0)}"):
            kept = body.coordinates(index, range(2, 2 + self.kept))
            found = pair_arithmetic.variable(body, pairs.constant(body, self._start()))
            with body.loop(body.size(1)) as number:
                at = body.coordinates(number, range(2 + self.kept, self.sizes))
                value = self._changed(body, body.load(0, body.place(0, [*kept, *at])))
                joined = wide_steps.combined(
                    body, combining, found, value, signed=signed
                )
                pair_arithmetic.assign(body, found, joined)
            body.store(1, body.place(1, kept), found)

    def _start(self) -> int:
        signed = self.element == "i64"
        starts = {
            "ReduceProd": 1,
            "ReduceMax": -(1 << 63) if signed else 0,
            "ReduceMin": (1 << 63 if signed else 1 << 64) - 1,
        }
        return starts.get(self.operator, 0)

    def _changed(self, body: Body, value: Pair) -> Pair:
        if self.operator == "ReduceSumSquare":
            return pairs.product(body, value, value)
        if self.operator == "ReduceL1" and self.element == "i64":
            return pair_arithmetic.magnitude(body, value)
        return value


def record_wide_reduce(
    recorder: Recorder[Any],
    operator: str,
    element: str,
    source: View,
    target: View,
    kept: int,
) -> None:
    """Reduce the axes of *source* behind the first ones, which are kept.

    Raises:
        ValueError: the operator is not computed of integers.
    """
    if operator not in _COMBINING:
        raise ValueError(f"{operator} is not computed of {source.dtype}")
    kernel = WideReduceKernel(operator, element, kept, len(source.shape) - kept)
    count = math.prod(source.shape[kept:])
    sizes = (target.size, count, *source.shape)
    groups = math.ceil(target.size / LANES)
    views = [source, target]
    launch(recorder, kernel, views, sizes, groups, operator, source.size)


class WideContractionKernel(Parameters):
    """Sums of products, which wrap; the sizes are how many results there are, those of
    their axes, how many products a sum has, and those of the axes of sums.

    Attributes:
        rows, sums: how many axes rows and sums have.
    """

    element: str
    rows: int
    sums: int

    lanes = LANES

    @property
    def operands(self) -> tuple[Operand, ...]:
        return (
            Operand(self.element, 2 + self.rows + self.sums),
            Operand(self.element, 3 + self.sums),
            Operand(self.element, 3 + self.rows, True),
        )

    @property
    def sizes(self) -> int:
        return 5 + self.rows + self.sums

    def write(self, body: Body) -> None:
        index = body.let("u32", f"block * {LANES}u + lane")
        with body.when(f"{index} < {body.size(0)}"):
            at = body.coordinates(index, range(1, 4 + self.rows))
            total = pair_arithmetic.variable(body, pairs.constant(body, 0))
            with body.loop(body.size(4 + self.rows)) as number:
                along = body.coordinates(number, range(5 + self.rows, self.sizes))
                a = body.load(0, body.place(0, [*at[:-1], *along]))
                b = body.load(1, body.place(1, [*at[:2], *along, at[-1]]))
                product = pairs.product(body, a, b)
                pair_arithmetic.assign(body, total, pairs.total(body, total, product))
            body.store(2, body.place(2, at), total)


def record_wide_contraction(
    recorder: Recorder[Any], a: View, b: View, out: View, rows: int, label: str
) -> None:
    """Record sums of products.

    Args:
        a, b, out: as of ``ir.families.Contractions.record_contraction``.
        rows: how many axes the rows of *a* and *out* have, behind two of batches.

    Raises:
        ValueError: they are not all of the same integers.
    """
    elements = {operand(view).element for view in (a, b, out)}
    if len(elements) > 1:
        raise ValueError(f"{label} is not computed of {a.dtype} and {b.dtype}")
    (element,) = elements
    along = a.shape[2 + rows :]
    depth = math.prod(along)
    kernel = WideContractionKernel(element, rows, len(along))
    sizes = (out.size, *out.shape, depth, *along)
    groups = math.ceil(out.size / LANES)
    launch(recorder, kernel, [a, b, out], sizes, groups, label, 2 * out.size * depth)
