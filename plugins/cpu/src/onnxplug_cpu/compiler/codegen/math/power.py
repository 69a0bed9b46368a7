"""Powers: of f32 computed in f64 and rounded once, of f64 with longer logarithms."""

from __future__ import annotations

import math
from typing import Final

from onnxplug_cpu.compiler.codegen.emit import Function, Value
from onnxplug_cpu.compiler.codegen.math.double.power import power_of_size
from onnxplug_cpu.compiler.codegen.math.primitives import at_least, at_most, polynomial
from onnxplug_cpu.compiler.machine.isa import Isa


def power(f: Function, isa: Isa, x: Value, y: Value) -> Value:
    """x**y within 1.2 ulp, of f32 1 ulp, with the special cases of C's ``pow``.

    Args:
        y: numbers of any type.
    """
    wide = x.type.of("f64")
    size = f.unary("fabs", f.convert(x, wide))
    exponent = f.convert(y, wide)
    if x.type == wide:
        result = power_of_size(f, size, exponent)
    else:
        is_zero = size.compare("eq", 0)
        logarithm = f.select(is_zero, _infinite(f, size, -1), _log2(f, size))
        logarithm = f.select(size < math.inf, logarithm, size)
        result = _exp2_as_f32(f, exponent * logarithm)

    one = f.value(1.0, x.type)
    is_one = exponent.compare("eq", 0) | x.compare("eq", 1)
    of_infinity = f.unary("fabs", exponent).compare("eq", math.inf)
    is_one = is_one | (size.compare("eq", 1) & of_infinity)

    half = exponent * 0.5
    is_whole = f.unary("trunc", exponent).compare("eq", exponent)
    is_odd = is_whole & f.unary("trunc", half).compare("ne", half)
    sign_bit = f.bitcast(x, x.type.of(f"i{x.type.bits}")) < 0
    result = f.select(sign_bit & is_odd, -result, result)
    undefined = (x < 0) & (size < math.inf) & ~is_whole
    result = f.select(undefined, f.value(math.nan, x.type), result)
    return f.select(is_one, one, result)


def _infinite(f: Function, like: Value, sign: int) -> Value:
    return f.value(sign * math.inf, like.type)


def _log2(f: Function, x: Value) -> Value:
    """Of a positive, normal f64, to 2**-39 of itself: the series of atanh."""
    bits = f.bitcast(x, x.type.of("i64"))
    exponent = (bits - _BITS_OF_SQRT_HALF) >> 52
    m = f.bitcast(bits - (exponent << 52), x.type)
    s = (m - 1.0) / (m + 1.0)
    return f.fma(s, polynomial(f, s * s, _ATANH), f.convert(exponent, x.type))


def _exp2_as_f32(f: Function, x: Value) -> Value:
    """2**x, rounded to f32, denormal results too."""
    x = at_most(f, at_least(f, x, -160.0), 160.0)
    whole = f.unary("roundeven", x)
    fraction = polynomial(f, x - whole, _EXP2)
    # the integer conversion of a NaN is anything, but the fraction is NaN then
    bits = (f.convert_finite(whole, x.type.of("i64")) + 1023) << 52
    return f.convert(fraction * f.bitcast(bits, x.type), x.type.of("f32"))


_BITS_OF_SQRT_HALF: Final = 0x3FE6A09E667F3BCD
_ATANH: Final = tuple(2 / math.log(2) / (2 * k + 1) for k in range(8))
_EXP2: Final = tuple(math.log(2) ** k / math.factorial(k) for k in range(10))
