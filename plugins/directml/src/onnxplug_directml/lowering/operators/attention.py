"""Attention.

Letters in shapes: B batches, N heads, S queries, P past keys, L new keys, T = P + L
keys, H size of a head.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from onnxplug import ep
from onnxplug_directml.lowering.builder import Builder, Refused, Value
from onnxplug_directml.lowering.call import FLOATS, Call, lowers
from onnxplug_directml.lowering.operators.activation import activated, in_rows
from onnxplug_directml.lowering.operators.arithmetic import scaled
from onnxplug_directml.lowering.operators.fused_attention import Heads, attend, is_there
from onnxplug_directml.lowering.operators.pieces import joined
from onnxplug_directml.lowering.operators.product import matmul
from onnxplug_directml.lowering.operators.reduction import reduced

_AFTER_MATMUL, _AFTER_SOFTCAP, _AFTER_MASK, _AFTER_SOFTMAX = range(4)
"""Where scores are taken that are given as well, as of *qk_matmul_output_mode*."""


@lowers("Attention")
def _attention(call: Call) -> tuple[Value | None, ...]:
    call.require_type(0, *FLOATS)
    rank = len(call.shape(0))
    for position in range(3):
        call.require_rank(position, rank if rank in (3, 4) else 4)
    precision = call.attribute("softmax_precision")
    if precision is not None and ep.DataType.from_onnx(precision) not in FLOATS:
        raise call.refuse_attribute("softmax_precision", "float32 and float16")
    scale = call.attribute("scale")
    if _is_fused(call):
        return _fused(call, scale)
    build = call.build
    merged = len(call.shape(0)) == 3
    query, key, value = (call.operand(position) for position in range(3))
    if merged:
        heads, groups = _head_counts(call)
        query = apart(build, query, heads)
        key, value = apart(build, key, groups), apart(build, value, groups)
    if call.has(4):
        key = joined(build, (call.operand(4), build.packed(key)), 2)
        value = joined(build, (call.operand(5), build.packed(value)), 2)
    factor = 1 / math.sqrt(query.shape[3]) if scale is None else scale
    # as the reference does, float16 is computed in float32
    wide = tuple(build.cast(each, ep.DataType.FLOAT32) for each in (query, key, value))
    found, scores = _composed(call, wide, factor)
    if scores is not None:
        scores = build.cast(scores, query.dtype)
    found = build.cast(found, query.dtype)
    if merged:
        found = build.transpose(found, (0, 2, 1, 3))
        found = build.reshape(found, call.output_shape())
    return found, key, value, scores


def _head_counts(call: Call) -> tuple[int, int]:
    return call.count("q_num_heads"), call.count("kv_num_heads")


def apart(build: Builder, x: Value, heads: int) -> Value:
    """[B, S, N · H] as [B, N, S, H]."""
    batch, length, width = x.shape
    x = build.reshape(x, (batch, length, heads, width // heads))
    return build.transpose(x, (0, 2, 1, 3))


def _window(call: Call) -> tuple[int, int]:
    """How many keys a query sees before its place and behind it; -1: all."""
    left = call.attribute("left_window_size", -1)
    right = call.attribute("right_window_size", -1)
    return left, 0 if call.attribute("is_causal", 0) else right


def _seen(call: Call) -> Any | None:
    """Which keys each query sees by its place, bool [S, T]; ``None``: all."""
    left, right = _window(call)
    if left < 0 and right < 0:
        return None
    past = call.shape(4)[2] if call.has(4) else 0
    queries, keys = (call.shape(position)[-2] for position in (0, 1))
    distance = np.arange(past + keys) - (np.arange(queries)[:, None] + past)
    seen = np.ones(distance.shape, np.bool_)
    if left >= 0:
        seen &= distance >= -left
    if right >= 0:
        seen &= distance <= right
    return seen


# as one operator


def _is_fused(call: Call) -> bool:
    """Whether DirectML's operator does it all: no mask may hide all keys of a query."""
    plain = not (
        call.has(3)
        or call.has(6)
        or call.wants(3)
        or call.attribute("softcap", 0.0)
        or call.attribute("softmax_precision")
    )
    if not plain or len(call.shape(0)) != 3 or not is_there(call.build.target):
        return False
    heads, groups = _head_counts(call)
    seen = _seen(call)
    return heads == groups and (seen is None or bool(seen.any(axis=-1).all()))


