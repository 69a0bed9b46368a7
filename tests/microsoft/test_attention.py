"""Attention, and rotary positions, as ONNX Runtime computes them.

It wants a bias of ``Attention``: without one it reads memory that is not there.
"""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import helper

import onnxplug

OPSETS = (11, 14, 18, 23)
BATCH, LENGTH, WIDTH, HEADS, SIZE, PAST = 2, 5, 16, 4, 4, 3


def _lengths(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


@pytest.fixture(params=OPSETS)
def attention(request, compare):
    return lambda *inputs, **form: compare(
        "Attention", inputs, opset=request.param, num_heads=HEADS, **form
    )


def test_masks(attention, normal, integers):
    x, weights, bias = normal(BATCH, LENGTH, WIDTH), normal(WIDTH, 48), normal(48)
    attention(x, weights, bias, scale=0.3)
    for causal in (0, 1):
        for mask in (
            None,
            _lengths(3, 5),
            _lengths(3, 5, 1, 2),
            _some(integers(2, (BATCH, LENGTH))),
            _some(integers(2, (BATCH, LENGTH, LENGTH))),
        ):
            attention(x, weights, bias, mask, unidirectional=causal)
    scores = normal(BATCH, HEADS, LENGTH, LENGTH)
    attention(x, weights, bias, _lengths(3, 5), None, scores, mask_filter_value=-50.0)
    attention(x, weights, bias, None, None, scores[:1, :1], unidirectional=1)


def _some(mask: np.ndarray) -> np.ndarray:
    """Scores that are all masked lose digits: show one to each query."""
    mask[..., 0] = 1
    return mask


def test_past_and_present(attention, normal, integers):
    x, weights, bias = normal(BATCH, LENGTH, WIDTH), normal(WIDTH, 48), normal(48)
    past = normal(2, BATCH, HEADS, PAST, SIZE)
    attention(x, weights, bias, outputs=(0, 1))
    for causal in (0, 1):
        form = {"unidirectional": causal, "outputs": (0, 1)}
        attention(x, weights, bias, None, past, **form)
        mask = _some(integers(2, (BATCH, PAST + LENGTH)))
        attention(x, weights, bias, mask, past, **form)


def test_values_of_another_width(attention, normal):
    x, weights, bias = normal(BATCH, LENGTH, WIDTH), normal(WIDTH, 40), normal(40)
    attention(x, weights, bias, qkv_hidden_sizes=[16, 16, 8])


def test_compiled(attention, normal):
    x, weights, bias = normal(BATCH, LENGTH, WIDTH), normal(WIDTH, 48), normal(48)
    attention(x, weights, bias, _lengths(3, 5), constants=(1, 2), compiled=True)


@pytest.mark.parametrize("opset", OPSETS)
def test_a_bias_may_be_left_out(ours, close, normal, opset):
    x, weights = normal(BATCH, LENGTH, WIDTH), normal(WIDTH, 48)
    form = {"opset": opset, "num_heads": HEADS}
    (bare,) = ours("Attention", [x, weights], **form)
    (zero,) = ours("Attention", [x, weights, np.zeros(48, np.float32)], **form)
    close(bare, zero)


@pytest.fixture(params=OPSETS)
def multi_head(request, compare):
    return lambda *inputs, **form: compare(
        "MultiHeadAttention", inputs, opset=request.param, num_heads=HEADS, **form
    )


def test_queries_keys_and_values(multi_head, normal):
    q, k, v, bias = normal(2, 5, 16), normal(2, 7, 16), normal(2, 7, 16), normal(48)
    multi_head(q, k, v)
    multi_head(q, k, v, bias, scale=0.3)
    multi_head(q, k, normal(2, 7, 8))
    multi_head(q, k, normal(2, 7, 8), normal(40))
    multi_head(q, normal(2, 5, 16), normal(2, 5, 16), bias, unidirectional=1)


def test_keys_of_an_encoder(multi_head, normal):
    q, k, v = normal(2, 5, 16), normal(2, 4, 7, 4), normal(2, 4, 7, 4)
    multi_head(q, k, v)
    multi_head(q, k, v, normal(48))


def test_padding(multi_head, normal, integers):
    q, k, v, bias = normal(2, 5, 16), normal(2, 7, 16), normal(2, 7, 16), normal(48)
    multi_head(q, k, v, None, _lengths(3, 7))
    multi_head(q, k, v, bias, _some(integers(2, (2, 7))))
    scores = normal(1, 4, 5, 7)
    multi_head(q, k, v, bias, _some(integers(2, (2, 5, 7))), scores)


def test_a_cache(multi_head, normal, integers):
    q, k, v, bias = (*(normal(2, 5, 16) for _ in "qkv"), normal(48))
    past = normal(2, 4, 3, 4), normal(2, 4, 3, 4)
    every = {"outputs": (0, 1, 2)}
    multi_head(q, k, v, **every)
    multi_head(q, k, v, bias, None, None, *past, **every)
    multi_head(q, k, v, None, None, None, *past, unidirectional=1, **every)
    mask = _some(integers(2, (2, 8)))
    multi_head(q, k, v, None, mask, normal(2, 1, 5, 8), *past, **every)


def test_scores_are_given(multi_head, normal):
    q, k, v = normal(2, 5, 16), normal(2, 7, 16), normal(2, 7, 16)
    form = {"outputs": (0, 3), "dtypes": (np.float32, np.float32)}
    multi_head(q, k, v, **form)
    multi_head(q, k, v, None, _lengths(3, 7), normal(1, 4, 5, 7), **form)


def bound(module, model: bytes, feeds: dict[str, np.ndarray]) -> dict:
    """Results by name, with caches that are updated where they are."""
    session = module.InferenceSession(model, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for name, array in feeds.items():
        value = module.OrtValue.ortvalue_from_numpy(array.copy())
        binding.bind_ortvalue_input(name, value)
        if name.startswith("past"):
            binding.bind_ortvalue_output(f"new{name[4:]}", value)
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    names = [f"new{name[4:]}" for name in feeds if name.startswith("past")]
    found = binding.copy_outputs_to_cpu()
    return dict(zip([*names, "y"], found, strict=True))


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("given", ["", "bias", "scores", "mask", "bias mask scores"])
def test_a_cache_with_room(normal, integers, dtype, given):
    rows = 3 if given == "" else 1
    used, room = 4, 9
    feeds = {name: normal(2, rows, 16) for name in "qkv"}
    feeds |= {"bias": normal(48), "scores": normal(1, 4, rows, used + rows)}
    feeds |= {name: normal(2, 4, room, 4) for name in ("past_k", "past_v")}
    feeds = {name: array.astype(dtype) for name, array in feeds.items()}
    for name in {"bias", "scores"} - set(given.split()):
        del feeds[name]
    feeds["used"] = np.array([used], np.int32)
    if "mask" in given:
        feeds["mask"] = _some(integers(2, (2, used + rows)))
    bias, mask, scores = (
        name if name in feeds else "" for name in ("bias", "mask", "scores")
    )
    node = helper.make_node(
        "MultiHeadAttention",
        ["q", "k", "v", bias, mask, scores, "past_k", "past_v", "used"],
        ["y", "new_k", "new_v"],
        domain="com.microsoft", num_heads=4, unidirectional=1,
    )  # fmt: skip
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph = helper.make_graph(
        [node],
        "g",
        [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
            )
            for name, array in feeds.items()
        ],
        [helper.make_tensor_value_info(name, kind, None) for name in node.output],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    model = model.SerializeToString()
    own = onnxplug.InferenceSession(model, providers=["CPUExecutionProvider"])
    own.run(None, feeds)
    assert not [node.note for node in own.explain().nodes if node.note]
    found, wanted = (bound(module, model, feeds) for module in (onnxplug, onnxruntime))
    unit = 2e-6 if dtype == np.float32 else 2e-3
    for name, array in wanted.items():
        ours = found[name]
        if name != "y":  # on arrays what is behind the rows in use is zero
            ours, array = (each[:, :, : used + rows] for each in (ours, array))
        np.testing.assert_allclose(ours, array, unit, unit)


def test_beams_that_share_a_cache(ours, close, normal):
    """The rows of a cache that a beam has may be those of another."""
    operator = "DecoderMaskedMultiHeadAttention"
    q, k, v = (normal(4, 1, 16) for _ in "qkv")
    past = [normal(4, 4, 9, 4), normal(4, 4, 9, 4)]
    beams = np.zeros((2, 2, 9), np.int32)
    beams[0, 1, :5:2] = 1
    beams[1] = np.arange(2)[::-1, None]
    form = {"num_heads": 4, "past_present_share_buffer": 1}
    used = np.array([5], np.int32)
    given = [q, k, v, None, None, *past, used, np.array([2], np.int32), beams]
    (found,) = ours(operator, given, **form)
    of = np.arange(4)[:, None] // 2 * 2 + beams.reshape(4, 9)[:, :5]
    own = []
    for cache in past:
        rows = cache[of, :, np.arange(5)].transpose(0, 2, 1, 3)
        own.append(np.concatenate([rows, cache[:, :, 5:]], 2))
    (wanted,) = ours(operator, [q, k, v, None, None, *own, used], **form)
    close(found, wanted)
    with pytest.raises(onnxplug.errors.NodeError, match="beams"):
        ours(operator, [*given[:-1], beams + 1], **form)


def test_one_query_with_a_mask_of_a_cache_with_room(ours, close, normal, integers):
    """Compiled, as on arrays; ONNX Runtime has it in a buffer of its own only."""
    operator, form = "DecoderMaskedMultiHeadAttention", {"num_heads": 4}
    new = [normal(2, 1, 16) for _ in "qkv"]
    past, used = [normal(2, 4, 9, 4), normal(2, 4, 9, 4)], np.array([5], np.int32)
    form |= {"past_present_share_buffer": 1, "mask_filter_value": -3.0}
    masks = _some(integers(2, (2, 6))), normal(1, 4, 1, 6)
    for given in (masks, (masks[0], None), (None, masks[1])):
        inputs = [*new, *given, *past, used]
        (wanted,) = ours(operator, inputs, **form)
        (found,) = ours(operator, inputs, compiled=True, **form)
        close(found, wanted)


@pytest.mark.parametrize("opset", OPSETS)
def test_packed_inputs(ours, close, normal, opset):
    """ONNX Runtime has these on GPUs only."""
    q, k, v = (normal(2, 5, 4, 4) for _ in "qkv")
    form = {"opset": opset, "num_heads": HEADS}
    apart = [array.reshape(2, 5, 16) for array in (q, k, v)]
    operator = "MultiHeadAttention"
    (wanted,) = ours(operator, apart, **form)
    close(ours(operator, [np.stack([q, k, v], 3)], **form)[0], wanted)
    close(ours(operator, [apart[0], np.stack([k, v], 3)], **form)[0], wanted)


@pytest.mark.parametrize("opset", OPSETS)
def test_one_query(compare, ours, close, normal, integers, opset):
    operator, form = "DecoderMaskedMultiHeadAttention", {"opset": opset, "num_heads": 4}
    q, k, v = normal(2, 1, 16), normal(2, 4, 7, 4), normal(2, 4, 7, 4)
    compare(operator, [q, k, v], **form)
    compare(operator, [q, k, v, _some(integers(2, (2, 7)))], **form)
    compare(operator, [q, k, v, *[None] * 7, normal(48)], **form)
    # without a shared buffer, ONNX Runtime has no cache here: it has in the other
    past, new = [normal(2, 4, 3, 4), normal(2, 4, 3, 4)], [q, q + 1, q - 1]
    every = {"outputs": (0, 1, 2), **form}
    found = ours(operator, [*new, None, None, *past], **every)
    wanted = ours("MultiHeadAttention", [*new, *[None] * 3, *past], **every)
    for one, other in zip(found, wanted, strict=True):
        close(one, other)


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_rotary_positions(compare, normal, integers, opset, interleaved, dtype):
    tolerance = 5e-6 if dtype is np.float32 else 2e-3
    form = {"opset": opset, "interleaved": interleaved, "tolerance": tolerance}

    def rotate(x, positions, half, **more):
        caches = [normal(20, half).astype(dtype) for _ in "cs"]
        inputs = [x.astype(dtype), positions, *caches]
        compare("RotaryEmbedding", inputs, constants=(2, 3), **form, **more)

    for positions in (np.array([2]), integers(20, (2, 5), np.int64)):
        rotate(normal(2, 5, 16), positions, 2)
        rotate(normal(2, 5, 16), positions, 2, num_heads=4)
        rotate(normal(2, 4, 5, 4), positions, 2)
        rotate(normal(2, 5, 16), positions, 2, num_heads=2, rotary_embedding_dim=4)
        rotate(normal(2, 4, 5, 8), positions, 2, num_heads=4, rotary_embedding_dim=4)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_attention_of_codes(compare, normal, integers, dtype):
    """Which the CPU EP compiles as the body of its function."""
    low = -64 if dtype == np.int8 else 0
    codes = integers(256, (BATCH, LENGTH, WIDTH)).astype(np.uint8)
    weights = (integers(128, (WIDTH, 48)) + low).astype(dtype)
    columns = np.abs(normal(48)) / 256 + np.float32(1e-3)
    scale = np.array(0.01, np.float32)
    zeros = np.array(131, np.uint8), np.full(48, 3, dtype)
    past = normal(2, BATCH, HEADS, PAST, SIZE)
    first = (codes, weights, normal(48), scale, columns)
    for mask, before, form in (
        (None, None, {}),
        (_lengths(3, 5, 1, 2), None, {"unidirectional": 1}),
        (_some(integers(2, (BATCH, LENGTH))), None, {"scale": 0.3}),
        (None, past, {"unidirectional": 1, "outputs": (0, 1)}),
    ):
        given = (*first, mask, *zeros, before)
        compare("QAttention", given, num_heads=HEADS, compiled=True, **form)
