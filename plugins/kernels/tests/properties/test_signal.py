"""Fourier transforms by their sums, and windows by their formulas."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest
from onnx import helper

from ..node_oracles import reference
from .comparison import assert_near, result_of, wide
from .strategies import Array, Draw, examples, is_float

PI: Final = np.arccos(np.longdouble(-1))
TENTHS: Final = np.longdouble(1) / 10


def numbers_of(x: Array) -> Array:
    """Real and imaginary parts along the last axis, as complex numbers."""
    parts = wide(x)
    imaginary = parts[..., 1] if x.shape[-1] == 2 else np.zeros(x.shape[:-1])
    return np.asarray(parts[..., 0] + 1j * imaginary)


def transform(rows: Array, *, inverse: bool = False) -> Array:
    """By its definition, along the last axis."""
    size = rows.shape[-1]
    k = np.arange(size)
    # the product modulo the size keeps the angles small
    angles = 2 * PI * (np.outer(k, k) % max(size, 1)) / max(size, 1)
    factors = np.cos(angles) + (1 if inverse else -1) * 1j * np.sin(angles)
    sums = (rows[..., None, :] * factors).sum(axis=-1)
    return np.asarray(sums / size if inverse else sums)


def fitted(rows: Array, size: int) -> Array:
    """Cut off, or filled up with zeros."""
    result = np.zeros((*rows.shape[:-1], size), rows.dtype)
    kept = min(size, rows.shape[-1])
    result[..., :kept] = rows[..., :kept]
    return result


def check(found: Array, exact: Array, x: Array) -> None:
    parts = np.stack([exact.real, exact.imag], axis=-1)
    size = np.longdouble(8 * max(x.size, 1))
    assert_near(found, parts, x.dtype, 1 if x.dtype.itemsize == 2 else 4, size)


@examples(60)
def test_dft(draw: Draw) -> None:
    dtype = draw.dtype("DFT", "T1")
    shape = draw.shape(1, 3, empty=False)
    x = draw.array(dtype, (*shape, draw.integer(1, 2)), "whole")
    axis = draw.integer(0, x.ndim - 2) - (x.ndim if draw.flag() else 0)
    inverse = draw.flag()
    onesided = draw.flag() and not inverse and x.shape[-1] == 1
    rows = np.moveaxis(numbers_of(x), axis % x.ndim, -1)
    length = None
    if draw.flag():
        kind = draw.one_of([np.int64, np.int32])
        length = np.array(draw.integer(1, 9), kind)
        rows = fitted(rows, int(length))
    exact = transform(rows, inverse=inverse)
    if onesided:
        exact = exact[..., : exact.shape[-1] // 2 + 1]
    exact = np.moveaxis(exact, -1, axis % x.ndim)
    given = {"inverse": int(inverse), "onesided": int(onesided)}
    found = result_of("DFT", x, length, np.array(axis), **given)
    check(found, exact, x)


@examples(35)
def test_half_a_spectrum_gives_the_signal_back(draw: Draw) -> None:
    dtype = draw.dtype("DFT", "T1", lambda d: d.itemsize > 2)
    x = draw.array(dtype, (draw.integer(1, 3), draw.integer(1, 9), 1), "whole")
    length = np.array(x.shape[1])
    half = result_of("DFT", x, None, np.array(1), onesided=1)
    back = result_of("DFT", half, length, np.array(1), onesided=1, inverse=1)
    assert_near(back, wide(x), dtype, 64, 4)


@examples(50)
def test_stft(draw: Draw) -> None:
    dtype = draw.dtype("STFT", "T1")
    parts = draw.integer(1, 2)
    x = draw.array(dtype, (draw.integer(1, 2), draw.integer(4, 20), parts), "whole")
    length, step = draw.integer(1, x.shape[1]), draw.integer(1, 5)
    window = draw.array(dtype, (length,), "whole") if draw.flag() else None
    given = np.array(length) if window is None or draw.flag() else None
    onesided = int(draw.flag() and parts == 1)
    count = (x.shape[1] - length) // step + 1
    signal = numbers_of(x)
    rows = np.stack([signal[:, n * step : n * step + length] for n in range(count)], 1)
    if window is not None:
        rows = rows * wide(window)
    exact = transform(rows)
    if onesided:
        exact = exact[..., : length // 2 + 1]
    if parts == 1 and draw.flag():
        x = x[..., 0]  # a real signal may also come without the last axis
    found = result_of("STFT", x, np.array(step), window, given, onesided=onesided)
    check(found, exact, x)


@pytest.mark.parametrize(
    ("op_type", "coefficients"),
    [
        ("HannWindow", (0.5, -0.5)),
        ("HammingWindow", (25 / np.longdouble(46), -21 / np.longdouble(46))),
        ("BlackmanWindow", (4.2 * TENTHS, -5 * TENTHS, 0.8 * TENTHS)),
    ],
)
@examples(20)
def test_windows(op_type: str, coefficients: Any, draw: Draw) -> None:
    dtype = draw.dtype(op_type, "T2", is_float)
    size, periodic = draw.integer(0, 20), draw.integer(0, 1)
    if size == 1 and not periodic:
        return  # the formula divides by zero
    angles = 2 * PI * np.arange(size) / (size if periodic else size - 1)
    exact = sum(c * np.cos(k * angles) for k, c in enumerate(coefficients))
    number = int(helper.np_dtype_to_tensor_dtype(dtype))
    length = np.array(size, draw.one_of([np.int64, np.int32]))
    found = result_of(op_type, length, periodic=periodic, output_datatype=number)
    assert_near(found, exact + np.zeros(size), dtype, 2, 1)


@examples(30)
def test_mel_weight_matrix(draw: Draw) -> None:
    """Against ONNX's reference: the text leaves much of it open."""
    bands, length = draw.integer(1, 10), draw.integer(8, 64)
    rate = draw.one_of([8000, 16000, 44100])
    edges = draw.one_of([(0.0, 4000.0), (125.0, 3800.0), (300.0, 2000.0)])
    inputs = [np.array(n, np.int64) for n in (bands, length, rate)]
    inputs += [np.array(edge, np.float32) for edge in edges]
    (expected,) = reference("MelWeightMatrix", *inputs)
    found = result_of("MelWeightMatrix", *inputs)
    assert_near(found, wide(expected), np.float32, 1, 1)
