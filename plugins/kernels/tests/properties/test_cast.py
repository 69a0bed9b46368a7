"""Casts against exact rounding of fractions, and Python's integers."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, Final

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

from .comparison import assert_same, narrow, objects, result_of, wide, wrapped
from .rounding import NO_NAN, to_float
from .strategies import Array, Draw, Dtype, dtypes_of, examples, is_float, is_integer

POWERS: Final = np.dtype(ml_dtypes.float8_e8m0fnu)


def number_of(dtype: Dtype) -> int:
    return (
        TensorProto.STRING
        if dtype.kind == "O"
        else int(helper.np_dtype_to_tensor_dtype(dtype))
    )


def cast(x: Array, dtype: Dtype, **attributes: Any) -> Array:
    """By Cast, which is what CastLike and the others compute."""
    found: Array = result_of("Cast", x, to=number_of(dtype), **attributes)
    return found


def numbers(kind: Any = lambda dtype: True) -> list[Dtype]:
    """The types of numbers that are cast to, but that of powers of two."""
    every = [d for d in dtypes_of("Cast", "T2") if d.kind not in "bO" and d != POWERS]
    return [*filter(kind, every)]


@examples(160)
def test_to_floats(draw: Draw) -> None:
    source = draw.one_of([d for d in dtypes_of("Cast", "T1") if d.kind != "O"])
    dtype = draw.one_of(numbers(is_float))
    x = draw.array(source, draw.shape())
    if dtype.name.startswith(NO_NAN) and is_float(source):
        # of NaN the text of the operator does not say what it becomes there
        x = np.where(np.isnan(wide(x)), np.ones((), source), x)
    given = {"saturate": draw.integer(0, 1)} if draw.flag() else {}
    flat = x.reshape(-1)
    plain = objects(flat) if is_integer(source) else flat.astype(float)
    results = [
        to_float(n, dtype, bool(given.get("saturate", 1))) for n in plain.tolist()
    ]
    expected = narrow(np.array(results, np.float64), dtype)
    assert_same(cast(x, dtype, **given), expected.reshape(x.shape))


@examples(85)
def test_floats_to_integers(draw: Draw) -> None:
    """Of what the type holds: the rest is undefined."""
    source = draw.one_of([d for d in dtypes_of("Cast", "T1") if is_float(d)])
    dtype = draw.one_of(numbers(is_integer))
    x = draw.array(source, draw.shape())
    exact = wide(x)
    info = ml_dtypes.iinfo(dtype)
    held = (exact > int(info.min) - 0.5) & (exact < int(info.max) + 0.5)
    x = np.where(held, x, np.ones((), source))
    # the specification of the narrow integers rounds, where others are truncated
    cut = round if dtype.name.endswith(("int2", "int4")) else math.trunc
    results = [cut(n) for n in x.reshape(-1).astype(float).tolist()]
    expected = np.array(results, object).reshape(x.shape)
    assert_same(cast(x, dtype), wrapped(expected, dtype))


@examples(85)
def test_integers_to_integers(draw: Draw) -> None:
    """Higher bits are dropped."""
    source = draw.one_of([d for d in dtypes_of("Cast", "T1") if is_integer(d)])
    dtype = draw.one_of(numbers(is_integer))
    x = draw.array(source, draw.shape())
    assert_same(cast(x, dtype), wrapped(objects(x), dtype))


@examples(50)
def test_truth(draw: Draw) -> None:
    dtype = draw.one_of([d for d in dtypes_of("Cast", "T1") if d.kind != "O"])
    x = draw.array(dtype, draw.shape())
    assert_same(cast(x, np.dtype(bool)), wide(x) != 0)
    truths = draw.array(bool, draw.shape())
    # a type of powers of two has no zero
    if dtype != POWERS:
        assert_same(cast(truths, dtype), truths.astype(np.int8).astype(dtype))


@examples(60)
def test_to_powers_of_two(draw: Draw) -> None:
    """Of positive numbers: there are no others in that type."""
    floats = [d for d in dtypes_of("Cast", "T1") if is_float(d) and d.itemsize > 1]
    x = np.abs(draw.array(draw.one_of(floats), draw.shape()))
    x = np.where(wide(x) == 0, np.ones((), x.dtype), x)
    mode = draw.one_of(["up", "down", "nearest"])
    saturate = draw.integer(0, 1)
    results = [
        power_of_two(n, mode, bool(saturate))
        for n in x.reshape(-1).astype(float).tolist()
    ]
    expected = narrow(np.array(results).reshape(x.shape), POWERS)
    assert_same(cast(x, POWERS, round_mode=mode, saturate=saturate), expected)


def power_of_two(number: float, mode: str, saturate: bool) -> float:
    if math.isnan(number):
        return math.nan
    if not 2.0**-127 <= number <= 2.0**127:
        if not saturate:
            return math.nan
        return 2.0**127 if number > 1 else 2.0**-127
    mantissa, exponent = math.frexp(number)
    below = 2.0 ** (exponent - 1)
    goes_up = {"up": mantissa > 0.5, "down": False, "nearest": mantissa >= 0.75}
    return 2 * below if goes_up[mode] else below


@examples(50)
def test_numbers_to_strings_and_back(draw: Draw) -> None:
    """The decimals say exactly which number it was."""
    wanted = [d for d in dtypes_of("Cast", "T1") if d.kind != "O" and d != POWERS]
    dtype = draw.one_of(wanted)
    x = draw.array(dtype, draw.shape())
    texts = cast(x, np.dtype(object))
    assert (texts.dtype, texts.shape) == (object, x.shape)
    assert all(isinstance(text, str) for text in texts.flat)
    if dtype.kind == "b":
        assert [int(text) for text in texts.flat] == x.reshape(-1).tolist()
    elif is_integer(dtype):
        assert [int(text) for text in texts.flat] == objects(x).reshape(-1).tolist()
    else:
        special = {math.inf: "INF", -math.inf: "-INF"}
        for text, number in zip(texts.flat, x.reshape(-1).astype(float), strict=True):
            if math.isfinite(number):
                assert narrow(np.array(float(text)), dtype).astype(float) == number
            else:
                assert text == special.get(float(number), "NaN")
    assert_same(cast(texts, dtype, saturate=0), x)


@examples(50)
def test_strings_to_numbers(draw: Draw) -> None:
    dtype = draw.one_of(numbers())
    integers = ["0", "1", "-1", "+1", "7", "-0"]
    if is_integer(dtype):
        integers = integers[:2] if ml_dtypes.iinfo(dtype).min == 0 else integers[:3]
        table, parse = integers, int
    else:
        table = [*integers, "1e-5", "1E2", "3.14", "+INF", "inf", "-INF", ".5", "2."]
        if not dtype.name.startswith(NO_NAN):
            table += ["NaN", "nan"]
        parse = float
    x = draw.of(np.array(table, object), draw.shape())
    flat = [parse(text) for text in x.reshape(-1).tolist()]
    if is_float(dtype):
        # of decimals the fraction in the text, not the nearest float64
        flat = [
            to_float(
                n if math.isinf(n) or n != n or n == 0 else Fraction(text), dtype, True
            )
            for n, text in zip(flat, x.reshape(-1).tolist(), strict=True)
        ]
        expected = narrow(np.array(flat, np.float64), dtype)
    else:
        expected = wrapped(np.array(flat, object), dtype)
    assert_same(cast(x, dtype), expected.reshape(x.shape))


@examples(30)
def test_cast_like(draw: Draw) -> None:
    source, dtype = (draw.one_of(dtypes_of("Cast", "T1")) for _ in range(2))
    x = draw.array(source, draw.shape(), "whole")
    if source.kind == "O":
        x = np.full(x.shape, "1", object)
    like = draw.array(dtype, draw.shape(0, 1))
    assert_same(result_of("CastLike", x, like), cast(x, dtype))


@pytest.mark.parametrize("bits", [2, 4, 8, 16, 32, 64])
@examples(12)
def test_bit_cast(bits: int, draw: Draw) -> None:
    known = [
        dtype
        for dtype in dtypes_of("BitCast", "T1")
        if dtype.kind != "b" and bits_of(dtype) == bits
    ]
    if not known:
        return
    source, target = draw.one_of(known), draw.one_of(known)
    x = draw.array(source, draw.shape())
    found = result_of("BitCast", x, to=number_of(target))
    assert (found.dtype, found.shape) == (target, x.shape)
    assert found.tobytes() == x.tobytes()


def bits_of(dtype: Dtype) -> int:
    if is_float(dtype):
        return int(ml_dtypes.finfo(dtype).bits)
    return int(ml_dtypes.iinfo(dtype).bits) if is_integer(dtype) else 0
