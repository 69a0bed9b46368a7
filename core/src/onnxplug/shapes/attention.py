"""Types of what attention layers compute."""

from __future__ import annotations

from typing import Final

from onnxplug.authoring.bounds import OutOfBounds, at_least
from onnxplug.authoring.sizes import Extent, quotient
from onnxplug.ep import DataType
from onnxplug.shapes.elementwise import Rule
from onnxplug.shapes.facts import NodeCall, Shape, Value


def _heads(call: NodeCall, name: str) -> int:
    """A number of heads, which an input of rank 3 does not say.

    Raises:
        OutOfBounds: it is not stated, or less than 1.
    """
    count = call.attribute(name)
    if count is None:
        raise OutOfBounds(f"{name} is not set; inputs of rank 3 do not say it")
    return at_least(1, (count,), name)[0]


def _split_heads(call: NodeCall, shape: Shape, name: str) -> Shape:
    """[batch, heads, length, width] of [batch, length, heads * width]."""
    heads = _heads(call, name)
    width = quotient(shape[2], heads)
    assert width is not None
    return (shape[0], heads, shape[1], width)


def _attention(call: NodeCall) -> list[Value]:
    """Y, and of rank 4 the present keys and values, and the scores.

    Source: Attention of opset 23.
    """
    (dtype, query), (_, key), (other, value) = (call.value(at) for at in range(3))
    if query is None or key is None or value is None:
        return [Value(dtype), Value(dtype), Value(other), Value(dtype)]
    is_flat = len(query) == 3
    if is_flat:
        query = _split_heads(call, query, "q_num_heads")
        key = _split_heads(call, key, "kv_num_heads")
        value = _split_heads(call, value, "kv_num_heads")
    total: Extent = key[2]
    if call.has(4):
        past = call.value(4).shape
        total = call.fresh() if past is None else past[2] + total
    batch, heads, length, _ = query
    result: Shape = (batch, heads, length, value[3])
    if is_flat:
        result = (batch, length, value[3] * heads)
    return [
        Value(dtype, result),
        Value(dtype, (*key[:2], total, key[3])),
        Value(other, (*value[:2], total, value[3])),
        Value(dtype, (batch, heads, length, total)),
    ]


def attended(call: NodeCall) -> list[Value]:
    """The output of an attention whose inputs are all of rank 4."""
    (dtype, query), (_, value) = call.value(0), call.value(2)
    if query is None or value is None:
        return [Value(dtype, tuple(call.fresh() for _ in range(4)))]
    return [Value(dtype, (*query[:3], value[3]))]


def softmax_dtype(call: NodeCall, dtype: DataType | None) -> DataType | None:
    """In what the softmax of an attention on inputs of *dtype* is computed."""
    stated = call.dtype("softmax_precision")
    if stated is not None or dtype is None:
        return stated
    return dtype if dtype is DataType.FLOAT64 else DataType.FLOAT32


def _linear_attention(call: NodeCall) -> list[Value]:
    """[batch, length, heads * width], and a state [batch, heads, width, width].

    Source: LinearAttention of opset 27.
    """
    (dtype, query), (_, key), (_, value) = (call.value(at) for at in range(3))
    state = call.value(3).dtype if call.has(3) else dtype
    heads, shared = _heads(call, "q_num_heads"), _heads(call, "kv_num_heads")
    if query is None or key is None or value is None:
        batch, length, *rest = (call.fresh() for _ in range(5))
        return [
            Value(dtype, (batch, length, rest[0])),
            Value(state, (batch, shared, rest[1], rest[2])),
        ]
    keys = _split_heads(call, key, "kv_num_heads")
    values = _split_heads(call, value, "kv_num_heads")
    return [
        Value(dtype, (*query[:2], values[3] * heads)),
        Value(state, (query[0], shared, keys[3], values[3])),
    ]


RULES: Final[dict[str, Rule]] = {
    "Attention": _attention,
    "LinearAttention": _linear_attention,
}
