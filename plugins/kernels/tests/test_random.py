"""Random numbers: their dtypes, their seeds, and what they add up to."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from onnxplug.ep import DataType

from .node_oracles import reference, run

SHAPE = (100, 50)
LIKE = np.zeros(SHAPE, dtype=np.float64)
CASES: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("RandomNormal", (), {"shape": SHAPE}),
    ("RandomUniform", (), {"shape": SHAPE}),
    ("RandomNormalLike", (LIKE,), {}),
    ("RandomUniformLike", (LIKE,), {}),
    ("Bernoulli", (LIKE + 0.5,), {}),
    ("Multinomial", (LIKE,), {"sample_size": 50}),
]


@pytest.mark.parametrize(("op_type", "inputs", "attributes"), CASES)
def test_seeds(op_type: str, inputs: Any, attributes: Any) -> None:
    def draw(**seed: Any) -> Any:
        return run(op_type, *inputs, version=22, **attributes, **seed)

    first = draw(seed=7.0)
    assert first.shape == SHAPE
    np.testing.assert_array_equal(first, draw(seed=7.0))
    assert (first != draw(seed=8.0)).any()
    assert (draw(seed=-1.0) == draw(seed=-1.0)).all()
    assert (draw() != draw()).any()


@pytest.mark.parametrize(("op_type", "inputs", "attributes"), CASES[:5])
def test_a_scalar_is_an_array(op_type: str, inputs: Any, attributes: Any) -> None:
    scalar = [x[0, 0].reshape(()) for x in inputs]
    shape = {"shape": ()} if attributes else {}
    result = run(op_type, *scalar, version=22, seed=1.0, **shape)
    assert isinstance(result, np.ndarray)
    assert result.shape == ()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_distributions(dtype: str) -> None:
    attributes: dict[str, Any] = {"dtype": DataType(dtype).onnx, "seed": 1.0}
    normal = run("RandomNormal", shape=SHAPE, mean=5.0, scale=2.0, **attributes)
    uniform = run("RandomUniform", shape=SHAPE, low=-1.0, high=3.0, **attributes)
    for result, mean, deviation in ((normal, 5, 2), (uniform, 1, 4 / 12**0.5)):
        assert result.dtype == DataType(dtype).numpy
        wide = result.astype(np.float64)
        assert abs(wide.mean() - mean) < 0.15
        assert abs(wide.std() - deviation) < 0.1
    wide = uniform.astype(np.float64)
    assert wide.min() >= -1
    assert wide.max() <= 3


def test_dtypes() -> None:
    assert run("RandomNormal", shape=(2,)).dtype == np.float32
    assert run("RandomUniform", shape=()).shape == ()
    half = np.zeros((2, 3), dtype=np.float16)
    for op_type in ("RandomNormalLike", "RandomUniformLike"):
        assert run(op_type, half).dtype == np.float16
        assert run(op_type, half, dtype=DataType.FLOAT64.onnx).dtype == np.float64


def test_seeded_numbers_are_the_reference_implementation_s() -> None:
    for op_type in ("RandomNormal", "RandomUniform"):
        (expected,) = reference(op_type, shape=(3, 4), seed=5.0)
        result = run(op_type, shape=(3, 4), seed=5.0)
        np.testing.assert_allclose(result, expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_bernoulli(dtype: Any) -> None:
    p = np.tile(np.array([0, 0.25, 1]), (4000, 1)).astype(dtype)
    result = run("Bernoulli", p, seed=1.0, version=22)
    assert result.dtype == dtype
    means = result.astype(np.float64).mean(axis=0)
    assert (means[0], means[2]) == (0, 1)
    assert 0.2 < means[1] < 0.3
    for name in ("bool", "int8", "bfloat16"):
        typed = run("Bernoulli", p, dtype=DataType(name).onnx, version=22)
        assert typed.dtype == DataType(name).numpy
        assert set(np.unique(typed.astype(int))) == {0, 1}


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_multinomial(dtype: Any) -> None:
    with np.errstate(divide="ignore"):
        # unnormalised, and large enough to overflow if exponentiated as they are
        x = np.log(np.array([[0, 1, 0, 3, 0], [1, 0, 0, 0, 0]])) + 1000
    result = run("Multinomial", x.astype(dtype), sample_size=4000, seed=2.0)
    assert (result.dtype, result.shape) == (np.int32, (2, 4000))
    counts = np.bincount(result[0], minlength=5)
    assert counts[[0, 2, 4]].tolist() == [0, 0, 0]
    assert 900 < counts[1] < 1100
    assert (result[1] == 0).all()
    typed = run("Multinomial", x.astype(dtype), dtype=DataType.INT64.onnx)
    assert (typed.dtype, typed.shape) == (np.int64, (2, 1))
