"""Activations."""

from __future__ import annotations

from typing import Any

import numpy as np

from mil_interpreter.operations.elementwise import erf
from mil_interpreter.registry import operation

Array = np.ndarray[Any, Any]


@operation("relu")
def relu(x: Array) -> Array:
    return np.maximum(x, 0)


@operation("relu6")
def relu6(x: Array) -> Array:
    return np.clip(x, 0, 6)


@operation("clamped_relu")
def clamped_relu(x: Array, alpha: Array, beta: Array) -> Array:
    return np.minimum(beta, np.where(x >= 0, x, alpha * x))


@operation("elu")
def elu(x: Array, alpha: Array) -> Array:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


@operation("gelu")
def gelu(x: Array, mode: str = "EXACT") -> Array:
    if mode == "EXACT":
        return 0.5 * x * (1 + erf(x / np.float32(np.sqrt(2))))
    if mode == "TANH_APPROXIMATION":
        inner = np.float32(np.sqrt(2 / np.pi)) * (x + np.float32(0.044715) * x**3)
        return 0.5 * x * (1 + np.tanh(inner))
    if mode == "SIGMOID_APPROXIMATION":
        return x * sigmoid(np.float32(1.702) * x)
    raise ValueError(f"gelu in mode {mode!r}")


@operation("leaky_relu")
def leaky_relu(x: Array, alpha: Array) -> Array:
    return np.where(x >= 0, x, alpha * x)


@operation("linear_activation")
def linear_activation(x: Array, alpha: Array, beta: Array) -> Array:
    return x * alpha + beta


@operation("prelu")
def prelu(x: Array, alpha: Array) -> Array:
    slope = alpha.reshape(-1, *[1] * (x.ndim - 2))
    return np.where(x > 0, x, slope * x)


@operation("scaled_tanh")
def scaled_tanh(x: Array, alpha: Array, beta: Array) -> Array:
    return alpha * np.tanh(beta * x)


@operation("sigmoid")
def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


@operation("sigmoid_hard")
def sigmoid_hard(x: Array, alpha: Array, beta: Array) -> Array:
    return np.clip(alpha * x + beta, 0, 1)


@operation("silu")
def silu(x: Array) -> Array:
    return x * sigmoid(x)


@operation("softplus")
def softplus(x: Array) -> Array:
    return np.logaddexp(x, x.dtype.type(0))


@operation("softsign")
def softsign(x: Array) -> Array:
    return x / (1 + np.abs(x))


@operation("thresholded_relu")
def thresholded_relu(x: Array, alpha: Array) -> Array:
    return np.where(x >= alpha, x, x.dtype.type(0))


@operation("softmax")
def softmax(x: Array, axis: Any = -1) -> Array:
    powers = np.exp(x - x.max(axis=int(axis), keepdims=True))
    return powers / powers.sum(axis=int(axis), keepdims=True)
