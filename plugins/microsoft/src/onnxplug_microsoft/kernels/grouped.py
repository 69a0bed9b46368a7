"""Attention of groups of query heads that share a key head, with a cache.

Letters in shapes: B sequences, S new rows of each, N heads of queries, G of keys, H
their size, P rows of the cache before and T after.
"""

from __future__ import annotations

from typing import Any

from onnxplug_microsoft.kernels import KERNELS
from onnxplug_microsoft.kernels.caches import kept


@KERNELS.operator(
    "GroupQueryAttention",
    since=1,
    allowed={
        "k_quant_type": ("NONE", "PER_TENSOR", "PER_CHANNEL"),
        "v_quant_type": ("NONE", "PER_TENSOR", "PER_CHANNEL"),
        "kv_cache_bit_width": (0, 4, 8),
        "sliding_window_cache": (0,),
        "qk_output": (0,),
    },
)
def group_query_attention(
    xp: Any,
    query: Any,
    key: Any | None,
    value: Any | None,
    past_key: Any | None,
    past_value: Any | None,
    seqlens_k: Any,
    total_sequence_length: Any,
    cos_cache: Any | None = None,
    sin_cache: Any | None = None,
    position_ids: Any | None = None,
    attention_bias: Any | None = None,
    head_sink: Any | None = None,
    k_scale: Any | None = None,
    v_scale: Any | None = None,
    q_norm_weight: Any | None = None,
    k_norm_weight: Any | None = None,
    query_seqlens: Any | None = None,
    *,
    num_heads: int,
    kv_num_heads: int,
    causal: int = 1,
    do_rotary: int = 0,
    k_norm_epsilon: float = 0.0,
    k_quant_type: str = "NONE",
    kv_cache_bit_width: int = 0,
    local_window_size: int = -1,
    q_norm_epsilon: float = 0.0,
    qk_norm_epsilon: float = 1e-6,
    qk_output: int = 0,
    rotary_interleaved: int = 0,
    scale: float = 0.0,
    sliding_window_cache: int = 0,
    smooth_softmax: int = -1,
    softcap: float = 0.0,
    v_quant_type: str = "NONE",
) -> tuple[Any, Any, Any]:
    """What the operator's function computes, in float32; and with caches of codes,
    int8 or two of 4 bits in a byte of uint8, to which new rows are rounded before
    anything attends to them.

    Raises:
        IndexError: rows that belong behind the end of the cache, rows before them that
            it has not, or angles that no table has.
        ValueError: sizes do not fit.
    """
    q, k, v = _heads(xp, query, key, value, num_heads, kv_num_heads)
    kinds, scales = (k_quant_type, v_quant_type), (k_scale, v_scale)
    bits = _bits(k.shape, kinds, kv_cache_bit_width, scales, past_key)
    if q_norm_weight is not None and k_norm_weight is not None:
        q = _normed(xp, q, q_norm_weight, q_norm_epsilon or qk_norm_epsilon)
        k = _normed(xp, k, k_norm_weight, k_norm_epsilon or qk_norm_epsilon)
    new, total = q.shape[2], int(xp.reshape(total_sequence_length, (-1,))[0])
    lengths = xp.astype(xp.reshape(seqlens_k, (-1,)), xp.int64) + 1
    if lengths.shape[0] != q.shape[0]:
        raise ValueError(
            f"GroupQueryAttention of {q.shape[0]} sequences has {lengths.shape[0]} "
            "lengths"
        )
    if xp.any(lengths < 1):
        raise IndexError("GroupQueryAttention has a sequence without rows")
    valid = _valid(xp, query_seqlens, lengths, new, causal=bool(causal))
    starts = lengths - valid
    starts = xp.where(starts > 0, starts, 0)
    places = starts[:, None] + xp.arange(new)
    if do_rotary:
        if cos_cache is None or sin_cache is None:
            raise ValueError("GroupQueryAttention with do_rotary has no cos_cache")
        ids = places if position_ids is None else xp.astype(position_ids, xp.int64)
        if xp.any((ids < 0) | (ids >= cos_cache.shape[0])):
            raise IndexError(
                f"GroupQueryAttention has positions outside the {cos_cache.shape[0]} "
                "rows of cos_cache"
            )
        tables = (
            xp.astype(xp.take(table, xp.reshape(ids, (-1,)), axis=0), xp.float32)
            for table in (cos_cache, sin_cache)
        )
        cos, sin = (
            xp.reshape(table, (ids.shape[0], 1, new, table.shape[-1]))
            for table in tables
        )
        q, k = (_turned(xp, x, cos, sin, rotary_interleaved) for x in (q, k))
    if bits:
        k, v = (
            _coded(xp, rows, scale, bits)
            for rows, scale in zip((k, v), scales, strict=True)
        )
    dtype = k.dtype if bits else query.dtype
    keys, values = (
        kept(xp, past, rows, starts, total, dtype, "GroupQueryAttention")
        for past, rows in ((past_key, k), (past_value, v))
    )
    visible = _visible(
        xp, places, keys.shape[2], starts + new, causal, local_window_size
    )
    size = q.shape[-1]
    group = num_heads // kv_num_heads
    q = xp.reshape(q, (q.shape[0], kv_num_heads, group * new, size))
    wide_keys, wide_values = (
        _decoded(xp, x, scale, bits)
        for x, scale in zip((keys, values), scales, strict=True)
    )
    scores = xp.matmul(q, xp.permute_dims(wide_keys, (0, 1, 3, 2)))
    scores = xp.reshape(scores, (q.shape[0], num_heads, new, -1)) * (
        scale or size**-0.5
    )
    if softcap:
        scores = xp.tanh(scores / softcap) * softcap
    if attention_bias is not None:
        bias = xp.astype(attention_bias, xp.float32)
        scores[..., : bias.shape[-1]] += bias
    weights = _softmax(xp, scores, visible, head_sink, smooth_softmax == 1)
    weights = xp.reshape(weights, (q.shape[0], kv_num_heads, group * new, -1))
    found = xp.matmul(weights, wide_values)
    found = xp.reshape(found, (q.shape[0], num_heads, new, size))
    joined = xp.reshape(xp.permute_dims(found, (0, 2, 1, 3)), (q.shape[0], new, -1))
    return xp.astype(joined, query.dtype, copy=False), keys, values


