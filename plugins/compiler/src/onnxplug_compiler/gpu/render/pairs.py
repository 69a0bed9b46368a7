"""Integers of 64 bits, each two words: of registers in all languages, and of arithmetic
in those that have no wider one."""

from __future__ import annotations

from typing import Final

from onnxplug_compiler.gpu.render.body import KINDS, Body, Pair

_SIGNS: Final = {
    "Less": ("<", False),
    "LessOrEqual": ("<", True),
    "Greater": (">", False),
    "GreaterOrEqual": (">", True),
}


def constant(body: Body, value: int) -> Pair:
    """A literal."""
    low, high = value & 0xFFFF_FFFF, value >> 32 & 0xFFFF_FFFF
    return Pair(body.number("u32", low), body.number("u32", high))


def compare(body: Body, operator: str, a: Pair, b: Pair, *, signed: bool) -> str:
    """The result of a comparison."""
    if operator == "Equal":
        return equal(body, a, b)
    return body.let("i1", compared(body, *_SIGNS[operator], a, b, signed=signed))


def equal(body: Body, a: Pair, b: Pair) -> str:
    """Whether they are the same."""
    return body.let("i1", f"{a.low} == {b.low} && {a.high} == {b.high}")


def extreme(body: Body, sign: str, a: Pair, b: Pair, *, signed: bool) -> Pair:
    """The larger one for ``>``, the smaller one for ``<``."""
    first = body.let("i1", compared(body, sign, False, a, b, signed=signed))
    return chosen(body, first, a, b)


def widened(body: Body, x: str, source: str) -> Pair:
    """An integer, or a bool, of fewer bits."""
    dialect = body.dialect
    if source == "i1":
        return Pair(body.let("u32", dialect.select(x, "1u", "0u")), "0u")
    if KINDS[source] == "u32":
        return Pair(x, "0u")
    low = body.let("u32", dialect.reinterpret("u32", x))
    sign = dialect.reinterpret("u32", f"({x} >> 31u)")
    return Pair(low, body.let("u32", sign))


def narrowed(body: Body, x: Pair, source: str, target: str) -> tuple[str, str]:
    """What is left of an i64 or u64, and the element that this is of."""
    if target == "i1":
        return body.let("i1", f"({x.low} | {x.high}) != 0u"), "i1"
    if KINDS[target] == "f32":
        return rounded(body, x, signed=source == "i64"), "f32"
    return x.low, "u32"


def rounded(body: Body, x: Pair, *, signed: bool = True) -> str:
    """The nearest float32: of the magnitude the first 32 bits that are not 0, of
    which the last says whether others follow."""
    dialect = body.dialect
    if dialect.wide:
        whole = body.joined(x, "i64" if signed else "u64")
        return body.let("f32", dialect.convert("f32", whole))
    sign = f"({x.high} >> 31u) != 0u" if signed else "false"
    negative = body.let("i1", sign)
    minus = difference(body, constant(body, 0), x)
    size = chosen(body, negative, minus, x)
    zeros = body.let(
        "u32",
        dialect.select(
            f"{size.high} != 0u",
            dialect.call("clz", size.high),
            f"32u + {dialect.call('clz', size.low)}",
        ),
    )
    # no shift by as many bits as there are
    part = body.let("u32", f"{zeros} & 31u")
    rest = dialect.select(
        f"{part} == 0u", "0u", f"{size.low} >> ((32u - {part}) & 31u)"
    )
    wide = body.let("u32", f"({size.high} << {part}) | {rest}")
    behind = body.let("u32", f"{size.low} << {part}")
    is_small = f"{zeros} >= 32u"
    first = body.let("u32", dialect.select(is_small, behind, wide))
    others = dialect.select(is_small, "0u", behind)
    sticky = dialect.select(f"({others}) != 0u", "1u", "0u")
    found = body.let("f32", dialect.convert("f32", f"({first} | {sticky})"))
    # a power of two by its exponent; of 0 nothing is left to scale
    power = dialect.reinterpret("f32", f"((159u - {zeros}) << 23u)")
    scaled = body.let("f32", f"{found} * {power}")
    return body.let("f32", dialect.select(negative, f"-{scaled}", scaled))


def chosen(body: Body, condition: str, yes: Pair, no: Pair) -> Pair:
    """One of two."""
    select = body.dialect.select
    return Pair(
        body.let("u32", select(condition, yes.low, no.low)),
        body.let("u32", select(condition, yes.high, no.high)),
    )


def compared(
    body: Body, sign: str, or_equal: bool, a: Pair, b: Pair, *, signed: bool
) -> str:
    """A comparison, as an expression."""
    equal = "=" if or_equal else ""
    if body.dialect.wide:
        kind = "i64" if signed else "u64"
        return f"{body.joined(a, kind)} {sign}{equal} {body.joined(b, kind)}"
    first, second = a.high, b.high
    if signed:
        first, second = (
            body.dialect.reinterpret("i32", each) for each in (first, second)
        )
    high = f"{first} {sign} {second}"
    return f"({high}) || ({first} == {second} && {a.low} {sign}{equal} {b.low})"


def _by(body: Body, sign: str, a: Pair, b: Pair) -> Pair:
    """An operator of a language that has such integers."""
    return body.split(f"{body.joined(a)} {sign} {body.joined(b)}")


def total(body: Body, a: Pair, b: Pair) -> Pair:
    """Their sum, which wraps."""
    if body.dialect.wide:
        return _by(body, "+", a, b)
    low = body.let("u32", f"{a.low} + {b.low}")
    carry = body.dialect.select(f"{low} < {a.low}", "1u", "0u")
    return Pair(low, body.let("u32", f"{a.high} + {b.high} + {carry}"))


def difference(body: Body, a: Pair, b: Pair) -> Pair:
    """Their difference, which wraps."""
    if body.dialect.wide:
        return _by(body, "-", a, b)
    low = body.let("u32", f"{a.low} - {b.low}")
    borrow = body.dialect.select(f"{a.low} < {b.low}", "1u", "0u")
    return Pair(low, body.let("u32", f"{a.high} - {b.high} - {borrow}"))


def product(body: Body, a: Pair, b: Pair) -> Pair:
    """Their product, which wraps: by halves of words, as in Knuth's algorithm M."""
    if body.dialect.wide:
        return _by(body, "*", a, b)
    halves = [
        [body.let("u32", f"{each} & 0xffffu"), body.let("u32", f"{each} >> 16u")]
        for each in (a.low, b.low)
    ]
    (a0, a1), (b0, b1) = halves
    low = body.let("u32", f"{a0} * {b0}")
    first, second = body.let("u32", f"{a1} * {b0}"), body.let("u32", f"{a0} * {b1}")
    middle = body.let(
        "u32", f"({low} >> 16u) + ({first} & 0xffffu) + ({second} & 0xffffu)"
    )
    carried = f"({first} >> 16u) + ({second} >> 16u) + ({middle} >> 16u)"
    across = f"{a.low} * {b.high} + {a.high} * {b.low}"
    return Pair(
        body.let("u32", f"({low} & 0xffffu) | ({middle} << 16u)"),
        body.let("u32", f"{a1} * {b1} + {carried} + {across}"),
    )
