"""What the emitter of one step of a chain is given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from onnxplug_compiler.ir.elementwise import Scalar
from onnxplug_cpu.compiler.codegen.emit import (
    Function,
    Number,
    Type,
    Value,
    constant_text,
)
from onnxplug_cpu.compiler.codegen.lanes import held
from onnxplug_cpu.compiler.machine.isa import LANES, Isa


class Literal(Value):
    """A constant vector whose number is known."""

    __slots__ = ("number",)

    def __init__(self, value: Value, number: Number) -> None:
        super().__init__(value.function, value.text, value.type)
        self.number = number

    @property
    def is_nan(self) -> bool:
        """Whether the number is not one."""
        return self.number != self.number


def literal(f: Function, scalar: Scalar, lanes: int = LANES) -> Literal:
    """A constant of a chain, rounded to its element type."""
    number: Number = scalar.value
    if scalar.element == "f16":
        with np.errstate(over="ignore"):
            number = float(np.float16(number))
    elif scalar.element == "bf16":
        bits = constant_text(number, Type("bf16"))[3:]
        number = float(np.uint32(int(bits, 16) << 16).view(np.float32))
    elif scalar.element == "f32":
        with np.errstate(over="ignore"):
            number = float(np.float32(number))
    return Literal(f.value(number, held(scalar.element, lanes)), number)


class Arguments(NamedTuple):
    """A step while it is emitted.

    Attributes:
        f: the function that is written.
        isa: the processor.
        operands: values as :mod:`~...codegen.lanes` holds them; ``None`` where left
            out.
        element: the result's element type.
        attributes: of the operator, by name.
    """

    f: Function
    isa: Isa
    operands: list[Value | None]
    element: str
    attributes: Mapping[str, Any]

    @property
    def x(self) -> Value:
        """The first operand."""
        return self.operand(0)

    @property
    def y(self) -> Value:
        """The second operand."""
        return self.operand(1)

    def operand(self, position: int) -> Value:
        """An operand that is there."""
        value = self.operands[position]
        assert value is not None
        return value

    @property
    def present(self) -> list[Value]:
        """All operands that are there."""
        return [value for value in self.operands if value is not None]

    def number(self, name: str, default: float) -> float:
        """An attribute that is a number."""
        return float(self.attributes.get(name, default))
