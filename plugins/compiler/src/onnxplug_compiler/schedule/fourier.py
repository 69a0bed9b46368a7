"""Discrete Fourier transforms, put together from products with constant matrices.

A transform is linear, so a short one is a product.  Of real numbers, what lies evenly
around the middle is added and subtracted before, which leaves two products of half the
length.  A long transform of a length that is a product, ``n = p * q``, is transforms of
length p, roots of unity, and transforms of length q.

Source: J. W. Cooley and J. W. Tukey, An algorithm for the machine calculation of
complex Fourier series, 1965 (https://doi.org/10.1090/S0025-5718-1965-0178586-1).
"""

from __future__ import annotations

import functools
import math
from typing import Any, Final, TypeAlias

import numpy as np

from onnxplug_compiler.ir.elementwise import Number
from onnxplug_compiler.ir.formula import Formula
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.target import Target
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.schedule.copies import record_copy

_Array: TypeAlias = np.ndarray[Any, np.dtype[np.float32]]
_Waves: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]
_Places: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]

_F32: Final = np.dtype(np.float32)
_MOST_ELEMENTS: Final = 1 << 18
"""Of a matrix: more would be read from memory each time."""

_LONGEST: Final = 128
"""The longest transforms that a longer one is divided into."""

_MOST_DIVISIONS: Final = 2
_LANES: Final = 16  # of vectors, which a division's columns fill
_LEAST_FOLDED: Final = 16

_DIVIDING: Final = 48
"""Multiplications that take as long as what a division adds for each element."""


def divide(length: int, parts: int, bins: int, divisions: int = 0) -> int | None:
    """By which factor a transform is divided; 1 for one that is a product, ``None`` for
    one that is not computed: too long, and no product of small numbers.

    Args:
        length: of the transform.
        parts: 1 of real numbers, 2 of complex ones.
        bins: how many results are wanted.
        divisions: those before.
    """
    return _division(length, parts, bins, divisions)[1]


