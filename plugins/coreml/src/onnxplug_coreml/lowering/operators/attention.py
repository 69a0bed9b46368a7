"""Attention."""

from __future__ import annotations

import math

import numpy as np

from onnxplug import ep
from onnxplug_coreml.lowering.builder import Builder, Refused
from onnxplug_coreml.lowering.call import Call, lowers, numbers
from onnxplug_coreml.lowering.operators.arithmetic import scaled
from onnxplug_coreml.lowering.program import Value

_UNTAKEN = ("qk_matmul_output_mode", "softmax_precision")


@lowers("Attention")
def _attention(call: Call) -> tuple[Value | None, ...]:
    call.require_type(0, ep.DataType.FLOAT32)
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
    n, heads, length, width = numbers(query.shape)
    groups, total = numbers(key.shape)[1:3]
    if groups != heads:
        key, value = (_repeated(build, each, heads // groups) for each in (key, value))
    scale = call.attribute("scale", None)
    factor = 1 / math.sqrt(width) if scale is None else scale
    scores = build(
        "matmul",
        scaled(build, query, factor),
        build.transpose(key, (0, 1, 3, 2)),
    )
    cap = call.attribute("softcap", 0.0)
    mask = call.optional(3)
    if cap:
        scores = _capped(build, scores, cap)
    if mask is not None:
        scores = _masked(build, scores, mask, total)
    if call.attribute("is_causal", 0):
        past = numbers(call.shape(4))[2] if call.has(4) else 0
        seen = np.tri(length, total, past, dtype=np.bool_)
        least = build.scalar(float("-inf"), scores.dtype)
        scores = build("select", build.constant(seen), scores, least)
    found = build("matmul", build("softmax", scores, axis=3), value)
    if merged:
        found = build.transpose(found, (0, 2, 1, 3))
        found = build.reshape(found, (n, length, heads * numbers(value.shape)[3]))
    return found, *present


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


def _capped(build: Builder, scores: Value, cap: float) -> Value:
    return scaled(build, build("tanh", scaled(build, scores, 1 / cap)), cap)


def _masked(build: Builder, scores: Value, mask: Value, total: int) -> Value:
    if numbers(mask.shape)[-1] != total:
        raise Refused(ep.RefusalCode.OTHER, "a mask that is shorter than the keys")
    if mask.dtype is ep.DataType.BOOL:
        least = build.scalar(float("-inf"), scores.dtype)
        return build("select", mask, scores, least)
    return build("add", scores, build.cast(mask, scores.dtype))
