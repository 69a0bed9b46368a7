"""Whether results are the numbers expected, to the bit."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from .formats import Array, codes_of, decode


def assert_same(
    results: Iterable[Array], numbers: Array, defined: Array, x: Array
) -> None:
    """Compare each result with exact *numbers*, and zeros and infinities by sign, too.

    Args:
        defined: which elements have a defined result.
        x: what they were made from, for the message.
    """
    compared: Array | None = None
    for result in results:
        if compared is None or (codes_of(result) != codes_of(compared)).any():
            _compare(result, numbers, defined, x)
            compared = result


def _compare(found: Array, numbers: Array, defined: Array, x: Array) -> None:
    actual = decode(found)
    same = actual == numbers
    if numbers.dtype == np.float64:
        same &= np.signbit(actual) == np.signbit(numbers)
        same |= np.isnan(actual) & np.isnan(numbers)
    wrong = ~same.astype(bool) & defined
    if wrong.any():
        place = int(np.flatnonzero(wrong)[0])
        pytest.fail(
            f"{wrong.sum()} of {x.size} are wrong: {x.dtype} {decode(x)[place]!r} "
            f"became {found.dtype} {actual[place]!r}, expected {numbers[place]!r}"
        )
