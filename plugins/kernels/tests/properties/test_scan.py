"""Running sums and products against loops over rows."""

from __future__ import annotations

import itertools
import operator
from typing import Any

import numpy as np
import pytest

from .comparison import assert_near, assert_same, objects, result_of, wide, wrapped
from .strategies import Array, Draw, examples, is_integer


@pytest.mark.parametrize(
    ("op_type", "function", "neutral"),
    [("CumSum", operator.add, 0), ("CumProd", operator.mul, 1)],
)
@examples(70)
def test_scans(op_type: str, function: Any, neutral: int, draw: Draw) -> None:
    dtype = draw.dtype(op_type)
    x = draw.array(dtype, draw.shape(1), "powers" if neutral else "special")
    axis = draw.axis(x.ndim)
    flags = {name: draw.integer(0, 1) for name in ("exclusive", "reverse")}
    index = np.array(axis, draw.one_of([np.int64, np.int32]))
    found = result_of(op_type, x, index, **flags)

    def scanned(x: Array) -> Array:
        result = np.empty_like(x)
        rows, results = np.moveaxis(x, axis, -1), np.moveaxis(result, axis, -1)
        step = -1 if flags["reverse"] else 1
        for place in np.ndindex(rows.shape[:-1]):
            row = itertools.accumulate(rows[place][::step], function, initial=neutral)
            start = 0 if flags["exclusive"] else 1
            whole = list(row)[start : start + rows.shape[-1]]
            results[place] = whole[::step]
        return result

    if is_integer(dtype):
        assert_same(found, wrapped(scanned(objects(x)), dtype))
        return
    with np.errstate(all="ignore"):
        exact = scanned(wide(x))
        size = np.nan_to_num(np.abs(x.astype(float)).sum(axis, keepdims=True), posinf=0)
    near = max(2, x.shape[axis]) if dtype.itemsize > 2 else 1
    assert_near(found, exact, dtype, near, 0 if neutral else size)
