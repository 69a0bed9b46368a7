"""What divisions of floats leave, exactly: by whole numbers, as quotients may have more
digits than a float."""

from __future__ import annotations

import math
from collections.abc import Sequence

from onnxplug_compiler.gpu.render.body import Body

_INFINITE = "0x7f800000u"


def remainder(body: Body, x: Sequence[str], *, of_dividend: bool) -> str:
    """What *x[0]* leaves when it is divided by *x[1]*.

    Args:
        of_dividend: it has the dividend's sign, as C's ``fmod``; else the divisor's.
    """
    dialect, select = body.dialect, body.dialect.select
    bits, other = (body.let("u32", dialect.reinterpret("u32", each)) for each in x)
    size, by = (body.let("u32", f"{each} & 0x7fffffffu") for each in (bits, other))
    rest = _rest(body, size, by)
    defined = f"{size} < {_INFINITE} && {by} <= {_INFINITE} && {by} != 0u"
    is_divided = f"{size} >= {by}"
    rest = body.let("u32", select(is_divided, rest, size))
    signed = dialect.reinterpret("f32", f"({rest} | ({bits} & 0x80000000u))")
    found = body.let("f32", signed)
    if not of_dividend:
        differs = f"(({bits} ^ {other}) & 0x80000000u) != 0u"
        zero = dialect.reinterpret("f32", f"({other} & 0x80000000u)")
        turned = select(differs, f"{found} + {x[1]}", found)
        found = body.let("f32", select(f"{rest} == 0u", zero, turned))
    return select(defined, found, body.number("f32", math.nan))


def _rest(body: Body, size: str, by: str) -> str:
    """The bits of what is left of a magnitude that is no smaller than another one."""
    dialect, select = body.dialect, body.dialect.select
    exponents, digits = [], []
    for each in (size, by):
        exponent = body.let("u32", f"{each} >> 23u")
        fraction = f"{each} & 0x7fffffu"
        whole = select(f"{exponent} == 0u", fraction, f"({fraction}) | 0x800000u")
        exponents.append(body.let("u32", f"max({exponent}, 1u)"))
        digits.append(body.let("u32", whole))
    divisor = body.let("u32", f"max({digits[1]}, 1u)")
    apart = f"max({exponents[0]}, {exponents[1]}) - {exponents[1]}"
    left = body.var("u32", apart)
    rest = body.var("u32", f"{digits[0]} % {divisor}")
    # some digits at a time, as many as a word has behind those of a float
    times = body.let("u32", f"({left} + 7u) / 8u")
    with body.loop(times):
        some = body.let("u32", f"min({left}, 8u)")
        body.assign(rest, f"({rest} << {some}) % {divisor}")
        body.assign(left, f"{left} - {some}")
    zeros = body.let("u32", f"max({dialect.call('clz', rest)}, 8u) - 8u")
    shift = body.let("u32", f"min({zeros}, {exponents[1]} - 1u)")
    moved = body.let("u32", f"{rest} << ({shift} & 31u)")
    exponent = f"({exponents[1]} - {shift}) << 23u"
    is_normal = f"({moved} & 0x800000u) != 0u"
    found = select(is_normal, f"({moved} & 0x7fffffu) | ({exponent})", moved)
    return body.let("u32", found)
