"""Which of two numbers is larger, and whether floats are numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onnxplug_compiler.gpu.render.body import Body


def is_nan(body: Body, x: str, kind: str = "f32") -> str:
    """Whether a float is no number, by its bits: compilers may take it for granted
    that all are numbers."""
    if kind == "f64":
        bits = body.dialect.reinterpret("u64", x)
        return f"(({bits} << 1u) > 0xffe0000000000000ull)"
    bits = body.dialect.reinterpret("u32", x)
    return f"(({bits} & 0x7fffffffu) > 0x7f800000u)"


def is_finite(body: Body, x: str) -> str:
    """Whether a float is neither infinite nor no number, by its bits."""
    bits = body.dialect.reinterpret("u32", x)
    return f"(({bits} & 0x7f800000u) != 0x7f800000u)"


def is_least(body: Body, x: str, kind: str = "f32") -> str:
    """Whether a float is minus infinity, by its bits."""
    if kind == "f64":
        return f"{body.dialect.reinterpret('u64', x)} == 0xfff0000000000000ull"
    return f"{body.dialect.reinterpret('u32', x)} == 0xff800000u"


def largest(body: Body, kind: str, a: str, b: str) -> str:
    """The larger one; NaN if one is."""
    return _extreme(body, kind, a, b, ">")


def smallest(body: Body, kind: str, a: str, b: str) -> str:
    """The smaller one; NaN if one is."""
    return _extreme(body, kind, a, b, "<")


def _extreme(body: Body, kind: str, a: str, b: str, sign: str) -> str:
    takes_first = f"({a} {sign} {b})"
    if kind in ("f32", "f64"):
        takes_first = f"({takes_first} || {is_nan(body, a, kind)})"
    return body.dialect.select(takes_first, a, b)


def is_infinite(body: Body, x: str, attributes: Mapping[str, Any], kind: str) -> str:
    word = "u32" if kind == "f32" else "u64"
    most = "f800000u" if kind == "f32" else "ff0000000000000ull"
    bits = body.let(word, body.dialect.reinterpret(word, x))
    found = []
    if attributes.get("detect_positive", 1):
        found.append(f"{bits} == 0x7{most}")
    if attributes.get("detect_negative", 1):
        found.append(f"{bits} == 0xf{most}")
    return " || ".join(found) or "false"
