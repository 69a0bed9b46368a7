"""Multi-head attention against ONNX Runtime, in all layouts that the page has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ..standin.operators import Tensor
from .examples import Array, assert_rejected, evaluate, i32
from .reference import of_onnx

BATCH, QUERIES, KEYS, HEADS, HEAD, WIDE = 2, 3, 4, 2, 5, 6


def output(*sizes: int) -> Tensor:
    """An output of FLOAT32."""
    return Tensor(np.dtype(np.float32), sizes)


def attend(q: Array, k: Array, v: Array, bias: Any = None, scale: float = 0.3) -> Array:
    """ONNX's Attention of and to (batch, length, heads, size)."""
    apart = [each.transpose(0, 2, 1, 3).astype(np.float32) for each in (q, k, v)]
    sizes = len(q), q.shape[2], q.shape[1], k.shape[1]
    if bias is not None:
        apart.append(np.broadcast_to(np.asarray(bias, np.float32), sizes))
    found = of_onnx("Attention", *apart, opset=23, scale=scale)
    return np.asarray(found).transpose(0, 2, 1, 3)


@pytest.fixture
def qkv(rng: np.random.Generator) -> list[Array]:
    """Queries, keys and values by batch, place, head and element."""
    sizes = [(QUERIES, HEAD), (KEYS, HEAD), (KEYS, WIDE)]
    return [
        rng.standard_normal((BATCH, length, HEADS, size)).astype(np.float32)
        for length, size in sizes
    ]


def flat(array: Array) -> Array:
    """Heads side by side, as the tensors that are not stacked have them."""
    return array.reshape(*array.shape[:2], -1)


def apart(qkv: list[Array]) -> dict[str, Any]:
    """The fields for tensors apart."""
    query, key, value = qkv
    return {
        "QueryTensor": flat(query),
        "KeyTensor": flat(key),
        "ValueTensor": flat(value),
        "OutputTensor": output(BATCH, query.shape[1], HEADS * value.shape[-1]),
        "Scale": 0.3,
        "MaskFilterValue": -10000.0,
        "HeadCount": HEADS,
        "MaskType": "NONE",
    }


def compare(name: str, fields: dict[str, Any], expected: Array) -> None:
    """The first output equals what is expected."""
    found = evaluate(name, **fields)[0]
    np.testing.assert_allclose(found, flat(expected), rtol=1e-5, atol=1e-6)


def test_apart(qkv: list[Array]) -> None:
    compare("MULTIHEAD_ATTENTION", apart(qkv), attend(*qkv))
    deep = apart(qkv)
    for name in ("QueryTensor", "KeyTensor", "ValueTensor"):
        deep[name] = deep[name][None, None]
    compare("MULTIHEAD_ATTENTION", deep, attend(*qkv))


def test_stacked(rng: np.random.Generator) -> None:
    q, k, v = (
        rng.standard_normal((BATCH, QUERIES, HEADS, HEAD)).astype(np.float32)
        for _ in range(3)
    )
    fields = apart([q, k, v])
    of = {"Q": "QueryTensor", "K": "KeyTensor", "V": "ValueTensor"}
    for stacked, field in (
        ("QK", "StackedQueryKeyTensor"),
        ("KV", "StackedKeyValueTensor"),
        ("QKV", "StackedQueryKeyValueTensor"),
    ):
        parts = np.stack([{"Q": q, "K": k, "V": v}[each] for each in stacked], 3)
        rest = {name: each for name, each in fields.items() if name[0] not in stacked}
        rest |= {n: fields[n] for n in fields if n not in of.values()}
        compare("MULTIHEAD_ATTENTION", rest | {field: parts}, attend(q, k, v))
        both = fields | {field: parts}
        assert_rejected("MULTIHEAD_ATTENTION", "exactly one", **both)
        assert_rejected("MULTIHEAD_ATTENTION", "exactly one", **rest)


def test_bias(qkv: list[Array], rng: np.random.Generator) -> None:
    width = HEADS * (HEAD + HEAD + WIDE)
    bias = rng.standard_normal(width).astype(np.float32)
    ends = [HEADS * HEAD, 2 * HEADS * HEAD]
    shifted = [
        each + part.reshape(HEADS, -1)
        for each, part in zip(qkv, np.split(bias, ends), strict=True)
    ]
    fields = apart(qkv)
    for shape in ((width,), (1, 1, width)):
        with_bias = fields | {"BiasTensor": bias.reshape(shape)}
        compare("MULTIHEAD_ATTENTION", with_bias, attend(*shifted))
    short = fields | {"BiasTensor": bias[1:]}
    assert_rejected("MULTIHEAD_ATTENTION", "BiasTensor has Sizes", **short)


def test_relative_position_bias(qkv: list[Array], rng: np.random.Generator) -> None:
    bias = rng.standard_normal((BATCH, HEADS, QUERIES, KEYS)).astype(np.float32)
    fields = apart(qkv) | {"RelativePositionBiasTensor": bias}
    compare("MULTIHEAD_ATTENTION", fields, attend(*qkv, bias))
    one = fields | {"RelativePositionBiasTensor": bias[:1]}
    assert_rejected("MULTIHEAD_ATTENTION", "RelativePositionBias", **one)


def test_boolean_mask(qkv: list[Array], rng: np.random.Generator) -> None:
    mask = rng.integers(0, 2, (BATCH, HEADS, QUERIES, KEYS)).astype(np.int32)
    fields = apart(qkv) | {"MaskTensor": mask, "MaskType": "BOOLEAN"}
    for value in (-40.0, -1.5):
        added = np.where(mask == 0, value, 0.0)
        filtered = fields | {"MaskFilterValue": value}
        compare("MULTIHEAD_ATTENTION", filtered, attend(*qkv, added))
    flat_mask = fields | {"MaskTensor": mask[:, 0, 0]}
    assert_rejected("MULTIHEAD_ATTENTION", "MaskTensor of", **flat_mask)
    assert_rejected(
        "MULTIHEAD_ATTENTION", "MaskType NONE", **(fields | {"MaskType": "NONE"})
    )
    none = fields | {"MaskTensor": None}
    assert_rejected("MULTIHEAD_ATTENTION", "MaskType BOOLEAN", **none)


