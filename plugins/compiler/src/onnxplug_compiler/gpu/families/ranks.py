"""The order of elements as words of 32 bits, which are compared one after another.

NaN is larger than all numbers, zeros are equal, and of equal elements the first comes
first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from onnxplug_compiler.gpu.render.body import KINDS, PAIRED, Body
from onnxplug_compiler.gpu.render.extremes import is_nan
from onnxplug_compiler.gpu.render.minifloats import MINIFLOATS

RANKED: Final = frozenset(KINDS) - MINIFLOATS - {"f64"} | PAIRED
"""The elements that have an order."""

LAST: Final = "0xffffffffu"
"""A word behind which there is none."""


def rank(
    body: Body, element: str, value: Any, *, largest: bool, nan_first: bool
) -> list[str]:
    """Words that are smaller the sooner an element is wanted.

    Args:
        nan_first: NaN comes before all numbers, not after them.
    """
    if element in PAIRED:
        high = f"{value.high} ^ 0x80000000u" if element == "i64" else value.high
        words = [high, value.low]
    elif KINDS[element] == "f32":
        words = [_of_float(body, value)]
    elif KINDS[element] == "i1":
        words = [body.dialect.select(value, "1u", "0u")]
    elif KINDS[element] == "i32":
        words = [f"{body.dialect.reinterpret('u32', value)} ^ 0x80000000u"]
    else:
        words = [value]
    if largest:
        words = [f"~({word})" for word in words]
    if KINDS.get(element) == "f32":
        nan = "0u" if nan_first else LAST
        words = [body.dialect.select(is_nan(body, value), nan, words[0])]
    return [body.let("u32", word) for word in words]


def _of_float(body: Body, value: str) -> str:
    """The bits of a float, in the order of numbers, of which neither end is one."""
    bits = body.let("u32", body.dialect.reinterpret("u32", value))
    select = body.dialect.select
    bits = body.let("u32", select(f"({bits} << 1u) == 0u", "0u", bits))
    return select(f"({bits} >> 31u) != 0u", f"~{bits}", f"{bits} | 0x80000000u")


def count_of(element: str) -> int:
    """How many words an element's rank has."""
    return 2 if element in PAIRED else 1


def before(a: Sequence[str], b: Sequence[str]) -> str:
    """Whether the words *a* come before the words *b*."""
    found = f"{a[-1]} < {b[-1]}"
    for one, other in zip(a[-2::-1], b[-2::-1], strict=True):
        found = f"({one} < {other} || ({one} == {other} && ({found})))"
    return f"({found})"