def _fused(call: Call, scale: float | None) -> tuple[Value | None, ...]:
    call.ignore("qk_matmul_output_mode")
    query, key, value = (call.operand(position) for position in range(3))
    heads, _ = _head_counts(call)
    seen = _seen(call)
    return attend(
        call.build,
        Heads(heads, query.shape[2] // heads, value.shape[2] // heads),
        query=query, key=key, value=value,
        past=(call.operand(4), call.operand(5)) if call.has(4) else None,
        hidden=None if seen is None else ~seen,
        scale=scale, present=call.wants(1) or call.wants(2),
    )  # fmt: skip


# as products and a softmax


def _composed(
    call: Call, operands: tuple[Value, ...], factor: float
) -> tuple[Value, Value | None]:
    """[B, N, S, H], and the scores where they are wanted, [B, N, S, T]."""
    build, (query, key, value) = call.build, operands
    scores = scores_of(build, query, key, factor)
    stages = {_AFTER_MATMUL: scores}
    scores = capped(build, scores, call.attribute("softcap", 0.0))
    stages[_AFTER_SOFTCAP] = scores
    mask = call.optional(3)
    seen = _visible(call, keys=scores.shape[3])
    scores = _masked(build, scores, seen, mask)
    stages[_AFTER_MASK] = scores
    masked = mask is not None or seen is not None
    weights = _weights(build, scores, masked=masked)
    stages[_AFTER_SOFTMAX] = weights
    mode = call.attribute("qk_matmul_output_mode", _AFTER_MATMUL)
    if mode not in stages:
        raise call.refuse_attribute("qk_matmul_output_mode", "0 to 3")
    found = weighted(build, weights, value)
    return found, stages[mode] if call.wants(3) else None


def scores_of(build: Builder, query: Value, key: Value, factor: float) -> Value:
    """[B, N, S, T]; queries of heads that share keys are rows of one product."""
    batch, heads, queries, width = query.shape
    groups, keys = key.shape[1:3]
    if groups != heads:
        query = build.reshape(query, (batch, groups, heads // groups * queries, width))
    scores = matmul(build, query, build.transpose(key, (0, 1, 3, 2)), factor)
    return build.reshape(scores, (batch, heads, queries, keys))


def weighted(build: Builder, weights: Value, value: Value) -> Value:
    """[B, N, S, H]: the values, with the weights of keys."""
    batch, heads, queries, keys = weights.shape
    groups = value.shape[1]
    rows = build.reshape(weights, (batch, groups, heads // groups * queries, keys))
    found = matmul(build, rows, value)
    return build.reshape(found, (batch, heads, queries, value.shape[3]))


def capped(build: Builder, scores: Value, cap: float) -> Value:
    """*scores* within a limit, if there is one."""
    if not cap:
        return scores
    return scaled(build, activated(build, "TANH", scaled(build, scores, 1 / cap)), cap)


def _visible(call: Call, keys: int) -> Value | None:
    """Which keys a query sees by its place: bool, which broadcasts to [B, 1, S, T].

    Where lengths tell how many keys of a cache are in use, the last query stands at the
    last of these.
    """
    build = call.build
    if not call.has(6):
        seen = _seen(call)
        return None if seen is None else build.constant(seen)
    lengths = build.cast(call.operand(6), ep.DataType.INT32)
    lengths = build.reshape(lengths, (lengths.size, 1, 1, 1))
    queries = call.shape(0)[-2]
    places = np.arange(queries, dtype=np.int32)[:, None] - np.int32(queries)
    last = build.binary("ELEMENT_WISE_ADD", build.constant(places), lengths)
    place = build.constant(np.arange(keys, dtype=np.int32))
    left, right = _window(call)
    limits = [compared(build, "LESS_THAN", place, lengths)]
    if left >= 0:
        first = plus(build, last, -left)
        limits.append(compared(build, "GREATER_THAN_OR_EQUAL", place, first))
    if right >= 0:
        final = plus(build, last, right)
        limits.append(compared(build, "LESS_THAN_OR_EQUAL", place, final))
    return functools.reduce(
        functools.partial(build.binary, "ELEMENT_WISE_LOGICAL_AND"), limits
    )


def plus(build: Builder, x: Value, number: int) -> Value:
    """Integers plus a number."""
    return build.binary("ELEMENT_WISE_ADD", x, build.scalar(number, x.dtype))


def compared(build: Builder, relation: str, a: Value, b: Value) -> Value:
    """Whether a relation of DirectML's name holds between elements."""
    return build.binary(f"ELEMENT_WISE_LOGICAL_{relation}", a, b, ep.DataType.BOOL)


def _masked(
    build: Builder, scores: Value, seen: Value | None, mask: Value | None
) -> Value:
    """Minus infinity in place of the scores of keys that a query may not see."""
    least = build.scalar(-math.inf, scores.dtype)
    if mask is not None:
        if mask.rank == 0 or mask.shape[-1] != scores.shape[-1]:
            raise Refused(ep.RefusalCode.OTHER, "a mask of other keys than there are")
        if mask.dtype is ep.DataType.BOOL:
            scores = build.select(mask, scores, least)
        else:
            addend = build.cast(mask, scores.dtype)
            hidden = compared(build, "EQUALS", addend, least)
            total = build.binary("ELEMENT_WISE_ADD", scores, addend)
            # also where the score is NaN
            scores = build.select(hidden, least, total)
    if seen is not None:
        scores = build.select(seen, scores, least)
    return scores


def _weights(build: Builder, scores: Value, *, masked: bool) -> Value:
    """Softmax over the keys; zero for a query that may see none."""
    weights = in_rows(build, "ACTIVATION_SOFTMAX", scores, range(3, 4))
    if masked:
        least = build.scalar(-math.inf, scores.dtype)
        largest = reduced(build, "MAX", scores, [3], keep=True)
        blind = compared(build, "EQUALS", largest, least)
        weights = build.select(blind, build.scalar(0, scores.dtype), weights)
    return weights
