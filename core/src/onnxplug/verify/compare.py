"""Compares what two EPs computed, element by element."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onnxplug.ep import SparseTensor


def difference(
    found: Any, expected: Any, tolerance: tuple[float, float], name: str
) -> str:
    """How *found* differs from *expected* by more than is allowed; empty if not.

    NaN is equal to NaN, and an infinity to the same one only.

    Args:
        tolerance: relative to *expected*, and absolute.
        name: of the value, for the text.
    """
    if expected is None or found is None:
        which = "absent" if found is None else "there"
        return "" if found is expected else f"{name} is {which}, against the CPU EP"
    if isinstance(expected, SparseTensor):
        if not isinstance(found, SparseTensor) or found.shape != expected.shape:
            return f"{name} is another sparse tensor"
        pairs = [
            (f"{name}.{part}", getattr(found, part), getattr(expected, part))
            for part in ("indices", "values")
        ]
    elif isinstance(expected, Mapping):
        if not isinstance(found, Mapping) or list(found) != list(expected):
            return f"{name} has other keys"
        pairs = [(f"{name}[{key!r}]", found[key], expected[key]) for key in expected]
    elif isinstance(expected, np.ndarray):
        return _array_difference(np.asarray(found), expected, tolerance, name)
    elif isinstance(expected, Sequence) and not isinstance(expected, str | bytes):
        if not isinstance(found, Sequence) or len(found) != len(expected):
            return f"{name} has another length"
        pairs = [
            (f"{name}[{index}]", *pair)
            for index, pair in enumerate(zip(found, expected, strict=True))
        ]
    else:
        return _array_difference(
            np.asarray(found), np.asarray(expected), tolerance, name
        )
    texts = (difference(one, other, tolerance, part) for part, one, other in pairs)
    return next(filter(None, texts), "")


def _array_difference(
    found: np.ndarray[Any, Any],
    expected: np.ndarray[Any, Any],
    tolerance: tuple[float, float],
    name: str,
) -> str:
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return (
            f"{name} is {found.dtype}{list(found.shape)}; the CPU EP gives "
            f"{expected.dtype}{list(expected.shape)}"
        )
    wrong, distance = _wrong(found, expected, tolerance)
    count = int(np.count_nonzero(wrong))
    if not count:
        return ""
    # NaN is farther away than any number
    farthest = np.where(wrong, np.nan_to_num(distance, nan=np.inf), -1.0)
    index = np.unravel_index(int(np.argmax(farthest)), found.shape)
    place = f"[{', '.join(map(str, index))}]"
    how_far = f"by {distance[index]:.3g} " if np.isfinite(distance[index]) else ""
    return (
        f"{count} of {found.size} elements of {name} are wrong, most {how_far}at "
        f"{place}: {found[index]!s} where the CPU EP gives {expected[index]!s}"
    )


def _wrong(
    found: np.ndarray[Any, Any],
    expected: np.ndarray[Any, Any],
    tolerance: tuple[float, float],
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Which elements are too far away, and how far all are."""
    unequal = np.asarray(found != expected)
    if found.dtype.kind in "OUSb":
        return unequal, np.where(unequal, np.inf, 0.0)
    relative, absolute = tolerance
    wide = np.complex128 if found.dtype.kind == "c" else np.float64
    one, other = found.astype(wide), expected.astype(wide)
    with np.errstate(all="ignore"):
        distance = np.abs(one - other)
        allowed = absolute + relative * np.abs(other)
    if found.dtype.kind in "iu":
        # what is unequal is at least 1 apart, even if float64 cannot tell it
        distance = np.where(unequal, np.maximum(distance, 1.0), 0.0)
    near = np.isfinite(other) & (distance <= allowed)
    both_nan = np.isnan(one) & np.isnan(other)
    return unequal & ~both_nan & ~near, distance
