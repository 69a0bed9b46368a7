"""What of integers of two words is more than sums and products: quotients, powers,
bits, and what becomes of float32."""

from __future__ import annotations

from onnxplug_compiler.gpu.render import pairs
from onnxplug_compiler.gpu.render.body import Body, Pair

_BITS = {"BitwiseAnd": "&", "BitwiseOr": "|", "BitwiseXor": "^"}


def variable(body: Body, value: Pair) -> Pair:
    """Two variables with that value."""
    return Pair(body.var("u32", value.low), body.var("u32", value.high))


def assign(body: Body, target: Pair, value: Pair) -> None:
    """Give two variables another value, which may be made of them."""
    # both are read before one is written
    low, high = body.let("u32", value.low), body.let("u32", value.high)
    body.assign(target.low, low)
    body.assign(target.high, high)


def joined(body: Body, operator: str, a: Pair, b: Pair) -> Pair:
    """An operator on bits."""
    sign = _BITS[operator]
    return Pair(
        body.let("u32", f"{a.low} {sign} {b.low}"),
        body.let("u32", f"{a.high} {sign} {b.high}"),
    )


def inverted(body: Body, x: Pair) -> Pair:
    """All bits the other way."""
    return Pair(body.let("u32", f"~{x.low}"), body.let("u32", f"~{x.high}"))


def is_zero(body: Body, x: Pair) -> str:
    """Whether it is 0."""
    return body.let("i1", f"({x.low} | {x.high}) == 0u")


def is_negative(body: Body, x: Pair) -> str:
    """Whether it is negative, if it has a sign."""
    return body.let("i1", f"({x.high} >> 31u) != 0u")


def negated(body: Body, x: Pair) -> Pair:
    """Minus *x*, wrapped."""
    return pairs.difference(body, pairs.constant(body, 0), x)


def magnitude(body: Body, x: Pair) -> Pair:
    """Of one with a sign."""
    return pairs.chosen(body, is_negative(body, x), negated(body, x), x)


def sign(body: Body, x: Pair, *, signed: bool) -> Pair:
    """-1, 0 or 1."""
    one, zero = pairs.constant(body, 1), pairs.constant(body, 0)
    found = pairs.chosen(body, is_zero(body, x), zero, one)
    if not signed:
        return found
    return pairs.chosen(body, is_negative(body, x), pairs.constant(body, -1), found)


def divided(body: Body, x: Pair, by: Pair) -> tuple[Pair, Pair]:
    """The quotient and the rest of numbers without signs, bit by bit in languages that
    have none; of 0 as divisor both are of no use."""
    if body.dialect.wide:
        one = pairs.constant(body, 1)
        divisor = body.joined(pairs.chosen(body, is_zero(body, by), one, by))
        whole = body.joined(x)
        return body.split(f"{whole} / {divisor}"), body.split(f"{whole} % {divisor}")
    quotient = variable(body, pairs.constant(body, 0))
    rest = variable(body, pairs.constant(body, 0))
    left = variable(body, x)
    with body.loop("64u"):
        # the next bit joins the rest, of which one may leave at the other end
        over = body.let("u32", f"{rest.high} >> 31u")
        longer = Pair(
            f"({rest.low} << 1u) | ({left.high} >> 31u)",
            f"({rest.high} << 1u) | ({rest.low} >> 31u)",
        )
        assign(body, rest, longer)
        assign(body, left, _twice(left))
        less = body.let("i1", pairs.compared(body, "<", False, rest, by, signed=False))
        takes = body.let("i1", f"{over} != 0u || !{less}")
        fewer = pairs.difference(body, rest, by)
        assign(body, rest, pairs.chosen(body, takes, fewer, rest))
        bit = body.let("u32", body.dialect.select(takes, "1u", "0u"))
        twice = _twice(quotient)
        assign(body, quotient, Pair(f"({twice.low}) | {bit}", twice.high))
    return quotient, rest


def _twice(x: Pair) -> Pair:
    return Pair(f"{x.low} << 1u", f"({x.high} << 1u) | ({x.low} >> 31u)")


def quotient(body: Body, x: Pair, by: Pair, *, signed: bool) -> Pair:
    """Towards 0; 0 if the divisor is."""
    zero = pairs.constant(body, 0)
    if not signed:
        found, _ = divided(body, x, by)
        return pairs.chosen(body, is_zero(body, by), zero, found)
    found, _ = divided(body, magnitude(body, x), magnitude(body, by))
    apart = body.let("i1", f"{is_negative(body, x)} != {is_negative(body, by)}")
    found = pairs.chosen(body, apart, negated(body, found), found)
    return pairs.chosen(body, is_zero(body, by), zero, found)


