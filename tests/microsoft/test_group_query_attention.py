"""Attention whose query heads share key heads, with a cache."""

from __future__ import annotations

import numpy as np
import pytest

import onnxplug

BATCH, LENGTH, HEADS, SHARED, SIZE, PAST = 2, 5, 4, 2, 16, 6


@pytest.fixture(params=[14, 23])
def attention(request, compare):
    """Its lengths are those of the sequences with the new keys."""

    def run(qkv, past, lengths, *rest, shared=SHARED, dtype=np.float32, **form):
        total = max(lengths)
        inputs = [
            *qkv,
            *past,
            np.array(lengths, np.int32) - np.int32(1),
            np.array(total, np.int32),
            *rest,
        ]
        cast = [
            a.astype(dtype) if a is not None and a.dtype == np.float32 else a
            for a in inputs
        ]
        compare(
            "GroupQueryAttention",
            cast,
            opset=request.param,
            outputs=(0, 1, 2),
            constants=(7, 8),
            num_heads=HEADS,
            kv_num_heads=shared,
            tolerance=5e-6 if dtype is np.float32 else 3e-3,
            **form,
        )

    return run


@pytest.fixture
def fresh(normal):
    """New queries, keys and values, packed or not."""

    def make(batch=BATCH, length=LENGTH, shared=SHARED, packed=False):
        if packed:
            width = (HEADS + 2 * shared) * SIZE
            return normal(batch, length, width), None, None
        return (
            normal(batch, length, HEADS * SIZE),
            normal(batch, length, shared * SIZE),
            normal(batch, length, shared * SIZE),
        )

    return make


@pytest.fixture
def cache(normal):
    """Past keys and values."""

    def make(rows, batch=BATCH, shared=SHARED):
        return normal(batch, shared, rows, SIZE), normal(batch, shared, rows, SIZE)

    return make


