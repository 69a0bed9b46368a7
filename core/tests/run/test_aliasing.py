"""Which arrays share memory, among many, against a comparison of each pair."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxplug.run.aliasing import overlap, sharing

Array = np.ndarray[Any, Any]


def views(seed: int, count: int) -> list[Array]:
    """Parts of one array, forwards and backwards, with gaps, broadcast and empty."""
    rng, memory = np.random.default_rng(seed), np.zeros((8, 40), np.int16)
    found = []
    for _ in range(count):
        first, size = rng.integers(0, 8, 2)
        row, length = rng.integers(0, 40, 2)
        part = memory[first : first + size, row : row + length]
        if rng.integers(2):
            part = part[:: rng.choice([-1, 1, 2]), :: rng.choice([-2, -1, 1, 3])]
        if rng.integers(4) == 0:
            part = np.broadcast_to(part, (2, *part.shape))
        found.append(part)
    return [*found, np.zeros(3), np.zeros((), np.float32)]


@pytest.mark.parametrize("seed", range(20))
def test_many_arrays(seed: int) -> None:
    arrays, values = views(seed, 12), views(seed + 100, 9)
    both: list[Any] = [*arrays[::2], None, *values]
    expected = [
        [at for at, value in enumerate(both) if overlap(array, value)]
        for array in arrays
    ]
    assert sharing(arrays, both) == expected
    assert any(len(each) > 1 for each in expected)


def test_few_arrays_and_other_values() -> None:
    one, other = np.zeros(4), object()
    values = [one[1:], other, [one[:2]], None]
    assert sharing([one, other], values) == [[0, 2], [1]]
    assert sharing([], values) == []
