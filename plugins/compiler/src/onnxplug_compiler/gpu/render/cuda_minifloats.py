"""Floats of 8 bits in CUDA C++, by the instructions that GPUs have for them from
compute capability 8.9 on, and elsewhere by arithmetic on bits; the bits are the same.

NVIDIA, PTX ISA, "cvt": ``satfinite`` makes the largest number of what is beyond it, and
NaN has no sign.  For 8.9 these need PTX 8.1, which CUDA 12.1 has.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from onnxplug.authoring.record import Record
from onnxplug_compiler.gpu.render.dialect import Dialect
from onnxplug_compiler.gpu.render.minifloats import bits_by_bits, widened_by_bits


class _Conversion(Record):
    """What instructions leave to be told apart.

    Attributes:
        name: of the format in PTX.
        within: bits of the largest float32 that is rounded to a finite number.
        beyond: the code of what is larger.
        nan: the code of NaN.
        largest: the code of the last one that is a number, or infinite.
    """

    name: str
    within: int
    beyond: int
    nan: int
    largest: int


_CONVERSIONS: Final = {
    "f8e4m3fn": _Conversion("e4m3", 0x43E80000, 0x7F, 0x7F, 0x7E),
    "f8e5m2": _Conversion("e5m2", 0x476FFFFF, 0x7C, 0x7E, 0x7C),
}

BY_INSTRUCTION: Final = frozenset(_CONVERSIONS)
"""The elements that there are instructions for."""

_INSTRUCTIONS: Final = (
    """\
#if defined(ONNXPLUG_ON_CPU)
#define ONNXPLUG_CONVERTS_BYTES 1
#elif __CUDA_ARCH__ >= 900
#define ONNXPLUG_CONVERTS_BYTES 1
#elif __CUDA_ARCH__ >= 890
#define ONNXPLUG_CONVERTS_BYTES \\
  (__CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ >= 1201)
#else
#define ONNXPLUG_CONVERTS_BYTES 0
#endif
#if ONNXPLUG_CONVERTS_BYTES && !defined(ONNXPLUG_ON_CPU)
"""
    + "".join(
        f"""\
__device__ inline u32 {name}_of_f32(f32 x) {{
  u16 both;
  asm("cvt.rn.satfinite.{name}x2.f32 %0, %1, %2;" : "=h"(both) : "f"(0.0f), "f"(x));
  return both & 0xffu;
}}
__device__ inline u32 f16_of_{name}(u32 bits) {{
  u32 both;
  asm("cvt.rn.f16x2.{name}x2 %0, %1;" : "=r"(both) : "h"(static_cast<u16>(bits)));
  return both & 0xffffu;
}}
"""
        for name in (conversion.name for conversion in _CONVERSIONS.values())
    )
    + "#endif"
)


class _Lines:
    """The statements of a function."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.lines: list[str] = []

    def let(self, kind: str, value: str) -> str:
        """Name a value."""
        name = f"t{len(self.lines)}"
        self.lines.append(f"  {self.dialect.constant(kind, name, value)}")
        return name


def conversions_of(lines: Sequence[str], dialect: Dialect) -> list[str]:
    """The functions that statements of a kernel call, and what these need."""
    text = "\n".join(lines)
    found = [
        function
        for element, conversion in _CONVERSIONS.items()
        if re.search(rf"\b({element}_of_f32|f32_of_{element})\(", text)
        for function in (
            _narrowing(element, conversion, dialect),
            _widening(element, conversion, dialect),
        )
    ]
    return [_INSTRUCTIONS, *found] if found else []


def _narrowing(element: str, conversion: _Conversion, dialect: Dialect) -> str:
    body = _Lines(dialect)
    found = bits_by_bits(body, element, "x")
    name, within, beyond, nan, _ = conversion
    return "\n".join(
        [
            f"__device__ inline u32 {element}_of_f32(f32 x) {{",
            "#if ONNXPLUG_CONVERTS_BYTES",
            "  const u32 bits = bits_of(x), size = bits & 0x7fffffffu;",
            "  const u32 sign = bits >> 24u & 0x80u;",
            f"  const u32 near = {name}_of_f32(x);",
            f"  const u32 found = size > {within}u ? {beyond}u | sign : near;",
            f"  return size > 0x7f800000u ? {nan}u : found;",
            "#else",
            *body.lines,
            f"  return {found};",
            "#endif",
            "}",
        ]
    )


def _widening(element: str, conversion: _Conversion, dialect: Dialect) -> str:
    body = _Lines(dialect)
    found = widened_by_bits(body, element, "byte")
    return "\n".join(
        [
            f"__device__ inline f32 f32_of_{element}(u32 byte) {{",
            "#if ONNXPLUG_CONVERTS_BYTES",
            "  const u32 nan = 0x7fc00000u | (byte << 24u & 0x80000000u);",
            f"  const f32 found = f32_of_f16(f16_of_{conversion.name}(byte));",
            f"  return (byte & 0x7fu) > {conversion.largest}u ? as_f32(nan) : found;",
            "#else",
            *body.lines,
            f"  return {found};",
            "#endif",
            "}",
        ]
    )
