"""Attention by cuDNN: what is asked of it means what the model says."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
import pytest

from onnxplug_compiler.gpu.command import EngineCall, Launch
from onnxplug_cuda.families import attention

from .on_graphs import BF16, F16, F32, RNG, Array, Memory, assert_close
from .planted import Planted


def attended(
    q: Array, k: Array, v: Array, mask: Array | None, scale: float, past: int | None
) -> Array:
    """By its definition."""
    many = q.shape[1] // k.shape[1]
    keys, values = (each.astype(np.float64).repeat(many, 1) for each in (k, v))
    scores = q.astype(np.float64) @ keys.swapaxes(-1, -2) * scale
    if mask is not None:
        scores = scores + mask.astype(np.float64)
    if past is not None:
        rows, columns = scores.shape[-2:]
        hidden = np.arange(columns) > np.arange(rows)[:, None] + past
        scores = np.where(hidden, -np.inf, scores)
    raised = np.exp(scores - scores.max(-1, keepdims=True))
    found: Array = raised / raised.sum(-1, keepdims=True) @ values
    return found


@pytest.mark.parametrize("dtype", [F16, BF16])
@pytest.mark.parametrize(
    ("queries", "keys", "groups", "masked", "past"),
    [
        (8, 8, 4, False, None),
        (5, 8, 2, False, None),
        (8, 8, 4, False, 0),
        (5, 8, 1, False, 3),
        (5, 8, 4, True, None),
        (8, 8, 2, True, 0),
    ],
)
def test_attention_is_as_defined(
    dtype: np.dtype[Any],
    queries: int,
    keys: int,
    groups: int,
    masked: bool,
    past: int | None,
) -> None:
    memory = Memory()
    # as projections give them: [images, places, heads, depth]
    order = (0, 2, 1, 3)
    q = memory.random(dtype, 2, 4, queries, 16, axes=order)
    k = memory.random(dtype, 2, groups, keys, 16, axes=order)
    v = memory.random(dtype, 2, groups, keys, 24, axes=order)
    mask = memory.random(dtype, 2, 1, queries, keys) if masked else None
    out = memory.new(np.zeros((2, 4, queries, 24), dtype), order)
    attention.Attention(memory.cudnn).record_attention(
        memory.recorder,
        q,
        k,
        v,
        out,
        scale=0.25,
        mask=mask,
        causal=past is not None,
        past_length=past or 0,
    )
    assert memory.run() == ["library"]
    given = [memory.array(view) for view in (q, k, v)]
    added = None if mask is None else memory.array(mask)
    assert_close(memory.array(out), attended(*given, added, 0.25, past))


@pytest.mark.parametrize(
    ("dtype", "given"),
    [
        (F32, {}),
        (F16, {"softcap": 30.0}),
        (F16, {"mask": bool}),
        (F16, {"mask": float, "undefined": "nan"}),
        (F16, {"causal": True, "past_length": 1}),
        (F16, {"scale": math.inf}),
    ],
)
def test_other_attention_is_left_to_kernels(
    dtype: np.dtype[Any], given: dict[str, Any]
) -> None:
    memory = Memory()
    q, k, v = (memory.random(dtype, 1, 2, 8, 16) for _ in range(3))
    out = memory.new(np.zeros((1, 2, 8, 16), dtype))
    kind = given.pop("mask", None)
    mask = None
    if kind is not None:
        array = RNG.standard_normal((8, 8))
        mask = memory.new(array > 0 if kind is bool else array.astype(dtype))
    attention.Attention(memory.cudnn).record_attention(
        memory.recorder, q, k, v, out, **{"scale": 0.25, "mask": mask, **given}
    )
    assert not [c for c in memory.recorder.commands if isinstance(c, EngineCall)]


def test_without_cudnns_attention_kernels_compute() -> None:
    memory = Memory()
    memory.frontend.declines = "head dimension 16"
    q, k, v = (memory.random(F16, 1, 2, 8, 16) for _ in range(3))
    out = memory.new(np.zeros((1, 2, 8, 16), F16))
    family = attention.Attention(memory.cudnn)
    family.record_attention(memory.recorder, q, k, v, out, scale=0.25)
    assert [type(c) for c in memory.recorder.commands] == [Launch]


def test_attention_in_parts_and_16_bits_is_cudnns(alone: Any, planted: Planted) -> None:
    """As PyTorch writes it for a network that is given no mask."""
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21]>
        g (float16[2, 4, 8, 16] q, float16[2, 4, 8, 16] k, float16[2, 4, 8, 16] v)
          => (float16[2, 4, 8, 16] y)
        <float h = {0.5}, float z = {0}, int64[4] size = {1, 1, 8, 8}>
        { half = Cast <to = 10> (h)  zero = Cast <to = 10> (z)
          t = Transpose <perm = [0, 1, 3, 2]> (k)  a = Mul (q, half)  b = Mul (t, half)
          m = Expand (zero, size)  s = MatMul (a, b)  d = Add (s, m)
          w = Softmax <axis = -1> (d)  n = IsNaN (w)  c = Where (n, zero, w)
          y = MatMul (c, v) }"""
    )
    q, k, v = (RNG.standard_normal((2, 4, 8, 16)).astype(F16) for _ in range(3))
    (found,) = alone(model).run(None, {"q": q, "k": k, "v": v})
    assert len(planted.graphs.ran) == 1 and not planted.products.ran
    assert_close(found, attended(q, k, v, None, 0.25, None))
