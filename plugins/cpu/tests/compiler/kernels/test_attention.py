"""Attention against numpy in float64."""

from __future__ import annotations

import itertools
import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from onnxplug_cpu.compiler.kernels.attention.commands import record_attention
from onnxplug_cpu.compiler.machine.isa import Isa

from ..interpreter import ISAS, Interpreter

Array = np.ndarray[Any, Any]


def reference(
    q: Array,
    k: Array,
    v: Array,
    *,
    scale: float,
    mask: Array | None = None,
    causal: bool = False,
    past_length: int = 0,
    softcap: float = 0.0,
    undefined: str = "masked_zero",
    hides: bool = False,
    fill: float = -math.inf,
) -> Array:
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat(group, axis=1), v.repeat(group, axis=1)
    scores = q @ k.swapaxes(2, 3) * scale
    if softcap:
        scores = np.tanh(scores / softcap) * softcap
    queries, keys = scores.shape[2:]
    if mask is not None:
        scores = (
            np.where(mask ^ hides, scores, fill)
            if mask.dtype == bool
            else scores + mask
        )
    if causal:
        seen = np.arange(keys) <= np.arange(queries)[:, None] + past_length
        scores = np.where(seen, scores, -math.inf)
    top = scores.max(-1, keepdims=True, initial=-math.inf)
    with np.errstate(invalid="ignore"):
        weights = np.exp(scores - np.where(top == -math.inf, 0, top))
        total = weights.sum(-1, keepdims=True)
        weights /= np.where(total == 0, np.nan if undefined == "nan" else 1, total)
    return weights @ v


def attention(
    isa: Isa,
    q: Array,
    k: Array,
    v: Array,
    *,
    merged: bool = False,
    workers: int = 1,
    mask: Array | None = None,
    **options: Any,
) -> Array:
    """With *merged* heads the arrays are [B, S, H, D] in memory."""
    interpreter = Interpreter(isa, workers)
    views = []
    for x in (q, k, v):
        if merged:
            view = interpreter.input(x.transpose(0, 2, 1, 3)).transpose((0, 2, 1, 3))
        else:
            view = interpreter.input(x)
        views.append(view)
    batch, heads, queries, _ = q.shape
    if merged:
        out = interpreter.output(np.float32, (batch, queries, heads, v.shape[3]))
        out = out.transpose((0, 2, 1, 3))
    else:
        out = interpreter.output(np.float32, (batch, heads, queries, v.shape[3]))
    if mask is not None:
        options["mask"] = interpreter.input(mask)
    record_attention(interpreter.recorder, *views, out, **options)
    interpreter.run()
    return interpreter.read(out)


def arrays(
    rng: Any, batch: int, heads: int, kv: int, s: int, t: int, d: int, dv: int
) -> tuple[Array, Array, Array]:
    return (
        rng.standard_normal((batch, heads, s, d)).astype(np.float32),
        rng.standard_normal((batch, kv, t, d)).astype(np.float32),
        rng.standard_normal((batch, kv, t, dv)).astype(np.float32),
    )


def check(isa: Isa, inputs: tuple[Array, Array, Array], **options: Any) -> None:
    kernel_only = {
        name: options.pop(name, default)
        for name, default in (("merged", False), ("workers", 1))
    }
    options.setdefault("scale", inputs[0].shape[3] ** -0.5)
    found = attention(isa, *inputs, **kernel_only, **options)
    expected = reference(*inputs, **options)
    np.testing.assert_allclose(found, expected, 2e-6, 2e-6)


