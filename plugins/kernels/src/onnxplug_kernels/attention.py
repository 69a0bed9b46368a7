"""Attention, linear attention, and rotary position embedding.

Inside, queries are [batch, kv heads, queries of each kv head, ...]: the query heads
that share a key and value head (grouped-query attention) are rows of one product.
"""

from __future__ import annotations

import functools
import math
import operator as operators
from typing import Any, Final

from onnxplug.authoring.bounds import at_least
from onnxplug_kernels.arrays import element_dtype, require_extent
from onnxplug_kernels.gather import require_in_range
from onnxplug_kernels.registry import PORTABLE, operator

_AFTER_MATMUL: Final = 0
_AFTER_SOFTCAP: Final = 1
_AFTER_MASK: Final = 2
_AFTER_SOFTMAX: Final = 3


@operator("Attention", since=23)
def attention(
    xp: Any,
    q: Any,
    k: Any,
    v: Any,
    attn_mask: Any | None = None,
    past_key: Any | None = None,
    past_value: Any | None = None,
    nonpad_kv_seqlen: Any | None = None,
    *,
    is_causal: int = 0,
    kv_num_heads: int | None = None,
    left_window_size: int = -1,
    q_num_heads: int | None = None,
    qk_matmul_output_mode: int = _AFTER_MATMUL,
    right_window_size: int = -1,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int | None = None,
    output_count: int = 1,
) -> Any:
    """Scaled dot product attention of [batch, heads, sequence, size] arrays.

    With [batch, sequence, heads * size] the numbers of heads say how to split.

    Returns:
        The result in the shape of the queries, the keys and the values including the
        past ones, and the scores at the stage *qk_matmul_output_mode*.
    """
    _check_cache(past_key, past_value, nonpad_kv_seqlen)
    dtype, rank = q.dtype, q.ndim
    q = _split_heads(xp, q, q_num_heads, "q_num_heads")
    k = _split_heads(xp, k, kv_num_heads, "kv_num_heads")
    v = _split_heads(xp, v, kv_num_heads, "kv_num_heads")
    if past_key is not None:
        k = xp.concat([past_key, k], axis=2)
        v = xp.concat([past_value, v], axis=2)
    wide = xp.result_type(xp.computing_dtype(dtype), xp.computing_dtype(v.dtype))
    batch, heads, queries, size = q.shape
    keys = k.shape[2]
    group = _group_size(heads, k.shape[1])
    if (k.shape[0], k.shape[3]) != (batch, size) or v.shape[:3] != k.shape[:3]:
        raise ValueError(
            f"Attention of queries {q.shape}, keys {k.shape} and values {v.shape} "
            f"[batch, heads, sequence, size]: expected one batch, keys as large as "
            f"queries, and a value for each key"
        )
    if qk_matmul_output_mode not in range(_AFTER_SOFTMAX + 1):
        raise ValueError(
            f"qk_matmul_output_mode is {qk_matmul_output_mode}, expected from 0 to "
            f"{_AFTER_SOFTMAX}"
        )
    at_least(-1, (left_window_size, right_window_size), "a window size")
    if nonpad_kv_seqlen is not None:
        _check_lengths(xp, nonpad_kv_seqlen, batch, keys)
    factor = 1 / math.sqrt(max(size, 1)) if scale is None else scale
    scaled = xp.astype(q, wide, copy=False) * factor
    rows = xp.reshape(scaled, (batch, heads // group, group * queries, size))
    scores = xp.matmul(rows, xp.swapaxes(xp.astype(k, wide, copy=False), -1, -2))
    scores = xp.reshape(scores, (batch, heads, queries, keys))
    stages = {_AFTER_MATMUL: scores}
    if softcap > 0:
        scores = xp.tanh(scores / softcap) * softcap
    stages[_AFTER_SOFTCAP] = scores
    if past_key is not None:
        offset: Any = past_key.shape[2]
    elif nonpad_kv_seqlen is not None:
        offset = xp.reshape(nonpad_kv_seqlen - queries, (-1, 1, 1, 1))
    else:
        offset = 0
    right = 0 if is_causal else right_window_size
    limits = _window(xp, queries, keys, offset, left_window_size, right)
    if nonpad_kv_seqlen is not None:
        limits.append(xp.arange(keys) < xp.reshape(nonpad_kv_seqlen, (-1, 1, 1, 1)))
    scores = _masked(xp, scores, limits, attn_mask)
    stages[_AFTER_MASK] = scores
    if softmax_precision is not None:
        precise = xp.computing_dtype(element_dtype(xp, softmax_precision))
        scores = xp.astype(scores, xp.result_type(wide, precise), copy=False)
    weights = xp.astype(_softmax(xp, scores), wide, copy=False)
    stages[_AFTER_SOFTMAX] = weights
    y = xp.matmul(
        xp.reshape(weights, (batch, heads // group, group * queries, keys)),
        xp.astype(v, wide, copy=False),
    )
    y = xp.astype(xp.reshape(y, (batch, heads, queries, v.shape[3])), dtype, copy=False)
    if rank == 3:
        y = xp.reshape(xp.swapaxes(y, 1, 2), (batch, queries, heads * v.shape[3]))
    if output_count < 4:
        return y, k, v
    return y, k, v, xp.astype(stages[qk_matmul_output_mode], dtype, copy=False)


@operator("RotaryEmbedding", since=23)
def rotary_embedding(
    xp: Any,
    x: Any,
    cos_cache: Any,
    sin_cache: Any,
    position_ids: Any | None = None,
    *,
    interleaved: int = 0,
    num_heads: int | None = None,
    rotary_embedding_dim: int = 0,
) -> Any:
    """Pairs of elements of each head rotated by the angles of their position.

    J. Su et al., "RoFormer" (2021).  *x* is [batch, heads, sequence, size] or [batch,
    sequence, heads * size]; a pair is an element of the first half of the rotated part
    and its counterpart in the second, or two neighbours if *interleaved*.
    """
    heads = _split_heads(xp, x, num_heads, "num_heads")
    rotated = rotary_embedding_dim or heads.shape[3]
    if not 0 <= rotated <= heads.shape[3] or rotated % 2:
        raise ValueError(
            f"RotaryEmbedding of {rotated} elements of heads of {heads.shape[3]}: "
            f"expected an even number that is no larger"
        )
    half = rotated // 2
    if position_ids is not None:
        if cos_cache.shape != sin_cache.shape:
            raise ValueError(
                f"cos_cache and sin_cache have shapes {cos_cache.shape} and "
                f"{sin_cache.shape}; expected equal ones"
            )
        if position_ids.shape != (heads.shape[0], heads.shape[2]):
            raise ValueError(
                f"position_ids has shape {position_ids.shape}, expected "
                f"{(heads.shape[0], heads.shape[2])}"
            )
        # from the back, too, as ONNX's function body gathers them
        require_in_range(xp, position_ids, cos_cache.shape[0], "the caches")
        cos_cache = xp.take(cos_cache, position_ids, axis=0)
        sin_cache = xp.take(sin_cache, position_ids, axis=0)
    for name, cache in (("cos_cache", cos_cache), ("sin_cache", sin_cache)):
        if cache.shape[-1] < half:
            raise ValueError(
                f"{name} has {cache.shape[-1]} angles for each position, expected "
                f"{half}: half of the {rotated} elements to rotate"
            )
    wide = xp.computing_dtype(x.dtype)
    cos, sin = (
        xp.astype(cache, wide)[:, None, ..., :half] for cache in (cos_cache, sin_cache)
    )
    shape = (heads.shape[0], 1, heads.shape[2], half)
    require_extent(shape, cos, sin, what="a cache, with an axis for the heads,")
    if interleaved:
        parts = slice(0, rotated, 2), slice(1, rotated, 2)
    else:
        parts = slice(0, half), slice(half, rotated)
    real, imaginary = (xp.astype(heads[..., part], wide, copy=False) for part in parts)
    y = xp.copy(heads)
    y[..., parts[0]] = cos * real - sin * imaginary
    y[..., parts[1]] = sin * real + cos * imaginary
    return xp.reshape(xp.swapaxes(y, 1, 2), x.shape) if x.ndim == 3 else y


@operator("LinearAttention", since=27, portable=PORTABLE)
def linear_attention(
    xp: Any,
    query: Any,
    key: Any,
    value: Any,
    past_state: Any | None = None,
    decay: Any | None = None,
    beta: Any | None = None,
    *,
    chunk_size: int = 64,
    kv_num_heads: int,
    q_num_heads: int,
    scale: float = 0.0,
    update_rule: str = "gated_delta",
) -> tuple[Any, Any]:
    """Attention whose memory is one matrix for each key and value head.

    S. Yang et al., "Gated Delta Networks" (2024).  At each time the state decays
    (gated rules), then learns the outer product of key and value, the delta rules only
    what it does not know yet.

    Returns:
        The result [batch, time, q heads * value size], and the last state [batch, kv
        heads, key size, value size].
    """
    _check_rule(update_rule, decay, beta)
    group = _group_size(q_num_heads, kv_num_heads)
    q, k, v = (
        xp.astype(_split_heads(xp, x, heads, name), xp.float32)
        for x, heads, name in (
            (query, q_num_heads, "q_num_heads"),
            (key, kv_num_heads, "kv_num_heads"),
            (value, kv_num_heads, "kv_num_heads"),
        )
    )
    batch, _, time, size = q.shape
    if k.shape != (batch, kv_num_heads, time, size) or v.shape[:3] != k.shape[:3]:
        raise ValueError(
            f"LinearAttention of queries {q.shape}, keys {k.shape} and values "
            f"{v.shape} [batch, heads, time, size]: expected one batch and time, and "
            f"keys as large as queries"
        )
    q = xp.reshape(q, (batch, kv_num_heads, group, time, size))
    q *= scale or 1 / math.sqrt(max(size, 1))
    if decay is not None:
        # one number for each head or for each element of its keys
        gates = _split_heads(xp, decay, kv_num_heads, "kv_num_heads")
        gates = xp.exp(xp.astype(gates, xp.float32))
        if gates.shape not in (k.shape, (*k.shape[:3], 1)):
            raise ValueError(
                f"decay, split into heads, has shape {gates.shape}, expected {k.shape} "
                f"or one number for each key"
            )
    if beta is not None:
        rates = xp.astype(
            _split_heads(xp, beta, beta.shape[-1], "kv_num_heads"), xp.float32
        )
        if rates.shape[2] != time:
            raise ValueError(f"beta has shape {beta.shape} for {time} times")
        require_extent((*k.shape[:3], 1), rates, what="beta, split into heads,")
    shape = (batch, kv_num_heads, size, v.shape[3])
    if past_state is None:
        state = xp.zeros(shape, dtype=xp.float32)
    elif past_state.shape == shape:
        state = xp.astype(past_state, xp.float32)
    else:
        raise ValueError(f"past_state has shape {past_state.shape}, expected {shape}")
    y = xp.empty((batch, time, kv_num_heads, group, v.shape[3]), dtype=xp.float32)
    for t in range(time):
        new, at = v[:, :, t, :], k[:, :, t, None, :]
        if decay is not None:
            state = state * gates[:, :, t, :, None]
        if beta is not None:
            new = rates[:, :, t, :] * (new - xp.matmul(at, state)[:, :, 0, :])
        state = state + xp.swapaxes(at, 2, 3) * new[:, :, None, :]
        y[:, t, ...] = xp.matmul(q[:, :, :, t, :], state)
    result = xp.reshape(y, (batch, time, q_num_heads * v.shape[3]))
    state_dtype = query.dtype if past_state is None else past_state.dtype
    return xp.astype(result, query.dtype), xp.astype(state, state_dtype)


def _split_heads(xp: Any, x: Any, heads: int | None, attribute: str) -> Any:
    """[batch, sequence, heads * size] as [batch, heads, sequence, size]."""
    if x.ndim == 4 and (heads in (None, 0, x.shape[1])):
        return x
    if not heads or heads < 0 or x.ndim != 3 or x.shape[2] % heads:
        raise ValueError(
            f"an input of shape {x.shape} with {attribute} {heads}: expected rank 4 "
            f"with as many heads, or rank 3 with a last axis that is a multiple of "
            f"{attribute}"
        )
    batch, sequence, width = x.shape
    return xp.swapaxes(xp.reshape(x, (batch, sequence, heads, width // heads)), 1, 2)


def _group_size(q_heads: int, kv_heads: int) -> int:
    if kv_heads < 1 or q_heads < 1 or q_heads % kv_heads:
        raise ValueError(
            f"{q_heads} query heads for {kv_heads} key and value heads: expected a "
            f"multiple"
        )
    return q_heads // kv_heads


def _check_cache(past_key: Any, past_value: Any, nonpad_kv_seqlen: Any) -> None:
    if (past_key is None) != (past_value is None):
        raise ValueError("Attention has one of past_key and past_value, expected both")
    if past_key is not None and nonpad_kv_seqlen is not None:
        raise ValueError(
            "Attention has past_key and nonpad_kv_seqlen, expected one cache at most"
        )


def _check_lengths(xp: Any, lengths: Any, batch: int, keys: int) -> None:
    if lengths.shape != (batch,):
        raise ValueError(
            f"nonpad_kv_seqlen has shape {lengths.shape}, expected {(batch,)}"
        )
    require_in_range(xp, lengths, keys + 1, "the numbers of keys", least=0)


def _check_rule(update_rule: str, decay: Any, beta: Any) -> None:
    needed = {
        "linear": (False, False),
        "gated": (True, False),
        "delta": (False, True),
        "gated_delta": (True, True),
    }.get(update_rule)
    if needed is None:
        raise ValueError(
            f"update_rule is {update_rule!r}, "
            f"expected 'linear', 'gated', 'delta' or 'gated_delta'"
        )
    found = (decay is not None, beta is not None)
    if found != needed:
        raise ValueError(
            f"update_rule {update_rule!r} with (decay, beta) given: {found}, "
            f"expected {needed}"
        )


def _window(
    xp: Any, queries: int, keys: int, offset: Any, left: int, right: int
) -> list[Any]:
    """Which keys each query may see: bools to be joined that broadcast to the scores.

    A query lies *offset* keys behind its index; -1 leaves a side unbounded.
    """
    if left < 0 and right < 0:
        return []
    distance = xp.arange(keys) - (xp.arange(queries)[:, None] + offset)
    limits = [distance >= -left] if left >= 0 else []
    return [*limits, distance <= right] if right >= 0 else limits


def _masked(xp: Any, scores: Any, limits: list[Any], mask: Any | None) -> Any:
    """*scores* plus *mask*, but minus infinity where not allowed, even for NaN.

    *limits* are bools that broadcast to the scores; so does *mask*, whose last axis may
    also be shorter, and which is a bool or an addend.
    """
    if mask is not None:
        if not mask.ndim:
            raise ValueError("attn_mask is a scalar; expected rank 2 to 4")
        missing = scores.shape[3] - mask.shape[-1]
        if missing > 0 and mask.shape[-1] > 1:
            filler = xp.zeros((*mask.shape[:-1], missing), dtype=mask.dtype)
            limits = [*limits, xp.arange(scores.shape[3]) < mask.shape[-1]]
            mask = xp.concat([mask, filler], axis=-1)
        require_extent(scores.shape, mask, what="attn_mask")
        if mask.dtype == xp.bool:
            limits = [*limits, mask]
        else:
            bias = xp.astype(mask, scores.dtype, copy=False)
            limits = [*limits, bias != -math.inf]
            scores = scores + bias
    if not limits:
        return scores
    allowed = functools.reduce(operators.and_, limits)
    return xp.where(allowed, scores, -math.inf)


def _softmax(xp: Any, scores: Any) -> Any:
    """Softmax over keys; zero for a query that may see none.

    That is one whose scores are all minus infinity, also where it is the query's own
    infinities that make them so: the scores do not tell.
    """
    if not xp.size(scores):
        return scores
    largest = xp.max(scores, axis=-1, keepdims=True)
    weights = scores - xp.where(largest == -math.inf, 0, largest)
    xp.into(xp.exp, weights, out=weights)
    total = xp.sum(weights, axis=-1, keepdims=True)
    weights /= xp.where(total == 0, 1, total)
    return weights
