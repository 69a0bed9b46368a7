"""How far results may be apart, and how that is told."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from onnxplug.ep import SparseTensor
from onnxplug.verify.compare import difference

EXACT = (0.0, 0.0)
NAN, INF = np.nan, np.inf


def f32(*numbers: float) -> Any:
    return np.array(numbers, np.float32)


def sparse(*values: float) -> SparseTensor:
    indices = np.arange(len(values))
    return SparseTensor(values=f32(*values), indices=indices, shape=(9,))


@pytest.mark.parametrize(
    ("found", "expected", "tolerance"),
    [
        (f32(1, NAN, INF), f32(1, NAN, INF), EXACT),
        (f32(1.01, 100.5), f32(1, 100), (0, 0.5)),
        (f32(1.01, 101), f32(1, 100), (0.011, 0)),
        (f32(0.0), f32(-0.0), EXACT),
        (f32(), f32(), EXACT),
        (np.array(3), np.array(3), EXACT),
        (np.array([250], np.uint8), np.array([251], np.uint8), (0, 1)),
        (np.array(["a", "b"], object), np.array(["a", "b"], object), EXACT),
        (np.array([1 + 2j]), np.array([1 + 2.0001j]), (0, 1e-3)),
        (f32(1).astype(ml_dtypes.bfloat16), f32(1).astype(ml_dtypes.bfloat16), EXACT),
        ([f32(1), f32(2)], [f32(1), f32(2)], EXACT),
        ({"a": 1.5}, {"a": 1.25}, (0, 0.3)),
        ([{1: 2.0}], [{1: 2.0}], EXACT),
        (None, None, EXACT),
        (sparse(1, 2), sparse(1, 2), EXACT),
    ],
)
def test_near_enough(found: Any, expected: Any, tolerance: tuple[float, float]) -> None:
    assert difference(found, expected, tolerance, "y") == ""


@pytest.mark.parametrize(
    ("found", "expected", "tolerance", "told"),
    [
        (f32(1, NAN), f32(1, 2), (9, 9), "1 of 2 elements of y are wrong, most at [1]"),
        (f32(1, 2), f32(1, NAN), (9, 9), "most at [1]: 2.0 where the CPU EP gives nan"),
        (f32(INF), f32(1), (9, 9), "inf where"),
        (f32(-INF), f32(INF), (9, 9), "-inf where the CPU EP gives inf"),
        (f32(3e38), f32(INF), (9, 9), "1 of 1"),
        (f32(1, 2, 5), f32(1, 3, 9), EXACT, "2 of 3 elements of y are wrong, most by 4 "
         "at [2]: 5.0 where the CPU EP gives 9.0"),
        (f32(1.01), f32(1), (0.009, 0), "by 0.01"),
        (np.array(3), np.array(4), EXACT, "at []: 3 where the CPU EP gives 4"),
        (np.array([2**60]), np.array([2**60 + 1]), EXACT, "most by 1 "),
        (np.array([0], np.uint8), np.array([255], np.uint8), (0, 9), "by 255 "),
        (np.array([True]), np.array([False]), (9, 9), "True where"),
        (np.array(["a"], object), np.array(["b"], object), (9, 9), "a where"),
        (f32(1, 2), f32(1), EXACT, "y is float32[2]; the CPU EP gives float32[1]"),
        (f32(1), np.array([1.0]), EXACT, "float32[1]; the CPU EP gives float64[1]"),
        (f32(1, 2).astype(ml_dtypes.bfloat16), f32(1, 3).astype(ml_dtypes.bfloat16),
         EXACT, "most by 1 at [1]: 2 where"),
        ([f32(1), f32(2)], [f32(1), f32(3)], EXACT, "of y[1] are wrong"),
        ([f32(1)], [f32(1), f32(3)], EXACT, "y has another length"),
        ({"a": 1.5}, {"b": 1.5}, EXACT, "y has other keys"),
        ({"a": 1.5}, {"a": 1.25}, EXACT, "of y['a'] are wrong"),
        (None, f32(1), EXACT, "y is absent"),
        (f32(1), None, EXACT, "y is there"),
        (sparse(1, 2), sparse(1, 3), EXACT, "of y.values are wrong"),
        (f32(1), sparse(1), EXACT, "y is another sparse tensor"),
        (3, [3], EXACT, "another length"),
    ],
)  # fmt: skip
def test_too_far(
    found: Any, expected: Any, tolerance: tuple[float, float], told: str
) -> None:
    assert told in difference(found, expected, tolerance, "y")


def test_by_numpy_on_random_numbers() -> None:
    """``numpy.isclose`` has the same formula."""
    draw = np.random.default_rng(0)
    for _ in range(200):
        expected = draw.normal(size=7).astype(np.float32)
        found = expected + draw.normal(scale=1e-2, size=7).astype(np.float32)
        near = np.isclose(
            found.astype(np.float64), expected.astype(np.float64), 5e-3, 5e-3
        )
        told = difference(found, expected, (5e-3, 5e-3), "y")
        assert told.startswith(f"{(~near).sum()} of 7 ") if not near.all() else not told
