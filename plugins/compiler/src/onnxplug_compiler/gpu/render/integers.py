"""Arithmetic of integers of up to 32 bits in which languages differ.

Of a divisor of 0 the quotient and the rest are 0, as on the CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onnxplug_compiler.gpu.render.body import Body


def _by(body: Body, kind: str, divisor: str) -> tuple[str, str]:
    """Whether a divisor is 0, and one that is not."""
    zero, one = body.number(kind, 0), body.number(kind, 1)
    is_zero = body.let("i1", f"{divisor} == {zero}")
    return is_zero, body.let(kind, body.dialect.select(is_zero, one, divisor))


def quotient(body: Body, kind: str, x: Sequence[str]) -> str:
    """Towards 0."""
    is_zero, divisor = _by(body, kind, x[1])
    found = f"{x[0]} / {divisor}"
    return body.dialect.select(is_zero, body.number(kind, 0), found)


def rest(body: Body, kind: str, x: Sequence[str], *, of_dividend: bool) -> str:
    """What a division leaves.

    Args:
        of_dividend: it has the dividend's sign, not the divisor's.
    """
    zero = body.number(kind, 0)
    is_zero, divisor = _by(body, kind, x[1])
    # of negative numbers Vulkan leaves a rest undefined, but no quotient
    found = f"{x[0]} - {x[0]} / {divisor} * {divisor}"
    found = body.let(kind, body.dialect.select(is_zero, zero, found))
    if of_dividend or kind == "u32":
        return found
    apart = f"({found} != {zero}) && (({found} < {zero}) != ({divisor} < {zero}))"
    return body.dialect.select(apart, f"{found} + {divisor}", found)


def shifted(body: Body, kind: str, x: Sequence[str], *, left: bool) -> str:
    """By as many bits as there are or more, or by fewer than none, nothing is left, or
    copies of the sign."""
    amount = body.let("u32", body.dialect.reinterpret("u32", x[1]))
    if kind == "i32" and not left:
        return f"{x[0]} >> min({amount}, 31u)"
    found = f"{x[0]} {'<<' if left else '>>'} ({amount} & 31u)"
    return body.dialect.select(f"{amount} < 32u", found, body.number(kind, 0))


def power(body: Body, kind: str, base: str, exponent: Any) -> str:
    """By squares, wrapped; by a negative exponent what is left of the inverse, but of
    0, which has none, 0.

    Args:
        exponent: of the same kind.
    """
    one, zero = body.number(kind, 1), body.number(kind, 0)
    found, square = body.var(kind, one), body.var(kind, base)
    bits = body.var("u32", body.dialect.convert("u32", exponent))
    with body.loop("32u"):
        odd = f"({bits} & 1u) != 0u"
        body.assign(found, body.dialect.select(odd, f"{found} * {square}", found))
        body.assign(square, f"{square} * {square}")
        body.assign(bits, f"{bits} >> 1u")
    if kind == "u32":
        return found
    is_odd = f"({exponent} & 1) != 0"
    of_minus_one = body.let(kind, body.dialect.select(is_odd, base, one))
    is_minus_one = f"{base} == {body.number(kind, -1)}"
    inverse = body.dialect.select(is_minus_one, of_minus_one, zero)
    inverse = body.dialect.select(f"{base} == {one}", one, inverse)
    return body.dialect.select(f"{exponent} < {zero}", inverse, found)
