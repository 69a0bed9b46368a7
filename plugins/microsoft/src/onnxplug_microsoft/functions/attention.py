"""Attention with the projections of its inputs, and of many heads.

Letters in shapes are those of :mod:`~onnxplug_microsoft.functions.heads`.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

from onnxplug.ep import DataType
from onnxplug_microsoft.functions.body import Body, NoFunction
from onnxplug_microsoft.functions.heads import (
    added,
    as_addend,
    causal,
    join_heads,
    lengths_mask,
    raw_mask,
    scaled_scores,
    split_heads,
    to_int64,
    weighted,
)
from onnxplug_microsoft.functions.makers import all_or_none, operator

_FILLER = -10000.0


@operator("Attention", since=11)
def _attention(
    body: Body,
    input: str,
    weights: str,
    bias: str | None = None,
    mask_index: str | None = None,
    past: str | None = None,
    attention_bias: str | None = None,
    past_sequence_length: str | None = None,
    *,
    num_heads: int,
    do_rotary: int = 0,
    mask_filter_value: float = _FILLER,
    past_present_share_buffer: int = 0,
    qkv_hidden_sizes: tuple[int, ...] | None = None,
    rotary_embedding_dim: int = 0,
    scale: float = 0.0,
    unidirectional: int = 0,
) -> tuple[str | None, ...]:
    _refuse_set(
        do_rotary=do_rotary, past_present_share_buffer=past_present_share_buffer
    )
    _refuse_given(past_sequence_length=past_sequence_length)
    projected = body.op("MatMul", input, weights)
    if bias is not None:
        projected = body.op("Add", projected, bias)
    width = body.known_size(weights, 1)
    sizes = qkv_hidden_sizes or (None if width is None else (width // 3,) * 3)
    form = _Form(num_heads, sizes, scale, mask_filter_value, bool(unidirectional))
    return _of_projected(
        body, (input, projected), form, mask_index, past, attention_bias
    )


@operator("QAttention", since=11)
def _q_attention(
    body: Body,
    input: str,
    weight: str,
    bias: str,
    input_scale: str,
    weight_scale: str,
    mask_index: str | None = None,
    input_zero_point: str | None = None,
    weight_zero_point: str | None = None,
    past: str | None = None,
    *,
    num_heads: int,
    do_rotary: int = 0,
    mask_filter_value: float = _FILLER,
    past_present_share_buffer: int = 0,
    scale: float = 0.0,
    unidirectional: int = 0,
) -> tuple[str | None, ...]:
    """Of codes, whose projections are sums of integers."""
    _refuse_set(
        do_rotary=do_rotary, past_present_share_buffer=past_present_share_buffer
    )
    if mask_index is not None and body.rank(mask_index) == len("BT"):
        keys = body.shape(mask_index)[1]
        is_as_queries = past is None and keys == body.shape(input)[1]
        if keys in (None, 1) or (isinstance(keys, str) and not is_as_queries):
            raise NoFunction("its input 'mask_index' may only keep the place of a mask")
    zeros = input_zero_point, weight_zero_point
    sums = body.op("MatMulInteger", input, weight, *zeros)
    factor = body.op("Mul", input_scale, weight_scale)
    projected = body.op("Mul", body.cast(sums, DataType.FLOAT32), factor)
    projected = body.op("Add", projected, bias)
    width = body.known_size(weight, 1)
    sizes = None if width is None else (width // 3,) * 3
    form = _Form(num_heads, sizes, scale, mask_filter_value, bool(unidirectional))
    return _of_projected(body, ("bias", projected), form, mask_index, past, None)


class _Form(NamedTuple):
    """What attributes say.

    Attributes:
        sizes: of queries, keys and values of all heads.
        filler: what masked scores get.
    """

    num_heads: int
    sizes: tuple[int, ...] | None
    scale: float
    filler: float
    is_causal: bool


def _of_projected(
    body: Body,
    projected: tuple[str, str],
    form: _Form,
    mask_index: str | None,
    past: str | None,
    attention_bias: str | None,
) -> tuple[str | None, ...]:
    """The result, keys and values of queries, keys and values side by side.

    Args:
        projected: an input of the type that is computed with, and these.
    """
    typed, together = projected
    q, k, v = (
        split_heads(body, part, form.num_heads)
        for part in body.split(together, 3, 2, form.sizes)
    )
    earlier = body.index(0)
    if past is not None:
        old = (body.squeeze(part, 0) for part in body.split(past, 2, 0))
        k, v = (
            body.op("Concat", before, new, axis=2)
            for before, new in zip(old, (k, v), strict=True)
        )
        earlier = body.size(past, 3)
    keys = body.size(k, 2)
    allowed = None
    if mask_index is not None:
        rank = body.rank(mask_index)
        if rank not in (1, 2, 3):
            raise NoFunction(f"its input 'mask_index' has rank {rank}; expected 1 to 3")
        allowed = (
            _sequence_mask(body, mask_index, body.size("input", 0), keys)
            if rank == 1
            else raw_mask(body, mask_index, rank)
        )
    ordered = None
    if form.is_causal:
        ordered = causal(body, body.size("input", 1), earlier, keys)
    mask = as_addend(body, allowed, ordered, form.filler, typed)
    head_size = None if form.sizes is None else form.sizes[0] // form.num_heads
    scores = scaled_scores(body, q, k, form.scale, head_size, typed)
    y = join_heads(body, weighted(body, added(body, scores, mask, attention_bias), v))
    if not body.wants(1):
        return (y,)
    both = (body.unsqueeze(part, 0) for part in (k, v))
    return y, body.op("Concat", *both, axis=0)


def _sequence_mask(body: Body, mask: str, batch: str, keys: str) -> str:
    """Of [B] ends of sequences, or of [2·B] ends and then starts."""
    found = body.known_size(mask, 0)
    count = body.known_size("input", 0)
    if found is not None and count is not None and found not in (count, 2 * count):
        raise NoFunction(
            f"its input 'mask_index' has {found} elements for {count} sequences; its "
            "function knows one or two for each sequence"
        )
    ends = to_int64(body, body.slice(mask, 0, batch, 0))
    if found is not None and found == count:
        return lengths_mask(body, ends, None, keys)
    # without starts, what follows the ends is empty, and the ends are read as starts
    twice = body.op("Add", batch, batch)
    both = body.op("Concat", mask, mask, axis=0)
    starts = to_int64(body, body.slice(both, batch, twice, 0))
    has_starts = body.op("Equal", body.size(mask, 0), twice)
    starts = body.op("Where", has_starts, starts, body.index(0))
    return lengths_mask(body, ends, starts, keys)


@operator("MultiHeadAttention", since=11)
def _multi_head_attention(
    body: Body,
    query: str,
    key: str | None = None,
    value: str | None = None,
    bias: str | None = None,
    key_padding_mask: str | None = None,
    attention_bias: str | None = None,
    past_key: str | None = None,
    past_value: str | None = None,
    past_sequence_length: str | None = None,
    cache_indirection: str | None = None,
    *,
    num_heads: int,
    mask_filter_value: float = _FILLER,
    scale: float = 0.0,
    unidirectional: int = 0,
) -> tuple[str | None, ...]:
    """Queries, keys and values apart, or packed in one of rank 5, or the last two."""
    _refuse_given(
        past_sequence_length=past_sequence_length, cache_indirection=cache_indirection
    )
    if value is None and bias is not None:
        raise NoFunction("it has the input 'bias', but none called 'value'")
    if key is None:
        parts = (body.squeeze(part, 3) for part in body.split(query, 3, 3))
        q, k, v = (body.transpose(part, 0, 2, 1, 3) for part in parts)
        head_size = body.known_size(query, 4)
    else:
        q = split_heads(body, _plus_bias(body, query, query, bias, 0), num_heads)
        width = body.known_size(query, 2)
        head_size = None if width is None else width // num_heads
        k, v = _keys_and_values(body, query, key, value, bias, num_heads)
    earlier = body.index(0)
    if all_or_none(past_key=past_key, past_value=past_value):
        k = body.op("Concat", past_key, k, axis=2)
        v = body.op("Concat", past_value, v, axis=2)
        earlier = body.size(str(past_key), 2)
    return _attend(
        body,
        (q, k, v),
        earlier,
        key_padding_mask,
        attention_bias,
        (scale, head_size, mask_filter_value, bool(unidirectional)),
    )


def _attend(
    body: Body,
    qkv: tuple[str, str, str],
    earlier: str,
    padding: str | None,
    attention_bias: str | None,
    form: tuple[float, int | None, float, bool],
) -> tuple[str | None, ...]:
    """The result, keys, values and scores of [B, N, S, H] and [B, N, T, H].

    Args:
        form: the scale, the size of heads, what masked scores get, and whether keys
            after a query are hidden.
    """
    q, k, v = qkv
    scale, head_size, filler, is_causal = form
    keys = body.size(k, 2)
    allowed = None
    if padding is not None:
        rank = body.rank(padding)
        if rank == 1:
            found = body.known_size(padding, 0)
            count = body.known_size("query", 0)
            if None not in (found, count) and found != count:
                raise NoFunction(
                    f"its input 'key_padding_mask' has {found} elements for {count} "
                    "sequences; its function knows one for each sequence"
                )
            allowed = lengths_mask(body, to_int64(body, padding), None, keys)
        elif rank in (2, 3):
            allowed = raw_mask(body, padding, rank)
        else:
            raise NoFunction(f"its mask of keys has rank {rank}; expected 1 to 3")
    ordered = causal(body, body.size(q, 2), earlier, keys) if is_causal else None
    mask = as_addend(body, allowed, ordered, filler, "query")
    scores = scaled_scores(body, q, k, scale, head_size, "query")
    scores = added(body, scores, mask, attention_bias)
    return join_heads(body, weighted(body, scores, v)), k, v, scores


def _keys_and_values(
    body: Body, query: str, key: str, value: str | None, bias: str | None, heads: int
) -> tuple[str, str]:
    """Both as [B, N, L, H]."""
    if value is None:
        parts = (body.squeeze(part, 3) for part in body.split(key, 2, 3))
        k, v = (body.transpose(part, 0, 2, 1, 3) for part in parts)
        return k, v
    if body.rank(key) == len("BNLH"):  # of an encoder, with its bias in it
        return key, value
    k = split_heads(body, _plus_bias(body, key, query, bias, 1), heads)
    v = split_heads(body, _plus_bias(body, value, query, bias, 2), heads)
    return k, v


def _plus_bias(body: Body, x: str, query: str, bias: str | None, part: int) -> str:
    """*x* plus its part of the bias: of the queries, the keys or the values."""
    if bias is None:
        return x
    width = body.known_size(query, 2)
    ends: tuple[int | str, ...]
    if width is not None:
        ends = (0, width, 2 * width, sys.maxsize)
    else:
        once = body.size(query, 2)
        ends = (0, once, body.op("Add", once, once), sys.maxsize)
    return body.op("Add", x, body.slice(bias, ends[part], ends[part + 1], 0))


@operator("DecoderMaskedMultiHeadAttention", since=11)
def _decoder_masked_attention(
    body: Body,
    query: str,
    key: str | None = None,
    value: str | None = None,
    mask_index: str | None = None,
    attention_bias: str | None = None,
    past_key: str | None = None,
    past_value: str | None = None,
    past_sequence_length: str | None = None,
    beam_width: str | None = None,
    cache_indirection: str | None = None,
    bias: str | None = None,
    *,
    num_heads: int,
    mask_filter_value: float = _FILLER,
    output_qk: int = 0,
    past_present_share_buffer: int = 0,
    scale: float = 0.0,
) -> tuple[str | None, ...]:
    """One query for each sequence; keys and values are new, or those of an encoder."""
    _refuse_set(past_present_share_buffer=past_present_share_buffer)
    _refuse_given(
        past_sequence_length=past_sequence_length,
        beam_width=beam_width,
        cache_indirection=cache_indirection,
    )
    if key is None or value is None:
        raise NoFunction("it has no inputs 'key' and 'value', but all in 'query'")
    q = split_heads(body, _plus_bias(body, query, query, bias, 0), num_heads)
    k, v = _keys_and_values(body, query, key, value, bias, num_heads)
    if all_or_none(past_key=past_key, past_value=past_value):
        k = body.op("Concat", past_key, k, axis=2)
        v = body.op("Concat", past_value, v, axis=2)
    width = body.known_size(query, 2)
    head_size = None if width is None else width // num_heads
    form = (scale, head_size, mask_filter_value, False)
    return _attend(body, (q, k, v), "", mask_index, attention_bias, form)


def _refuse_set(**attributes: int) -> None:
    for name, value in attributes.items():
        if value:
            raise NoFunction(
                f"its attribute {name!r} is {value}; its function is for 0"
            )


def _refuse_given(**inputs: str | None) -> None:
    for name, value in inputs.items():
        if value is not None:
            raise NoFunction(
                f"it has the input {name!r}, which its function does not know"
            )
