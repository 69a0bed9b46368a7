"""``MULTIHEAD_ATTENTION``, and ONNX Runtime's operators that it was made for.

Letters in shapes are those of :mod:`.attention`.  What the operator does not do, such
as attention with rotary embedding in it, is left to the operators' function bodies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from onnxplug import ep
from onnxplug_directml.abi.directml import (
    DML_MULTIHEAD_ATTENTION_MASK_TYPE,
    DML_OPERATOR_TYPE,
)
from onnxplug_directml.lowering.builder import Builder, Field, Refused, Result, Value
from onnxplug_directml.lowering.call import FLOATS, MICROSOFT, Call, lowers
from onnxplug_directml.lowering.operators.pieces import joined, parts
from onnxplug_directml.lowering.operators.product import matmul
from onnxplug_directml.lowering.support import SUPPORT
from onnxplug_directml.lowering.target import Target

_FILLER: Final = -10000.0
"""What is added to the scores of keys that are hidden, unless a node says."""


def is_there(target: Target) -> bool:
    """Whether a device has the operator."""
    return target.level >= SUPPORT[DML_OPERATOR_TYPE.MULTIHEAD_ATTENTION][0].level


@dataclass(frozen=True, slots=True)
class Heads:
    """How many there are, and of which sizes.

    Attributes:
        size: of a query or key.
        value_size: of a value.

    Raises:
        Refused: they have no elements.
    """

    count: int
    size: int
    value_size: int

    @property
    def width(self) -> int:
        """The elements of a query, a key and a value of all heads."""
        return self.count * (2 * self.size + self.value_size)

    def __post_init__(self) -> None:
        if min(self.size, self.value_size) < 1:
            raise Refused(ep.RefusalCode.OTHER, f"{self.count} heads without elements")


@dataclass(frozen=True, slots=True)
class Padding:
    """Which keys are padding.

    Attributes:
        mask: int32, of the shape that *kind* has.
    """

    mask: Value
    kind: DML_MULTIHEAD_ATTENTION_MASK_TYPE


def attend(
    build: Builder,
    heads: Heads,
    *,
    query: Value | None = None,
    key: Value | None = None,
    value: Value | None = None,
    stacked: Value | None = None,
    bias: Value | None = None,
    past: tuple[Value, Value] | None = None,
    padding: Padding | None = None,
    hidden: Any | None = None,
    addend: Value | None = None,
    scale: float | None = None,
    filler: float = _FILLER,
    present: bool = False,
) -> tuple[Value | None, ...]:
    """[B, S, N · H], and the keys and values so far, [B, N, T, H], if *present*.

    Args:
        query: [B, S, N · H]; *key* and *value* [B, L, N · H].
        stacked: in place of keys and values [B, L, N, 2, H], or of all three
            [B, S, N, 3, H].
        bias: of all three, one after another.
        past: keys and values before, [B, N, P, H].
        hidden: which keys each query may not see, bool [S, T].
        addend: to the scores, broadcasts to [B, N, S, T].
        scale: of the scores; 1 / √H if it is not said.
        filler: what is added to the scores of padding.
    """
    first = query if query is not None else stacked
    assert first is not None
    batch, queries = first.shape[:2]
    floats = (query, key, value, stacked, bias, addend, *(past or ()))
    dtypes = {each.dtype for each in floats if each is not None}
    if len(dtypes) > 1:
        found = ", ".join(sorted(dtypes))
        raise Refused(ep.RefusalCode.DTYPE, f"inputs are {found}; takes one type")
    if bias is not None and bias.shape != (heads.width,):
        raise Refused(
            ep.RefusalCode.OTHER,
            f"a bias {list(bias.shape)}; takes {heads.width} elements",
        )
    keys = _new_keys(first, key, stacked)
    keys += 0 if past is None else past[0].shape[2]
    shape = (batch, heads.count, queries, keys)
    kept = {}
    if present:
        kept = {
            "OutputPresentKeyTensor": (batch, heads.count, keys, heads.size),
            "OutputPresentValueTensor": (batch, heads.count, keys, heads.value_size),
        }
    together = stacked is not None and query is None
    fields: dict[str, Field] = {
        "QueryTensor": query,
        "KeyTensor": key,
        "ValueTensor": value,
        "StackedKeyValueTensor": None if together else stacked,
        "StackedQueryKeyValueTensor": stacked if together else None,
        "BiasTensor": bias,
        "PastKeyTensor": None if past is None else past[0],
        "PastValueTensor": None if past is None else past[1],
        "RelativePositionBiasTensor": _addend(
            build, hidden, addend, shape, first.dtype
        ),
        "MaskTensor": None if padding is None else _mask(build, padding, shape),
        "MaskType": DML_MULTIHEAD_ATTENTION_MASK_TYPE.NONE
        if padding is None
        else padding.kind,
    }
    made = build.several(
        "MULTIHEAD_ATTENTION", **fields,
        OutputTensor=Result(
            first.dtype, (batch, queries, heads.count * heads.value_size)
        ),
        **{name: Result(first.dtype, each) for name, each in kept.items()},
        Scale=scale or 1 / math.sqrt(heads.size), MaskFilterValue=filler,
        HeadCount=heads.count,
    )  # fmt: skip
    return (*made, None, None)[:3]


def _new_keys(first: Value, key: Value | None, stacked: Value | None) -> int:
    given = key if key is not None else stacked
    return (first if given is None else given).shape[1]


def _mask(build: Builder, padding: Padding, shape: tuple[int, ...]) -> Value:
    if padding.kind is DML_MULTIHEAD_ATTENTION_MASK_TYPE.BOOLEAN:
        return build.broadcast_to(padding.mask, shape)
    return padding.mask


def _addend(
    build: Builder,
    hidden: Any | None,
    addend: Value | None,
    shape: tuple[int, ...],
    dtype: ep.DataType,
) -> Value | None:
    """What is added to the scores [B, N, S, T]: the least number for *hidden* keys."""
    if hidden is not None:
        least = np.finfo(dtype.numpy).min
        causal = build.constant(np.where(hidden, least, 0).astype(dtype.numpy))
        addend = (
            causal
            if addend is None
            else build.binary("ELEMENT_WISE_ADD", addend, causal)
        )
    return None if addend is None else build.broadcast_to(addend, shape)


# ONNX Runtime's operators


@lowers("MultiHeadAttention", domain=MICROSOFT)
def _multi_head_attention(call: Call) -> tuple[Value | None, ...]:
    _require_operator(call)
    call.require_type(0, *FLOATS)
    if call.has(8) or call.has(9) or call.wants(3):
        raise Refused(
            ep.RefusalCode.OTHER, "buffers that caches share, or scores that are given"
        )
    call.require_rank(0, 3, 5)
    build, query = call.build, call.operand(0)
    count = call.count("num_heads")
    key, value, bias = call.optional(1), call.optional(2), call.optional(3)
    given: dict[str, Any] = {}
    if query.rank == 5:
        heads = Heads(count, query.shape[4], query.shape[4])
        given = {"stacked": query}
        new = query.shape[1]
    elif key is None:
        raise Refused(ep.RefusalCode.OTHER, "queries without keys")
    else:
        size = query.shape[2] // count
        given = {"query": query}
        call.require_rank(1, *((5,) if value is None else (3, 4)))
        if value is None:
            heads = Heads(count, size, key.shape[4])
            given["stacked"] = key
            new = key.shape[1]
        else:
            call.require_rank(2, 3, 4)
            if key.rank == 4 and bias is not None:
                raise Refused(ep.RefusalCode.OTHER, "a bias of keys that have theirs")
            key, value = _merged(build, key), _merged(build, value)
            heads = Heads(count, size, value.shape[2] // count)
            given |= {"key": key, "value": value}
            new = key.shape[1]
    past = None
    if call.has(6):
        call.require_rank(6, 4)
        past = call.operand(6), call.operand(7)
    before = 0 if past is None else past[0].shape[2]
    made = attend(
        build, heads, **given, bias=bias, past=past,
        padding=_key_padding(call, 4, query.shape[0], new + before),
        hidden=_hidden(call, query.shape[1], new, before),
        addend=call.optional(5), scale=call.attribute("scale", 0.0) or None,
        filler=call.attribute("mask_filter_value", _FILLER),
        present=call.wants(1) or call.wants(2),
    )  # fmt: skip
    return made


def _merged(build: Builder, x: Value) -> Value:
    """[B, N, L, H] as [B, L, N · H]; what is that already stays."""
    if x.rank == 3:
        return x
    batch, count, length, size = x.shape
    turned = build.transpose(x, (0, 2, 1, 3))
    return build.reshape(turned, (batch, length, count * size))


@lowers("Attention", domain=MICROSOFT)
def _projected_attention(call: Call) -> tuple[Value | None, ...]:
    _require_operator(call)
    call.require_type(0, *FLOATS)
    for name in ("do_rotary", "past_present_share_buffer"):
        if call.attribute(name, 0):
            raise call.refuse_attribute(name, "0")
    call.ignore("rotary_embedding_dim")
    if call.has(6):
        raise Refused(ep.RefusalCode.OTHER, "buffers that caches share")
    call.require_rank(0, 3)
    build = call.build
    projected = matmul(build, call.operand(0), call.operand(1))
    batch, queries, width = projected.shape
    count = call.count("num_heads")
    sizes = tuple(call.attribute("qkv_hidden_sizes", ())) or (width // 3,) * 3
    if len(sizes) != 3 or min(sizes) < 1 or sum(sizes) != width or sizes[0] != sizes[1]:
        raise call.refuse_attribute(
            "qkv_hidden_sizes", "those of the weights, keys being as queries"
        )
    query, key, value = parts(build, projected, 2, sizes)
    past = None
    before = 0
    if call.has(4):
        call.require_rank(4, 5)
        pair = parts(build, call.operand(4), 0, (1, 1))
        old_key, old_value = (
            build.reshape(each, each.shape[1:]) for each in pair if each is not None
        )
        past, before = (old_key, old_value), old_key.shape[2]
    made = attend(
        build, Heads(count, sizes[0] // count, sizes[2] // count),
        query=query, key=key, value=value, bias=call.optional(2), past=past,
        padding=_key_padding(call, 3, batch, queries + before),
        hidden=_hidden(call, queries, queries, before), addend=call.optional(5),
        scale=call.attribute("scale", 0.0) or None,
        filler=call.attribute("mask_filter_value", _FILLER), present=call.wants(1),
    )  # fmt: skip
    output, *both = made
    if not call.wants(1):
        return (output,)
    kept = [build.reshape(each, (1, *each.shape)) for each in both if each is not None]
    return output, joined(build, kept, 0)


def _require_operator(call: Call) -> None:
    if not is_there(call.build.target):
        raise Refused(
            ep.RefusalCode.OP,
            "the device has no MULTIHEAD_ATTENTION, of feature level 6.1; the function "
            "body of the node is taken",
        )


def _hidden(call: Call, queries: int, new: int, before: int) -> Any | None:
    """Which keys lie behind each query, if those are hidden: bool [S, T]."""
    if not call.attribute("unidirectional", 0):
        return None
    places = np.arange(queries)[:, None] + before
    return np.arange(new + before) > places


def _key_padding(call: Call, position: int, batch: int, keys: int) -> Padding | None:
    """A mask: ends of sequences, ends and starts, or a number for each key."""
    if not call.has(position):
        return None
    build, mask = call.build, call.operand(position)
    kinds = DML_MULTIHEAD_ATTENTION_MASK_TYPE
    if mask.rank == 1:
        mask = build.cast(mask, ep.DataType.INT32)
        if mask.size == batch:
            ends = build.reshape(mask, (1, batch))
            return Padding(ends, kinds.KEY_SEQUENCE_LENGTH)
        if mask.size == 2 * batch and call.op_type == "Attention":
            both = build.reshape(mask, (2, batch))
            return Padding(both, kinds.KEY_SEQUENCE_END_START)
    elif mask.rank in (2, 3) and mask.shape[-1] == keys:
        above = build.binary(
            "ELEMENT_WISE_LOGICAL_GREATER_THAN", mask, build.scalar(0, mask.dtype),
            ep.DataType.BOOL,
        )  # fmt: skip
        shape = (batch, 1, *_rows(mask.shape), keys)
        seen = build.reshape(build.cast(above, ep.DataType.INT32), shape)
        return Padding(seen, kinds.BOOLEAN)
    raise Refused(
        ep.RefusalCode.OTHER,
        f"a mask {list(mask.shape)}; takes one end for each sequence, or a number for "
        "each key",
    )


def _rows(shape: Sequence[int]) -> tuple[int, ...]:
    return (1,) if len(shape) == 2 else (shape[1],)