def rest(body: Body, x: Pair, by: Pair, *, signed: bool, of_dividend: bool) -> Pair:
    """What a division leaves; 0 if the divisor is.

    Args:
        of_dividend: it has the dividend's sign, not the divisor's.
    """
    zero = pairs.constant(body, 0)
    if not signed:
        _, found = divided(body, x, by)
        return pairs.chosen(body, is_zero(body, by), zero, found)
    _, found = divided(body, magnitude(body, x), magnitude(body, by))
    below = is_negative(body, x)
    found = pairs.chosen(body, below, negated(body, found), found)
    if not of_dividend:
        apart = f"{below} != {is_negative(body, by)} && !{is_zero(body, found)}"
        apart = body.let("i1", apart)
        found = pairs.chosen(body, apart, pairs.total(body, found, by), found)
    return pairs.chosen(body, is_zero(body, by), zero, found)


def power(body: Body, base: Pair, exponent: Pair, *, signed: bool) -> Pair:
    """By squares, wrapped; by a negative exponent what is left of the inverse, but of
    0, which has none, 0."""
    one, zero = pairs.constant(body, 1), pairs.constant(body, 0)
    found, square = variable(body, one), variable(body, base)
    bits = variable(body, exponent)
    with body.loop("64u"):
        odd = body.let("i1", f"({bits.low} & 1u) != 0u")
        longer = pairs.product(body, found, square)
        assign(body, found, pairs.chosen(body, odd, longer, found))
        assign(body, square, pairs.product(body, square, square))
        half = Pair(f"({bits.low} >> 1u) | ({bits.high} << 31u)", f"{bits.high} >> 1u")
        assign(body, bits, half)
    if not signed:
        return found
    minus_one = pairs.constant(body, -1)
    is_odd = body.let("i1", f"({exponent.low} & 1u) != 0u")
    of_minus_one = pairs.chosen(body, is_odd, minus_one, one)
    inverse = pairs.chosen(body, pairs.equal(body, base, minus_one), of_minus_one, zero)
    inverse = pairs.chosen(body, pairs.equal(body, base, one), one, inverse)
    return pairs.chosen(body, is_negative(body, exponent), inverse, found)


def shifted(body: Body, x: Pair, by: Pair, *, left: bool, signed: bool) -> Pair:
    """By as many bits as there are or more, or by fewer than none, nothing is left, or
    copies of the sign."""
    select = body.dialect.select
    sign = select(is_negative(body, x), "0xffffffffu", "0u") if signed else "0u"
    fill = body.let("u32", "0u" if left else sign)
    first, second = (x.low, x.high) if left else (x.high, x.low)
    near, away = ("<<", ">>") if left else (">>", "<<")
    # no shift by as many bits as there are
    part = body.let("u32", f"{by.low} & 31u")
    rest = body.let("u32", f"(32u - {part}) & 31u")
    none = body.let("i1", f"{part} == 0u")
    over = select(none, "0u", f"{first} {away} {rest}")
    filled = select(none, "0u", f"{fill} {away} {rest}")
    moved = body.let("u32", f"({first} {near} {part}) | {filled}")
    joined = body.let("u32", f"({second} {near} {part}) | {over}")
    is_far = body.let("i1", f"{by.low} >= 32u")
    beyond = body.let("i1", f"{by.high} != 0u || {by.low} >= 64u")
    end = body.let("u32", select(is_far, fill, moved))
    end = body.let("u32", select(beyond, fill, end))
    start = body.let("u32", select(is_far, moved, joined))
    start = body.let("u32", select(beyond, fill, start))
    return Pair(end, start) if left else Pair(start, end)


def truncated(body: Body, x: str) -> Pair:
    """A float32 towards 0; beyond all numbers, and no number, the least one."""
    dialect = body.dialect
    bits = body.let("u32", dialect.reinterpret("u32", x))
    exponent = body.let("u32", f"({bits} >> 23u) & 0xffu")
    fraction = body.let("u32", f"({bits} & 0x7fffffu) | 0x800000u")
    # no shift by as many bits as there are
    right = body.let("u32", f"(150u - {exponent}) & 31u")
    small = dialect.select(f"{exponent} < 127u", "0u", f"{fraction} >> {right}")
    left = body.let("u32", f"{exponent} - 150u")
    part = body.let("u32", f"{left} & 31u")
    over = dialect.select(
        f"{part} == 0u", "0u", f"{fraction} >> ((32u - {part}) & 31u)"
    )
    shifted = body.let("u32", f"{fraction} << {part}")
    is_far = f"{left} >= 32u"
    far = Pair(
        dialect.select(is_far, "0u", shifted), dialect.select(is_far, shifted, over)
    )
    is_small = body.let("i1", f"{exponent} <= 150u")
    found = pairs.chosen(body, is_small, Pair(small, "0u"), far)
    negative = body.let("i1", f"({bits} >> 31u) != 0u")
    found = pairs.chosen(body, negative, negated(body, found), found)
    least = pairs.constant(body, -(2**63))
    most = body.dialect.select(negative, "190u", "191u")
    return pairs.chosen(body, f"{exponent} >= {most}", least, found)
