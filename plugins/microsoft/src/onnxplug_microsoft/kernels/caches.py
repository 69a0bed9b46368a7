"""Caches of keys and values with room for more rows than are in use, and heads that
attend to them.

Letters in shapes: B sequences, S new rows of each, N heads, H their size, T rows of a
cache, L those in use with the new ones.
"""

from __future__ import annotations

from typing import Any

from onnxplug.authoring.bounds import at_least
from onnxplug_microsoft.kernels import KERNELS


def kept(
    xp: Any,
    past: Any | None,
    rows: Any,
    starts: Any,
    total: int,
    dtype: Any,
    operator: str,
) -> Any:
    """A cache [B, G, T, H] with new rows, and zeros behind them.

    Args:
        past: [B, G, P, H] if there is one; T is no less than P.
        rows: the new ones, [B, G, S, H].
        starts: of each sequence, which row of the cache the first new one is.
        total: as many rows the cache has at least.
        dtype: of the cache.
        operator: who asks, for errors.

    Raises:
        IndexError: rows behind the end of the cache, or behind rows that *past* has
            not.
    """
    batch, shared, new, size = rows.shape
    capacity = new if past is None else max(past.shape[2], total)
    whole = xp.zeros((batch, shared, capacity, size), dtype=dtype)
    for image in range(batch):
        start = int(starts[image])
        if start + new > capacity:
            raise IndexError(
                f"{operator}: rows {start} to {start + new - 1} of sequence {image} "
                f"have no place in a cache of {capacity}"
            )
        if past is not None:
            if start > past.shape[2]:
                raise IndexError(
                    f"{operator}: sequence {image} has {start} rows before the new "
                    f"ones; its cache has {past.shape[2]}"
                )
            whole[image, :, :start] = past[image, :, :start]
        whole[image, :, start : start + new] = xp.astype(rows[image], dtype)
    return whole


@KERNELS.operator("MultiHeadAttention", since=1)
def multi_head_attention(
    xp: Any,
    query: Any,
    key: Any,
    value: Any,
    bias: Any | None,
    key_padding_mask: Any | None,
    attention_bias: Any | None,
    past_key: Any,
    past_value: Any,
    past_sequence_length: Any,
    cache_indirection: Any | None = None,
    *,
    num_heads: int,
    mask_filter_value: float = -10000.0,
    scale: float = 0.0,
    unidirectional: int = 0,
    output_count: int = 1,
) -> Any:
    """MultiHeadAttention with caches that have room; without, it is a function.

    Args:
        query, key, value: [B, S, N * H], all rows new.
        bias: [3 * N * H] of these.
        key_padding_mask: [B, L], 1 where a key counts.
        attention_bias: broadcast to [B, N, S, L].
        past_key, past_value: [B, N, T, H].
        past_sequence_length: how many rows of them are in use, one number.
        cache_indirection: see `_chosen`.

    Returns:
        [B, S, N * H], and the caches, as far as *output_count* says.

    Raises:
        IndexError: rows that have no place in the caches.
        ValueError: sizes do not fit.
    """
    rows = _projected(xp, (query, key, value), bias, num_heads, "MultiHeadAttention")
    form = mask_filter_value, scale, bool(unidirectional)
    found = _attended(
        xp, rows, (past_key, past_value), past_sequence_length, key_padding_mask,
        attention_bias, cache_indirection, form, "MultiHeadAttention",
    )  # fmt: skip
    return found[0] if output_count == 1 else found[:output_count]


@KERNELS.operator(
    "DecoderMaskedMultiHeadAttention",
    since=1,
    allowed={"output_qk": (0,), "past_present_share_buffer": (0, 1)},
)
def decoder_masked_multi_head_attention(
    xp: Any,
    query: Any,
    key: Any,
    value: Any,
    mask_index: Any | None,
    attention_bias: Any | None,
    past_key: Any,
    past_value: Any,
    past_sequence_length: Any,
    beam_width: Any | None = None,
    cache_indirection: Any | None = None,
    bias: Any | None = None,
    *,
    num_heads: int,
    mask_filter_value: float = -10000.0,
    output_qk: int = 0,
    past_present_share_buffer: int = 0,
    scale: float = 0.0,
    output_count: int = 1,
) -> Any:
    """DecoderMaskedMultiHeadAttention with caches that have room; without, it is a
    function.  As :func:`multi_head_attention` of one row of each sequence."""
    operator = "DecoderMaskedMultiHeadAttention"
    if query.shape[1] != 1:
        raise ValueError(f"{operator} has {query.shape[1]} rows, and not one")
    rows = _projected(xp, (query, key, value), bias, num_heads, operator)
    found = _attended(
        xp, rows, (past_key, past_value), past_sequence_length, mask_index,
        attention_bias, cache_indirection, (mask_filter_value, scale, False), operator,
    )  # fmt: skip
    return found[0] if output_count == 1 else found[:output_count]


