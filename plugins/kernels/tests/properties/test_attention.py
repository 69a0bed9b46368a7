"""Attention against loops over queries and keys."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from .comparison import assert_near, assert_same, result_of, wide
from .strategies import Array, Draw, examples, is_float, shapes_within

NONE = -np.inf


def split(x: Array, heads: int) -> Array:
    """[batch, sequence, heads * size] by heads."""
    batch, sequence, width = x.shape
    return x.reshape(batch, sequence, heads, width // heads).transpose(0, 2, 1, 3)


@examples(130)
def test_attention(draw: Draw) -> None:
    dtype = draw.dtype("Attention", "T1")
    batch, kv_heads, group = (draw.integer(1, n) for n in (2, 2, 2))
    queries, size, value_size = (draw.integer(1, n) for n in (4, 4, 3))
    heads = kv_heads * group
    cache = draw.one_of(["none", "past", "padded"])
    own = max(queries, draw.integer(1, 4)) if cache == "padded" else draw.integer(1, 4)
    past = draw.integer(1, 3) if cache == "past" else 0
    keys = past + own
    packed = draw.flag()
    given: dict[str, Any] = {}

    def tensor(heads: int, sequence: int, size: int) -> tuple[Array, Array]:
        """As the node takes it, and by heads."""
        if not packed:
            x = draw.array(dtype, (batch, heads, sequence, size), "ordinary")
            return x, x
        x = draw.array(dtype, (batch, sequence, heads * size), "ordinary")
        return x, split(x, heads)

    q, q4 = tensor(heads, queries, size)
    k, k4 = tensor(kv_heads, own, size)
    v, v4 = tensor(kv_heads, own, value_size)
    if packed:
        given |= {"q_num_heads": heads, "kv_num_heads": kv_heads}
    cached: list[Any] = [None, None]
    offset = np.zeros(batch, np.int64)
    lengths = None
    if past:
        cached = [
            draw.array(dtype, (batch, kv_heads, past, n), "ordinary")
            for n in (size, value_size)
        ]
        k4, v4 = (
            np.concatenate([old, new], axis=2)
            for old, new in zip(cached, (k4, v4), strict=True)
        )
        offset += past
    if cache == "padded":
        lengths = draw.integers(queries, own, (batch,))
        offset += lengths - queries
    mask = None
    if draw.flag():
        kind = draw.one_of([np.dtype(bool), dtype])
        shape = draw.one_of(
            [s for s in shapes_within((batch, heads, queries, keys)) if len(s) >= 2]
        )
        mask = draw.array(kind, shape, "ordinary")
        if is_float(kind) and draw.flag():
            mask = np.where(wide(mask) < -1, np.array(NONE, dtype), mask)
    if draw.flag():
        given["is_causal"] = 1
    if draw.flag():
        given["left_window_size"] = draw.integer(-1, 2)
        given["right_window_size"] = draw.integer(-1, 2)
    if draw.flag():
        given["scale"] = draw.one_of([1.0, 0.5, 0.25])
    if draw.flag():
        given["softcap"] = draw.one_of([2.0, 8.0])
    mode = given["qk_matmul_output_mode"] = draw.integer(0, 3)
    found = result_of(
        "Attention", q, k, v, mask, *cached, lengths, output_count=4, **given
    )

    # one query and one key after the other
    whole = [wide(np.asarray(x)) for x in (q4, k4, v4)]
    stages = np.zeros((4, batch, heads, queries, keys), np.longdouble)
    places = np.ndindex(batch, heads, queries, keys)
    factor = np.longdouble(given.get("scale", 1 / math.sqrt(size)))
    added = None if mask is None else np.broadcast_to(mask, stages.shape[1:])
    right = 0 if given.get("is_causal") else given.get("right_window_size", -1)
    left = given.get("left_window_size", -1)
    for place in places:
        b, h, i, j = place
        score = (whole[0][b, h, i] * whole[1][b, h // group, j]).sum() * factor
        stages[(0, *place)] = score
        cap = given.get("softcap", 0)
        if cap:
            score = np.tanh(score / cap) * cap
        stages[(1, *place)] = score
        distance = j - (i + offset[b])
        allowed = (left < 0 or distance >= -left) and (right < 0 or distance <= right)
        allowed &= lengths is None or j < lengths[b]
        if added is not None:
            if mask.dtype == bool:
                allowed &= bool(added[place])
            else:
                score = score + np.longdouble(float(added[place]))
        stages[(2, *place)] = score if allowed else NONE
    # what a query sees that may see nothing is not told
    seen = np.isfinite(stages[2]).any(axis=-1)
    with np.errstate(invalid="ignore"):
        weights = np.exp(stages[2] - stages[2].max(axis=-1, keepdims=True))
    weights = weights / weights.sum(axis=-1, keepdims=True)
    stages[3] = weights
    values = np.repeat(whole[2], group, axis=1)
    exact = np.where(seen[..., None], weights, 0) @ values
    y = split(found[0], heads) if packed else found[0]
    assert y.shape == (batch, heads, queries, value_size)
    # errors of the scores, which are as large as this, are errors of their exponentials
    finite = np.where(np.isfinite(stages), np.abs(stages), 0)
    units = 4 + 16 * float(finite.max()) if dtype.itemsize > 2 else 2
    magnitude = np.abs(values).max() if values.size else 0
    assert_near(np.asarray(y[seen]), exact[seen], dtype, units, magnitude)
    assert_same(found[1], np.asarray(k4))
    assert_same(found[2], np.asarray(v4))
    size_of = finite.max() + 64
    kept = seen if mode == 3 else np.ones_like(seen)
    assert_near(found[3][kept], stages[mode][kept], dtype, units, size_of)


@examples(60)
def test_rotary_embedding(draw: Draw) -> None:
    dtype = draw.dtype("RotaryEmbedding")
    batch, heads, sequence = (draw.integer(1, n) for n in (2, 3, 4))
    rotated = 2 * draw.integer(1, 3)
    size = rotated + draw.one_of([0, 0, 1, 2])
    given: dict[str, Any] = {"interleaved": draw.integer(0, 1)}
    if size != rotated or draw.flag():
        given["rotary_embedding_dim"] = rotated
    packed = draw.flag()
    if packed:
        x = draw.array(dtype, (batch, sequence, heads * size), "ordinary")
        by_heads = split(wide(x), heads)
        given["num_heads"] = heads
    else:
        x = draw.array(dtype, (batch, heads, sequence, size), "ordinary")
        by_heads = wide(x)
    positions = None
    if draw.flag():
        positions = draw.integers(0, 4, (batch, sequence))
        shape: tuple[int, ...] = (5, rotated // 2)
    else:
        shape = (batch, sequence, rotated // 2)
    cos, sin = (draw.array(dtype, shape, "ordinary") for _ in range(2))
    exact = by_heads.copy()
    size_of = np.abs(by_heads)
    for b, h, s, n in np.ndindex(batch, heads, sequence, rotated // 2):
        at = (b, s) if positions is None else (int(positions[b, s]),)
        c, t = wide(cos)[(*at, n)], wide(sin)[(*at, n)]
        one, two = (2 * n, 2 * n + 1) if given["interleaved"] else (n, n + rotated // 2)
        a, d = by_heads[b, h, s, one], by_heads[b, h, s, two]
        exact[b, h, s, one], exact[b, h, s, two] = c * a - t * d, t * a + c * d
        size_of[b, h, s, one] = size_of[b, h, s, two] = abs(a) * 8 + abs(d) * 8
    found = result_of("RotaryEmbedding", x, cos, sin, positions, **given)
    assert found.shape == x.shape
    y = split(found, heads) if packed else found
    assert_near(np.asarray(y), exact, dtype, 2, size_of)


@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
@examples(35)
def test_linear_attention(rule: str, draw: Draw) -> None:
    dtype = draw.dtype("LinearAttention")
    kept = draw.dtype("LinearAttention", "S")
    batch, kv_heads, group, time = (draw.integer(1, n) for n in (2, 2, 2, 4))
    size, value_size = draw.integer(1, 3), draw.integer(1, 3)
    heads = kv_heads * group
    # powers of at most one: the state stays small
    shares = np.array([0, 0.5, -0.5, 1, -1, 0.25])

    def tensor(*shape: int) -> Array:
        return draw.of(shares.astype(dtype), shape)

    q = tensor(batch, time, heads * size)
    k = tensor(batch, time, kv_heads * size)
    v = tensor(batch, time, kv_heads * value_size)
    past = decay = beta = None
    if draw.flag():
        past = draw.of(shares.astype(kept), (batch, kv_heads, size, value_size))
    elif kept != dtype:
        kept = dtype
    if "gated" in rule:
        each = draw.flag()
        width = kv_heads * (size if each else 1)
        decay = draw.of(-np.abs(shares).astype(dtype), (batch, time, width))
    if "delta" in rule:
        beta = draw.of(np.abs(shares).astype(dtype), (batch, time, kv_heads))
    given = {"scale": 0.5} if draw.flag() else {}
    y, last = result_of(
        "LinearAttention",
        q, k, v, past, decay, beta,
        q_num_heads=heads,
        kv_num_heads=kv_heads,
        update_rule=rule,
        output_count=2,
        **given,
    )  # fmt: skip
    scale = given.get("scale", 1 / math.sqrt(size))
    q4, k4, v4 = (
        split(wide(x), n) for x, n in ((q, heads), (k, kv_heads), (v, kv_heads))
    )
    state = np.zeros((batch, kv_heads, size, value_size), np.longdouble)
    if past is not None:
        state = wide(past)
    exact = np.zeros((batch, heads, time, value_size), np.longdouble)
    for t, b, h in np.ndindex(time, batch, kv_heads):
        memory = state[b, h]
        if decay is not None:
            rows = np.exp(split(wide(decay), kv_heads)[b, h, t])
            memory = memory * rows[:, None]
        new = v4[b, h, t]
        if beta is not None:
            new = wide(beta)[b, t, h] * (new - memory.T @ k4[b, h, t])
        state[b, h] = memory = memory + np.outer(k4[b, h, t], new)
        for member in range(group):
            head = h * group + member
            exact[b, head, t] = scale * (memory.T @ q4[b, head, t])
    assert_near(np.asarray(split(y, heads)), exact, dtype, 32, 4)
    assert_near(last, state, kept, 32, 4)