@pytest.fixture
def turns(normal):
    return normal(20, SIZE // 2), normal(20, SIZE // 2)


WHOLE = (LENGTH, LENGTH)


def test_prompt(attention, fresh, cache, turns):
    attention(fresh(), (None, None), WHOLE)
    attention(fresh(), cache(0), WHOLE)
    attention(fresh(), cache(0), WHOLE, softcap=2.0, scale=0.5)
    attention(fresh(), cache(0), WHOLE, causal=0)
    attention(fresh(), cache(0), WHOLE, *turns, do_rotary=1)
    attention(fresh(), cache(0), WHOLE, *turns, do_rotary=1, rotary_interleaved=1)
    attention(fresh(packed=True), cache(0), WHOLE, *turns, do_rotary=1)


@pytest.mark.parametrize("window", [1, 3, 6])
def test_window(attention, fresh, cache, window):
    attention(fresh(), cache(0), WHOLE, local_window_size=window)
    more = PAST + 1, PAST + 1
    attention(fresh(length=1), cache(PAST), more, local_window_size=window)


def test_bias_and_sinks(attention, fresh, cache, normal):
    attention(fresh(), cache(0), WHOLE, smooth_softmax=1)
    attention(fresh(), cache(0), WHOLE, *[None] * 4, normal(HEADS))
    for batch, heads in ((1, 1), (BATCH, HEADS)):
        bias = normal(batch, heads, LENGTH, LENGTH)
        attention(fresh(), cache(0), WHOLE, *[None] * 3, bias)
    more = PAST + 1, PAST + 1
    bias = normal(1, HEADS, 1, PAST + 1)
    attention(fresh(length=1), cache(PAST), more, *[None] * 3, bias)
    sinks = normal(HEADS)
    attention(fresh(length=1), cache(PAST), more, *[None] * 4, sinks, softcap=3.0)


def test_next_token(attention, fresh, cache, turns, integers):
    more = PAST + 1, PAST + 1
    one = {"length": 1}
    attention(fresh(**one), cache(PAST), more)
    attention(fresh(**one), cache(PAST), more, *turns, do_rotary=1)
    attention(fresh(packed=True, **one), cache(PAST), more, *turns, do_rotary=1)
    places = integers(20, (BATCH, 1), np.int64)
    attention(fresh(**one), cache(PAST), more, *turns, places, do_rotary=1)
    alone = cache(PAST, shared=HEADS)
    attention(fresh(shared=HEADS, **one), alone, more, shared=HEADS)


def test_sequences_of_different_lengths(attention, fresh, cache, turns):
    lengths = PAST + 1, 4
    attention(fresh(length=1), cache(PAST), lengths, *turns, do_rotary=1)


def test_a_cache_with_room(attention, fresh, cache, normal):
    attention(fresh(length=1), cache(PAST), (5, 4))
    lengths = (PAST + LENGTH,)
    attention(fresh(batch=1), cache(20, batch=1), lengths)
    bias = normal(1, HEADS, LENGTH, PAST + LENGTH)
    attention(fresh(batch=1), cache(20, batch=1), lengths, *[None] * 3, bias)


def test_several_tokens(attention, fresh, cache, turns):
    lengths = (PAST + LENGTH,)
    attention(fresh(batch=1), cache(PAST, batch=1), lengths, *turns, do_rotary=1)
    attention(fresh(batch=1), cache(PAST, batch=1), lengths, local_window_size=4)


def test_half_precision(attention, fresh, cache, turns):
    more = PAST + 1, PAST + 1
    form = {"do_rotary": 1, "dtype": np.float16}
    attention(fresh(length=1), cache(PAST), more, *turns, **form)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("kind", ["PER_TENSOR", "PER_CHANNEL"])
def test_caches_of_codes(compare, fresh, normal, integers, turns, compiled, bits, kind):
    """Codes to the bit."""
    for rows, lengths in ((1, [PAST + 1] * 2), (LENGTH, [PAST + LENGTH])):
        batch, room = len(lengths), max(lengths)
        dtype = np.int8 if bits == 8 else np.uint8
        past = [
            integers(256, (batch, SHARED, PAST, SIZE * bits // 8)).astype(dtype)
            for _ in "kv"
        ]
        shape = (1, SHARED, 1, SIZE) if kind == "PER_CHANNEL" else (1,)
        scales = [(np.abs(normal(*shape)) + 1) / 2 ** (bits - 2) for _ in "kv"]
        counts = np.array(lengths, np.int32) - np.int32(1), np.array(room, np.int32)
        given = [*fresh(batch, rows), *past, *counts, *turns, *[None] * 3, *scales]
        compare(
            "GroupQueryAttention", given, outputs=(0, 1, 2), constants=(7, 8, 12, 13),
            dtypes=(np.float32, dtype, dtype),
            compiled=compiled, num_heads=HEADS, kv_num_heads=SHARED, do_rotary=1,
            k_quant_type=kind, v_quant_type=kind, kv_cache_bit_width=bits,
        )  # fmt: skip


@pytest.mark.parametrize("compiled", [False, True])
def test_rows_that_are_padding(ours, theirs, close, fresh, cache, turns, compiled):
    """Chunks of one shape, of which some rows are no part: as ONNX Runtime has them."""
    lengths, valid = [PAST + 3, 4, 7], [3, 2, 0]
    counts = [np.array(lengths, np.int32) - np.int32(1), np.array(20, np.int32)]
    given = [*fresh(3), *cache(20, 3), *counts, *turns, *[None] * 7]
    form = {
        "outputs": (0, 1, 2), "constants": (7, 8), "dtypes": (np.float32,) * 3,
        "num_heads": HEADS, "kv_num_heads": SHARED, "do_rotary": 1,
        "local_window_size": 4,
    }  # fmt: skip
    inputs = [*given, np.array(valid, np.int32)]
    found = ours("GroupQueryAttention", inputs, compiled=compiled, **form)
    wanted = theirs("GroupQueryAttention", inputs, **form)
    for image, (length, count) in enumerate(zip(lengths, valid, strict=True)):
        close(found[0][image, :count], wanted[0][image, :count])
        for mine, other in zip(found[1:], wanted[1:], strict=True):
            close(mine[image, :, :length], other[image, :, :length])
    for count in (5, -1, np.iinfo(np.int32).max, np.iinfo(np.int32).min):
        wrong = [*given, np.array([3, count, 0], np.int32)]
        with pytest.raises(onnxplug.errors.NodeError, match="query_seqlens"):
            ours("GroupQueryAttention", wrong, compiled=compiled, **form)


def test_what_codes_of_caches_lack(ours, fresh, cache):
    counts = np.array([PAST, PAST], np.int32), np.array(PAST + 1, np.int32)
    form = {"num_heads": HEADS, "kv_num_heads": SHARED}
    given = [*fresh(length=1), *cache(PAST), *counts]
    scales = [np.ones(1, np.float32)] * 2
    for more, attributes, why in (
        (scales, {}, "NONE, and scales"),
        ([], {"k_quant_type": "PER_TENSOR", "kv_cache_bit_width": 8}, "expected both"),
        (scales, dict.fromkeys(("k_quant_type", "v_quant_type"), "PER_CHANNEL")
         | {"kv_cache_bit_width": 8}, r"expected \(1, 2, 1, 16\)"),
        (scales, dict.fromkeys(("k_quant_type", "v_quant_type"), "PER_TENSOR")
         | {"kv_cache_bit_width": 8}, "expected int8"),
    ):  # fmt: skip
        inputs = [*given, *[None] * 5, *more] if more else given
        with pytest.raises(onnxplug.errors.NodeError, match=why):
            ours("GroupQueryAttention", inputs, compiled=True, **form, **attributes)


def test_norm_of_queries_and_keys(ours, close, fresh, cache, normal):
    """ONNX Runtime has it on GPUs only."""
    q, k, v = fresh()
    q_weight, k_weight = normal(SIZE), normal(SIZE)

    def normed(x, weight):
        heads = x.reshape(BATCH, LENGTH, -1, SIZE).astype(np.float64)
        root = np.sqrt((heads**2).mean(-1, keepdims=True) + 1e-6)
        return (heads / root * weight).reshape(x.shape).astype(np.float32)

    lengths = [np.array([4, 4], np.int32), np.array(5, np.int32)]
    form = {"opset": 21, "num_heads": HEADS, "kv_num_heads": SHARED}
    inputs = [q, k, v, *cache(0), *lengths, *[None] * 7, q_weight, k_weight]
    (found,) = ours("GroupQueryAttention", inputs, **form)
    inputs = [normed(q, q_weight), normed(k, k_weight), v, *cache(0), *lengths]
    (wanted,) = ours("GroupQueryAttention", inputs, **form)
    close(found, wanted, 2e-5)
