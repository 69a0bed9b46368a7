"""Embeddings out of quantized tables."""

from __future__ import annotations

from typing import Any

from onnxplug_kernels.gather import gather
from onnxplug_kernels.norm import layer_normalization
from onnxplug_microsoft.kernels import KERNELS
from onnxplug_microsoft.kernels.linear import dequantized


@KERNELS.operator("QEmbedLayerNormalization", since=1)
def q_embed_layer_normalization(
    xp: Any,
    input_ids: Any,
    segment_ids: Any | None,
    words: Any,
    positions: Any,
    segments: Any | None,
    gamma: Any,
    beta: Any,
    mask: Any | None,
    words_scale: Any,
    positions_scale: Any,
    segments_scale: Any | None,
    gamma_scale: Any,
    beta_scale: Any,
    words_zero_point: Any,
    positions_zero_point: Any,
    segments_zero_point: Any | None,
    gamma_zero_point: Any,
    beta_zero_point: Any,
    *,
    epsilon: float = 9.999999960041972e-13,
) -> tuple[Any, Any]:
    """The normalised sum of the embeddings of words, positions and segments.

    Returns:
        [batch, time, hidden], and how many ones are in each row of *mask*: int32
        [batch], zeros without a mask.
    """
    if segment_ids is not None and (segments is None or segments_scale is None):
        raise ValueError("QEmbedLayerNormalization has segment_ids, but no segments")
    time = input_ids.shape[1]
    if time > positions.shape[0]:
        raise ValueError(
            f"QEmbedLayerNormalization of {time} words has embeddings of "
            f"{positions.shape[0]} positions"
        )
    total = dequantized(
        xp, gather(xp, words, input_ids), words_scale, words_zero_point
    ) + dequantized(xp, positions[:time, ...], positions_scale, positions_zero_point)
    if segment_ids is not None:
        total = total + dequantized(
            xp, gather(xp, segments, segment_ids), segments_scale, segments_zero_point
        )
    y = layer_normalization(
        xp,
        total,
        dequantized(xp, gamma, gamma_scale, gamma_zero_point),
        dequantized(xp, beta, beta_scale, beta_zero_point),
        epsilon=epsilon,
    )
    if mask is None:
        return y, xp.zeros(input_ids.shape[0], dtype=xp.int32)
    return y, xp.sum(xp.astype(mask == 1, xp.int32), axis=1, dtype=xp.int32)
