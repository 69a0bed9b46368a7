"""Floats of 8 and 4 bits, which are stored, and are float32 in registers.

They are those of the OCP's OFP8 and Microscaling formats, and the ``fnuz`` ones of
B. Noune et al., "8-bit Numerical Formats for Deep Neural Networks" (2022),
arXiv:2206.02915.  Conversions are done by bits, and round to nearest even.
"""

from __future__ import annotations

import struct
from typing import Final

from onnxplug.authoring.record import Record
from onnxplug_compiler.gpu.render.narrow import Values

POWERS: Final = "f8e8m0fnu"
"""The element that has exponents alone: neither a sign nor zero."""


class Format(Record):
    """How the bits of a float of a sign, an exponent and a fraction are meant.

    Attributes:
        fraction: bits of it.
        bias: of exponents.
        most: the code of the largest finite number.
        beyond: the code, without a sign, of what is larger: infinite, no number, or the
            largest.
        nan: the code of what is no number.
        signed: zero has a sign.
    """

    fraction: int
    bias: int
    most: int
    beyond: int
    nan: int
    signed: bool = True

    @property
    def largest(self) -> float:
        """The largest finite number."""
        exponent, fraction = divmod(self.most, 1 << self.fraction)
        size = 1 + fraction / (1 << self.fraction)
        return float(size * 2.0 ** (exponent - self.bias))


_FORMATS: Final = {
    "f8e4m3fn": Format(3, 7, 0x7E, 0x7F, 0x7F),
    "f8e5m2": Format(2, 15, 0x7B, 0x7C, 0x7E),
    "f8e4m3fnuz": Format(3, 8, 0x7F, 0x80, 0x80, False),
    "f8e5m2fnuz": Format(2, 16, 0x7F, 0x80, 0x80, False),
    # without a code for what is no number, of which -0 is made
    "f4e2m1fn": Format(1, 1, 0x07, 0x07, 0x08),
}
SATURATING: Final = frozenset(_FORMATS) - {"f4e2m1fn"}
"""Elements of which a cast says whether what is too large becomes the largest."""

MINIFLOATS: Final = frozenset(_FORMATS) | {POWERS}


def widened(body: Values, element: str, bits: str) -> str:
    """The float32 that *bits*, a u32 of a byte, are."""
    if element in body.dialect.bytes_of_floats:
        return body.let("f32", body.dialect.call(f"f32_of_{element}", bits))
    return widened_by_bits(body, element, bits)


def widened_by_bits(body: Values, element: str, bits: str) -> str:
    """The same, by arithmetic on bits."""
    reinterpret, select = body.dialect.reinterpret, body.dialect.select
    bits = body.let("u32", bits)
    if element == POWERS:
        size = select(f"{bits} == 0u", "0x400000u", f"{bits} << 23u")
        size = body.let("u32", select(f"{bits} == 255u", "0x7fc00000u", size))
        return body.let("f32", reinterpret("f32", size))
    form = _FORMATS[element]
    mask, sign = (0x07, 28) if element == "f4e2m1fn" else (0x7F, 24)
    size = body.let("u32", f"{bits} & {mask}u")
    fraction, bias = form.fraction, 127 - form.bias
    normal = f"({size} << {23 - fraction}u) + {bias << 23}u"
    small = body.let(
        "f32",
        f"{body.dialect.convert('f32', size)} * {2.0 ** (1 - form.bias - fraction)!r}f",
    )
    small = reinterpret("u32", small)
    found = body.let("u32", select(f"{size} < {1 << fraction}u", small, normal))
    if form.beyond == 0x7C:  # which is infinite, and what is larger no number
        special = select(f"{size} == 0x7cu", "0x7f800000u", "0x7fc00000u")
        found = body.let("u32", select(f"{size} >= 0x7cu", special, found))
    elif form.nan == 0x7F:
        found = body.let("u32", select(f"{size} == 0x7fu", "0x7fc00000u", found))
    found = body.let("u32", f"{found} | (({bits} << {sign}u) & 0x80000000u)")
    if not form.signed:
        found = body.let("u32", select(f"{bits} == 0x80u", "0x7fc00000u", found))
    return body.let("f32", reinterpret("f32", found))


