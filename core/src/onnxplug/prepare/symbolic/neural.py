"""Types of what products, convolutions, reductions and recurrent layers compute."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from onnxplug.ep import DataType
from onnxplug.prepare.symbolic.dimension import Extent, broadcast, is_natural, quotient
from onnxplug.prepare.symbolic.elementwise import Rule, broadcast_shapes
from onnxplug.prepare.symbolic.facts import NodeCall, Shape, Value, normal_axis

_INT64 = DataType.INT64
_INT32 = DataType.INT32


# products


def _product_shape(one: Shape | None, other: Shape | None) -> Shape | None:
    if not one or not other:
        return None
    lead = broadcast_shapes([one[:-2], other[:-2]])
    assert lead is not None
    return lead + one[-2:-1] + (other[-1:] if len(other) > 1 else ())


def _matmul(call: NodeCall) -> Value:
    shape = _product_shape(call.value(0).shape, call.value(1).shape)
    return Value(call.value(0).dtype or call.value(1).dtype, shape)


def _matmul_integer(call: NodeCall) -> Value:
    return Value(_INT32, _product_shape(call.value(0).shape, call.value(1).shape))


def _qlinear_matmul(call: NodeCall) -> Value:
    shape = _product_shape(call.value(0).shape, call.value(3).shape)
    return Value(call.value(7).dtype, shape)


def _fused_matmul(call: NodeCall) -> Value:
    shapes = []
    for position, name in enumerate(("transA", "transB")):
        if call.attribute(f"transBatch{name[-1]}"):
            return Value(call.value().dtype)
        shape = call.value(position).shape
        if shape and len(shape) > 1 and call.attribute(name, 0):
            shape = (*shape[:-2], shape[-1], shape[-2])
        shapes.append(shape)
    return Value(call.value().dtype, _product_shape(*shapes))


def _gemm(call: NodeCall) -> Value:
    (dtype, one), (_, other) = call.value(0), call.value(1)
    dtype = dtype or call.value(1).dtype
    if one is None or other is None:
        return Value(dtype, (call.fresh(), call.fresh()))
    rows = one[1 if call.attribute("transA", 0) else 0]
    columns = other[0 if call.attribute("transB", 0) else 1]
    return Value(dtype, (rows, columns))


def _einsum(call: NodeCall) -> Value:
    dtype = call.value().dtype
    equation: str = call.attribute("equation").replace(" ", "")
    given, arrow, made = equation.partition("->")
    if "." in equation or not arrow:
        return Value(dtype)
    sizes: dict[str, Extent] = {}
    for position, letters in enumerate(given.split(",")):
        shape = call.value(position).shape
        if shape is None:
            return Value(dtype, tuple(call.fresh() for _ in made))
        for letter, size in zip(letters, shape, strict=True):
            sizes[letter] = broadcast(sizes.get(letter, 1), size)
    return Value(dtype, tuple(sizes[letter] for letter in made))


# windows


def _windows(
    call: NodeCall, sizes: Sequence[Extent], kernel: Sequence[Extent]
) -> tuple[Extent, ...]:
    """How many places a window of size *kernel* takes on each spatial axis."""
    rank = len(sizes)
    strides = call.attribute("strides") or (1,) * rank
    dilations = call.attribute("dilations") or (1,) * rank
    pads = call.attribute("pads") or (0,) * (2 * rank)
    how = call.attribute("auto_pad", "NOTSET")
    result: list[Extent] = []
    for axis, (size, length) in enumerate(zip(sizes, kernel, strict=True)):
        stride = strides[axis]
        span = (length - 1) * dilations[axis] + 1
        places: Extent | None
        if how in ("SAME_UPPER", "SAME_LOWER"):
            places = quotient(size + (stride - 1), stride)
        elif call.attribute("ceil_mode", 0):
            places = _rounded_up(size, span, stride, pads[axis], pads[axis + rank])
        else:
            padding = 0 if how == "VALID" else pads[axis] + pads[axis + rank]
            places = quotient(size + padding - span + stride, stride)
        natural = places is not None and is_natural(places)
        # fewer than none cannot be: such a run fails
        known = natural or (places is not None and not isinstance(places, int))
        result.append(places if known and places is not None else call.fresh())
    return tuple(result)


def _rounded_up(
    size: Extent, span: Extent, stride: int, before: int, after: int
) -> Extent | None:
    """With ``ceil_mode``: a last window that starts beyond the data is left out."""
    if not isinstance(size, int) or not isinstance(span, int):
        return None
    places = -(-(size + before + after - span) // stride) + 1
    return places - 1 if (places - 1) * stride >= size + before else places


def _conv(call: NodeCall, data: int = 0, weight: int = 1) -> Value:
    dtype, shape = call.value(data)
    kernel = call.value(weight).shape
    if call.node.op_type == "ConvInteger":
        dtype = _INT32
    elif call.node.op_type == "QLinearConv":
        dtype = call.value(7).dtype
    if kernel is None:
        return Value(dtype)
    if shape is None:
        return Value(dtype, tuple(call.fresh() for _ in kernel))
    return Value(dtype, (shape[0], kernel[0], *_windows(call, shape[2:], kernel[2:])))


def _conv_transpose(call: NodeCall) -> Value:
    (dtype, shape), kernel = call.value(), call.value(1).shape
    if shape is None or kernel is None:
        return Value(dtype)
    rank = len(shape) - 2
    strides = call.attribute("strides") or (1,) * rank
    dilations = call.attribute("dilations") or (1,) * rank
    pads = call.attribute("pads") or (0,) * (2 * rank)
    extra = call.attribute("output_padding") or (0,) * rank
    stated = call.attribute("output_shape")
    how = call.attribute("auto_pad", "NOTSET")
    sizes: list[Extent] = []
    for axis in range(rank):
        size, stride = shape[axis + 2], strides[axis]
        if stated:
            sizes.append(stated[axis - rank])
        elif how.startswith("SAME"):
            sizes.append(size * stride)
        else:
            padding = 0 if how == "VALID" else pads[axis] + pads[axis + rank]
            span = (kernel[axis + 2] - 1) * dilations[axis] + 1
            sizes.append(size * stride - stride + extra[axis] + span - padding)
    channels = kernel[1] * call.attribute("group", 1)
    return Value(dtype, (shape[0], channels, *sizes))


def _pool(call: NodeCall) -> list[Value]:
    dtype, shape = call.value()
    if shape is None:
        return [Value(dtype), Value(_INT64)]
    found = shape[:2] + _windows(call, shape[2:], call.attribute("kernel_shape"))
    return [Value(dtype, found), Value(_INT64, found)]


def _global_pool(call: NodeCall) -> Value:
    dtype, shape = call.value()
    if shape is None:
        return Value(dtype)
    return Value(dtype, shape[:2] + (1,) * (len(shape) - 2))


def _grid_sample(call: NodeCall) -> Value:
    (dtype, shape), grid = call.value(), call.value(1).shape
    if shape is None or grid is None:
        return Value(dtype)
    return Value(dtype, shape[:2] + grid[1:-1])


def _roi_align(call: NodeCall) -> Value:
    (dtype, shape), regions = call.value(), call.value(1).shape
    if shape is None or regions is None:
        return Value(dtype)
    height, width = (call.attribute(f"output_{n}", 1) for n in ("height", "width"))
    return Value(dtype, (regions[0], shape[1], height, width))


def _non_max_suppression(call: NodeCall) -> Value:
    return Value(_INT64, (call.fresh(), 3))


# reductions


def _reduce(call: NodeCall) -> Value:
    dtype, shape = call.value()
    axes = call.axes(1, ())
    if shape is None:
        return Value(dtype)
    keeps = call.attribute("keepdims", 1)
    if axes is None:
        # which axes is not known; how many there are may be
        return Value(dtype, tuple(call.fresh() for _ in shape) if keeps else None)
    if not axes and call.attribute("noop_with_empty_axes", 0):
        return Value(dtype, shape)
    gone = {normal_axis(axis, len(shape)) for axis in axes} or set(range(len(shape)))
    return Value(dtype, _without(shape, gone, keeps))


def _without(shape: Shape, gone: set[int], keeps: int) -> Shape:
    if keeps:
        return tuple(1 if axis in gone else size for axis, size in enumerate(shape))
    return tuple(size for axis, size in enumerate(shape) if axis not in gone)


def _arg(call: NodeCall) -> Value:
    shape = call.value().shape
    if shape is None:
        return Value(_INT64)
    axis = normal_axis(call.attribute("axis", 0), len(shape))
    return Value(_INT64, _without(shape, {axis}, call.attribute("keepdims", 1)))


# layers


def _recurrent(call: NodeCall, states: int) -> list[Value]:
    """Y [seq, directions, batch, hidden] and the last states.

    With ``layout`` 1 the batch comes first.
    """
    (dtype, shape), weights = call.value(), call.value(2).shape
    hidden: Extent | None = call.attribute("hidden_size")
    if hidden is None:
        hidden = weights[2] if weights else call.fresh()
    directions = 2 if call.attribute("direction") == "bidirectional" else 1
    if shape is None:
        length, batch = call.fresh(), call.fresh()
    else:
        length, batch = shape[:2]
    if call.attribute("layout", 0):
        batch, length = length, batch
        whole: Shape = (batch, length, directions, hidden)
        last: Shape = (batch, directions, hidden)
    else:
        whole, last = (length, directions, batch, hidden), (directions, batch, hidden)
    return [Value(dtype, whole), *[Value(dtype, last)] * states]


def _attention(call: NodeCall) -> list[Value]:
    """Y and, of rank 4, the present keys and values.

    Source: Attention of opset 23.
    """
    (dtype, query), (_, key), (_, value) = (call.value(at) for at in range(3))
    past = call.value(4).shape if call.has(4) else None
    if query is None or key is None or value is None:
        return [Value(dtype)]
    if len(query) == 3:
        heads, shared = call.attribute("q_num_heads"), call.attribute("kv_num_heads")
        key_width, width = quotient(key[2], shared), quotient(value[2], shared)
        if key_width is None or width is None:
            return [Value(dtype)]
        key, value = (
            (key[0], shared, key[1], key_width),
            (value[0], shared, value[1], width),
        )
        result: Shape = (*query[:2], width * heads)
    else:
        result = (*query[:3], value[3])
    values = [Value(dtype, result)]
    if call.has(4) and past is not None:
        total = past[2] + key[2]
        values += [
            Value(dtype, (*key[:2], total, key[3])),
            Value(call.value(2).dtype, (*value[:2], total, value[3])),
        ]
    return values


def _microsoft_attention(call: NodeCall) -> Value:
    """The output alone, of MultiHeadAttention and GroupQueryAttention."""
    dtype, query = call.value()
    value = call.value(2).shape if call.has(2) else None
    if query is None or len(query) != 3 or value is None or len(value) != 3:
        return Value(dtype)
    if call.node.op_type == "GroupQueryAttention":
        return Value(dtype, query)
    return Value(dtype, (*query[:2], value[2]))


RULES: Final[dict[str, Rule]] = {
    **dict.fromkeys(["ArgMax", "ArgMin"], _arg),
    "Attention": _attention,
    **dict.fromkeys(["AveragePool", "LpPool", "MaxPool"], _pool),
    **dict.fromkeys(["Conv", "ConvInteger"], _conv),
    "ConvTranspose": _conv_transpose,
    "Einsum": _einsum,
    **dict.fromkeys(["GRU", "RNN"], partial(_recurrent, states=1)),
    "Gemm": _gemm,
    **dict.fromkeys(
        ["GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool"], _global_pool
    ),
    "GridSample": _grid_sample,
    "LSTM": partial(_recurrent, states=2),
    "MatMul": _matmul,
    "MatMulInteger": _matmul_integer,
    "NonMaxSuppression": _non_max_suppression,
    "QLinearConv": partial(_conv, data=0, weight=3),
    "QLinearMatMul": _qlinear_matmul,
    **dict.fromkeys(
        "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin "
        "ReduceProd ReduceSum ReduceSumSquare".split(),
        _reduce,
    ),
    "RoiAlign": _roi_align,
}

MICROSOFT: Final[dict[str, Rule]] = {
    "FusedConv": _conv,
    "FusedGemm": _gemm,
    "FusedMatMul": _fused_matmul,
    **dict.fromkeys(
        ["GroupQueryAttention", "MultiHeadAttention"], _microsoft_attention
    ),
}
"""Operators of ``com.microsoft``."""
