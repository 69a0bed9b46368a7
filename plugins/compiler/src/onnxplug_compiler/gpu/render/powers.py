"""Powers of float32, and of integers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from onnxplug_compiler.gpu.render import integers, pairs
from onnxplug_compiler.gpu.render.body import KINDS, PAIRED, Body
from onnxplug_compiler.gpu.render.extremes import is_nan


def raised(body: Body, kind: str, x: Sequence[Any], elements: Sequence[str]) -> str:
    """A power; of a float by an integer, too, which float32 may not hold."""
    if kind != "f32":
        return integers.power(body, kind, *x)
    if elements[1] in PAIRED:
        odd = body.let("i1", f"({x[1].low} & 1u) != 0u")
        exponent = pairs.rounded(body, x[1], signed=elements[1] == "i64")
        return _pow(body, x[0], exponent, odd)
    of_floats = KINDS[elements[1]] == "f32"
    exponent = x[1] if of_floats else body.let("f32", body.dialect.convert("f32", x[1]))
    odd = (
        ""
        if of_floats
        else body.let("i1", f"({body.dialect.convert('u32', x[1])} & 1u) != 0u")
    )
    return _pow(body, x[0], exponent, odd)


def _pow(body: Body, base: str, exponent: str, odd: str = "") -> str:
    """By the magnitude of the base; a negative one has powers of whole numbers only.

    What drivers' own function gives of 0, of infinity and of NaN is not relied on.

    Args:
        odd: whether the exponent is, of an integer.
    """
    select = body.dialect.select
    infinity = body.number("f32", math.inf)
    size = body.let("f32", f"abs({base})")
    power = body.let("f32", body.dialect.call("pow", size, exponent))
    of_zero = select(f"{exponent} < 0.0f", infinity, "0.0f")
    power = body.let("f32", select(f"{size} == 0.0f", of_zero, power))
    # of 0 and of what is infinite there are all powers
    whole = body.let(
        "i1",
        f"floor({exponent}) == {exponent} || {size} == 0.0f || {size} > 3.4028234e38f",
    )
    if not odd:
        half = f"floor({exponent} * 0.5f)"
        odd = body.let("i1", f"({exponent} - 2.0f * {half}) == 1.0f")
    negative = f"{body.dialect.reinterpret('u32', base)} >> 31u != 0u"
    signed = body.let("f32", select(odd, f"-{power}", power))
    of_negative = select(whole, signed, body.number("f32", math.nan))
    found = body.let("f32", select(negative, of_negative, power))
    no_number = f"{is_nan(body, base)} || {is_nan(body, exponent)}"
    found = body.let("f32", select(no_number, f"{base} + {exponent}", found))
    one = (
        f"{exponent} == 0.0f || {base} == 1.0f || "
        f"({size} == 1.0f && abs({exponent}) > 3.4028234e38f)"
    )
    return select(one, "1.0f", found)
