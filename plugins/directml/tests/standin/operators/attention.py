"""Multi-head attention, of queries, keys and values apart or stacked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from . import Desc, operator
from .agreement import Tensors, same_data_type
from .arithmetic import Array
from .constraints import each, ends, last, require

PARTS = {
    "QueryTensor": "Q",
    "KeyTensor": "K",
    "ValueTensor": "V",
    "StackedQueryKeyTensor": "QK",
    "StackedKeyValueTensor": "KV",
    "StackedQueryKeyValueTensor": "QKV",
}
"""What of query, key and value each tensor has, in the order of its stack."""


INPUTS = (
    *PARTS,
    "BiasTensor",
    "MaskTensor",
    "RelativePositionBiasTensor",
    "PastKeyTensor",
    "PastValueTensor",
    "PastSequenceLengthsTensor",
)
"""The inputs in order; the last only MULTIHEAD_ATTENTION1 has."""


@dataclass(frozen=True, slots=True)
class Extents:
    """The sizes by which the page describes the tensors."""

    batch: int
    queries: int
    keys: int
    past: int
    heads: int
    shared_heads: int
    head: int
    value_head: int

    @property
    def total(self) -> int:
        """Keys of the past and the present."""
        return self.past + self.keys


def heads(desc: Desc) -> tuple[int, int]:
    """How many heads queries have, and keys and values."""
    if hasattr(desc, "HeadCount"):
        return desc.HeadCount, desc.HeadCount
    return desc.QueryHeadCount, desc.KeyValueHeadCount


def part(desc: Desc, tensors: Tensors, letter: str) -> tuple[int, int, int]:
    """Batch, length and size of a head of Q, K or V, wherever it is."""
    holders = [name for name, _ in each(tensors, " ".join(PARTS))]
    holders = [name for name in holders if letter in PARTS[name]]
    require(
        len(holders) == 1,
        f"exactly one query, key and value must be present; {letter} is in {holders}",
    )
    (name,) = holders
    count = heads(desc)[letter != "Q"]
    require(count > 0, f"no heads of {letter}")
    if len(PARTS[name]) == 1:
        batch, length, hidden = last(tensors[name], 3, name)
        require(hidden % count == 0, f"{name} of {hidden} is not of {count} heads")
        return batch, length, hidden // count
    batch, length, found, stacked, size = tensors[name].sizes
    require(
        stacked == len(PARTS[name]) and found == count,
        f"{name} is of {tensors[name].sizes} for {count} heads",
    )
    return batch, length, size


def extents(desc: Desc, tensors: Tensors) -> Extents:
    """The sizes of a desc, of whose Q, K and V they are checked to agree."""
    batch, queries, head = part(desc, tensors, "Q")
    of_keys, keys, key_head = part(desc, tensors, "K")
    of_values, values, value_head = part(desc, tensors, "V")
    require(
        batch == of_keys == of_values and keys == values and head == key_head,
        f"queries {batch, queries, head}, keys {of_keys, keys, key_head}, values "
        f"{of_values, values, value_head} by batch, length and head do not agree",
    )
    own, shared = heads(desc)
    require(own % shared == 0, f"{own} heads of queries on {shared} of keys")
    past = 0
    if (key := tensors.get("PastKeyTensor")) is not None:
        past = last(key, 4, "PastKeyTensor")[2]
    return Extents(batch, queries, keys, past, own, shared, head, value_head)


def check_mask(desc: Desc, tensors: Tensors, of: Extents) -> None:
    """A mask has the sizes that its type demands.

    Those of BOOLEAN the page doesn't give: ONNX Runtime's cover all scores, by strides
    of 0.  A mask without a type, or a type without a mask, it doesn't mention either.
    """
    kind = desc.MaskType
    given = "MaskTensor" in tensors
    require(given == (kind != "NONE"), f"MaskTensor beside MaskType {kind}")
    sizes: dict[str, tuple[int, ...]] = {
        "BOOLEAN": (of.batch, of.heads, of.queries, of.total),
        "KEY_SEQUENCE_LENGTH": (1, of.batch),
        "KEY_SEQUENCE_END_START": (2, of.batch),
        "KEY_QUERY_SEQUENCE_LENGTH_START_END": (3 * of.batch + 2,),
    }
    if given:
        ends(tensors, "MaskTensor", sizes[kind])


class Attention:
    @staticmethod
    def check(desc: Desc, tensors: Tensors) -> None:
        same_data_type(
            tensors,
            " ".join(PARTS) + " BiasTensor RelativePositionBiasTensor PastKeyTensor "
            "PastValueTensor OutputTensor OutputPresentKeyTensor "
            "OutputPresentValueTensor",
        )
        of = extents(desc, tensors)
        hidden = of.heads * of.head, of.shared_heads * of.head
        values = of.shared_heads * of.value_head
        ends(tensors, "BiasTensor", (sum(hidden) + values,))
        # the page doesn't give these sizes: ONNX Runtime's
        scores = of.batch, of.heads, of.queries, of.total
        ends(tensors, "RelativePositionBiasTensor", scores)
        check_mask(desc, tensors, of)
        require(
            ("PastKeyTensor" in tensors) == ("PastValueTensor" in tensors),
            "of PastKeyTensor and PastValueTensor only one is given",
        )
        for name, length, head in (
            ("PastKeyTensor", of.past, of.head),
            ("PastValueTensor", of.past, of.value_head),
            ("OutputPresentKeyTensor", of.total, of.head),
            ("OutputPresentValueTensor", of.total, of.value_head),
        ):
            sizes = of.batch, of.shared_heads, length, head
            ends(tensors, name, sizes)
        output = of.batch, of.queries, of.heads * of.value_head
        ends(tensors, "OutputTensor", output)

    @staticmethod
    def evaluate(desc: Desc, inputs: list[Any]) -> list[Any]:
        given = dict(zip(INPUTS, inputs, strict=False))
        query, key, value = (split(desc, given, letter) for letter in "QKV")
        key = after(given["PastKeyTensor"], key)
        value = after(given["PastValueTensor"], value)
        result = attended(desc, given, query, key, value)
        outputs = (
            (desc.OutputTensor, result),
            (desc.OutputPresentKeyTensor, key),
            (desc.OutputPresentValueTensor, value),
        )
        return [
            None if of is None else array.astype(of.data_type).reshape(of.sizes)
            for of, array in outputs
        ]


def split(desc: Desc, given: dict[str, Any], letter: str) -> Array:
    """Q, K or V in float64 by batch, head, place and element, with its bias added."""
    (name,) = (n for n, p in PARTS.items() if letter in p and given[n] is not None)
    array = given[name].astype(np.float64)
    count = heads(desc)[letter != "Q"]
    if len(PARTS[name]) > 1:
        array = array[:, :, :, PARTS[name].index(letter)]
    else:
        batch, length, hidden = array.shape[-3:]
        array = array.reshape(batch, length, count, hidden // count)
    if (bias := given["BiasTensor"]) is not None:
        width = count * array.shape[-1]
        start = {"Q": 0, "K": heads(desc)[0] * array.shape[-1], "V": bias.size - width}
        piece = bias.reshape(-1)[start[letter] : start[letter] + width]
        array = array + piece.reshape(count, -1)
    return np.asarray(array.transpose(0, 2, 1, 3))


def after(past: Array | None, present: Array) -> Array:
    """Keys or values of the past, if there are any, and then the present's."""
    if past is None:
        return present
    return np.concatenate([past.reshape(past.shape[-4:]), present], 2)


