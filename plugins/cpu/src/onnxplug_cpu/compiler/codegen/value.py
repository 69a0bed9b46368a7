"""Values of a function that is being written, with operators that emit instructions."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from onnxplug_cpu.compiler.codegen.types import Number, Type

if TYPE_CHECKING:
    from onnxplug_cpu.compiler.codegen.emit import Function


class Value:
    """An SSA value.  Operators emit instructions; Python numbers become constants."""

    __slots__ = ("function", "text", "type")

    def __init__(self, function: Function, text: str, type_: Type) -> None:
        self.function = function
        self.text = text
        self.type = type_

    def __str__(self) -> str:
        return f"{self.type.text} {self.text}"

    def _binary(self, opcode: str, other: Operand, *, swap: bool = False) -> Value:
        value = self.function.value(other, self.type)
        left, right = (value, self) if swap else (self, value)
        return self.function.instruction(
            self.type, f"{opcode} {left.type.text} {left.text}, {right.text}"
        )

    def _opcode(self, floating: str, signed: str, unsigned: str | None = None) -> str:
        if self.type.is_float:
            return floating
        return signed if self.type.is_signed else unsigned or signed

    def __add__(self, other: Operand) -> Value:
        if isinstance(other, int) and other == 0 and not self.type.is_float:
            return self
        return self._binary(self._opcode("fadd", "add"), other)

    __radd__ = __add__

    def __sub__(self, other: Operand) -> Value:
        return self._binary(self._opcode("fsub", "sub"), other)

    def __rsub__(self, other: Operand) -> Value:
        return self._binary(self._opcode("fsub", "sub"), other, swap=True)

    def __mul__(self, other: Operand) -> Value:
        if isinstance(other, int) and other == 1 and not self.type.is_float:
            return self
        return self._binary(self._opcode("fmul", "mul"), other)

    __rmul__ = __mul__

    def __truediv__(self, other: Operand) -> Value:
        return self._binary("fdiv", other)

    def __rtruediv__(self, other: Operand) -> Value:
        return self._binary("fdiv", other, swap=True)

    def __floordiv__(self, other: Operand) -> Value:
        """Integer division, truncated."""
        return self._binary(self._opcode("fdiv", "sdiv", "udiv"), other)

    def __mod__(self, other: Operand) -> Value:
        """The remainder of truncated division, with the dividend's sign."""
        return self._binary(self._opcode("frem", "srem", "urem"), other)

    def __and__(self, other: Operand) -> Value:
        return self._binary("and", other)

    def __or__(self, other: Operand) -> Value:
        return self._binary("or", other)

    def __xor__(self, other: Operand) -> Value:
        return self._binary("xor", other)

    def __lshift__(self, other: Operand) -> Value:
        return self._binary("shl", other)

    def __rshift__(self, other: Operand) -> Value:
        """Arithmetic for signed elements, logical for unsigned ones."""
        return self._binary(self._opcode("", "ashr", "lshr"), other)

    def __invert__(self) -> Value:
        return self ^ -1

    def __neg__(self) -> Value:
        if self.type.is_float:
            return self.function.instruction(
                self.type, f"fneg {self.type.text} {self.text}"
            )
        return 0 - self

    def compare(self, predicate: str, other: Operand) -> Value:
        """Lanes of ``i1``.

        Args:
            predicate: ``eq ne lt le gt ge``; on floats false with a NaN, but for
                ``ne``, which is true.
        """
        value = self.function.value(other, self.type)
        if self.type.is_float:
            opcode = "fcmp " + ("une" if predicate == "ne" else f"o{predicate}")
        else:
            sign = "s" if self.type.is_signed else "u"
            opcode = "icmp " + (
                predicate if predicate in ("eq", "ne") else sign + predicate
            )
        return self.function.instruction(
            self.type.of("i1"), f"{opcode} {self.type.text} {self.text}, {value.text}"
        )

    def __lt__(self, other: Operand) -> Value:
        return self.compare("lt", other)

    def __le__(self, other: Operand) -> Value:
        return self.compare("le", other)

    def __gt__(self, other: Operand) -> Value:
        return self.compare("gt", other)

    def __ge__(self, other: Operand) -> Value:
        return self.compare("ge", other)


Operand: TypeAlias = Value | Number
