"""Quotients that are rounded to whole numbers, by a divisor that many elements share.

``q = x * r``, where ``r`` is the reciprocal of the divisor, rounded once, is corrected
by what it leaves, ``q + (x - q * divisor) * r``, which is the quotient to the bit
(Markstein, Computation of elementary functions on the IBM RISC System/6000 processor,
1990), if nothing of that overflows, or is denormal.  That takes a third of the time of
a division or less.
"""

from __future__ import annotations

from typing import Final

from onnxplug_cpu.compiler.codegen.emit import U32, Function, Type, Value

_SIGN: Final = 0x8000_0000
_LEAST_DIVISOR: Final = 2.0**-60
_MOST_DIVISOR: Final = 2.0**126
_MOST: Final = 2.0**40
"""Larger quotients are divided, as are those by divisors that are not between."""


class Divisor:
    """A vector of divisors, once for all elements to come."""

    def __init__(self, f: Function, divisor: Value) -> None:
        self.f, self.divisor = f, divisor
        size = f.unary("fabs", divisor)
        is_usual = (size < _MOST_DIVISOR) & (size > _LEAST_DIVISOR)
        self.reciprocal = f.value(1.0, divisor.type) / divisor
        self.quarter = size * 0.25
        self.limit = f.select(is_usual, size * _MOST, float("nan"))

    def divide(self, x: Value) -> Value:
        """The quotients; of those below a quarter, which are rounded to 0, the sign
        alone."""
        f = self.f
        size = f.unary("fabs", x)
        is_usual = size < self.limit  # which NaN is not
        lanes = Type(f"i{x.type.lanes}")
        all_are = f.bitcast(is_usual, lanes).compare("eq", -1)

        def corrected() -> list[Value]:
            # denormals, as by the step of masks of the least float, would take long
            some = f.select(size < self.quarter, self._signed_zero(x), x)
            near = some * self.reciprocal
            left = f.fma(-near, self.divisor, some)
            found = f.fma(left, self.reciprocal, near)
            return [self._signed(found, near)]

        (found,) = f.branch(all_are, corrected, lambda: [x / self.divisor])
        return found

    def _signed_zero(self, x: Value) -> Value:
        bits = self.f.bitcast(x, U32.vector(x.type.lanes))
        return self.f.bitcast(bits & _SIGN, x.type)

    def _signed(self, found: Value, near: Value) -> Value:
        """What is found with the sign of what is near, also of zeros."""
        f, bits = self.f, U32.vector(near.type.lanes)
        signed = f.bitcast(found, bits) | (f.bitcast(near, bits) & _SIGN)
        return f.bitcast(signed, near.type)
