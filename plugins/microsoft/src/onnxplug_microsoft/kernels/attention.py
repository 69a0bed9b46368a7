"""Attention over a quantized input, with quantized weights of its projections."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from onnxplug.authoring.bounds import at_least
from onnxplug_microsoft.kernels import KERNELS
from onnxplug_microsoft.kernels.product import matmul_integer_to_float

_LOWEST: Final = float(np.finfo(np.float32).min)


@KERNELS.operator(
    "QAttention",
    since=1,
    allowed={"do_rotary": (0,), "past_present_share_buffer": (0,)},
)
def q_attention(
    xp: Any,
    x: Any,
    weight: Any,
    bias: Any,
    x_scale: Any,
    weight_scale: Any,
    mask_index: Any | None = None,
    x_zero_point: Any | None = None,
    weight_zero_point: Any | None = None,
    past: Any | None = None,
    *,
    do_rotary: int = 0,
    mask_filter_value: float = -10000.0,
    num_heads: int,
    past_present_share_buffer: int = 0,
    scale: float = 0.0,
    unidirectional: int = 0,
    output_count: int = 1,
) -> Any:
    """Self-attention of *x* [batch, time, input].

    Args:
        weight: [input, 3 · hidden], of queries, keys and values.
        mask_index: see `_added`.
        past: [2, batch, heads, past time, head size], keys and values before *x*.

    Returns:
        [batch, time, hidden], and keys and values [2, batch, heads, total time, head
        size] when two outputs are asked for.
    """
    if past is not None and output_count < 2:
        raise ValueError(
            "QAttention has the input past, but not the output present: ask for both"
        )
    projected = matmul_integer_to_float(
        xp, x, weight, x_scale, weight_scale, x_zero_point, weight_zero_point, bias
    )
    batch, time, width = projected.shape
    at_least(1, [num_heads], "num_heads")
    size = width // 3 // num_heads
    if size * 3 * num_heads != width:
        raise ValueError(
            f"QAttention has weights for {width} columns, which are not queries, keys "
            f"and values of {num_heads} heads"
        )
    heads = xp.reshape(projected, (batch, time, 3, num_heads, size))
    query, key, value = xp.permute_dims(heads, (2, 0, 3, 1, 4))
    if past is not None:
        if past.shape[:3] != (2, batch, num_heads) or past.shape[4:] != (size,):
            raise ValueError(
                f"past has shape {past.shape}, expected [2, {batch}, {num_heads}, past "
                f"time, {size}]"
            )
        key = xp.concat((past[0], key), axis=2)
        value = xp.concat((past[1], value), axis=2)
    scores = xp.matmul(query, xp.swapaxes(key, -1, -2))
    scores *= scale or 1 / math.sqrt(max(size, 1))
    total = key.shape[2]
    if mask_index is not None:
        scores = scores + _added(xp, mask_index, batch, time, total, mask_filter_value)
    if unidirectional and time > 1:
        later = xp.arange(total) > xp.arange(total - time, total)[:, None]
        scores = xp.where(later, _LOWEST, scores)
    if xp.size(scores):
        scores -= xp.maximum(xp.max(scores, axis=-1, keepdims=True), _LOWEST)
    weights = xp.exp(scores)
    weights /= xp.sum(weights, axis=-1, keepdims=True)
    y = xp.reshape(
        xp.swapaxes(xp.matmul(weights, value), 1, 2), (batch, time, width // 3)
    )
    return y if output_count == 1 else (y, xp.stack((key, value)))


def _added(
    xp: Any, mask: Any, batch: int, time: int, total: int, filtered: float
) -> Any:
    """What is added to the scores [batch, heads, time, total].

    *mask* is where each sequence ends [batch]; where it ends, then where it begins
    [2 · batch]; or 1 where a key counts [batch, total] or [batch, time, total]; one of
    shape [batch, 1] or [1, 1] only keeps the place of a mask.

    Raises:
        ValueError: it has another shape.
    """
    if mask.ndim == 1 and xp.size(mask) and int(xp.min(mask)) < 0:
        raise ValueError(
            f"mask_index is {xp.tolist(mask)}; expected ends and beginnings from 0 on"
        )
    positions = xp.arange(total)
    if mask.shape == (batch,):
        counts = positions < mask[:, None]
    elif mask.shape == (2 * batch,):
        counts = (positions < mask[:batch, None]) & (positions >= mask[batch:, None])
    elif mask.shape in ((batch, total), (batch, time, total)):
        counts = mask > 0
    elif mask.shape in ((batch, 1), (1, 1)):
        return 0
    else:
        raise ValueError(
            f"mask_index has shape {mask.shape}; expected {(batch,)}, {(2 * batch,)}, "
            f"{(batch, total)}, {(batch, time, total)}, {(batch, 1)} or (1, 1)"
        )
    if counts.ndim == 2:
        counts = counts[:, None, :]
    return xp.where(counts, xp.zeros((), dtype=xp.float32), filtered)[:, None, ...]
