"""Types of what operators compute element by element, or keep the shape of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeAlias

from onnxplug.authoring.bounds import normal_axes, normal_axis
from onnxplug.authoring.operators import having
from onnxplug.authoring.sizes import broadcast
from onnxplug.ep import DataType
from onnxplug.shapes.facts import Fact, NodeCall, Shape, Value

Rule: TypeAlias = Callable[[NodeCall], "Fact | Sequence[Fact] | None"]
"""The types of a node's outputs, or of the first ones; None if nothing is known."""


def broadcast_shapes(shapes: Sequence[Shape | None]) -> Shape | None:
    """The shape that *shapes* have in common; None if one has no known rank."""
    found, *rest = shapes
    for shape in rest:
        if found is None or shape is None:
            return None
        found = _broadcast_two(found, shape)
    return found


def _broadcast_two(one: Shape, other: Shape) -> Shape:
    if one == other:
        return one
    if len(one) < len(other):
        one, other = other, one
    lead = len(one) - len(other)
    return one[:lead] + tuple(map(broadcast, one[lead:], other))


def same_as_first(call: NodeCall) -> Value:
    """The first input's type, which is a tensor's."""
    return call.value()


def _identity(call: NodeCall) -> Fact:
    return call.fact()


def _along(call: NodeCall, default: int = 0) -> Value:
    """The first input's type, of which an attribute names an axis."""
    value = call.value()
    if value.shape is not None:
        call.axis(len(value.shape), default)
    return value


def _along_softmax(call: NodeCall) -> Value:
    """As :func:`_along`; before opset 13 with the axis after all others too."""
    value = call.value()
    if value.shape is not None and call.opset < 13:
        if call.attribute("axis", 1) != len(value.shape):
            call.axis(len(value.shape), 1)
        return value
    return _along(call, -1)


def _cumulative(call: NodeCall) -> Value:
    value, axis = call.value(), call.numbers(1)
    if value.shape is not None and axis is not None and len(axis) == 1:
        normal_axis(axis[0], len(value.shape))
    return value


def _one_of_axes(call: NodeCall) -> Value:
    value, axes = call.value(), call.attribute("axes")
    if value.shape is not None and axes is not None:
        normal_axes(axes, len(value.shape))
    return value


def _one_of(values: Sequence[Value]) -> DataType | None:
    for value in values:
        if value.dtype is not None:
            return value.dtype
    return None


def _broadcasting(call: NodeCall, dtype: DataType | None = None) -> Value:
    values = call.values()
    dtype = dtype or _one_of(values)
    if call.opset < 7 and call.node.op_type in _ONCE_ONE_SIDED:
        return Value(dtype, values[0].shape)
    return Value(dtype, broadcast_shapes([value.shape for value in values]))


_ONCE_ONE_SIDED: Final = frozenset(
    "Add Sub Mul Div Pow And Or Xor Equal Greater Less".split()
)


def _pow(call: NodeCall) -> Value:
    return _broadcasting(call)._replace(dtype=call.value(0).dtype)


def _where(call: NodeCall) -> Value:
    values = call.values()
    shape = broadcast_shapes([value.shape for value in values])
    return Value(_one_of(values[1:]), shape)


def _one_sided(call: NodeCall) -> Value:
    return call.value()


def _of_bools(call: NodeCall) -> Value:
    return Value(DataType.BOOL, call.value().shape)


def _cast(call: NodeCall) -> Value:
    return Value(call.dtype("to"), call.value().shape)


def _cast_like(call: NodeCall) -> Value:
    return Value(call.value(1).dtype, call.value().shape)


def _quantize(call: NodeCall) -> Value:
    dtype = call.dtype("output_dtype")
    if dtype is None:
        dtype = call.value(2).dtype if call.has(2) else DataType.UINT8
    return Value(dtype, call.value().shape)


def _dequantize(call: NodeCall) -> Value:
    dtype = call.dtype("output_dtype") or call.value(1).dtype
    return Value(dtype, call.value().shape)


def _dynamic_quantize(call: NodeCall) -> list[Value]:
    return [
        Value(DataType.UINT8, call.value().shape),
        Value(DataType.FLOAT32, ()),
        Value(DataType.UINT8, ()),
    ]


def _dropout(call: NodeCall) -> list[Value]:
    value = call.value()
    mask = DataType.BOOL if call.opset >= 10 else value.dtype
    return [value, Value(mask, value.shape)]


def _batch_norm(call: NodeCall) -> list[Value]:
    statistics = call.value(3)
    return [call.value(), statistics, statistics]


def _layer_norm(call: NodeCall) -> list[Value]:
    value = call.value()
    if value.shape is None:
        return [value]
    axis = call.axis(len(value.shape), -1)
    shape = value.shape[:axis] + (1,) * (len(value.shape) - axis)
    dtype = call.dtype("stash_type") or DataType.FLOAT32
    return [value, Value(dtype, shape), Value(dtype, shape)]


RULES: Final[dict[str, Rule]] = {
    # those that are not like most have rules of their own below
    **dict.fromkeys(having("unary"), same_as_first),
    **dict.fromkeys(having("broadcast"), _broadcasting),
    **dict.fromkeys(
        "GroupNormalization ImageScaler InstanceNormalization LRN ParametricSoftplus "
        "ReverseSequence RotaryEmbedding Scale ScaledTanh ScatterND SwiGLU "
        "Trilu".split(),
        same_as_first,
    ),
    **dict.fromkeys(["CumProd", "CumSum"], _cumulative),
    **dict.fromkeys(having("softmax"), _along_softmax),
    **dict.fromkeys(["Scatter", "ScatterElements"], _along),
    **dict.fromkeys(
        having("comparison") | {"And", "Or", "Xor"},
        partial(_broadcasting, dtype=DataType.BOOL),
    ),
    "BatchNormalization": _batch_norm,
    "BitCast": _cast,
    "Cast": _cast,
    "CastLike": _cast_like,
    "DequantizeLinear": _dequantize,
    "Dropout": _dropout,
    "DynamicQuantizeLinear": _dynamic_quantize,
    "Identity": _identity,
    "IsInf": _of_bools,
    "IsNaN": _of_bools,
    "LayerNormalization": _layer_norm,
    **dict.fromkeys(
        ["LpNormalization", "RMSNormalization"], partial(_along, default=-1)
    ),
    "MeanVarianceNormalization": _one_of_axes,
    "PRelu": _one_sided,
    "Pow": _pow,
    "QuantizeLinear": _quantize,
    "TensorScatter": partial(_along, default=-2),
    "Where": _where,
}