@functools.lru_cache(maxsize=1024)
def _division(
    length: int, parts: int, bins: int, divisions: int
) -> tuple[float, int | None]:
    """Multiplications for each element, and the factor."""
    best: tuple[float, int | None] = math.inf, None
    if 2 * parts * length * bins <= _MOST_ELEMENTS << (parts == 1):
        best = bins * (1 if parts == 1 else 4), 1
    if divisions == _MOST_DIVISIONS:
        return best
    for factor in range(2, min(_LONGEST, length // 2) + 1):
        if length % factor == 0:
            rest = length // factor
            after, division = _division(rest, 2, -(-bins // factor), divisions + 1)
            columns = -(-rest // _LANES) * _LANES / rest
            cost = 2 * parts * factor * columns + _DIVIDING + after
            if division is not None and cost < best[0]:
                best = cost, factor
    return best


def record_transform(
    recorder: Recorder[Target],
    x: View,
    bins: int,
    *,
    inverse: bool = False,
    window: View | None = None,
) -> View:
    """Record transforms along the last axis.

    Args:
        x: [batch, batch, 1 or 2, length], of real numbers or of the parts of complex
            ones; any strides.
        bins: how many results are wanted, from the first on.
        inverse: with the opposite sign, and divided by the length.
        window: [length], multiplied with *x* before.

    Returns:
        [batch, batch, bins, 2], somewhere in new memory.
    """
    *_, parts, length = x.shape
    factor = divide(length, parts, bins)
    assert factor is not None
    if factor == 1 and parts == 1 and length >= _LEAST_FOLDED:
        return _record_folded(recorder, x, bins, inverse, window)
    if window is not None:
        product = recorder.temporary(_F32, x.shape)
        formula = Formula("f32")
        windowed = formula.step("Mul", formula.read(x), formula.read(window))
        formula.record(recorder, windowed, product, "window")
        x = product
    if factor == 1:
        return _record_product(recorder, x, bins, inverse)
    return _record_divided(recorder, x, bins, inverse, factor, 0)


# one product, or two


def _waves(
    length: int, places: _Places, bins: _Places, inverse: bool
) -> tuple[_Waves, _Waves]:
    """Cosines and sines, by the place and the bin."""
    # of the smallest angle that is the same, which is more exact
    angles = np.outer(places, bins) % length * (2 * math.pi / length)
    return np.cos(angles), np.sin(angles) * (1 if inverse else -1)


@functools.lru_cache(maxsize=32)
def _matrix(length: int, parts: int, bins: int, inverse: bool) -> _Array:
    """What numbers of *parts* are multiplied with: [parts, length, 2, bins]."""
    cosines, sines = _waves(length, np.arange(length), np.arange(bins), inverse)
    of_parts = np.array([(cosines, sines), (-sines, cosines)][:parts])
    scale = 1 / length if inverse else 1
    return np.ascontiguousarray(of_parts.transpose(0, 2, 1, 3) * scale, np.float32)


@functools.lru_cache(maxsize=32)
def _halves(length: int, bins: int, inverse: bool) -> tuple[_Array, _Array]:
    """What sums and differences around the middle are multiplied with."""
    places = np.arange(length // 2 + 1)
    cosines, sines = _waves(length, places, np.arange(bins), inverse)
    scale = 1 / length if inverse else 1
    pairs = sines[1 : (length + 1) // 2]
    return (cosines * scale).astype(np.float32), (pairs * scale).astype(np.float32)


def _record_product(
    recorder: Recorder[Target], x: View, bins: int, inverse: bool
) -> View:
    *batches, parts, length = x.shape
    matrix = recorder.constant(_matrix(length, parts, bins, inverse))
    out = recorder.temporary(_F32, (*batches, 2, bins))
    _contract(
        recorder,
        _seen(x, (1, 1, *x.shape), (0, 0, *x.strides)),
        _reshaped(matrix, (1, 1, parts, length, 2 * bins)),
        _reshaped(out, (1, 1, *batches, 2 * bins)),
    )
    return out.transpose((0, 1, 3, 2))


def _record_folded(
    recorder: Recorder[Target],
    x: View,
    bins: int,
    inverse: bool,
    window: View | None,
) -> View:
    *batches, _, length = x.shape
    middle, pairs = length // 2, (length - 1) // 2
    sums = recorder.temporary(_F32, (*batches, middle + 1))
    differences = recorder.temporary(_F32, (*batches, pairs))
    x = _seen(x, (*batches, length), (*x.strides[:2], x.strides[3]))

    def read(formula: Formula, start: int, count: int, step: int) -> Number:
        value = formula.read(x.slice((0, 0, start), (*batches, count), (1, 1, step)))
        if window is None:
            return value
        factor = formula.read(window.slice((start,), (count,), (step,)))
        return formula.step("Mul", value, factor)

    formula = Formula("f32")
    before, after = read(formula, 1, pairs, 1), read(formula, length - 1, pairs, -1)
    formula.record_all(
        recorder,
        [formula.step("Add", before, after), formula.step("Sub", before, after)],
        [sums.slice((0, 0, 1), (*batches, pairs)), differences],
        "DFT fold",
    )
    for place in (0, middle) if length % 2 == 0 else (0,):
        formula = Formula("f32")
        target = sums.slice((0, 0, place), (*batches, 1))
        formula.record(recorder, read(formula, place, 1, 1), target, "DFT fold")
    out = recorder.temporary(_F32, (*batches, 2, bins))
    halves = _halves(length, bins, inverse)
    for part, (half, matrix) in enumerate(
        zip((sums, differences), halves, strict=True)
    ):
        # rows of all batches, which follow each other in memory
        rows = math.prod(batches)
        results = out.slice((0, 0, part, 0), (*batches, 1, bins))
        with recorder.exactly():
            recorder.target.contractions.record_matmul(
                recorder,
                _reshaped(half, (rows, half.shape[2])),
                recorder.constant(matrix),
                _reshaped(results, (rows, bins)),
                label="DFT",
            )
    return out.transpose((0, 1, 3, 2))


# one after the other


@functools.lru_cache(maxsize=32)
def _rows(length: int, parts: int, inverse: bool) -> _Array:
    """A matrix whose rows are bins: [2, length, parts, length]."""
    matrix = _matrix(length, parts, length, inverse)
    return np.ascontiguousarray(matrix.transpose(2, 3, 0, 1))


@functools.lru_cache(maxsize=32)
def _turns(length: int, factor: int, inverse: bool) -> tuple[_Array, _Array]:
    """Roots of unity between two transforms, [factor, length / factor]."""
    places = np.arange(length // factor)
    cosines, sines = _waves(length, np.arange(factor), places, inverse)
    return cosines.astype(np.float32), sines.astype(np.float32)


def _record_divided(
    recorder: Recorder[Target],
    x: View,
    bins: int,
    inverse: bool,
    factor: int,
    divisions: int,
) -> View:
    """Transforms of [batch, batch, parts, length] as those of *factor* and of what is
    left; [batch, batch, bins, 2]."""
    *batches, _, length = x.shape
    rest, wanted = length // factor, -(-bins // factor)
    turned = _record_first(recorder, x, factor, inverse)
    division = divide(rest, 2, wanted, divisions + 1)
    assert division is not None
    if division == 1:
        found = recorder.temporary(_F32, (*batches, factor, 2, wanted))
        matrix = recorder.constant(_matrix(rest, 2, wanted, inverse))
        # parts are taps, so that the numbers of each lie next to each other
        numbers = turned.transpose((0, 1, 3, 2, 4))
        shape, strides = numbers.shape, numbers.strides
        _contract(
            recorder,
            _seen(
                numbers, (*shape[:2], 1, *shape[2:]), (*strides[:2], 0, *strides[2:])
            ),
            _reshaped(matrix, (1, 1, 2, rest, 2 * wanted)),
            _reshaped(found, (*batches, 1, factor, 2 * wanted)),
        )
        found = found.transpose((0, 1, 2, 4, 3))
    else:
        numbers = _reshaped(turned, (math.prod(batches), 2, factor, rest))
        found = _record_divided(
            recorder,
            numbers.transpose((0, 2, 1, 3)),
            wanted,
            inverse,
            division,
            divisions + 1,
        )
        found = _reshaped(found, (*batches, factor, wanted, 2))
    # a bin is one of the other transforms, and then one of the first
    out = recorder.temporary(_F32, (*batches, wanted, factor, 2))
    record_copy(recorder, found.transpose((0, 1, 3, 2, 4)), out, label="DFT order")
    in_order = _reshaped(out, (*batches, wanted * factor, 2))
    return in_order.slice((0, 0, 0, 0), (*batches, bins, 2))


def _record_first(
    recorder: Recorder[Target], x: View, factor: int, inverse: bool
) -> View:
    """Transforms of length *factor*, turned: [batch, batch, 2, factor, length / factor]
    of [batch, batch, parts, length]."""
    *batches, parts, length = x.shape
    rest = length // factor
    out = recorder.temporary(_F32, (*batches, 2, factor, rest))
    matrix = recorder.constant(_rows(factor, parts, inverse))
    stride = x.strides[3]
    _contract(
        recorder,
        _reshaped(matrix, (1, 1, 1, 2 * factor, parts, factor)),
        _seen(
            x,
            (*batches, parts, factor, rest),
            (*x.strides[:3], rest * stride, stride),
        ),
        _reshaped(out, (*batches, 1, 2 * factor, rest)),
    )
    formula = Formula("f32")
    real, imaginary = (
        out.slice((0, 0, n, 0, 0), (*batches, 1, factor, rest)) for n in range(2)
    )
    a, b = formula.read(real), formula.read(imaginary)
    cosine, sine = (
        formula.read(recorder.constant(turn))
        for turn in _turns(length, factor, inverse)
    )

    def product(first: Number, second: Number) -> Number:
        return formula.step("Mul", first, second)

    formula.record_all(
        recorder,
        [
            formula.step("Sub", product(a, cosine), product(b, sine)),
            formula.step("Add", product(a, sine), product(b, cosine)),
        ],
        [real, imaginary],
        "DFT turn",
    )
    return out


def _contract(recorder: Recorder[Target], a: View, b: View, out: View) -> None:
    contractions = recorder.target.contractions
    with recorder.exactly():
        contractions.record_contraction(recorder, a, b, out, label="DFT")


def _seen(view: View, shape: tuple[int, ...], strides: tuple[int, ...]) -> View:
    return View(view.buffer, view.offset, view.dtype, shape, strides)


def _reshaped(view: View, shape: tuple[int, ...]) -> View:
    """What has such strides that it needs no copy."""
    reshaped = view.reshape(shape)
    assert reshaped is not None
    return reshaped
