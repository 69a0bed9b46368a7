"""What the kinds of attention have in common.

Letters in shapes: B batches, N heads, S queries, L new keys, P past keys, T = P + L
keys, H size of a head.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from onnxplug.ep import DataType
from onnxplug_microsoft.functions.body import Body

RANK: Final = 4
"""That of queries, keys, values and scores by heads."""

_LOWEST: Final = {
    DataType.FLOAT16: -65504.0,
    DataType.BFLOAT16: -3.3895313892515355e38,
    DataType.FLOAT32: -3.4028234663852886e38,
    DataType.FLOAT64: -1.7976931348623157e308,
}


def split_heads(body: Body, x: str, heads: int) -> str:
    """[B, S, N·H] as [B, N, S, H]."""
    return body.transpose(body.reshape(x, 0, 0, heads, -1), 0, 2, 1, 3)


def join_heads(body: Body, x: str) -> str:
    """[B, N, S, H] as [B, S, N·H]."""
    return body.reshape(body.transpose(x, 0, 2, 1, 3), 0, 0, -1)


def scaled_scores(
    body: Body, q: str, k: str, scale: float, head_size: int | None, like: str
) -> str:
    """[B, N, S, T]: products of queries and keys, times the scale.

    Args:
        scale: 0 for 1 / √H.
        head_size: H, if it is known.
        like: an input of the element type.
    """
    scores = body.op("MatMul", q, body.transpose(k, 0, 1, 3, 2))
    if not scale and head_size is None:
        size = body.cast(body.scalar(body.size(q, 3)), body.dtype(like))
        return body.op("Div", scores, body.op("Sqrt", size))
    factor = scale or 1 / math.sqrt(head_size or 1)
    return body.op("Mul", scores, body.number(factor, like))


def weighted(body: Body, scores: str, v: str) -> str:
    """[B, N, S, H]: the values, weighted by the softmax of the scores."""
    return body.op("MatMul", body.softmax(scores, RANK), v)


def causal(body: Body, queries: str, past: str, keys: str) -> str:
    """Which keys come not after a query: bool [S, T].

    Args:
        queries: S, as a value of shape [1]; likewise *past*, P, and *keys*, T.
    """
    after = body.op("Add", past, body.index(1))
    rows = body.unsqueeze(body.op("Add", body.count(queries), after), 1)
    return body.op("Less", body.count(keys), rows)


def lengths_mask(body: Body, ends: str, starts: str | None, keys: str) -> str:
    """Which keys lie before the end of their sequence: bool [B, 1, 1, T].

    Args:
        ends: int64 [B], exclusive; likewise *starts*, inclusive.
        keys: T, as a value of shape [1].
    """
    place = body.count(keys)
    allowed = body.op("Less", place, body.unsqueeze(ends, 1))
    if starts is not None:
        early = body.op("Less", place, body.unsqueeze(starts, 1))
        allowed = body.op("And", allowed, body.op("Not", early))
    return body.unsqueeze(allowed, 1, 2)


def raw_mask(body: Body, mask: str, rank: int) -> str:
    """A mask of integers [B, T] or [B, S, T], as bool [B, 1, 1 or S, T]."""
    zero = body.constant(np.array(0, body.dtype(mask).numpy))
    allowed = body.op("Greater", mask, zero)
    return body.unsqueeze(allowed, 1, 2) if rank == 2 else body.unsqueeze(allowed, 1)


def as_addend(
    body: Body, allowed: str | None, ordered: str | None, filler: float, like: str
) -> str | None:
    """What is added to the scores of keys that a mask hides; ``None`` without masks.

    Args:
        allowed: the mask of padding, whose hidden keys get *filler*.
        ordered: the causal mask, whose hidden keys get the least number.
    """
    if allowed is None and ordered is None:
        return None
    zero = body.number(0, like)
    addend = zero
    if allowed is not None:
        addend = body.op("Where", allowed, zero, body.number(filler, like))
    if ordered is not None:
        addend = body.op("Where", ordered, addend, lowest(body, like))
    return addend


def lowest(body: Body, like: str) -> str:
    """The least finite number of the element type of an input."""
    dtype = body.dtype(like)
    return body.constant(np.array(_LOWEST[dtype], dtype.numpy))


def added(body: Body, scores: str, *addends: str | None) -> str:
    """*scores* plus those of *addends* that there are, which are summed first."""
    total: str | None = None
    for addend in addends:
        if addend is not None:
            total = addend if total is None else body.op("Add", total, addend)
    return scores if total is None else body.op("Add", scores, total)


def to_int64(body: Body, x: str) -> str:
    """Integers as int64."""
    return body.cast(x, DataType.INT64)
