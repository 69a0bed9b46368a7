"""Attention of groups of query heads that share a key head, with a cache.

Letters in shapes are those of :mod:`.attention`; G heads of keys, and T places in the
cache.  How many of them are in use is an input, and no size: the graph is the same from
one token to the next where the cache has room.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from onnxplug import ep
from onnxplug_directml.lowering.builder import Builder, Refused, Value
from onnxplug_directml.lowering.call import FLOATS, MICROSOFT, Call, lowers
from onnxplug_directml.lowering.operators.activation import in_rows
from onnxplug_directml.lowering.operators.attention import (
    apart,
    capped,
    compared,
    plus,
    scores_of,
    weighted,
)
from onnxplug_directml.lowering.operators.borders import padded
from onnxplug_directml.lowering.operators.gathering import gathered
from onnxplug_directml.lowering.operators.limits import held
from onnxplug_directml.lowering.operators.pieces import between, joined, parts
from onnxplug_directml.lowering.operators.rotary import rotate

_I32: Final = ep.DataType.INT32
_RANKS: Final = {0: 3, 1: 3, 2: 3, 3: 4, 4: 4, 7: 2, 8: 2, 10: 4}
"""Dimensions of inputs, by their positions."""
_UNTAKEN: Final = {
    "k_quant_type": "NONE", "v_quant_type": "NONE", "kv_cache_bit_width": 0,
    "sliding_window_cache": 0, "qk_output": 0,
}  # fmt: skip


@lowers("GroupQueryAttention", domain=MICROSOFT)
def _group_query_attention(call: Call) -> tuple[Value | None, ...]:
    call.require_type(0, *FLOATS)
    call.ignore("qk_norm_epsilon")
    for position, rank in _RANKS.items():
        if call.has(position):
            call.require_rank(position, rank)
    for name, default in _UNTAKEN.items():
        if call.attribute(name, default) != default:
            raise call.refuse_attribute(name, str(default))
    if any(call.has(position) for position in range(12, 16)):
        raise Refused(
            ep.RefusalCode.OTHER, "scales of the cache, or weights of norms of heads"
        )
    build = call.build
    query, key, value = _heads(call)
    queries = query.shape[2]
    keys = _capacity(call) or key.shape[2]
    wrong = f"a length of keys is out of range; takes 0 to {keys - 1}, less one"
    lengths = held(build, build.cast(call.operand(5), _I32), 0, keys, wrong)
    lengths = build.reshape(lengths, (query.shape[0], 1))
    # where the new keys begin; sequences that are shorter begin at the start
    starts = plus(build, lengths, 1 - queries)
    starts = build.binary("ELEMENT_WISE_MAX", starts, build.scalar(0, _I32))
    count = build.constant(np.arange(queries, dtype=np.int32))
    places = build.binary("ELEMENT_WISE_ADD", starts, count)
    if call.attribute("do_rotary", 0):
        angles = _angles(call, places)
        interleaved = bool(call.attribute("rotary_interleaved", 0))
        query, key = (
            rotate(build, build.packed(x), angles, interleaved=interleaved)
            for x in (query, key)
        )
    if call.has(3):
        rows = _cached_rows(build, call.shape(3), keys, queries, starts)
        key, value = (
            _cached(build, call.operand(position), new, rows)
            for position, new in ((3, key), (4, value))
        )
    found = _attended(call, query, key, value, starts, places)
    merged = build.reshape(build.transpose(found, (0, 2, 1, 3)), call.output_shape())
    return merged, key, value


def _capacity(call: Call) -> int:
    """How many keys the new cache has room for; 0: there is none."""
    if not call.has(3):
        return 0
    if not call.wants(1):  # the old keys and the new ones
        return call.shape(3)[2] + call.shape(0)[1]
    shape = call.output_shape(1)
    if len(shape) != 4:
        raise Refused(ep.RefusalCode.RANK, f"a cache {list(shape)}")
    return shape[2]


def _heads(call: Call) -> tuple[Value, Value, Value]:
    """Queries [B, N, S, H], and keys and values [B, G, S, H]."""
    build, query = call.build, call.operand(0)
    heads, groups = call.count("num_heads"), call.count("kv_num_heads")
    if call.has(1):
        key, value = (apart(build, call.operand(at), groups) for at in (1, 2))
        return apart(build, query, heads), key, value
    packed = build.packed(apart(build, query, heads + 2 * groups))
    first, second, third = parts(build, packed, 1, (heads, groups, groups))
    assert first is not None and second is not None and third is not None
    return first, second, third


def _angles(call: Call, places: Value) -> tuple[Value, Value]:
    """Cosines and sines [B, 1, S, pairs] for the positions [B, S]."""
    build = call.build
    if not (call.has(7) and call.has(8)):
        raise Refused(ep.RefusalCode.OTHER, "do_rotary without caches of angles")
    caches = [call.operand(position) for position in (7, 8)]
    rows = min(cache.shape[0] for cache in caches)
    wrong = f"a position is out of range; angles are those of 0 to {rows - 1}"
    positions = call.operand(9) if call.has(9) else places
    positions = held(build, positions, 0, rows, wrong)
    batch, queries = places.shape
    found = []
    for cache in caches:
        each = gathered(build, cache, 0, positions)
        found.append(build.reshape(each, (batch, 1, queries, cache.shape[1])))
    return found[0], found[1]


def _cached_rows(
    build: Builder,
    past: tuple[int, ...],
    capacity: int,
    queries: int,
    starts: Value,
) -> Value:
    """Where each row of the new cache comes from, int32 [B, G, T].

    Rows are those of the old cache, the new keys, and one of zeros, head by head.
    """
    batch, groups, places, _ = past
    zeros = places + queries
    place = build.constant(np.arange(capacity, dtype=np.int32))
    behind = build.binary("ELEMENT_WISE_SUBTRACT", place, starts)
    new = build.binary(
        "ELEMENT_WISE_MIN", plus(build, behind, places), build.scalar(zeros, _I32)
    )
    is_old = compared(build, "LESS_THAN", place, starts)
    row = build.reshape(build.select(is_old, place, new), (batch, 1, capacity))
    head = np.arange(batch * groups, dtype=np.int32).reshape(batch, groups, 1)
    first = build.constant(head * np.int32(zeros + 1))
    return build.binary("ELEMENT_WISE_ADD", first, row)


def _cached(build: Builder, past: Value, new: Value, rows: Value) -> Value:
    """The new cache [B, G, T, H]."""
    batch, groups, _, size = past.shape
    nothing = build.broadcast_to(build.scalar(0, past.dtype), (batch, groups, 1, size))
    every = joined(build, [past, build.packed(new), build.packed(nothing)], 2)
    flat = build.reshape(every, (every.size // size, size))
    return build.reshape(gathered(build, flat, 0, rows), (*rows.shape, size))


def _attended(
    call: Call, query: Value, key: Value, value: Value, starts: Value, places: Value
) -> Value:
    """[B, N, S, H]."""
    build = call.build
    scale = call.attribute("scale", 0.0) or 1 / math.sqrt(query.shape[3])
    scores = scores_of(build, query, key, scale)
    scores = capped(build, scores, call.attribute("softcap", 0.0))
    if call.has(10):
        bias = call.operand(10)
        missing = key.shape[2] - bias.shape[3]
        if missing:
            bias = padded(build, bias, (0,) * 4, (0, 0, 0, missing))
        scores = build.binary("ELEMENT_WISE_ADD", scores, bias)
    visible = _visible(call, starts, places, key.shape[2])
    scores = build.select(visible, scores, build.scalar(-math.inf, scores.dtype))
    keys = scores.shape[3]
    if call.has(11) or call.attribute("smooth_softmax", -1) == 1:
        # one more score for each head, that of no key
        sink = call.operand(11) if call.has(11) else build.scalar(0, scores.dtype)
        sink = build.reshape(sink, (1, sink.size, 1, 1))
        each = build.broadcast_to(sink, (*scores.shape[:3], 1))
        scores = joined(build, [scores, build.packed(each)], 3)
    weights = in_rows(build, "ACTIVATION_SOFTMAX", scores, range(3, 4))
    return weighted(build, between(build, weights, 3, 0, keys), value)


def _visible(call: Call, starts: Value, places: Value, keys: int) -> Value:
    """Which keys a query sees: bool [B, 1, S, T].

    Args:
        starts: [B, 1], the keys before the new ones.
        places: [B, S], where queries stand.
    """
    build = call.build
    batch, queries = places.shape
    place = build.constant(np.arange(keys, dtype=np.int32))
    last = build.reshape(places, (batch, 1, queries, 1))
    if not call.attribute("causal", 1):
        end = plus(build, build.reshape(starts, (batch, 1, 1, 1)), queries)
        return compared(build, "LESS_THAN", place, build.broadcast_to(end, last.shape))
    seen = compared(build, "LESS_THAN_OR_EQUAL", place, last)
    window = call.attribute("local_window_size", -1)
    if window <= 0:
        return seen
    near = compared(build, "GREATER_THAN", place, plus(build, last, -window))
    return build.binary("ELEMENT_WISE_LOGICAL_AND", seen, near)