def bits_of(body: Values, element: str, value: str) -> str:
    """The bits, a u32, of the nearest number to *value*, a float32; of powers of two
    those of *value*, which is one."""
    if element in body.dialect.bytes_of_floats:
        return body.let("u32", body.dialect.call(f"{element}_of_f32", value))
    return bits_by_bits(body, element, value)


def bits_by_bits(body: Values, element: str, value: str) -> str:
    """The same, by arithmetic on bits."""
    dialect, select = body.dialect, body.dialect.select
    bits = body.let("u32", dialect.reinterpret("u32", f"({value})"))
    if element == POWERS:
        return body.let("u32", f"({bits} >> 23u) & 0xffu")
    form = _FORMATS[element]
    size = body.let("u32", f"{bits} & 0x7fffffffu")
    shift, least = 23 - form.fraction, (128 - form.bias) << 23
    # of what is far larger nothing has to be told apart
    most = body.let("u32", f"min({size}, 0x48000000u)")
    normal = (
        f"({most} + {(1 << shift - 1) - 1}u + (({most} >> {shift}u) & 1u) - "
        f"{(127 - form.bias) << 23}u) >> {shift}u"
    )
    few = body.let("f32", dialect.reinterpret("f32", f"(min({size}, {least}u))"))
    steps = f"{few} * {2.0 ** (form.bias - 1 + form.fraction)!r}f"
    small = dialect.convert("u32", dialect.call("rint", steps))
    found = body.let("u32", select(f"{size} < {least}u", small, normal))
    beyond = f"{found} > {form.most}u"
    found = body.let("u32", select(beyond, f"{form.beyond}u", found))
    sign = 28 if element == "f4e2m1fn" else 24
    signed = f"{found} | (({bits} >> {sign}u) & {1 << 31 - sign}u)"
    if form.signed:
        found = body.let("u32", signed)
    else:
        plain = f"{found} == 0u || {found} == 0x80u"
        found = body.let("u32", select(plain, found, signed))
    return body.let("u32", select(f"{size} > 0x7f800000u", f"{form.nan}u", found))


def saturated(body: Values, element: str, value: str) -> str:
    """*value*, a float32, or the largest finite number where it is beyond that."""
    dialect, select = body.dialect, body.dialect.select
    largest = struct.unpack("<I", struct.pack("<f", _FORMATS[element].largest))[0]
    bits = body.let("u32", dialect.reinterpret("u32", f"({value})"))
    size = body.let("u32", f"{bits} & 0x7fffffffu")
    near = f"{largest}u | ({bits} & 0x80000000u)"
    beyond = f"{size} > {largest}u && {size} <= 0x7f800000u"
    found = body.let("u32", select(beyond, near, bits))
    return body.let("f32", dialect.reinterpret("f32", found))


def rounded(body: Values, element: str, value: str) -> str:
    """The nearest number of *element*, but :data:`POWERS`, to *value*, a float32, as a
    float32."""
    return widened(body, element, bits_of(body, element, value))


def power_of_two(body: Values, value: str, mode: str, *, saturates: bool) -> str:
    """The power of two that a float32 becomes, or NaN.

    Args:
        mode: ``up``, ``down`` or ``nearest``, of which the middle goes up.
        saturates: what is beyond all becomes the nearest; else NaN.
    """
    dialect, select = body.dialect, body.dialect.select
    bits = body.let("u32", dialect.reinterpret("u32", f"({value})"))
    size = body.let("u32", f"{bits} & 0x7fffffffu")
    # numbers below 2**-126 have no leading one that is left out
    is_small = body.let("i1", f"{size} < 0x800000u")
    leading = body.let("u32", select(is_small, f"min({size}, 0x400000u)", "0u"))
    fraction = body.let("u32", f"({size} & 0x7fffffu) - {leading}")
    least = {
        "up": "1u",
        "down": "0xffffffffu",
        "nearest": select(is_small, "0x200000u", "0x400000u"),
    }[mode]
    more = select(f"{fraction} >= {least}", "1u", "0u")
    code = body.let("u32", f"min(({size} >> 23u) + {more}, 254u)")
    no_number = f"{size} > 0x7f800000u"
    if not saturates:
        no_number += f" || {size} < 0x400000u || {size} > 0x7f000000u"
    code = body.let("u32", select(no_number, "255u", code))
    return widened(body, POWERS, code)