def _valid(xp: Any, counts: Any | None, lengths: Any, new: int, *, causal: bool) -> Any:
    """How many of the *new* rows of each sequence are no padding.

    Raises:
        IndexError: a sequence has not so many.
        ValueError: there are not as many counts as sequences, or keys behind a query
            are seen.
    """
    if counts is None:
        return new
    found = xp.astype(xp.reshape(counts, (-1,)), xp.int64)
    if found.shape != lengths.shape or not causal:
        raise ValueError(
            f"GroupQueryAttention has query_seqlens {counts.shape} of "
            f"{lengths.shape[0]} sequences{'' if causal else ' and is not causal'}; "
            "expected one each, and causal 1"
        )
    if xp.any((found < 0) | (found > new) | (found > lengths)):
        raise IndexError(
            f"GroupQueryAttention has query_seqlens {xp.tolist(found)} of {new} rows "
            f"and lengths {xp.tolist(lengths)}"
        )
    return found


def _bits(
    shape: tuple[int, ...],
    kinds: tuple[str, str],
    width: int,
    scales: tuple[Any | None, Any | None],
    past: Any | None,
) -> int:
    """Of a code in the caches; 0 if they are floats.

    Args:
        shape: of the new keys, [B, G, S, H].

    Raises:
        ValueError: attributes, scales and caches do not fit.
    """
    operator = "GroupQueryAttention"
    if kinds == ("NONE", "NONE"):
        if width or scales != (None, None):
            raise ValueError(
                f"{operator} has k_quant_type and v_quant_type NONE, and scales or "
                "kv_cache_bit_width; expected neither"
            )
        return 0
    if "NONE" in kinds or not width or any(scale is None for scale in scales):
        raise ValueError(
            f"{operator} has caches quantized {kinds[0]} and {kinds[1]} to {width} "
            "bits; expected both, k_scale and v_scale, and kv_cache_bit_width 4 or 8"
        )
    _, shared, _, size = shape
    for kind, scale in zip(kinds, scales, strict=True):
        assert scale is not None
        wanted = (1, shared, 1, size) if kind == "PER_CHANNEL" else (1,)
        if scale.shape != wanted and (kind == "PER_CHANNEL" or scale.size != 1):
            raise ValueError(f"{operator} has scales {scale.shape}; expected {wanted}")
    name = {8: "int8", 4: "uint8"}[width]
    if (past is not None and str(past.dtype) != name) or size * width % 8:
        raise ValueError(
            f"{operator} has caches of {None if past is None else past.dtype} for "
            f"heads of {size} codes of {width} bits; expected {name}, of whole bytes"
        )
    return width