def attended(
    desc: Desc, given: dict[str, Any], query: Array, key: Array, value: Array
) -> Array:
    """[Bias] → GEMM * Scale → [relative bias] → [mask] → softmax → GEMM."""
    group = query.shape[1] // key.shape[1]
    key, value = np.repeat(key, group, 1), np.repeat(value, group, 1)
    scores = query @ key.transpose(0, 1, 3, 2) * desc.Scale
    if (relative := given["RelativePositionBiasTensor"]) is not None:
        scores = scores + relative.reshape(relative.shape[-4:])
    if (mask := given["MaskTensor"]) is not None:
        scores = masked(desc, mask, scores)
    scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = scores / scores.sum(axis=-1, keepdims=True)
    result: Array = (weights @ value).transpose(0, 2, 1, 3)
    return result.reshape(*result.shape[:2], -1)


def masked(desc: Desc, mask: Array, scores: Array) -> Array:
    """Scores with ``MaskFilterValue`` where a mask says.

    It *gets added* by BOOLEAN and, by the others, scores *get their value set* to it.
    Of KEY_QUERY_SEQUENCE_LENGTH_START_END only the lengths of keys mask anything: where
    batches start in packed tensors has no meaning for tensors with a batch dimension,
    of which the page doesn't speak.
    """
    if desc.MaskType == "BOOLEAN":
        off = mask.reshape(mask.shape[-4:]) == 0
        return scores + np.where(off, desc.MaskFilterValue, 0.0)
    batch, places = scores.shape[0], np.arange(scores.shape[-1])
    bounds = mask.reshape(-1).astype(np.int64)
    outside = places >= bounds[:batch, None]
    if desc.MaskType == "KEY_SEQUENCE_END_START":
        outside = outside | (places < bounds[batch : 2 * batch, None])
    return np.where(outside[:, None, None], desc.MaskFilterValue, scores)


TABLE = """
        {level}  QueryTensor                 input?   3-5  FLOATS
             KeyTensor                   input?   3-5  FLOATS
             ValueTensor                 input?   3-5  FLOATS
             StackedQueryKeyTensor       input?   5    FLOATS
             StackedKeyValueTensor       input?   5    FLOATS
             StackedQueryKeyValueTensor  input?   5    FLOATS
             BiasTensor                  input?   1-5  FLOATS
             MaskTensor                  input?   1-5  INT32
             RelativePositionBiasTensor  input?   4-5  FLOATS
             PastKeyTensor               input?   4-5  FLOATS
             PastValueTensor             input?   4-5  FLOATS
             {lengths}
             OutputTensor                output   3-5  FLOATS
             OutputPresentKeyTensor      output?  4-5  FLOATS
             OutputPresentValueTensor    output?  4-5  FLOATS
    """


@operator("MULTIHEAD_ATTENTION")
class MultiheadAttention(Attention):
    support = TABLE.format(level="6.1", lengths="")


@operator("MULTIHEAD_ATTENTION1")
class MultiheadAttention1(Attention):
    """Beside what MULTIHEAD_ATTENTION has, heads of keys that queries share.

    The page says "TBD" of all that is new.  Consecutive heads of queries share one of
    keys, as in ONNX Runtime's GroupQueryAttention.  PastSequenceLengthsTensor, which is
    INT32 there and of floats in the page's table, means caches updated in place, of
    which nothing is documented: it is rejected.
    """

    support = TABLE.format(
        level="6.3", lengths="PastSequenceLengthsTensor   input?   1-5  FLOATS INT32"
    )

    @staticmethod
    def check(desc: Desc, tensors: Tensors) -> None:
        require(
            "PastSequenceLengthsTensor" not in tensors,
            "what PastSequenceLengthsTensor means is not documented",
        )
        Attention.check(desc, tensors)