@pytest.mark.parametrize(
    ("kind", "mask", "seen"),
    [
        ("KEY_SEQUENCE_LENGTH", [[2, 4]], [range(2), range(4)]),
        ("KEY_SEQUENCE_END_START", [[2, 4], [0, 1]], [range(2), range(1, 4)]),
        (
            "KEY_QUERY_SEQUENCE_LENGTH_START_END",
            [3, 1, 0, 3, 6, 0, 4, 8],
            [range(3), range(1)],
        ),
    ],
)
def test_masks_of_lengths(
    kind: str, mask: Any, seen: list[range], qkv: list[Array]
) -> None:
    fields = apart(qkv) | {"MaskTensor": i32(mask), "MaskType": kind}
    hidden = np.full((BATCH, 1, 1, KEYS), -np.inf)
    for batch, places in enumerate(seen):
        hidden[batch, ..., list(places)] = 0
    compare("MULTIHEAD_ATTENTION", fields, attend(*qkv, hidden))
    more = fields | {"MaskTensor": i32([[[1]]])}
    assert_rejected("MULTIHEAD_ATTENTION", "MaskTensor has Sizes", **more)


def test_lengths_set_scores(qkv: list[Array]) -> None:
    """With a value that is not very low it shows that scores are not added to."""
    fields = apart(qkv) | {"MaskFilterValue": 0.25, "MaskType": "KEY_SEQUENCE_LENGTH"}
    query, key, value = (each.astype(np.float64) for each in qkv)
    scores = np.einsum("bqhe,bkhe->bhqk", query, key) * 0.3
    scores[0, ..., 2:], scores[1, ..., 3:] = 0.25, 0.25
    weights = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
    expected = np.einsum("bhqk,bkhe->bqhe", weights, value)
    compare("MULTIHEAD_ATTENTION", fields | {"MaskTensor": i32([[2, 3]])}, expected)


def test_past_and_present(qkv: list[Array], rng: np.random.Generator) -> None:
    past = 2
    before = [
        rng.standard_normal((BATCH, HEADS, past, size)).astype(np.float32)
        for size in (HEAD, WIDE)
    ]
    query, *present = qkv
    whole = [
        np.concatenate([old.transpose(0, 2, 1, 3), new], 1)
        for old, new in zip(before, present, strict=True)
    ]
    fields = apart(qkv) | {
        "PastKeyTensor": before[0],
        "PastValueTensor": before[1],
        "OutputPresentKeyTensor": output(BATCH, HEADS, past + KEYS, HEAD),
        "OutputPresentValueTensor": output(BATCH, HEADS, past + KEYS, WIDE),
    }
    compare("MULTIHEAD_ATTENTION", fields, attend(query, *whole))
    for found, expected in zip(
        evaluate("MULTIHEAD_ATTENTION", **fields)[1:], whole, strict=True
    ):
        np.testing.assert_array_equal(found, expected.transpose(0, 2, 1, 3))
    only = fields | {"PastValueTensor": None}
    assert_rejected("MULTIHEAD_ATTENTION", "only one", **only)
    short = fields | {"OutputPresentKeyTensor": output(BATCH, HEADS, KEYS, HEAD)}
    assert_rejected("MULTIHEAD_ATTENTION", "PresentKeyTensor has Sizes", **short)


def test_heads_of_keys_are_shared(rng: np.random.Generator) -> None:
    query = rng.standard_normal((BATCH, QUERIES, 4, HEAD)).astype(np.float32)
    key, value = (
        rng.standard_normal((BATCH, KEYS, 2, HEAD)).astype(np.float32) for _ in range(2)
    )
    fields = apart([query, key, value]) | {
        "OutputTensor": output(BATCH, QUERIES, 4 * HEAD),
        "QueryHeadCount": 4,
        "KeyValueHeadCount": 2,
    }
    del fields["HeadCount"]
    expected = attend(query, np.repeat(key, 2, 2), np.repeat(value, 2, 2))
    compare("MULTIHEAD_ATTENTION1", fields, expected)
    lengths = {"PastSequenceLengthsTensor": i32([0, 0])}
    assert_rejected("MULTIHEAD_ATTENTION1", "not documented", **fields, **lengths)
    three = fields | {"KeyValueHeadCount": 3}
    assert_rejected("MULTIHEAD_ATTENTION1", "not of 3 heads", **three)


def test_sizes_agree(qkv: list[Array]) -> None:
    fields = apart(qkv)
    fewer = fields | {"KeyTensor": fields["KeyTensor"][:, 1:]}
    assert_rejected("MULTIHEAD_ATTENTION", "do not agree", **fewer)
    half = fields | {"KeyTensor": fields["KeyTensor"].astype(np.float16)}
    assert_rejected("MULTIHEAD_ATTENTION", "DataType", **half)
    ahead = fields | {"KeyTensor": np.stack([fields["KeyTensor"]] * 2)}
    assert_rejected("MULTIHEAD_ATTENTION", "KeyTensor of", **ahead)
    assert_rejected("MULTIHEAD_ATTENTION", "FEATURE_LEVEL 6.1", (6, 0), **fields)
    wrong = fields | {"OutputTensor": output(BATCH, QUERIES, HEADS * HEAD)}
    assert_rejected("MULTIHEAD_ATTENTION", "OutputTensor has Sizes", **wrong)
