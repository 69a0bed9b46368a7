"""Floats times weights that are codes, by tiles of bfloat16, against float64."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

from onnxplug_cpu.compiler.codegen.kernel import Kernel
from onnxplug_cpu.compiler.kernels.coded.tile_panels import CodeTile
from onnxplug_cpu.compiler.machine.isa import AMX, Isa, host_isa

from ..interpreter import assembly
from ..tiled import EMULATED
from .test_weight_products import Array, Weights, check, floats, product, weights

HOST = host_isa()
TILED = [*EMULATED, HOST] if HOST and HOST.tiles else EMULATED
"""Emulated tiles, and those of this processor."""


def bytes_as_zeros(w: Weights) -> Weights:
    return w._replace(zero=w.zero.astype(np.uint8), packed=False)


CASES = [
    # rows, columns, blocks, block, bits, zero
    (9, 40, 3, 32, 4, ""),
    (32, 7, 9, 64, 4, "packed"),
    (37, 140, 6, 32, 4, "bytes"),
    (17, 33, 2, 512, 2, ""),
    (16, 17, 3, 64, 2, "packed"),
    (33, 16, 3, 96, 8, ""),
    (5, 20, 4, 32, 8, "signed"),
    (40, 3, 1, 1056, 8, "packed"),
]


def weights_of(
    rng: np.random.Generator, case: tuple[int, int, int, int, int, str]
) -> Weights:
    _, *sizes, bits, zero = case
    columns, blocks, block = sizes
    written = "packed" if zero == "bytes" else zero
    w = weights(rng, (columns, blocks, block), bits, written)
    return bytes_as_zeros(w) if zero == "bytes" else w


@pytest.mark.parametrize("isa", TILED, ids=lambda isa: f"{isa.name}-{isa.tiles}")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_floats(isa: Isa, case: tuple[int, int, int, int, int, str]) -> None:
    rng = np.random.default_rng(case[0])
    w = weights_of(rng, case)
    x = floats(rng, case[0], w)
    bias = rng.standard_normal(case[1]).astype(np.float32)
    for added in (None, bias):
        found, expected, sizes = product(isa, x, w, workers=2, bias=added)
        check(found, expected, sizes, x.shape[1])


@pytest.mark.parametrize("isa", TILED, ids=lambda isa: f"{isa.name}-{isa.tiles}")
@pytest.mark.parametrize("case", [case for case in CASES if case[0] >= 32], ids=str)
def test_rounded_rows(isa: Isa, case: tuple[int, int, int, int, int, str]) -> None:
    rng = np.random.default_rng(case[0])
    w = weights_of(rng, case)
    x = floats(rng, case[0], w) * np.float32(3)
    x[-1, : case[3]] = 0
    found, expected, sizes = product(isa, x, w, workers=2, rounds=True)
    # short blocks of few bits stay floats, to which rounding is the difference
    check(found, expected, sizes + 1e-3, x.shape[1])


@pytest.mark.parametrize("element", ["float16", "bfloat16"])
def test_narrow_floats(element: str) -> None:
    """They have two terms and one; what they are is what is multiplied."""
    rng = np.random.default_rng(3)
    dtype = np.dtype(getattr(ml_dtypes, element, element))
    for isa in TILED:
        for shape, zero in (((6, 3, 32), ""), ((20, 8, 64), "packed")):
            w = weights(rng, shape, 4, zero, dtype)
            x = floats(rng, 21, w).astype(dtype)
            x[3, 5] = np.inf
            with np.errstate(invalid="ignore"):
                found, expected, sizes = product(isa, x, w)
            finite = np.arange(21) != 3
            check(found[finite], expected[finite], sizes[finite], x.shape[1])
            np.testing.assert_array_equal(found[3], expected[3])


@pytest.mark.parametrize("isa", TILED, ids=lambda isa: f"{isa.name}-{isa.tiles}")
def test_rows_that_do_not_split_are_what_the_definition_says(isa: Isa) -> None:
    rng = np.random.default_rng(10)
    for bits, zero in ((4, ""), (4, "packed"), (8, "signed"), (2, "")):
        w = weights(rng, (21, 10, 64), bits, zero)
        x = floats(rng, 35, w)
        x[0, 40], x[20, 77], x[34, 639], x[7, 300] = np.inf, -np.inf, np.nan, 3.4e38
        x[7, 1:300] *= 1e30
        with np.errstate(invalid="ignore"):
            found, expected, sizes = product(isa, x, w)
        for row in (0, 20, 34):
            np.testing.assert_array_equal(found[row], expected[row].astype(np.float32))
        others = np.setdiff1d(np.arange(35), [0, 7, 20, 34])
        check(found[others], expected[others], sizes[others], x.shape[1])
        with np.errstate(over="ignore"):
            np.testing.assert_allclose(
                found[7], expected[7].astype(np.float32), rtol=1e-4
            )


def test_rounded_rows_that_are_not_finite_are_nan() -> None:
    rng = np.random.default_rng(11)
    w = weights(rng, (20, 4, 32), 4)
    x = floats(rng, 33, w)
    x[4, 9], x[30, 100] = np.inf, np.nan
    for isa in TILED:
        with np.errstate(invalid="ignore"):
            found, expected, sizes = product(isa, x, w, rounds=True)
        assert np.isnan(found[[4, 30]]).all()
        others = np.setdiff1d(np.arange(33), [4, 30])
        check(found[others], expected[others], sizes[others], x.shape[1])


def test_errors_are_not_those_of_a_lower_precision() -> None:
    """On average no larger than where products are fused multiply-adds."""
    rng = np.random.default_rng(12)
    w = weights(rng, (64, 32, 32), 4)
    x = floats(rng, 64, w)
    means = []
    for isa in (EMULATED[0], EMULATED[0]._replace(tiles="")):
        found, expected, sizes = product(isa, x, w)
        means.append(float(np.sqrt((((found - expected) / sizes) ** 2).mean())))
    assert means[0] <= means[1]


@pytest.mark.parametrize("terms", [1, 3])
def test_no_sum_is_spilled(terms: int) -> None:
    text = assembly(Kernel(CodeTile(16, 8, terms, terms == 1, 1)), AMX)
    moves = [line for line in text.splitlines() if "vmov" in line and "zmm" in line]
    assert not [line for line in moves if "rsp)" in line]
    assert len(re.findall("tdpbf16ps", text)) == terms


def inner_of(w: Weights) -> int:
    return int(np.prod(w.codes.shape[1:]))


def tiny(rng: np.random.Generator, rows: int, w: Weights) -> Array:
    return (floats(rng, rows, w) * 2.0**-120).astype(np.float32)


def test_very_small_numbers_lose_no_more_than_what_tiles_take_for_zero() -> None:
    rng = np.random.default_rng(13)
    w = weights(rng, (16, 4, 32), 4)
    x = tiny(rng, 16, w)
    for isa in TILED:
        found, expected, sizes = product(isa, x, w)
        lost = 2.0**-126 * 3 * np.abs(w.numbers).sum(1) + 2.0**-126 * inner_of(w)
        assert (np.abs(found - expected) <= 4e-7 * sizes + lost).all()
