"""Attention."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from onnxplug import ep
from onnxplug_coreml.lowering.builder import Builder, Refused
from onnxplug_coreml.lowering.call import FLOATS, Call, lowers, numbers
from onnxplug_coreml.lowering.operators.arithmetic import scaled
from onnxplug_coreml.lowering.program import Value

_UNTAKEN = ("qk_matmul_output_mode", "softmax_precision")


@lowers("Attention")
def _attention(call: Call) -> tuple[Value | None, ...]:
    call.require_type(0, *FLOATS)
    build = call.build
    for name in _UNTAKEN:
        if call.attribute(name, 0):
            raise call.refuse_attribute(name, "0")
    if call.wants(3) or call.has(6):
        raise Refused(
            ep.RefusalCode.OTHER, "Attention that gives its scores, or is told lengths"
        )
    query, key, value = call.operand(0), call.operand(1), call.operand(2)
    merged = query.rank == 3
    if merged:
        heads = call.attribute("q_num_heads")
        groups = call.attribute("kv_num_heads")
        query = _apart(build, query, heads)
        key, value = _apart(build, key, groups), _apart(build, value, groups)
    if call.has(4):
        key = build.concat([call.operand(4), key], 2)
        value = build.concat([call.operand(5), value], 2)
    present = key, value
    dtype = query.dtype
    # as the reference does, float16 is computed in float32
    query, key, value = (
        build.cast(each, ep.DataType.FLOAT32) for each in (query, key, value)
    )
    n, heads, length, width = numbers(query.shape)
    groups, total = numbers(key.shape)[1:3]
    if groups != heads:
        key, value = (_repeated(build, each, heads // groups) for each in (key, value))
    scale = call.attribute("scale", None)
    factor = 1 / math.sqrt(width) if scale is None else scale
    scores = build.matmul(
        scaled(build, query, factor), build.transpose(key, (0, 1, 3, 2))
    )
    cap = call.attribute("softcap", 0.0)
    if cap:
        scores = scaled(build, build("tanh", scaled(build, scores, 1 / cap)), cap)
    past = numbers(call.shape(4))[2] if call.has(4) else 0
    allowed = _seen(call, length, total, past)
    mask = call.optional(3)
    weights = _weights(build, scores, allowed, mask)
    found = build.matmul(weights, value)
    if merged:
        found = build.transpose(found, (0, 2, 1, 3))
        found = build.reshape(found, (n, length, heads * numbers(value.shape)[3]))
    return build.cast(found, dtype), *present


def _apart(build: Builder, x: Value, heads: int) -> Value:
    """[N, L, heads * D] as [N, heads, L, D]."""
    n, length, width = numbers(x.shape)
    x = build.reshape(x, (n, length, heads, width // heads))
    return build.transpose(x, (0, 2, 1, 3))


def _repeated(build: Builder, x: Value, times: int) -> Value:
    """Each head of [N, heads, L, D] as often as queries share it."""
    n, heads, length, width = numbers(x.shape)
    x = build.reshape(x, (n, heads, 1, length * width))
    x = build.broadcast_to(x, (n, heads, times, length * width))
    return build.reshape(x, (n, heads * times, length, width))


def _seen(call: Call, queries: int, keys: int, past: int) -> Any | None:
    """Which keys each query sees by position, [queries, keys]; ``None``: all."""
    left = call.attribute("left_window_size", -1)
    right = call.attribute("right_window_size", -1)
    if call.attribute("is_causal", 0):
        right = 0
    if left < 0 and right < 0:
        return None
    distance = np.arange(keys) - (np.arange(queries)[:, None] + past)
    seen = np.ones(distance.shape, np.bool_)
    if left >= 0:
        seen &= distance >= -left
    if right >= 0:
        seen &= distance <= right
    return seen


def _weights(
    build: Builder, scores: Value, seen: Any | None, mask: Value | None
) -> Value:
    """Softmax over the keys that may be seen; zero for a query that may see none."""
    least = build.scalar(float("-inf"), scores.dtype)
    if mask is not None:
        if mask.rank == 0 or mask.shape[-1] != scores.shape[-1]:
            raise Refused(ep.RefusalCode.OTHER, "a mask of other keys than there are")
        if mask.dtype is ep.DataType.BOOL:
            scores = build("select", mask, scores, least)
        else:
            addend = build.cast(mask, scores.dtype)
            masked = build("equal", addend, least)
            # also where the score is NaN
            scores = build("select", masked, least, build("add", scores, addend))
    if seen is not None:
        scores = build("select", build.constant(seen), scores, least)
    weights = build("softmax", scores, axis=3)
    if mask is None and seen is None:
        return weights
    largest = build("reduce_max", scores, axes=(3,), keep=True)
    blind = build("equal", largest, least)
    return build("select", blind, build.scalar(0, scores.dtype), weights)
