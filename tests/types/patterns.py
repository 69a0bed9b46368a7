"""The numbers that conversions are tried on: all there are, or the hardest."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from onnxplug.ep import DataType

from .formats import FLOATS, INTEGERS, Array, decode, width

_SOME = 150
"""Of 16-bit types, so many neighbours are taken for wider sources."""


@functools.cache
def patterns(name: str) -> Array:
    """All bit patterns of a type of at most 16 bits; of wider ones the hard cases:
    ends of every type, numbers between neighbours of every type, and beside those."""
    dtype = DataType(name).numpy
    if name == "bool":
        return np.array([False, True])
    if width(name) <= 16:
        return np.arange(1 << width(name)).astype(f"u{dtype.itemsize}").view(dtype)
    if name in INTEGERS:
        return _hard_integers(name)
    return _hard_floats(dtype)


def every_code(name: str) -> Array:
    """All finite numbers of a float type of at most 16 bits, in order, as float64."""
    numbers = decode(patterns(name))
    return np.unique(numbers[np.isfinite(numbers)])


def _between() -> Array:
    """Numbers halfway between neighbours of each narrow type, beyond its end, too."""
    found = []
    for name, kind in FLOATS.items():
        if kind.bits > 16:
            continue
        numbers = every_code(name)
        step = numbers[-1] - numbers[-2]
        numbers = np.append(numbers, [numbers[-1] + step, numbers[-1] * 2])
        middles = (numbers[:-1] + numbers[1:]) / 2
        if kind.bits == 16:
            chosen = np.random.default_rng(0).choice(len(middles), _SOME, replace=False)
            ends = middles[[0, 1, 2, -1, -2, -3]]
            middles = np.concatenate([middles[chosen], ends])
        found.append(np.concatenate([middles, numbers[[0, 1, -3, -2, -1]]]))
    powers = np.ldexp(1.0, np.arange(-150, 129))
    found.append(np.concatenate([powers, powers * 1.5]))
    numbers = np.concatenate(found)
    return np.unique(np.concatenate([numbers, -numbers]))


def _hard_floats(dtype: Any) -> Array:
    info = np.finfo(dtype)
    edges = [float(end) for kind in INTEGERS.values() for end in kind.limits]
    halves = np.arange(-20.0, 20.0, 0.25)
    ends = [info.max, info.tiny, info.smallest_subnormal, info.tiny / 2, 1e39, 1e300]
    exact = np.concatenate([_between(), edges, halves, ends, np.negative(ends)])
    with np.errstate(over="ignore", under="ignore"):
        numbers = exact.astype(dtype)
        beside = [np.nextafter(numbers, dtype.type(to)) for to in (np.inf, -np.inf)]
    return np.concatenate([numbers, *beside, _specials(dtype)])


def _specials(dtype: Any) -> Array:
    """Infinities, zeros, and quiet and signalling NaN of both signs."""
    bits = 8 * dtype.itemsize
    exponent = {32: 0x7F800000, 64: 0x7FF << 52}[bits]
    quiet = 1 << {32: 22, 64: 51}[bits]
    payloads = [0, quiet, quiet | 5, 1, quiet - 1]
    codes = [exponent | payload for payload in payloads] + [0]
    codes += [code | 1 << (bits - 1) for code in codes]
    return np.array(codes, f"u{dtype.itemsize}").view(dtype)


def _hard_integers(name: str) -> Array:
    low, high = INTEGERS[name].limits
    numbers = {low, low + 1, high, high - 1, *range(-300, 300)}
    for number in _between().tolist():
        if abs(number) < 2.0**64:
            numbers |= {int(number) + offset for offset in (-1, 0, 1)}
    random = np.random.default_rng(1)
    for bits in range(17, 64):
        # 8 or 24 bits of precision, a tie below them, and what breaks the tie
        for precision in (8, 24, 53):
            place = bits - precision
            if place >= 0:
                top = int(random.integers(1 << precision - 1, 1 << precision))
                half = (1 << place) >> 1
                numbers |= {(top << place) + half + offset for offset in (-1, 0, 1)}
    numbers |= {-number for number in numbers}
    kept = sorted(number for number in numbers if low <= number <= high)
    return np.array(kept, name)