SHAPES = [
    # batch, heads, key heads, queries, keys, size, width
    (1, 1, 1, 1, 1, 1, 1),
    (2, 3, 3, 1, 37, 64, 64),
    (1, 2, 1, 3, 5, 7, 9),
    (1, 4, 2, 6, 300, 17, 70),
    (2, 4, 1, 1, 530, 32, 16),
    (1, 2, 2, 7, 7, 8, 8),
    (1, 4, 2, 13, 33, 16, 33),
    (2, 2, 1, 29, 31, 40, 48),
    (1, 1, 1, 128, 128, 64, 64),
    (1, 2, 2, 40, 600, 64, 80),
    (1, 1, 1, 15, 16, 130, 1),
]


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
@pytest.mark.parametrize("causal", [False, True])
def test_shapes(isa: Isa, causal: bool) -> None:
    rng = np.random.default_rng(1)
    for shape, merged in itertools.product(SHAPES, (False, True)):
        inputs = arrays(rng, *shape)
        past = max(0, shape[4] - shape[3]) if merged else 0
        check(isa, inputs, merged=merged, causal=causal, past_length=past)


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_keys_and_values_of_16_bits(isa: Isa, dtype: Any) -> None:
    rng = np.random.default_rng(8)
    for shape, merged in zip(SHAPES[:-3:2], itertools.cycle((False, True))):
        q, k, v = arrays(rng, *shape)
        inputs = q, k.astype(dtype), v.astype(dtype)
        check(isa, inputs, merged=merged, workers=1 + shape[0] % 2)


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
@pytest.mark.parametrize("queries", [1, 3, 20])
def test_masks(isa: Isa, queries: int) -> None:
    rng = np.random.default_rng(2)
    inputs = arrays(rng, 2, 4, 2, queries, 37, 16, 20)
    for shape in [(2, 1, 1, 37), (1, 1, queries, 37), (2, 4, queries, 37), (37,), (1,)]:
        mask = rng.standard_normal(shape).astype(np.float32)
        check(isa, inputs, mask=mask)
        if shape != (1,):
            hidden = np.where(mask > 1, -math.inf, mask).astype(np.float32)
            check(isa, inputs, mask=hidden, undefined="nan")
            check(isa, inputs, mask=mask < 1, causal=True, past_length=30)
            check(isa, inputs, mask=mask > 1, hides=True, fill=0.5)
            check(isa, inputs, mask=mask < 1, undefined="zero", fill=-3e38)


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
@pytest.mark.parametrize("queries", [2, 20])
def test_softcap(isa: Isa, queries: int) -> None:
    inputs = arrays(np.random.default_rng(3), 1, 2, 2, queries, 37, 16, 16)
    check(isa, inputs, softcap=0.5)
    check(isa, inputs, softcap=2.0, causal=True, past_length=20)


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
@pytest.mark.parametrize("queries", [2, 20])
def test_queries_that_see_nothing(isa: Isa, queries: int) -> None:
    inputs = arrays(np.random.default_rng(4), 1, 1, 1, queries, 37, 16, 16)
    kept = np.ones((queries, 37), bool)
    kept[1] = False
    added = np.where(kept, 0, -math.inf).astype(np.float32)
    for mask in (kept, added):
        found = attention(isa, *inputs, scale=1.0, mask=mask)
        assert (found[:, :, 1] == 0).all()
        assert np.isfinite(found).all()
        found = attention(isa, *inputs, scale=1.0, mask=mask, undefined="nan")
        assert np.isnan(found[:, :, 1]).all()
        assert np.isfinite(found[:, :, 0]).all()
        found = attention(isa, *inputs, scale=1.0, mask=mask, undefined="zero")
        assert (found[:, :, 1] == 0).all()
        assert np.isfinite(found).all()


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
@pytest.mark.parametrize("queries", [2, 20])
def test_hidden_keys_may_be_anything(isa: Isa, queries: int) -> None:
    q, k, v = arrays(np.random.default_rng(5), 1, 1, 1, queries, 37, 16, 16)
    mask = np.arange(37) != 3
    expected = reference(q, k, v, scale=1.0, mask=mask)
    k[0, 0, 3] = np.nan
    found = attention(isa, q, k, v, scale=1.0, mask=mask)
    np.testing.assert_allclose(found, expected, 2e-6, 2e-6)


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
def test_special_values(isa: Isa) -> None:
    for queries in (1, 20):
        q, k, v = arrays(np.random.default_rng(6), 1, 1, 1, queries, 37, 16, 16)
        k[0, 0, 3, 0] = np.nan
        assert np.isnan(attention(isa, q, k, v, scale=1.0)).all()
        assert (attention(isa, q, k, v, scale=1.0, undefined="zero") == 0).all()
        q, k, v = arrays(np.random.default_rng(6), 1, 1, 1, queries, 37, 16, 16)
        check(isa, (q * 1000, k, v), scale=1.0)


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
def test_many_workers_cover_everything_once(isa: Isa) -> None:
    inputs = arrays(np.random.default_rng(7), 1, 2, 1, 200, 300, 64, 64)
    check(isa, inputs, workers=4, causal=True, past_length=100)


def test_no_keys_give_zeros() -> None:
    for queries in (1, 20):
        inputs = arrays(np.random.default_rng(8), 1, 2, 2, queries, 0, 16, 16)
        assert (attention(ISAS[0], *inputs, scale=1.0) == 0).all()


def test_what_has_no_kernel_is_refused() -> None:
    q, k, v = arrays(np.random.default_rng(9), 1, 3, 2, 4, 5, 6, 7)
    with pytest.raises(ValueError, match="does not give"):
        attention(ISAS[0], q, k, v, scale=1.0)
    with pytest.raises(ValueError, match="float64"):
        attention(ISAS[0], q.astype(float), k, v, scale=1.0)
