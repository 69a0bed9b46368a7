"""Floats of 16 bits, which are stored, and computed in float32.

Conversions are done by bits where a language does not define its own: they need no
extension of it, and round to nearest even whatever a driver's own do with ties,
overflow and subnormal numbers.
"""

from __future__ import annotations

from typing import Final, Protocol

from onnxplug_compiler.gpu.render.dialect import Dialect

NARROW: Final = frozenset({"f16", "bf16"})


class Values(Protocol):
    """What gives values names."""

    @property
    def dialect(self) -> Dialect:
        """The language."""

    def let(self, kind: str, value: str) -> str:
        """Name a value."""


def widened(body: Values, element: str, bits: str) -> str:
    """The float32 that *bits*, a u32, are."""
    reinterpret, select = body.dialect.reinterpret, body.dialect.select
    bits = body.let("u32", bits)
    if element == "f16" and body.dialect.halves:
        return body.let("f32", body.dialect.call("f32_of_f16", bits))
    if element == "bf16":
        return body.let("f32", reinterpret("f32", f"({bits} << 16u)"))
    fraction = body.let("u32", f"{bits} & 0x3ffu")
    exponent = body.let("u32", f"{bits} & 0x7c00u")
    # what is infinite, or no number, has the largest exponent there, too
    bias = select(f"{exponent} == 0x7c00u", "0x70000000u", "0x38000000u")
    normal = body.let("u32", f"(({bits} & 0x7fffu) << 13u) + {bias}")
    # a subnormal number is normal in float32
    small = f"{body.dialect.convert('f32', fraction)} * 5.9604644775390625e-8f"
    small = body.let("u32", reinterpret("u32", f"({small})"))
    size = select(f"{exponent} == 0u", small, normal)
    return body.let(
        "f32", reinterpret("f32", f"({size} | (({bits} & 0x8000u) << 16u))")
    )


def bits_of(body: Values, element: str, value: str) -> str:
    """The bits, a u32, of the nearest number to *value*, a float32."""
    if element == "f16" and body.dialect.halves:
        return body.let("u32", body.dialect.call("f16_of_f32", value))
    bits, size = _parts(body, value)
    select = body.dialect.select
    if element == "bf16":
        nearest = f"({bits} + 0x7fffu + (({bits} >> 16u) & 1u)) >> 16u"
        quiet = f"({bits} >> 16u) | 0x40u"
        return body.let("u32", select(f"{size} > 0x7f800000u", quiet, nearest))
    # from 65520 on all is infinite; beyond 65536 nothing has to be told apart
    most = body.let("u32", select(f"{size} > 0x47800000u", "0x47800000u", size))
    normal = body.let(
        "u32", f"({most} + 0xfffu + (({most} >> 13u) & 1u) - 0x38000000u) >> 13u"
    )
    small = body.dialect.convert("u32", _steps(body, size))
    found = body.let("u32", select(f"{size} < 0x38800000u", small, normal))
    found = body.let("u32", select(f"{size} > 0x7f800000u", "0x7e00u", found))
    return body.let("u32", f"{found} | (({bits} >> 16u) & 0x8000u)")


def rounded(body: Values, element: str, value: str) -> str:
    """The nearest number of *element* to *value*, a float32, as a float32."""
    if element == "f16" and body.dialect.halves:
        return widened(body, element, bits_of(body, element, value))
    bits, size = _parts(body, value)
    reinterpret, select = body.dialect.reinterpret, body.dialect.select
    if element == "bf16":
        nearest = body.let(
            "u32", f"({bits} + 0x7fffu + (({bits} >> 16u) & 1u)) & 0xffff0000u"
        )
        found = select(f"{size} > 0x7f800000u", bits, nearest)
        return body.let("f32", reinterpret("f32", f"({found})"))
    normal = body.let(
        "u32", f"({size} + 0xfffu + (({size} >> 13u) & 1u)) & 0xffffe000u"
    )
    normal = body.let("u32", select(f"{normal} >= 0x47800000u", "0x7f800000u", normal))
    small = f"{_steps(body, size)} * 5.9604644775390625e-8f"
    small = body.let("u32", reinterpret("u32", f"({small})"))
    found = body.let("u32", select(f"{size} < 0x38800000u", small, normal))
    found = body.let("u32", select(f"{size} > 0x7f800000u", size, found))
    return body.let("f32", reinterpret("f32", f"({found} | ({bits} & 0x80000000u))"))


def _parts(body: Values, value: str) -> tuple[str, str]:
    """The bits of a float32, and those of its magnitude."""
    bits = body.let("u32", body.dialect.reinterpret("u32", f"({value})"))
    return bits, body.let("u32", f"{bits} & 0x7fffffffu")


def _steps(body: Values, size: str) -> str:
    """How many of float16's smallest numbers a small magnitude is, rounded."""
    # what is large is left out, as it would overflow
    few = body.dialect.select(f"{size} < 0x38800000u", size, "0u")
    number = body.dialect.reinterpret("f32", f"({few})")
    return body.let("f32", body.dialect.call("rint", f"{number} * 16777216.0f"))
