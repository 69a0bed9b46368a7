"""Normalisations."""

from __future__ import annotations

from typing import Any

import numpy as np

from mil_interpreter.registry import operation

Array = np.ndarray[Any, Any]


def _per_channel(vector: Array, rank: int) -> Array:
    return vector.reshape(-1, *[1] * (rank - 2))


def _normalize(x: Array, axes: tuple[int, ...], epsilon: Any) -> Array:
    mean = x.mean(axis=axes, keepdims=True)
    variance = np.square(x - mean).mean(axis=axes, keepdims=True)
    return (x - mean) / np.sqrt(variance + x.dtype.type(epsilon))


@operation("batch_norm")
def batch_norm(
    x: Array,
    mean: Array,
    variance: Array,
    gamma: Array | None = None,
    beta: Array | None = None,
    epsilon: Any = 1e-5,
) -> Array:
    spread = np.sqrt(_per_channel(variance, x.ndim) + x.dtype.type(epsilon))
    result = (x - _per_channel(mean, x.ndim)) / spread
    return _scale(result, gamma, beta)


@operation("instance_norm")
def instance_norm(
    x: Array,
    gamma: Array | None = None,
    beta: Array | None = None,
    epsilon: Any = 1e-5,
) -> Array:
    return _scale(_normalize(x, tuple(range(2, x.ndim)), epsilon), gamma, beta)


def _scale(x: Array, gamma: Array | None, beta: Array | None) -> Array:
    if gamma is not None:
        x = x * _per_channel(gamma, x.ndim)
    return x if beta is None else x + _per_channel(beta, x.ndim)


@operation("layer_norm")
def layer_norm(
    x: Array,
    axes: Array | None = None,
    gamma: Array | None = None,
    beta: Array | None = None,
    epsilon: Any = 1e-5,
) -> Array:
    over = range(x.ndim) if axes is None else axes
    chosen = tuple(sorted(int(axis) % x.ndim for axis in over))
    shape = [size if axis in chosen else 1 for axis, size in enumerate(x.shape)]
    result = _normalize(x, chosen, epsilon)
    if gamma is not None:
        result = result * gamma.reshape(shape)
    return result if beta is None else result + beta.reshape(shape)


@operation("l2_norm")
def l2_norm(x: Array, epsilon: Any = 1e-6) -> Array:
    squares = np.square(x).sum(axis=(-3, -2, -1), keepdims=True)
    return x / np.sqrt(squares + x.dtype.type(epsilon))


@operation("local_response_norm")
def local_response_norm(
    x: Array, size: Any, alpha: Any = 1e-4, beta: Any = 0.75, k: Any = 1.0
) -> Array:
    size = int(size)
    before = (size - 1) // 2
    pads = [(0, 0), (before, size - 1 - before), *[(0, 0)] * (x.ndim - 2)]
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(np.square(x), pads), size, axis=1
    )
    sums = windows.sum(axis=-1)
    return x / np.power(k + alpha / size * sums, beta, dtype=x.dtype)
