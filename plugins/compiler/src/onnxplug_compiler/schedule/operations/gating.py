"""What an expert has between its products: an activation, perhaps with a gate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from onnxplug.authoring.record import Record
from onnxplug_compiler.ir.formula import Formula

if TYPE_CHECKING:
    from onnxplug_compiler.ir.elementwise import Number
    from onnxplug_compiler.ir.recorder import Recorder
    from onnxplug_compiler.ir.target import Target
    from onnxplug_compiler.ir.views import View

GATED: Final = ("swiglu",)
"""Activations whose result is multiplied with another half."""


class Gating(Record):
    """An activation as ``com.microsoft.MoE`` names it.

    Attributes:
        name: of the activation.
        alpha, beta, limit: of what is gated.
        fusion: how both halves lie in one matrix: 1 in turn, 2 one behind the other; 0
            if they are two matrices.
    """

    name: str
    alpha: float
    beta: float
    limit: float
    fusion: int

    @property
    def is_gated(self) -> bool:
        """Whether there are two halves."""
        return self.name in GATED

    def record(
        self,
        recorder: Recorder[Target],
        made: Sequence[tuple[View, View | None]],
        out: View,
        label: str,
    ) -> None:
        """Record it.

        Args:
            made: one or two products, [rows, columns] of float32, and the biases that
                are to be added to them.
            out: [rows, I].
        """
        formula = Formula("f32")
        halves = [_half(formula, *each) for view in made for each in self._parts(*view)]
        if self.is_gated:
            value = self._gated(formula, *halves)
        else:
            value = self._activated(formula, *halves)
        formula.record(recorder, value, out, label)

    def _parts(
        self, product: View, bias: View | None
    ) -> list[tuple[View, View | None]]:
        """Of a product with both halves these, each with its part of the bias."""
        if not self.is_gated or not self.fusion:
            return [(product, bias)]
        rows, columns = product.shape
        count = columns // 2
        starts, step = ((0, 1), 2) if self.fusion == 1 else ((0, count), 1)
        return [
            (
                product.slice((0, start), (rows, count), (1, step)),
                None if bias is None else bias.slice((start,), (count,), (step,)),
            )
            for start in starts
        ]

    def _gated(self, formula: Formula, gate: Number, other: Number) -> Number:
        step, number = formula.step, formula.number
        if not math.isinf(self.limit):
            gate = step("Min", gate, number(self.limit))
            other = step("Min", other, number(self.limit))
            other = step("Max", other, number(-self.limit))
        wide = gate if self.alpha == 1 else step("Mul", gate, number(self.alpha))
        gate = step("Mul", gate, step("Sigmoid", wide))
        if self.beta:
            other = step("Add", other, number(self.beta))
        return step("Mul", gate, other)

    def _activated(self, formula: Formula, value: Number) -> Number:
        step, number = formula.step, formula.number
        if self.name == "relu":
            return step("Max", value, number(0.0))
        if self.name == "silu":
            return step("Mul", value, step("Sigmoid", value))
        if self.name == "gelu":
            # the approximation by tanh: (1 + tanh(u)) / 2 is the sigmoid of 2 u
            cube = step("Mul", step("Mul", value, value), value)
            sum_ = step("Add", value, step("Mul", cube, number(0.044715)))
            wide = step("Mul", sum_, number(2 * (2 / math.pi) ** 0.5))
            return step("Mul", value, step("Sigmoid", wide))
        return value


def _half(formula: Formula, product: View, bias: View | None) -> Number:
    value = formula.read(product)
    if bias is None:
        return value
    return formula.step("Add", value, formula.read_wide(bias))
