"""Attention against sums over keys one query at a time, in float64."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from onnxplug_kernels import find_kernel


def run(
    op_type: str,
    *inputs: Any,
    version: int = 28,
    output_count: int = 1,
    **attributes: Any,
) -> Any:
    kernel = find_kernel("", op_type, version)
    assert kernel is not None
    return kernel.bind(np, attributes, output_count=output_count)(*inputs)


def values(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def attend(
    q: Any,
    k: Any,
    v: Any,
    bias: Any = 0.0,
    *,
    scale: float | None = None,
    softcap: float = 0.0,
) -> tuple[Any, dict[int, Any]]:
    """Of [batch, heads, sequence, size] arrays: the result and the stages of scores."""
    batch, heads, queries, size = q.shape
    group, keys = heads // k.shape[1], k.shape[2]
    y = np.zeros((batch, heads, queries, v.shape[3]))
    stages = {stage: np.zeros((batch, heads, queries, keys)) for stage in range(4)}
    bias = np.broadcast_to(bias, (batch, heads, queries, keys))
    for b, h, i in np.ndindex(batch, heads, queries):
        scores = k[b, h // group].astype(float) @ q[b, h, i].astype(float)
        scores = scores * (size**-0.5 if scale is None else scale)
        stages[0][b, h, i] = scores
        if softcap:
            scores = softcap * np.tanh(scores / softcap)
        stages[1][b, h, i] = scores
        scores = scores + bias[b, h, i]
        stages[2][b, h, i] = scores
        if scores.max() == -math.inf:
            continue
        weights = np.exp(scores - scores.max())
        weights /= weights.sum()
        stages[3][b, h, i] = weights
        y[b, h, i] = weights @ v[b, h // group].astype(float)
    return y, stages


def barred(allowed: Any) -> Any:
    return np.where(allowed, 0.0, -math.inf)


def close(found: Any, expected: Any, dtype: Any = np.float32) -> None:
    assert found.dtype == dtype and found.shape == expected.shape
    tolerance = 8 * float(ml_dtypes.finfo(dtype).eps)  # type: ignore[no-untyped-call]
    np.testing.assert_allclose(found.astype(float), expected, tolerance, tolerance)


def qkv(heads: int = 4, kv_heads: int = 2, queries: int = 3, keys: int = 5) -> Any:
    return (
        values(2, heads, queries, 6),
        values(2, kv_heads, keys, 6, seed=1),
        values(2, kv_heads, keys, 4, seed=2),
    )


def packed(x: Any) -> Any:
    return x.swapaxes(1, 2).reshape(x.shape[0], x.shape[2], -1)


@pytest.mark.parametrize("version", [23, 24, 25])
@pytest.mark.parametrize("heads", [(4, 4), (4, 2), (3, 1)])
@pytest.mark.parametrize("options", [{}, {"scale": 0.3}, {"softcap": 0.7}])
def test_groups_of_heads(
    version: int, heads: tuple[int, int], options: dict[str, Any]
) -> None:
    q, k, v = qkv(*heads)
    expected, _ = attend(q, k, v, **options)
    y, keys, all_values = run("Attention", q, k, v, version=version, **options)
    close(y, expected)
    np.testing.assert_array_equal(keys, k)
    np.testing.assert_array_equal(all_values, v)
    y, _, _ = run(
        "Attention",
        *map(packed, (q, k, v)),
        version=version,
        q_num_heads=heads[0],
        kv_num_heads=heads[1],
        **options,
    )
    close(y, packed(expected))


MASKS = [(3, 5), (5,), (1, 1, 3, 5), (2, 1, 1, 5), (4, 3, 5), (2, 4, 3, 5), (3, 4)]


@pytest.mark.parametrize("shape", MASKS)
@pytest.mark.parametrize("is_causal", [0, 1])
@pytest.mark.parametrize("boolean", [False, True])
def test_masks(shape: tuple[int, ...], is_causal: int, boolean: bool) -> None:
    q, k, v = qkv()
    mask = values(*shape, seed=3)
    mask = mask > -0.5 if boolean else mask
    bias = barred(mask) if boolean else mask
    # a mask that ends early bars the keys that it does not reach
    short = [(0, 0)] * (mask.ndim - 1) + [(0, 5 - shape[-1])]
    bias = np.pad(bias, short, constant_values=-math.inf)
    if is_causal:
        bias = bias + barred(np.tri(3, 5, dtype=bool))
    expected, stages = attend(q, k, v, bias)
    y, *_ = run("Attention", q, k, v, mask, is_causal=is_causal)
    close(y, expected)
    scores = run(
        "Attention",
        *(q, k, v, mask),
        is_causal=is_causal,
        qk_matmul_output_mode=2,
        output_count=4,
    )[3]
    close(scores, stages[2])


@pytest.mark.parametrize("mode", [0, 1, 2, 3])
@pytest.mark.parametrize("precision", [None, 1, 11])
def test_scores_at_each_stage(mode: int, precision: int | None) -> None:
    q, k, v = qkv()
    mask = values(3, 5, seed=3)
    options: dict[str, Any] = (
        {} if precision is None else {"softmax_precision": precision}
    )
    found = run(
        "Attention",
        *(q, k, v, mask),
        softcap=0.8,
        qk_matmul_output_mode=mode,
        output_count=4,
        **options,
    )
    expected, stages = attend(q, k, v, mask, softcap=0.8)
    close(found[0], expected)
    close(found[3], stages[mode])


@pytest.mark.parametrize("is_causal", [0, 1])
def test_past_keys_come_first(is_causal: int) -> None:
    q, k, v = qkv()
    past_key, past_value = values(2, 2, 4, 6, seed=4), values(2, 2, 4, 4, seed=5)
    keys = np.concatenate([past_key, k], 2)
    all_values = np.concatenate([past_value, v], 2)
    bias = barred(np.tri(3, 9, 4, dtype=bool)) if is_causal else 0.0
    expected, _ = attend(q, keys, all_values, bias)
    found = run("Attention", q, k, v, None, past_key, past_value, is_causal=is_causal)
    close(found[0], expected)
    np.testing.assert_array_equal(found[1], keys)
    np.testing.assert_array_equal(found[2], all_values)


@pytest.mark.parametrize("is_causal", [0, 1])
@pytest.mark.parametrize("window", [(-1, -1), (1, -1), (-1, 1), (2, 0)])
def test_cache_of_given_lengths_and_windows(
    is_causal: int, window: tuple[int, int]
) -> None:
    q, k, v = qkv()
    lengths = np.array([5, 2])  # the second leaves the first query without a key
    left, right = window
    bias = np.zeros((2, 1, 3, 5))
    for b, i, j in np.ndindex(2, 3, 5):
        position = lengths[b] - 3 + i
        allowed = j < lengths[b]
        allowed &= left < 0 or j >= position - left
        allowed &= right < 0 or j <= position + right
        allowed &= not is_causal or j <= position
        bias[b, 0, i, j] = 0 if allowed else -math.inf
    expected, stages = attend(q, k, v, bias)
    found = run(
        "Attention",
        *(q, k, v, None, None, None, lengths),
        is_causal=is_causal,
        left_window_size=left,
        right_window_size=right,
        qk_matmul_output_mode=3,
        output_count=4,
    )
    close(found[0], expected)
    close(found[3], stages[3])
    if is_causal:
        assert not found[0][1, :, 0].any()


def test_barred_keys_do_not_count_even_if_not_finite() -> None:
    q, k, v = qkv()
    k[:, :, 4] = np.inf
    mask = np.array([0, 0, 0, 0, -np.inf], np.float32)
    expected, _ = attend(q, k[:, :, :4], v[:, :, :4])
    with np.errstate(invalid="ignore"):
        close(run("Attention", q, k, v, mask)[0], expected)
        close(run("Attention", q, k, v, mask == 0)[0], expected)


@pytest.mark.parametrize("dtype", [np.float16, np.float64, ml_dtypes.bfloat16])
def test_attention_of_other_types(dtype: Any) -> None:
    q, k, v = (a.astype(dtype) for a in qkv())
    close(run("Attention", q, k, v)[0], attend(q, k, v)[0], dtype)


def test_attention_says_what_does_not_fit() -> None:
    q, k, v = qkv()
    with pytest.raises(ValueError, match="4 query heads for 3"):
        run("Attention", q, *(np.repeat(a[:, :1], 3, axis=1) for a in (k, v)))
    with pytest.raises(ValueError, match="expected both"):
        run("Attention", q, k, v, None, k)
    with pytest.raises(ValueError, match="q_num_heads None"):
        run("Attention", packed(q), packed(k), packed(v))


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("rotated", [0, 4])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("positions", [False, True])
def test_rotary_embedding_turns_pairs(
    interleaved: int, rotated: int, dtype: Any, positions: bool
) -> None:
    x = values(2, 3, 5, 6).astype(dtype)
    count = rotated or 6
    angles = np.random.default_rng(1).uniform(0, 6, (9, count // 2))
    at = np.array([[0, 3, 1, 8, 2], [4, 4, 5, 6, 7]])
    turned = x.astype(float)
    cos, sin = np.cos(angles).astype(dtype), np.sin(angles).astype(dtype)
    for b, h, t, pair in np.ndindex(2, 3, 5, count // 2):
        first, second = (
            (2 * pair, 2 * pair + 1) if interleaved else (pair, pair + count // 2)
        )
        c, s = float(cos[at[b, t], pair]), float(sin[at[b, t], pair])
        real, imaginary = float(x[b, h, t, first]), float(x[b, h, t, second])
        turned[b, h, t, first] = c * real - s * imaginary
        turned[b, h, t, second] = s * real + c * imaginary
    caches = (cos, sin, at) if positions else (cos[at], sin[at])
    options: dict[str, Any] = {
        "interleaved": interleaved,
        "rotary_embedding_dim": rotated,
    }
    close(run("RotaryEmbedding", x, *caches, **options), turned, dtype)
    y = run("RotaryEmbedding", packed(x), *caches, num_heads=3, **options)
    close(y, packed(turned), dtype)


def test_rotary_embedding_says_what_does_not_fit() -> None:
    x, cache = values(1, 2, 3, 4), values(1, 3, 1)
    with pytest.raises(ValueError, match=r"cos_cache has 1 angles .* expected 2"):
        run("RotaryEmbedding", x, cache, cache)


def test_rotary_embedding_gathers_from_wider_caches_and_from_the_back() -> None:
    x, cache = values(1, 2, 3, 4), values(5, 3)
    ids = np.array([[-1, 0, -5]])
    expected = run("RotaryEmbedding", x, cache[ids][..., :2], cache[ids][..., :2])
    found = run("RotaryEmbedding", x, cache, cache, ids)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
@pytest.mark.parametrize("heads", [(2, 2), (4, 2)])
@pytest.mark.parametrize("per_key", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_linear_attention_learns_step_by_step(
    rule: str, heads: tuple[int, int], per_key: bool, dtype: Any
) -> None:
    (q_heads, kv_heads), time, size, width = heads, 4, 3, 2
    q = values(2, time, q_heads * size).astype(dtype)
    k = 0.5 * values(2, time, kv_heads * size, seed=1).astype(dtype)
    v = values(2, time, kv_heads * width, seed=2).astype(dtype)
    past = values(2, kv_heads, size, width, seed=3)
    gate = -abs(values(2, time, kv_heads * (size if per_key else 1), seed=4))
    rate = abs(values(2, time, 1 if per_key else kv_heads, seed=5))
    gate, rate = gate.astype(dtype), rate.astype(dtype)

    expected = np.zeros((2, time, q_heads, width))
    state = past.astype(float)
    for b, h, t in np.ndindex(2, kv_heads, time):
        key = k.reshape(2, time, kv_heads, size)[b, t, h].astype(float)
        new = v.reshape(2, time, kv_heads, width)[b, t, h].astype(float)
        memory = state[b, h]
        if "gated" in rule:
            decay = np.exp(gate.reshape(2, time, kv_heads, -1)[b, t, h].astype(float))
            memory = memory * decay[:, None]
        if "delta" in rule:
            beta = float(rate[b, t, 0 if per_key else h])
            new = beta * (new - memory.T @ key)
        state[b, h] = memory + np.outer(key, new)
        for j in range(q_heads // kv_heads):
            head = h * (q_heads // kv_heads) + j
            query = q.reshape(2, time, q_heads, size)[b, t, head].astype(float)
            expected[b, t, head] = state[b, h].T @ query / math.sqrt(size)

    y, present = run(
        "LinearAttention",
        *(q, k, v, past),
        gate if "gated" in rule else None,
        rate if "delta" in rule else None,
        q_num_heads=q_heads,
        kv_num_heads=kv_heads,
        update_rule=rule,
    )
    close(y, expected.reshape(2, time, -1), dtype)
    close(present, state)


def test_linear_attention_asks_for_what_its_rule_needs() -> None:
    x = values(1, 2, 4)
    heads: dict[str, Any] = {"q_num_heads": 2, "kv_num_heads": 2}
    with pytest.raises(ValueError, match="'gated' with"):
        run("LinearAttention", x, x, x, update_rule="gated", **heads)
    y, state = run("LinearAttention", x, x, x, update_rule="linear", **heads)
    assert y.shape == (1, 2, 4) and state.shape == (1, 2, 2, 2)
