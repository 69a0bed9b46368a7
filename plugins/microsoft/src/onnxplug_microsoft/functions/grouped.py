"""Attention of groups of query heads that share a key head, with a cache.

Letters in shapes are those of :mod:`~onnxplug_microsoft.functions.heads`; G is how many
query heads share a key head.
"""

from __future__ import annotations

from onnxplug_microsoft.functions.body import Body, NoFunction
from onnxplug_microsoft.functions.heads import (
    RANK,
    join_heads,
    lowest,
    scaled_scores,
    split_heads,
    to_int64,
)
from onnxplug_microsoft.functions.makers import all_or_none, operator
from onnxplug_microsoft.functions.norm import rms_norm
from onnxplug_microsoft.functions.rotary import rotate


@operator("GroupQueryAttention", since=12)
def _group_query_attention(
    body: Body,
    query: str,
    key: str | None,
    value: str | None,
    past_key: str | None,
    past_value: str | None,
    seqlens_k: str,
    total_sequence_length: str,
    cos_cache: str | None = None,
    sin_cache: str | None = None,
    position_ids: str | None = None,
    attention_bias: str | None = None,
    head_sink: str | None = None,
    k_scale: str | None = None,
    v_scale: str | None = None,
    q_norm_weight: str | None = None,
    k_norm_weight: str | None = None,
    query_seqlens: str | None = None,
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
) -> tuple[str | None, ...]:
    quantized = {k_quant_type, v_quant_type} != {"NONE"} or kv_cache_bit_width != 0
    if quantized or k_scale is not None or v_scale is not None:
        raise NoFunction(
            "its cache is quantized ('k_quant_type', 'v_quant_type', 'k_scale', "
            "'v_scale'), which its function does not know"
        )
    if query_seqlens is not None:
        raise NoFunction("it has 'query_seqlens', which its function does not know")
    if sliding_window_cache:
        raise NoFunction(
            "its attribute 'sliding_window_cache' is set; its function is for 0"
        )
    if qk_output:
        raise NoFunction(f"its attribute 'qk_output' is {qk_output}; expected 0")
    q, k, v, head_size = _heads(body, query, key, value, num_heads, kv_num_heads)
    if all_or_none(q_norm_weight=q_norm_weight, k_norm_weight=k_norm_weight):
        q, _ = rms_norm(
            body, q, (query,), str(q_norm_weight), q_norm_epsilon or qk_norm_epsilon
        )
        k, _ = rms_norm(
            body, k, (query,), str(k_norm_weight), k_norm_epsilon or qk_norm_epsilon
        )
    queries = body.size(query, 1)
    total = to_int64(body, body.reshape(total_sequence_length, 1))
    lengths = body.op("Add", to_int64(body, body.reshape(seqlens_k, -1)), body.index(1))
    past = body.op("Sub", lengths, queries)
    past = body.op("Where", body.op("Equal", queries, total), body.index(0), past)
    past = body.unsqueeze(past, 1)  # [B, 1]: how many keys of the cache are in use
    places = body.op("Add", past, body.count(queries))  # [B, S]
    if do_rotary:
        if cos_cache is None or sin_cache is None:
            raise NoFunction("its attribute 'do_rotary' is set, and it has no caches")
        ids = places if position_ids is None else position_ids
        caches = (cos_cache, sin_cache)
        q, k = _rotated(body, (q, k), ids, caches, head_size, rotary_interleaved)
    if all_or_none(past_key=past_key, past_value=past_value):
        rows = _cached_rows(body, str(past_key), past, queries, total, kv_num_heads)
        k = _cached(body, str(past_key), k, rows)
        v = _cached(body, str(past_value), v, rows)
    keys = body.size(k, 2)
    group = num_heads // kv_num_heads
    allowed = _visible(body, places, keys, lengths, causal, local_window_size)
    mask = body.op("Where", allowed, body.number(0, query), lowest(body, query))
    if attention_bias is not None:
        mask = _with_bias(body, mask, attention_bias, keys)
    scores = scaled_scores(
        body, _in_groups(body, q, kv_num_heads), k, scale, head_size, query
    )
    if softcap:
        cap = body.number(softcap, query)
        scores = body.op("Mul", body.op("Tanh", body.op("Div", scores, cap)), cap)
    if attention_bias is None:
        # one mask for the query heads of a group, one after the other
        repeats = body.ints(1, 1, group, 1)
        mask = body.op("Tile", mask, repeats) if group > 1 else mask
    else:
        mask = _repeated(body, mask, query, keys, num_heads, kv_num_heads)
    scores = body.op("Add", scores, mask)
    if head_sink is not None or smooth_softmax == 1:
        weights = _with_sink(body, scores, head_sink, query, kv_num_heads, group)
    else:
        weights = body.softmax(scores, RANK)
    y = body.op("MatMul", weights, v)  # [B, N / G, G · S, H]
    if group > 1:
        shape = body.join(body.size(query, 0), num_heads, queries, -1)
        y = body.op("Reshape", y, shape)
    return join_heads(body, y), k, v


