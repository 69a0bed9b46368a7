"""What the elements of a window become, as instructions."""

from __future__ import annotations

import math
from collections.abc import Callable

from onnxplug_compiler.ir.windows import Combining
from onnxplug_cpu.compiler.codegen.emit import F32, Function, Type, Value
from onnxplug_cpu.compiler.codegen.math.power import power
from onnxplug_cpu.compiler.kernels.contraction.tile import multiply_add
from onnxplug_cpu.compiler.kernels.reduction.accumulator import maximum
from onnxplug_cpu.compiler.machine.isa import Isa


class Folding:
    """A :class:`Combining` as instructions for vectors of f32."""

    def __init__(self, f: Function, isa: Isa, combining: Combining, type_: Type):
        self.f, self.isa, self.combining, self.type = f, isa, combining, type_

    def start(self) -> Value:
        """What is combined of nothing."""
        largest = self.combining.fold == "max"
        return self.f.value(-math.inf if largest else 0, self.type)

    def step(self, total: Value, x: Value, weight: Value | None) -> Value:
        """*total* with one element more."""
        f, change = self.f, self.combining.change
        if weight is not None:
            return multiply_add(f, self.isa, x, weight, total)
        if change == "square":
            return multiply_add(f, self.isa, x, x, total)
        if change:
            x = f.unary("fabs", x)
        if change == "power":
            x = power(f, self.isa, x, f.value(self.combining.p, x.type))
        return self.join(total, x)

    def join(self, total: Value, other: Value) -> Value:
        """What is combined of two parts."""
        if self.combining.fold == "max":
            return maximum(self.f, total, other)
        return total + other

    def finish(self, total: Value, divisor: Callable[[], Value]) -> Value:
        """The result; *divisor* gives how many elements count."""
        f, finish = self.f, self.combining.finish
        if finish == "mean":
            return total / divisor()
        if finish == "square_root":
            return f.unary("sqrt", total)
        if finish == "root":
            return power(f, self.isa, total, f.value(1 / self.combining.p, total.type))
        return total


def vector_of(isa: Isa) -> Type:
    """As many f32 as a register holds."""
    return F32.vector(isa.vector_bytes // F32.nbytes)
