"""What the vector functions share: polynomials, signs, limits, powers of two; the last
of f32."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from onnxplug_cpu.compiler.codegen.emit import I16, I32, Function, Number, Value
from onnxplug_cpu.compiler.machine.isa import LANES, Isa


def polynomial(f: Function, x: Value, coefficients: Sequence[Number | Value]) -> Value:
    """Horner's rule; the constant coefficient comes first."""
    result = f.value(coefficients[-1], x.type)
    for coefficient in reversed(coefficients[:-1]):
        result = f.fma(result, x, coefficient)
    return result


def absolute(f: Function, x: Value) -> Value:
    """*x* without its sign."""
    return f.unary("fabs", x)


def sign_of(f: Function, x: Value) -> Value:
    """The sign's bit as an integer."""
    bits = x.type.bits
    return f.bitcast(x, x.type.of(f"i{bits}")) & -(1 << bits - 1)


def with_sign(f: Function, x: Value, sign: Value) -> Value:
    """*x*, which is not negative, with a sign of :func:`sign_of`."""
    return f.bitcast(f.bitcast(x, sign.type) | sign, x.type)


def at_most(f: Function, x: Value, limit: Number) -> Value:
    """The smaller of *x* and *limit*, in one instruction; NaN stays NaN."""
    bound = f.value(limit, x.type)
    return f.select(bound < x, bound, x)


def at_least(f: Function, x: Value, limit: Number) -> Value:
    """The larger of *x* and *limit*, in one instruction; NaN stays NaN."""
    bound = f.value(limit, x.type)
    return f.select(bound > x, bound, x)


def power_of_two(f: Function, n: Value) -> Value:
    """2**n for an i32 *n* from -126 to 127."""
    return f.bitcast((n + 127) << 23, n.type.of("f32"))


def scaled(f: Function, isa: Isa, x: Value, n: Value) -> Value:
    """``x * 2**n``, rounded once, for a whole f32 *n* from -250 to 250.

    *x* is from 1/2 to 2, or NaN; then *n* may be anything.
    """
    if isa.name == "avx512":
        return by_registers(
            f,
            lambda x, n: f.intrinsic(
                x.type,
                "llvm.x86.avx512.mask.scalef.ps.512",
                x,
                n,
                f.zero(x.type),
                f.value(-1, I16),
                f.value(CURRENT_DIRECTION, I32),
            ),
            x,
            n,
        )
    # in two steps, as 2**n may be no normal number; only the second one can round
    whole = f.convert_finite(n, x.type.of("i32"))
    half = whole >> 1
    return x * power_of_two(f, half) * power_of_two(f, whole - half)


def reciprocal(f: Function, isa: Isa, x: Value) -> Value:
    """1/x within 1 ulp, for finite *x* from 2**-100 to 2**100 and their negatives."""
    if isa.name != "avx512":
        return 1.0 / x
    estimate = by_registers(
        f,
        lambda x: f.intrinsic(
            x.type,
            "llvm.x86.avx512.rcp14.ps.512",
            x,
            f.zero(x.type),
            f.value(-1, I16),
        ),
        x,
    )
    # one step of Newton's takes the error from 2**-14 to 2**-28
    error = f.fma(-x, estimate, 1.0)
    return f.fma(estimate, error, estimate)


CURRENT_DIRECTION: Final = 4
"""Rounding as the control register says, for AVX-512's intrinsics."""


def by_registers(
    f: Function, instruction: Callable[..., Value], *operands: Value
) -> Value:
    """An instruction for vectors of 16 lanes, on each part of longer ones."""
    lanes = operands[0].type.lanes
    if lanes == LANES:
        return instruction(*operands)
    parts = []
    for start in range(0, lanes, LANES):
        taken = range(start, start + LANES)
        parts.append(instruction(*(f.shuffle(o, o, taken) for o in operands)))
    while len(parts) > 1:
        joined = range(2 * parts[0].type.lanes)
        parts = [
            f.shuffle(low, high, joined)
            for low, high in zip(parts[::2], parts[1::2], strict=True)
        ]
    return parts[0]
