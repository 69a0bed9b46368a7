"""Casts between any two of ONNX's element types, strings included."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any, Final

import numpy as np

from onnxplug.authoring.arrays import is_extension
from onnxplug.ep import DataType
from onnxplug_kernels.arrays import element_dtype
from onnxplug_kernels.registry import operator


@operator("Cast", since=6)
def cast(xp: Any, x: Any, *, to: int, saturate: int = 1, round_mode: str = "up") -> Any:
    return convert(
        xp, x, element_dtype(xp, to), saturate=bool(saturate), round_mode=round_mode
    )


@operator("Cast", since=1, until=5)
def cast_1(xp: Any, x: Any, *, to: str) -> Any:
    """*to* names the element type as ``TensorProto.DataType`` does."""
    name = {"FLOAT": "float32", "DOUBLE": "float64"}.get(to.upper(), to.lower())
    return convert(xp, x, xp.dtype(DataType(name)))


@operator("CastLike", since=15)
def cast_like(
    xp: Any, x: Any, like: Any, *, saturate: int = 1, round_mode: str = "up"
) -> Any:
    return convert(xp, x, like.dtype, saturate=bool(saturate), round_mode=round_mode)


@operator("BitCast", since=26)
def bit_cast(xp: Any, x: Any, *, to: int) -> Any:
    source, target = xp.data_type(x.dtype), DataType.from_onnx(to)
    if source.bits != target.bits or not source.bits:
        raise ValueError(
            f"{source} has {source.bits} bits and {target} has {target.bits}; "
            "BitCast needs as many in both, and no strings"
        )
    return xp.bits(x, xp.dtype(target))


def convert(
    xp: Any,
    x: Any,
    dtype: Any,
    *,
    saturate: bool = True,
    round_mode: str = "up",
) -> Any:
    """*x* in *dtype* by the rules of ONNX's Cast.

    Floats are cut off to integers of a byte and more, and rounded to nearest, ties to
    even, to those of 4 and 2 bits (ONNX's pages on these).

    Args:
        saturate: for the float8 types, the largest finite number takes the place of
            anything beyond it; otherwise infinity or NaN does.
        round_mode: for float8_e8m0fnu; "up", "down" or "nearest".
    """
    if xp.kind(x.dtype) in "OUT":
        return _from_strings(xp, x, dtype, saturate=saturate, round_mode=round_mode)
    if x.dtype == dtype:
        return x
    if xp.kind(dtype) == "O":
        return _to_strings(xp.to_numpy(x))
    if xp.is_narrow(x.dtype):
        # ml_dtypes lacks casts among its own types; these two hold all their values
        wide = xp.int8 if xp.is_integer(x.dtype) else xp.float32
        x = xp.astype(x, wide)
    if not xp.is_narrow(dtype):
        return xp.astype(x, dtype, copy=False)
    if xp.is_integer(dtype):
        whole = xp.round(x) if xp.kind(x.dtype) == "f" else x
        return xp.astype(xp.asarray(whole), dtype)
    name = xp.data_type(dtype)
    x = _to_float32_or_narrower(xp, x)
    if name == "float8_e8m0fnu":
        return _to_powers_of_two(xp, x, saturate=saturate, round_mode=round_mode)
    if name in _FOR_NAN:
        x = xp.where(xp.isnan(x), _FOR_NAN[name], x)
    elif saturate and name.startswith("float8"):
        lowest, largest = xp.limits(dtype)
        x = xp.clip(x, lowest, largest)
    return xp.asarray(xp.astype(x, dtype))


def _to_float32_or_narrower(xp: Any, x: Any) -> Any:
    """*x* such that rounding it once more gives what rounding it once would have given.

    ml_dtypes narrows wider numbers by way of float32.  Rounding to nearest twice can be
    off by one; rounding first to odd, to whichever neighbour has its last bit set when
    neither is exact, cannot (Boldo and Melquiond, "When double rounding is odd", 2005).
    """
    if xp.itemsize(x) <= 2 or x.dtype == xp.float32:
        return xp.astype(x, xp.float32, copy=False)
    if xp.kind(x.dtype) != "f" and xp.itemsize(x) == 8:
        x = _to_odd_53_bits(xp, x)
    exact = xp.astype(x, xp.float64)
    nearest = xp.asarray(xp.astype(exact, xp.float32))
    is_even = xp.bits(nearest, xp.int32) & 1 == 0
    direction = xp.where(
        exact > nearest, xp.asarray(math.inf, dtype=xp.float32), -math.inf
    )
    return xp.where(
        (nearest != exact) & is_even & ~xp.isnan(exact),
        xp.nextafter(nearest, direction),
        nearest,
    )


def _to_odd_53_bits(xp: Any, x: Any) -> Any:
    """Integers of 64 bits, rounded to odd where float64 has fewer bits than they."""
    is_wide = (x > 1 << 53) | (x < -(1 << 53) if xp.kind(x.dtype) == "i" else False)
    return xp.where(is_wide & (x & 0x7FF != 0), ((x | 0x7FF) ^ 0x7FF) | 0x800, x)


def _to_powers_of_two(xp: Any, x: Any, *, saturate: bool, round_mode: str) -> Any:
    """*x* in float8_e8m0fnu, which has exponents alone: neither sign nor zero.

    The encoding is float32's biased exponent, with NaN in the place of infinity.
    Subnormal numbers of float32 lie below the smallest power but for 2**-127 itself.
    """
    if round_mode not in ("up", "down", "nearest"):
        raise ValueError(f"round_mode is {round_mode!r}, expected up, down or nearest")
    size = xp.asarray(xp.abs(x))
    bits = xp.bits(size, xp.int32)
    # numbers below 2**-126 have exponent 0 and no implicit leading bit
    leading = xp.where(bits < 0x800000, 0x400000, xp.zeros_like(bits))
    fraction = (bits & 0x7FFFFF) - xp.minimum(leading, bits)
    half = xp.where(leading > 0, 0x200000, xp.full_like(bits, 0x400000))
    exponent = bits >> 23
    if round_mode == "up":
        exponent = exponent + (fraction > 0)
    elif round_mode == "nearest":
        exponent = exponent + (fraction >= half)
    exponent = xp.minimum(exponent, _LARGEST_EXPONENT)
    is_nan = xp.isnan(size)
    if not saturate:
        is_nan = is_nan | (size < 2.0**-127) | (size > 2.0**127)
    encoded = xp.astype(xp.where(is_nan, _NO_EXPONENT, exponent), xp.uint8)
    return xp.bits(encoded, xp.dtype(DataType.FLOAT8_E8M0FNU))


_LARGEST_EXPONENT: Final = 0xFE
_NO_EXPONENT: Final = 0xFF


_FOR_NAN: Final = {
    "float6_e2m3fn": 7.5,
    "float6_e3m2fn": 28.0,
    "float4_e2m1fn": -0.0,
}
"""What stands for NaN in types without one: of floats of 6 bits the largest, as ONNX's
page on them has it; of those of 4 bits what its backend suite has, against its page."""


# Strings are numpy arrays of Python objects whatever xp is: they stay on the host.


def _to_strings(x: np.ndarray[Any, Any]) -> Any:
    """The shortest decimals that read back as the same numbers, and 1 and 0 for truths.

    Infinities and NaN are spelled as Cast reads them.
    """
    if x.dtype.kind == "b":
        x = x.astype(np.uint8)
    elif is_extension(x.dtype):
        x = x.astype(np.int8 if "int" in x.dtype.name else np.float32)
    texts = x.astype(np.str_).astype(object)
    if x.dtype.kind == "f":
        for special, text in ((np.inf, "INF"), (-np.inf, "-INF")):
            texts = np.where(x == special, text, texts)
        texts = np.where(np.isnan(x), "NaN", texts)
    return texts


def _from_strings(
    xp: Any, x: Any, dtype: Any, *, saturate: bool, round_mode: str
) -> Any:
    if xp.kind(dtype) == "O":
        return x
    texts = x.reshape(-1).tolist()
    if xp.kind(dtype) == "b":
        numbers = np.array([_parse_bool(text) for text in texts], dtype=np.bool_)
    elif xp.is_integer(dtype):
        # modulo 2**64, so that a narrower type keeps the low bits of any number
        integers = [_parse_int(text) & 0xFFFF_FFFF_FFFF_FFFF for text in texts]
        numbers = np.array(integers, dtype=np.uint64)
    else:
        parse = float if dtype == xp.float64 else _parse_to_odd
        numbers = np.array([parse(text) for text in texts], dtype=np.float64)
    return convert(
        xp,
        xp.from_numpy(numbers.reshape(x.shape)),
        dtype,
        saturate=saturate,
        round_mode=round_mode,
    )


def _parse_to_odd(text: str) -> float:
    """The number in float64, rounded to odd: to be rounded once more."""
    nearest = float(text)
    if nearest == 0 or not math.isfinite(nearest):
        return nearest
    exact = Decimal(text)
    if exact == nearest or np.float64(nearest).view(np.uint64) & 1:
        return nearest
    return math.nextafter(nearest, math.inf if exact > nearest else -math.inf)


def _parse_int(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        return math.trunc(float(text))


def _parse_bool(text: str) -> bool:
    word = text.strip().lower()
    return word == "true" or (word != "false" and float(word) != 0)