def _heads(
    body: Body, query: str, key: str | None, value: str | None, heads: int, shared: int
) -> tuple[str, str, str, int]:
    """Queries [B, N, S, H], keys and values [B, N / G, S, H], and H."""
    width = body.known_size(query, 2)
    if width is None:
        raise NoFunction("the last size of its input 'query' is unknown")
    if all_or_none(key=key, value=value):
        q = split_heads(body, query, heads)
        k, v = (split_heads(body, part, shared) for part in (str(key), str(value)))
        return q, k, v, width // heads
    size = width // (heads + 2 * shared)
    packed = split_heads(body, query, heads + 2 * shared)
    q, k, v = body.split(packed, 3, 1, (heads, shared, shared))
    return q, k, v, size


def _rotated(
    body: Body,
    heads: tuple[str, str],
    ids: str,
    caches: tuple[str, str],
    head_size: int,
    interleaved: int,
) -> tuple[str, ...]:
    half = body.known_size(caches[0], 1)
    if half is None:
        raise NoFunction("the shape of its input 'cos_cache' is unknown")
    angles = tuple(
        body.unsqueeze(body.op("Gather", cache, ids, axis=0), 1) for cache in caches
    )
    whole = 2 * half == head_size
    return tuple(
        rotate(body, x, angles, 2 * half, bool(interleaved), whole=whole) for x in heads
    )


def _cached_rows(
    body: Body, cache: str, past: str, queries: str, total: str, heads: int
) -> str:
    """Where each row of the new cache comes from, int64 [B · N / G, T].

    Rows are those of the old cache, the new keys, and a row of zeros after them.
    """
    capacity = body.size(cache, 2)
    length = body.op("Max", capacity, total)
    place = body.count(length)  # [T]
    new = body.op("Add", body.op("Sub", place, past), capacity)
    zeros = body.op("Add", capacity, queries)
    new = body.op("Min", new, zeros)
    row = body.op("Where", body.op("Less", place, past), place, new)  # [B, T]
    stride = body.op("Add", zeros, body.index(1))
    batch = body.size("query", 0)
    count = body.op("Mul", batch, body.index(heads))
    base = body.op("Mul", body.count(count), stride)  # [B · N / G]
    base = body.reshape(base, -1, heads, 1)
    return body.op("Add", base, body.unsqueeze(row, 1))  # [B, N / G, T]


def _cached(body: Body, cache: str, new: str, rows: str) -> str:
    """The new cache [B, N / G, T, H]."""
    zeros = body.slice(new, 0, 1, 2)
    zeros = body.op("Sub", zeros, zeros)
    every = body.op("Concat", cache, new, zeros, axis=2)
    flat = body.op("Reshape", every, body.join(-1, body.size(new, 3)))
    return body.op("Gather", flat, rows, axis=0)


def _visible(
    body: Body, places: str, keys: str, lengths: str, causal: int, window: int
) -> str:
    """Which keys a query sees: bool [B, 1, S, T].

    Args:
        places: [B, S], where the queries stand in their sequences.
        lengths: [B], of the sequences with the new keys.
    """
    place = body.count(keys)
    last = body.unsqueeze(places, 2)  # [B, S, 1]
    if causal:
        seen = body.op("Not", body.op("Greater", place, last))
    else:
        ends = body.unsqueeze(lengths, 1, 2)
        seen = body.op("Less", place, body.op("Add", ends, body.op("Sub", last, last)))
    if causal and window > 0:
        first = body.op("Sub", last, body.index(window))
        seen = body.op("And", seen, body.op("Greater", place, first))
    return body.unsqueeze(seen, 1)


def _in_groups(body: Body, q: str, shared: int) -> str:
    """[B, N, S, H] as [B, N / G, G · S, H]: the heads of a group one after another."""
    batch, size = body.size("query", 0), body.size(q, 3)
    return body.op("Reshape", q, body.join(batch, shared, -1, size))


def _with_bias(body: Body, mask: str, bias: str, keys: str) -> str:
    """[B, 1 or N, S, T]; the bias may have fewer keys than the cache has places."""
    missing = body.op("Sub", keys, body.size(bias, 3))
    zeros = body.ints(*(0,) * 7)
    padded = body.op("Pad", bias, body.op("Concat", zeros, missing, axis=0))
    return body.op("Add", mask, padded)


def _repeated(
    body: Body, mask: str, query: str, keys: str, heads: int, shared: int
) -> str:
    """A mask [B, 1 or N, S, T] as [B, N / G, G · S, T]."""
    batch = body.size(query, 0)
    every = body.join(batch, heads, body.size(query, 1), keys)
    expanded = body.op("Expand", mask, every)
    return body.op("Reshape", expanded, body.join(batch, shared, -1, keys))


def _with_sink(
    body: Body, scores: str, sink: str | None, query: str, shared: int, group: int
) -> str:
    """Softmax with one more score for each head, that of no key; 0 if not given."""
    if sink is None:
        extra = body.op("Sub", body.slice(scores, 0, 1, 3), body.slice(scores, 0, 1, 3))
    else:
        rows = body.reshape(sink, 1, shared, group, 1)
        shape = body.join(body.size(query, 0), shared, group, body.size(query, 1))
        rows = body.op("Expand", rows, shape)
        extra = body.op("Reshape", rows, body.join(body.size(query, 0), shared, -1, 1))
    joined = body.op("Concat", scores, extra, axis=3)
    weights = body.softmax(joined, RANK)
    return body.slice(weights, 0, -1, 3)
