"""Sines of any angle: what drivers compute is right near 0 only."""

from __future__ import annotations

import itertools
import math
from typing import Final

from onnxplug_compiler.gpu.render import pairs
from onnxplug_compiler.gpu.render.body import Body, Pair

_TWO_BY_PI: Final = (
    0xA2F9836E_4E441529_FC2757D1_F534DDC0_DB629599_3C439041_FE5163AB_DEBBC561
)
"""2/π: the first 256 bits behind the point."""

_NEAR: Final = 1024.0
"""Angles above which a multiple of a quarter turn is not exact enough in float32."""

_QUARTER: Final = (1.5703125, 4.837512969970703e-4, 7.549789948768648e-8)
"""π/2 as a sum of numbers of so few bits that multiples of the first two are exact
(Cody and Waite, 1980)."""


def sine(body: Body, x: str, quarters: int = 0) -> str:
    """The sine of *x* and so many quarters of a turn."""
    rest, quadrant = _reduced(body, x)
    even, odd = _both(body, rest)
    quadrant = body.let("i32", f"{quadrant} + {quarters}")
    select = body.dialect.select
    found = body.let("f32", select(f"({quadrant} & 1) != 0", even, odd))
    found = body.let("f32", select(f"({quadrant} & 2) != 0", f"-{found}", found))
    return _of_numbers(body, x, found)


def tangent(body: Body, x: str) -> str:
    """The tangent of *x*."""
    rest, quadrant = _reduced(body, x)
    even, odd = _both(body, rest)
    turned = body.dialect.select(
        f"({quadrant} & 1) != 0", f"-{even} / {odd}", f"{odd} / {even}"
    )
    return _of_numbers(body, x, turned)


def _both(body: Body, rest: str) -> tuple[str, str]:
    """The cosine and the sine of at most an eighth of a turn, by Taylor's series."""
    square = body.let("f32", f"{rest} * {rest}")
    cosine, sine = (
        [(-1) ** n / math.factorial(2 * n + first) for n in range(6)]
        for first in (0, 1)
    )
    even = body.polynomial(square, cosine)
    return even, body.let("f32", f"{rest} * {body.polynomial(square, sine)}")


def _of_numbers(body: Body, x: str, found: str) -> str:
    """What was found; of what is infinite, or no number, there is nothing."""
    is_number = f"abs({x}) <= {body.number('f32', 3.4028234663852886e38)}"
    nothing = body.number("f32", math.nan)
    return body.let("f32", body.dialect.select(is_number, found, nothing))


def _reduced(body: Body, x: str) -> tuple[str, str]:
    """What is left of *x* when quarters of a turn are taken away, and how many are."""
    turns = body.let(
        "f32", body.dialect.call("rint", f"{x} * {body.number('f32', 2 / math.pi)}")
    )
    rest = x
    for part in _QUARTER:
        rest = body.let("f32", f"{rest} - {turns} * {body.number('f32', part)}")
    found, count = body.var("f32", rest), body.var("i32", "0")
    is_near = f"abs({x}) < {body.number('f32', _NEAR)}"
    with body.when(is_near):
        body.assign(count, body.dialect.convert("i32", turns))
    with body.when(f"!({is_near})"):
        far, quadrant = _reduced_far(body, x)
        body.assign(found, far)
        body.assign(count, quadrant)
    return found, count


def _reduced_far(body: Body, x: str) -> tuple[str, str]:
    """The same of a large angle, by those bits of 2/π that matter (Payne and Hanek,
    1983): of the product with its whole mantissa the lowest two before the point, and
    62 behind it."""
    dialect = body.dialect
    bits = body.let("u32", dialect.reinterpret("u32", x))
    mantissa = body.let("u32", f"({bits} & 0x7fffffu) | 0x800000u")
    # of 2/π those bits whose products with the mantissa weigh from 2 to 2 ** -94; what
    # weighs more makes whole turns
    shift = body.let("u32", f"312u - (({bits} >> 23u) & 0xffu)")
    first, second, third = _window(body, shift)
    product = pairs.product(body, Pair(mantissa, "0u"), Pair(second, "0u"))
    behind = pairs.product(body, Pair(mantissa, "0u"), Pair(third, "0u"))
    product = pairs.total(body, product, Pair(behind.high, "0u"))
    high = body.let("u32", f"{product.high} + {mantissa} * {first}")
    quadrant = body.let("u32", f"{high} >> 30u")
    # the nearest quarter: above a half of one the rest is negative
    above = body.let("u32", f"({high} >> 29u) & 1u")
    signed = body.let("u32", f"({high} & 0x3fffffffu) - ({above} << 30u)")
    rest = pairs.rounded(body, Pair(product.low, signed))
    scale = body.number("f32", math.pi / 2 / 2**62)
    found = body.let("f32", f"{rest} * {scale}")
    count = body.let("i32", dialect.convert("i32", f"{quadrant} + {above}"))
    negative = body.let("i1", f"({bits} >> 31u) != 0u")
    return (
        body.let("f32", dialect.select(negative, f"-{found}", found)),
        body.let("i32", dialect.select(negative, f"-{count}", count)),
    )


def _window(body: Body, shift: str) -> list[str]:
    """Three words of 2/π, the last of which ends *shift* bits before its end: from 58
    to 175, for numbers from 1024 on."""
    word = body.let("u32", f"{shift} >> 5u")
    part = body.let("u32", f"{shift} & 31u")
    found = []
    for ahead in range(4):
        chosen = "0u"
        for number in range(1, 6):
            content = _TWO_BY_PI >> 32 * (number + ahead) & 0xFFFF_FFFF
            is_it = f"{word} == {number}u"
            chosen = body.dialect.select(is_it, f"{content}u", chosen)
        found.append(body.let("u32", chosen))
    # no shift by as many bits as there are
    return [
        body.let("u32", f"({low} >> {part}) | (({high} << 1u) << (31u - {part}))")
        for low, high in reversed(list(itertools.pairwise(found)))
    ]
