"""Random numbers.

A node's seed gives the numbers of numpy's legacy generator, which are the ONNX
reference implementation's; without one they differ from call to call, and follow from
the seed of the process if that is set.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxplug import ep
from onnxplug.authoring.bounds import at_least, sizes
from onnxplug_kernels.arrays import element_dtype, require_rank
from onnxplug_kernels.registry import operator


@operator("RandomNormal", since=1)
def random_normal(
    xp: Any,
    *,
    shape: Sequence[int],
    dtype: int = 1,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,
) -> Any:
    return _normal(xp, shape, element_dtype(xp, dtype), mean, scale, seed)


@operator("RandomNormalLike", since=1)
def random_normal_like(
    xp: Any,
    x: Any,
    *,
    dtype: int | None = None,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,
) -> Any:
    return _normal(xp, x.shape, _dtype_or_same(xp, x, dtype), mean, scale, seed)


@operator("RandomUniform", since=1)
def random_uniform(
    xp: Any,
    *,
    shape: Sequence[int],
    dtype: int = 1,
    high: float = 1.0,
    low: float = 0.0,
    seed: float | None = None,
) -> Any:
    return _uniform(xp, shape, element_dtype(xp, dtype), low, high, seed)


@operator("RandomUniformLike", since=1)
def random_uniform_like(
    xp: Any,
    x: Any,
    *,
    dtype: int | None = None,
    high: float = 1.0,
    low: float = 0.0,
    seed: float | None = None,
) -> Any:
    return _uniform(xp, x.shape, _dtype_or_same(xp, x, dtype), low, high, seed)


@operator("Bernoulli", since=15)
def bernoulli(
    xp: Any, x: Any, *, dtype: int | None = None, seed: float | None = None
) -> Any:
    """One with probability *x*, else zero."""
    uniform = xp.asarray(_generator(xp, seed).random_sample(x.shape))
    chosen = xp.asarray(uniform < x.astype(np.float64))
    return chosen.astype(_dtype_or_same(xp, x, dtype))


@operator("Multinomial", since=7)
def multinomial(
    xp: Any,
    x: Any,
    *,
    dtype: int = 6,
    sample_size: int = 1,
    seed: float | None = None,
) -> Any:
    """Classes drawn for each row of *x*, which holds logarithms of probabilities.

    A uniform number falls into the class where the cumulated probabilities exceed it.
    """
    require_rank(x, "the input", 2, 2)
    at_least(1, [sample_size], "sample_size")
    sizes([len(x), sample_size], itemsize=8)
    logarithms = x.astype(np.float64)
    weights = xp.exp(logarithms - xp.max(logarithms, axis=1, keepdims=True))
    cumulated = xp.cumsum(weights, axis=1)
    if not xp.all(cumulated[:, -1:] > 0):
        raise ValueError(
            "Multinomial has a row without any probability: NaN, an infinity, or minus "
            "infinity alone"
        )
    uniform = _generator(xp, seed).random_sample((x.shape[0], sample_size))
    result = xp.empty((x.shape[0], sample_size), dtype=element_dtype(xp, dtype))
    for row, (steps, numbers) in enumerate(zip(cumulated, uniform, strict=True)):
        result[row] = xp.searchsorted(steps / steps[-1], numbers, side="right")
    return result


def _normal(
    xp: Any,
    shape: Sequence[int],
    dtype: np.dtype[Any],
    mean: float,
    scale: float,
    seed: float | None,
) -> Any:
    whole = sizes(shape, itemsize=8)
    standard = xp.asarray(_generator(xp, seed).standard_normal(whole))
    return xp.asarray(standard * scale + mean).astype(dtype)


def _uniform(
    xp: Any,
    shape: Sequence[int],
    dtype: np.dtype[Any],
    low: float,
    high: float,
    seed: float | None,
) -> Any:
    whole = sizes(shape, itemsize=8)
    unit = xp.asarray(_generator(xp, seed).random_sample(whole))
    return xp.asarray(unit * (high - low) + low).astype(dtype)


def _dtype_or_same(xp: Any, x: Any, dtype: int | None) -> np.dtype[Any]:
    same: np.dtype[Any] = x.dtype
    return same if dtype is None else element_dtype(xp, dtype)


def _generator(xp: Any, seed: float | None) -> Any:
    if seed is not None and not math.isfinite(seed):
        raise ValueError(f"the seed is {seed}; expected a finite number")
    # ONNX's seed is any float; the generator takes 32 bits
    whole = ep.next_seed() if seed is None else int(seed) % 2**32
    return xp.library.random.RandomState(whole)
