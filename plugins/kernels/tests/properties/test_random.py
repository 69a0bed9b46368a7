"""What is sure of random numbers: shapes, types, bounds, and that seeds repeat them."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from .comparison import assert_same, narrow, result_of, wide
from .strategies import Draw, examples


@pytest.mark.parametrize("op_type", ["RandomUniform", "RandomNormal"])
@examples(30)
def test_given_shapes(op_type: str, draw: Draw) -> None:
    dtype, shape, seed = draw.dtype(op_type), draw.shape(), float(draw.integer(0, 99))
    number = int(helper.np_dtype_to_tensor_dtype(dtype))
    low = draw.one_of([0.0, -2.0, 5.0])
    bounds = {"low": low, "high": low + 2} if op_type == "RandomUniform" else {}
    given = {"seed": seed, "dtype": number, **bounds}
    found = result_of(op_type, shape=shape, **given)
    assert (found.dtype, found.shape) == (dtype, shape)
    if bounds:
        # a number just below the upper bound may be rounded to it
        assert (wide(found) >= low).all()
        assert (wide(found) <= low + 2).all()
    assert_same(result_of(op_type, shape=shape, **given), found)
    like = draw.array(draw.dtype(f"{op_type}Like", "T1"), shape)
    assert_same(result_of(f"{op_type}Like", like, **given), found)


@examples(30)
def test_bernoulli_of_certainties(draw: Draw) -> None:
    source, dtype = draw.dtype("Bernoulli", "T1"), draw.dtype("Bernoulli", "T2")
    x = draw.of(np.array([0, 1]).astype(source), draw.shape())
    number = int(helper.np_dtype_to_tensor_dtype(dtype))
    expected = narrow(wide(x), dtype)
    assert_same(result_of("Bernoulli", x, dtype=number), expected)


@examples(30)
def test_multinomial_of_certainties(draw: Draw) -> None:
    source, dtype = draw.dtype("Multinomial", "T1"), draw.dtype("Multinomial", "T2")
    rows, classes, samples = (draw.integer(1, 5) for _ in range(3))
    chosen = draw.integers(0, classes - 1, (rows,))
    logarithms = np.full((rows, classes), -np.inf)
    logarithms[np.arange(rows), chosen] = draw.one_of([0.0, 5.0, -300.0])
    found = result_of(
        "Multinomial",
        logarithms.astype(source),
        sample_size=samples,
        dtype=int(helper.np_dtype_to_tensor_dtype(dtype)),
    )
    assert_same(found, np.repeat(chosen[:, None], samples, 1).astype(dtype))
