"""Activations and normalizations that ONNX Runtime's optimiser writes."""

from __future__ import annotations

import math

import numpy as np
import pytest

OPSETS = (12, 17, 20, 23)


@pytest.mark.parametrize("opset", OPSETS)
def test_gelu(compare, normal, opset):
    x, bias = 3 * normal(2, 5, 8), normal(8)
    compare("Gelu", [x], opset=opset)
    compare("BiasGelu", [x, bias], opset=opset)
    compare("FastGelu", [x, bias], opset=opset)
    compare("FastGelu", [x], opset=opset)
    compare("QuickGelu", [x], opset=opset)
    compare("QuickGelu", [x], opset=opset, alpha=1.0)


@pytest.mark.parametrize("opset", OPSETS)
def test_what_is_fused_with_gelu_elsewhere(ours, close, normal, opset):
    """These have no kernel in ONNX Runtime on the CPU."""
    x, bias, skip = normal(2, 5, 8), normal(8), normal(2, 5, 8)
    erf = np.vectorize(math.erf)
    wide = x.astype(np.float64) + bias
    left, right = np.split(wide, 2, axis=-1)
    gelu = right * (1 + erf(right / math.sqrt(2))) / 2
    close(ours("BiasSplitGelu", [x, bias], opset=opset)[0], left * gelu)
    close(ours("BiasAdd", [x, bias, skip], opset=opset)[0], wide + skip)
    close(ours("BiasDropout", [x, bias, skip], opset=opset)[0], wide + skip)
    w = normal(8, 6)
    product = x.astype(np.float64) @ w
    inner = math.sqrt(2 / math.pi) * (product + 0.044715 * product**3)
    fast = product * (1 + np.tanh(inner)) / 2
    close(ours("GemmFastGelu", [x, w], opset=opset)[0], fast)
    scores = np.exp(wide - wide.max(-1, keepdims=True))
    close(
        ours("BiasSoftmax", [x, bias], opset=opset, axis=2, is_inner_broadcast=0)[0],
        scores / scores.sum(-1, keepdims=True),
    )


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("outputs", [(0,), (0, 3)])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_skip_normalization(compare, normal, opset, outputs, dtype):
    x, skip = normal(2, 5, 8).astype(dtype), normal(2, 5, 8).astype(dtype)
    gamma, beta, bias = (normal(8).astype(dtype) for _ in range(3))
    tolerance = 5e-6 if dtype is np.float32 else 2e-3
    form = {"opset": opset, "outputs": outputs, "tolerance": tolerance}
    layer = "SkipLayerNormalization"
    compare(layer, [x, skip, gamma, beta], **form, epsilon=1e-3)
    compare(layer, [x, skip[0], gamma, None, bias], **form)
    simple = "SkipSimplifiedLayerNormalization"
    compare(simple, [x, skip, gamma], **form)
    compare(simple, [x, skip, gamma, bias], **form, epsilon=1e-3)


@pytest.mark.parametrize("opset", OPSETS)
def test_normalization_in_the_domain_of_onnx(compare, normal, opset):
    x, scale, bias = normal(2, 5, 8), normal(8), normal(8)
    form = {"opset": opset, "domain": ""}
    layer = "LayerNormalization"
    compare(layer, [x, scale, bias], **form, outputs=(0, 1, 2), epsilon=1e-3)
    compare(layer, [x, normal(5, 8)], **form, axis=1)
    simple = "SimplifiedLayerNormalization"
    compare(simple, [x, scale], **form)
    compare(simple, [x, normal(5, 8)], **form, axis=-2, outputs=(0, 1))
    half = [x.astype(np.float16), scale.astype(np.float16)]
    compare(simple, half, **form, tolerance=2e-3)


@pytest.mark.parametrize("opset", OPSETS)
def test_embeddings(compare, normal, integers, opset):
    ids, kinds = integers(9, (2, 5)), integers(3, (2, 5))
    words, places, segments = normal(9, 8), normal(7, 8), normal(3, 8)
    gamma, beta = normal(8), normal(8)
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 0, 1, 0]], np.int32)
    operator = "EmbedLayerNormalization"
    inputs = [ids, kinds, words, places, segments, gamma, beta]
    every = {"opset": opset, "outputs": (0, 1, 2)}
    compare(operator, [*inputs, mask], **every, epsilon=1e-3)
    compare(operator, [*inputs, None, integers(7, (1, 5))], **every)
    inputs = [ids, None, words, places, None, gamma, beta]
    compare(operator, inputs, opset=opset, outputs=(0, 1))


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("channels_last", [0, 1])
@pytest.mark.parametrize("activation", [0, 1])
def test_group_norm(ours, close, normal, opset, channels_last, activation):
    x, gamma, beta = normal(2, 6, 3, 5), normal(6), normal(6)
    wide = x.astype(np.float64)

    def reference(wide):
        rows = wide.reshape(2, 3, -1)
        centred = rows - rows.mean(-1, keepdims=True)
        deviation = np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-3)
        y = (centred / deviation).reshape(wide.shape)
        y = y * gamma[:, None, None] + beta[:, None, None]
        return y / (1 + np.exp(-y)) if activation else y

    def turned(array):
        return array.transpose(0, 2, 3, 1).copy() if channels_last else array

    form = {
        "opset": opset,
        "activation": activation,
        "channels_last": channels_last,
        "groups": 3,
        "epsilon": 1e-3,
    }
    (y,) = ours("GroupNorm", [turned(x), gamma, beta], **form)
    close(y, turned(reference(wide)))
    half = [turned(x).astype(np.float16), gamma, beta]
    (y,) = ours("GroupNorm", half, **form)
    assert y.dtype == np.float16
    close(y.astype(np.float32), turned(reference(wide)), 4e-3)
    if channels_last:
        skip, bias = normal(2, 6), normal(6)
        total = wide + skip[:, :, None, None] + bias[:, None, None]
        inputs = [turned(x), gamma, beta, skip, bias]
        y, summed = ours("SkipGroupNorm", inputs, outputs=(0, 1), **form)
        close(y, turned(reference(total)))
        close(summed, turned(total))
