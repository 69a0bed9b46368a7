"""Products of matrices, and attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mil_interpreter.operations.activation import softmax
from mil_interpreter.registry import operation

Array = np.ndarray[Any, Any]


@operation("linear")
def linear(x: Array, weight: Array, bias: Array | None = None) -> Array:
    product = x @ weight.T
    return product if bias is None else product + bias


@operation("matmul")
def matmul(
    x: Array, y: Array, transpose_x: Any = False, transpose_y: Any = False
) -> Array:
    if transpose_x and x.ndim > 1:
        x = x.swapaxes(-1, -2)
    if transpose_y and y.ndim > 1:
        y = y.swapaxes(-1, -2)
    return np.asarray(x @ y)


@operation("einsum")
def einsum(values: Sequence[Array], equation: str) -> Array:
    return np.einsum(equation, *values)


@operation("scaled_dot_product_attention")
def scaled_dot_product_attention(
    query: Array, key: Array, value: Array, attn_mask: Array | None = None
) -> Array:
    scores = query @ key.swapaxes(-1, -2) / np.float32(np.sqrt(query.shape[-1]))
    if attn_mask is not None and attn_mask.dtype == np.bool_:
        scores = np.where(attn_mask, scores, np.float32(-np.inf))
    elif attn_mask is not None:
        scores = scores + attn_mask
    return softmax(scores) @ value
