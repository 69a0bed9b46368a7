"""Attention whose mask is a constant."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import onnxplug

from ..lowered import graph, random


@pytest.mark.parametrize("queries", [5, 1200])
def test_attention_whose_masks_are_the_same_in_all_runs(queries: int) -> None:
    """Zeros, which exporters write where a network was given no mask, and others."""
    masks = np.zeros((2, 2, 3, queries, 40), np.float32)
    (masks[1],) = random(masks.shape[1:])
    text = graph(
        f"float[2, 3, {queries}, 8] q, float[2, 3, 40, 8] k, float[2, 3, 40, 4] v",
        "float[] y, float[] z",
        "t = Transpose <perm = [0, 1, 3, 2]> (k) s = MatMul (q, t) a = Add (s, m0) "
        "w = Softmax (a) y = MatMul (w, v) u = MatMul (q, t) b = Add (u, m1) "
        "x = Softmax (b) z = MatMul (x, v)",
    )
    model = onnx.parser.parse_model(text)
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(mask, f"m{n}") for n, mask in enumerate(masks)
    )
    session = onnxplug.InferenceSession(model, providers=["CPUExecutionProvider"])
    shapes = (2, 3, queries, 8), (2, 3, 40, 8), (2, 3, 40, 4)
    q, k, v = random(*shapes)
    scores = q.astype(np.float64) @ k.swapaxes(-1, -2)
    results = session.run(None, {"q": q, "k": k, "v": v})
    for result, mask in zip(results, masks, strict=True):
        weights = np.exp(scores + mask)
        wanted = weights / weights.sum(-1, keepdims=True) @ v
        np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-5)
