"""The inverse hyperbolic functions, by a logarithm of 1 + x."""

from __future__ import annotations

import math
from collections.abc import Callable

from onnxplug_cpu.compiler.codegen.emit import Function, Value
from onnxplug_cpu.compiler.codegen.math.primitives import absolute, sign_of, with_sign
from onnxplug_cpu.compiler.machine.isa import Isa


class InverseHyperbolic:
    """Those of one element type.

    Args:
        log1p: log(1 + x), for x >= 0 or NaN.
        large: from here on x and x + 1, and x and the root of x² - 1, have logarithms
            that are one.
    """

    def __init__(
        self, log1p: Callable[[Function, Isa, Value], Value], large: float
    ) -> None:
        self._log1p = log1p
        self._large = large

    def asinh(self, f: Function, isa: Isa, x: Value) -> Value:
        """The inverse hyperbolic sine within 3 ulp."""
        size = absolute(f, x)
        square = size * size
        root = f.unary("sqrt", square + 1.0)
        term = size + square / (root + 1.0)
        return with_sign(f, self._log1p_or_twice(f, isa, size, term), sign_of(f, x))

    def acosh(self, f: Function, isa: Isa, x: Value) -> Value:
        """The inverse hyperbolic cosine within 3 ulp; NaN below 1."""
        less = x - 1.0
        term = less + f.unary("sqrt", less * (less + 2.0))
        result = self._log1p_or_twice(f, isa, x, term)
        return f.select(x < 1.0, f.value(math.nan, x.type), result)

    def atanh(self, f: Function, isa: Isa, x: Value) -> Value:
        """The inverse hyperbolic tangent within 3 ulp; NaN beyond 1."""
        size = absolute(f, x)
        ratio = (size + size) / (1.0 - size)
        half = self._log1p(f, isa, ratio) * 0.5
        beyond = f.value(math.nan, x.type)
        return with_sign(f, f.select(size > 1.0, beyond, half), sign_of(f, x))

    def _log1p_or_twice(self, f: Function, isa: Isa, x: Value, term: Value) -> Value:
        """log(1 + term), or log(2 x) for a large x, which that is there."""
        large = x > self._large
        result = self._log1p(f, isa, f.select(large, x - 1.0, term))
        return result + f.select(large, f.value(math.log(2), x.type), 0)