def _projected(
    xp: Any, parts: tuple[Any, ...], bias: Any | None, heads: int, operator: str
) -> list[Any]:
    """Queries, keys and values [B, N, S, H] with their bias."""
    at_least(1, [heads], "num_heads")
    shape = parts[0].shape
    if len(shape) != 3 or shape[2] % heads or any(p.shape != shape for p in parts):
        raise ValueError(
            f"{operator} of {heads} heads with a cache that has room has inputs "
            f"{[part.shape for part in parts]}; expected queries, keys and values of "
            "one shape [batch, rows, heads * size]"
        )
    if bias is not None:
        if bias.shape != (3 * shape[2],):
            raise ValueError(
                f"{operator} has a bias {bias.shape}; expected ({3 * shape[2]},)"
            )
        whole = xp.reshape(bias, (3, shape[2]))
        parts = tuple(part + whole[n] for n, part in enumerate(parts))
    split = (*shape[:2], heads, shape[2] // heads)
    return [xp.permute_dims(xp.reshape(part, split), (0, 2, 1, 3)) for part in parts]


def _attended(
    xp: Any,
    rows: list[Any],
    past: tuple[Any, Any],
    used: Any,
    padding: Any | None,
    added: Any | None,
    chosen: Any | None,
    form: tuple[float, float, bool],
    operator: str,
) -> tuple[Any, Any, Any]:
    """The result and the caches.

    Args:
        form: what masked scores get, the scale, and whether keys after a query are
            hidden.
    """
    q, k, v = rows
    batch, heads, new, size = q.shape
    wanted = (batch, heads, past[0].shape[2], size)
    if past[0].shape != wanted or past[1].shape != wanted or xp.size(used) != 1:
        raise ValueError(
            f"{operator} has caches {past[0].shape} and {past[1].shape}, and lengths "
            f"{used.shape}; expected {wanted} and one number"
        )
    first = int(xp.reshape(used, (-1,))[0])
    if first < 0:
        raise IndexError(f"{operator} has {first} rows in use")
    length = first + new
    keys, values = (
        kept(xp, before, part, [first] * batch, 0, before.dtype, operator)
        for before, part in zip(past, (k, v), strict=True)
    )
    seen = [xp.astype(x[:, :, :length], xp.float32) for x in (keys, values)]
    if chosen is not None:
        seen = [_chosen(xp, each, chosen, first, operator) for each in seen]
    filler, scale, is_causal = form
    scores = xp.matmul(xp.astype(q, xp.float32), xp.permute_dims(seen[0], (0, 1, 3, 2)))
    scores = scores * (scale or max(size, 1) ** -0.5)
    if padding is not None:
        if padding.shape != (batch, length):
            raise ValueError(
                f"{operator} has a mask {padding.shape}; expected {(batch, length)}"
            )
        scores = scores + xp.where(padding[:, None, None, :] > 0, 0.0, filler)
    if added is not None:
        scores = scores + xp.astype(added, xp.float32)
    if is_causal:
        own = first + xp.arange(new)[:, None]
        scores = xp.where(xp.arange(length) > own, -xp.inf, scores)
    weights = xp.exp(scores - xp.max(scores, axis=-1, keepdims=True))
    weights = weights / xp.sum(weights, axis=-1, keepdims=True)
    found = xp.permute_dims(xp.matmul(weights, seen[1]), (0, 2, 1, 3))
    y = xp.astype(xp.reshape(found, (batch, new, heads * size)), q.dtype)
    return y, keys, values


def _chosen(xp: Any, rows: Any, beams: Any, first: int, operator: str) -> Any:
    """The rows [B, N, L, H] that beams of a search have: of the first ones those of the
    beam that *beams* [B / W, W, T] says, of W beams.

    Raises:
        IndexError: there is no such beam.
        ValueError: the shape does not fit.
    """
    batch, width = rows.shape[0], beams.shape[1] if beams.ndim == 3 else 0
    if not width or beams.shape[0] * width != batch or beams.shape[2] < first:
        raise ValueError(
            f"{operator} has cache_indirection {beams.shape} for {batch} sequences "
            f"with {first} rows; expected [batch, beams, rows]"
        )
    places = xp.astype(beams[:, :, :first], xp.int64)
    if xp.any((places < 0) | (places >= width)):
        raise IndexError(f"{operator}: cache_indirection has none of {width} beams")
    found = xp.asarray(rows, copy=True)
    for image in range(batch):
        of = image // width * width + places[image // width, image % width]
        for row in range(first):
            found[image, :, row] = rows[int(of[row]), :, row]
    return found