def _coded(xp: Any, rows: Any, scale: Any, bits: int) -> Any:
    """Rows rounded to codes: int8, or uint8 with two of 4 bits, 8 larger."""
    least = -(1 << bits - 1)
    codes = xp.clip(xp.round(rows / scale), least, -least - 1)
    if bits == 8:
        return xp.astype(codes, xp.int8)
    apart = xp.astype(codes - least, xp.uint8)
    return apart[..., ::2] | (apart[..., 1::2] << 4)


def _decoded(xp: Any, x: Any, scale: Any | None, bits: int) -> Any:
    """A cache in float32."""
    if not bits:
        return xp.astype(x, xp.float32)
    if bits == 4:
        apart = xp.stack((x & 15, x >> 4), axis=-1)
        x = xp.astype(xp.reshape(apart, (*x.shape[:-1], -1)), xp.float32) - 8
    return xp.astype(x, xp.float32) * scale


def _heads(
    xp: Any, query: Any, key: Any | None, value: Any | None, heads: int, shared: int
) -> list[Any]:
    """Queries [B, N, S, H], keys and values [B, G, S, H], in float32."""

    def apart(rows: Any, count: int) -> Any:
        split = xp.reshape(rows, (*rows.shape[:2], count, -1))
        return xp.astype(xp.permute_dims(split, (0, 2, 1, 3)), xp.float32)

    if heads < 1 or shared < 1 or heads % shared:
        raise ValueError(f"GroupQueryAttention of {heads} heads has {shared} of keys")
    if key is not None and value is not None:
        return [apart(query, heads), apart(key, shared), apart(value, shared)]
    whole = apart(query, heads + 2 * shared)
    return [
        whole[:, :heads],
        whole[:, heads : heads + shared],
        whole[:, heads + shared :],
    ]


def _normed(xp: Any, rows: Any, weight: Any, epsilon: float) -> Any:
    square = xp.mean(rows * rows, axis=-1, keepdims=True)
    return rows / xp.sqrt(square + epsilon) * xp.astype(weight, xp.float32)


def _turned(xp: Any, x: Any, cos: Any, sin: Any, interleaved: int) -> Any:
    """Pairs of elements rotated; those behind the last pair stay."""
    half = cos.shape[-1]
    if 2 * half > x.shape[-1]:
        raise ValueError(f"angles of {half} pairs for heads of {x.shape[-1]}")
    turning, rest = x[..., : 2 * half], x[..., 2 * half :]
    if interleaved:
        a, b = turning[..., ::2], turning[..., 1::2]
    else:
        a, b = turning[..., :half], turning[..., half:]
    pair = a * cos - b * sin, b * cos + a * sin
    if interleaved:
        joined = xp.reshape(xp.stack(pair, axis=-1), turning.shape)
    else:
        joined = xp.concat(pair, axis=-1)
    return xp.concat((joined, rest), axis=-1)


def _visible(
    xp: Any, places: Any, keys: int, ends: Any, causal: int, window: int
) -> Any:
    """Which keys each query sees, [B, 1, S, T]."""
    key, last = xp.arange(keys), places[:, :, None]
    if not causal:
        seen = xp.broadcast_to(key < ends[:, None, None], (*places.shape, keys))
    elif window > 0:
        seen = (key <= last) & (key > last - window)
    else:
        seen = key <= last
    return seen[:, None]


def _softmax(xp: Any, scores: Any, visible: Any, sink: Any | None, smooth: bool) -> Any:
    """Softmax of what is visible, with one more score for each head if there is one."""
    scores = xp.where(visible, scores, -xp.inf)
    top = xp.max(scores, axis=-1, keepdims=True)
    extra = None
    if sink is not None or smooth:
        extra = xp.zeros((1, scores.shape[1], 1, 1), dtype=xp.float32)
        if sink is not None:
            extra = xp.reshape(xp.astype(sink, xp.float32), (1, -1, 1, 1))
        top = xp.where(extra > top, extra, top)
    power = xp.exp(scores - top)
    whole = xp.sum(power, axis=-1, keepdims=True)
    return power / (whole if extra is None else whole + xp.exp(extra - top))
