"""Attention on an adapter, beside its definition in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

RNG = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.standard_normal(shape).astype(np.float32)


def attention(
    q: Any, k: Any, v: Any, mask: Any = None, causal: bool = False, cap: float = 0.0
) -> Any:
    """What ONNX's Attention gives; 0 for queries that see no key."""
    share = q.shape[1] // k.shape[1]
    q, k, v = (each.astype(np.float64) for each in (q, k, v))
    k, v = (np.repeat(each, share, 1) for each in (k, v))
    with np.errstate(all="ignore"):
        scores = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
        if cap:
            scores = cap * np.tanh(scores / cap)
        if mask is not None and mask.dtype == bool:
            scores = np.where(mask, scores, -np.inf)
        elif mask is not None:
            scores = scores + mask
        if causal:
            keys, queries = np.arange(scores.shape[-1]), np.arange(scores.shape[-2])
            scores = np.where(keys <= queries[:, None], scores, -np.inf)
        top = scores.max(-1, keepdims=True)
        power = np.exp(scores - np.where(top == -np.inf, 0, top))
        found = power / power.sum(-1, keepdims=True)
    return np.where(top == -np.inf, 0, found) @ v


@pytest.mark.parametrize(
    ("heads", "groups", "queries", "keys", "depth", "columns"),
    [
        (4, 2, 40, 70, 64, 48),
        (6, 2, 1, 130, 16, 16),
        (3, 3, 1, 1, 1, 1),
        (2, 1, 33, 33, 200, 3),
        (1, 1, 3, 4, 5, 4200),
        (1, 1, 2, 3, 4100, 2),
    ],
)
def test_attention_of_all_tiles(
    alone: Any,
    parse: Any,
    heads: int,
    groups: int,
    queries: int,
    keys: int,
    depth: int,
    columns: int,
) -> None:
    calls = {
        "plain": "(q, k, v)",
        "causal": "<is_causal=1>(q, k, v)",
        "capped": "<softcap=1.5>(q, k, v)",
        "hidden": "(q, k, v, b)",
        "added": "(q, k, v, a)",
    }
    # one kind at least of each tile, as each is a kernel to compile
    names = [*calls] if queries == 40 else [[*calls][(queries + keys) % 5]]
    session = alone(
        parse(
            " ".join(f"{name} = Attention{calls[name]}" for name in names),
            f"float[2, {heads}, {queries}, {depth}] q, "
            f"float[2, {groups}, {keys}, {depth}] k, "
            f"float[2, {groups}, {keys}, {columns}] v, "
            f"bool[{queries}, {keys}] b, float[2, 1, {queries}, {keys}] a",
            ", ".join(f"float[2, {heads}, {queries}, {columns}] {n}" for n in names),
            opset=24,
        )
    )
    q, k, v = (
        normal(2, heads, queries, depth),
        normal(2, groups, keys, depth),
        normal(2, groups, keys, columns),
    )
    b, a = RNG.random((queries, keys)) < 0.4, normal(2, 1, queries, keys)
    b[-1] = False
    a[0, 0, 0, 0] = -np.inf
    wanted: dict[str, dict[str, Any]] = {
        "plain": {},
        "causal": {"causal": True},
        "capped": {"cap": 1.5},
        "hidden": {"mask": b},
        "added": {"mask": a},
    }
    feeds = {"q": q, "k": k, "v": v, "b": b, "a": a}
    for found, name in zip(session.run(None, feeds), names, strict=True):
        exact = attention(q, k, v, **wanted[name])
        np.testing.assert_allclose(found, exact, 1e-4, 1e-5, err_msg=name)


def test_scores_that_are_no_numbers(alone: Any, parse: Any) -> None:
    """They make no others so."""
    session = alone(
        parse(
            "y = Attention(q, k, v)",
            "float[1, 1, 20, 4] q, float[1, 1, 50, 4] k, float[1, 1, 50, 8] v",
            "float[1, 1, 20, 8] y",
            opset=24,
        )
    )
    q, k, v = normal(1, 1, 20, 4), normal(1, 1, 50, 4), normal(1, 1, 50, 8)
    q[0, 0, 3, 1], q[0, 0, 4] = np.nan, [np.inf, 0, 0, 0]
    v[0, 0, 45, 2] = np.inf
    (found,) = session.run(None, {"q": q, "k": k, "v": v})
    assert np.isnan(found[0, 0, 3:5]).all()
    rest = [n for n in range(20) if n not in (3, 4)]
    assert np.isinf(found[0, 0, rest, 2]).all()
    columns = [0, 1, 3, 4, 5, 6, 7]
    wanted = attention(q[:, :, rest], k, v[..., columns])
    np.testing.assert_allclose(found[:, :, rest][..., columns], wanted, 1e-4, 1e-5)
