"""Types of what operators compute that are like none of ONNX's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from onnxplug.authoring.bounds import at_least, normal_axes, normal_axis
from onnxplug.authoring.sizes import Extent, Size, broadcast
from onnxplug.ep import DataType, Dimension, Graph, Node, TensorType, ValueType

Types: TypeAlias = Sequence[ValueType | None]
Shape: TypeAlias = tuple[Dimension, ...]

_UNKNOWN: Final = TensorType()


def _tensor(inputs: Types, position: int = 0) -> TensorType:
    """What is known of an input that is a tensor."""
    found = inputs[position] if position < len(inputs) else None
    return found if isinstance(found, TensorType) else _UNKNOWN


def quantized_elementwise(graph: Graph, node: Node, inputs: Types) -> Types:
    """QLinearAdd and QLinearMul, whose second operand is input 3."""
    one, other = _tensor(inputs), _tensor(inputs, 3)
    return [TensorType(one.dtype, _broadcast(one.shape, other.shape))]


def fused_matmul(graph: Graph, node: Node, inputs: Types) -> Types:
    """MatMul of what may be transposed before."""
    dtype = _tensor(inputs).dtype
    shapes: list[Shape | None] = []
    for position, name in enumerate(("A", "B")):
        if node.attributes.get(f"transBatch{name}"):
            return [TensorType(dtype)]
        shape = _tensor(inputs, position).shape
        if shape and len(shape) > 1 and node.attributes.get(f"trans{name}", 0):
            shape = (*shape[:-2], shape[-1], shape[-2])
        shapes.append(shape)
    return [TensorType(dtype, _product(*shapes))]


def _product(one: Shape | None, other: Shape | None) -> Shape | None:
    """The shape of MatMul's result."""
    if not one or not other:
        return None
    lead = _broadcast(one[:-2], other[:-2])
    assert lead is not None  # as both ranks are known
    last = other[-1:] if len(other) > 1 else ()
    return (*lead, *one[-2:-1], *last)


def integer_product(graph: Graph, node: Node, inputs: Types) -> Types:
    """DynamicQuantizeMatMul, and MatMulIntegerToFloat, which has a scale more."""
    scale = 2 if node.op_type == "DynamicQuantizeMatMul" else 3
    shape = _product(_tensor(inputs).shape, _tensor(inputs, 1).shape)
    return [TensorType(_tensor(inputs, scale).dtype, shape)]


def quantized_lstm(graph: Graph, node: Node, inputs: Types) -> Types:
    """DynamicQuantizeLSTM: all states, and the last ones of states and cells."""
    x, r = _tensor(inputs).shape, _tensor(inputs, 2).shape
    if x is None or r is None or len(x) != 3 or len(r) != 3:
        return [TensorType(DataType.FLOAT32)] * 3
    (time, batch, _), (directions, hidden, _) = x, r
    last = TensorType(DataType.FLOAT32, (directions, batch, hidden))
    every = TensorType(DataType.FLOAT32, (time, directions, batch, hidden))
    return [every, last, last]


def quantized_gemm(graph: Graph, node: Node, inputs: Types) -> Types:
    """QGemm, of float32 without a zero point for the result."""
    zero = inputs[8] if len(inputs) > 8 else None
    dtype = DataType.FLOAT32 if zero is None else _tensor(inputs, 8).dtype
    sizes = []
    for position, name in ((0, "A"), (3, "B")):
        shape = _tensor(inputs, position).shape
        if shape is None or len(shape) != 2:
            return [TensorType(dtype)]
        turned = bool(node.attributes.get(f"trans{name}", 0))
        sizes.append(shape[turned if name == "A" else not turned])
    return [TensorType(dtype, tuple(sizes))]


def quantized_choice(graph: Graph, node: Node, inputs: Types) -> Types:
    """QLinearWhere."""
    shapes = [_tensor(inputs, position).shape for position in (0, 1, 4)]
    shape = _broadcast(_broadcast(shapes[0], shapes[1]), shapes[2])
    return [TensorType(_tensor(inputs, 1).dtype, shape)]


def quantized_concat(graph: Graph, node: Node, inputs: Types) -> Types:
    """QLinearConcat, of triples behind a scale and a zero point.

    Raises:
        OutOfBounds: there is no such axis.
    """
    parts = [_tensor(inputs, position) for position in range(2, len(inputs), 3)]
    dtype, shape = parts[0].dtype if parts else None, parts[0].shape if parts else None
    axis = node.attributes.get("axis")
    if shape is None or not isinstance(axis, int):
        return [TensorType(dtype)]
    axis = normal_axis(axis, len(shape))
    total: Extent | None = 0
    for part in parts:
        if part.shape is None or len(part.shape) != len(shape):
            return [TensorType(dtype)]
        size = _extent(part.shape[axis])
        total = None if total is None or size is None else total + size
    along = None if total is None else _written(total)
    return [TensorType(dtype, (*shape[:axis], along, *shape[axis + 1 :]))]


def quantized_global_pool(graph: Graph, node: Node, inputs: Types) -> Types:
    """QLinearGlobalAveragePool."""
    dtype, shape = (of := _tensor(inputs)).dtype, of.shape
    if shape is None or len(shape) < 3:
        return [TensorType(dtype)]
    ones = (1,) * (len(shape) - 2)
    last = node.attributes.get("channels_last", 0)
    pooled = (shape[0], *ones, shape[-1]) if last else (*shape[:2], *ones)
    return [TensorType(dtype, pooled)]


def matmul_n_bits(graph: Graph, node: Node, inputs: Types) -> Types:
    """MatMul of weights whose number of columns is an attribute."""
    dtype, shape = (of := _tensor(inputs)).dtype, of.shape
    columns = node.attributes.get("N")
    if not shape or not isinstance(columns, int):
        return [TensorType(dtype)]
    return [TensorType(dtype, (*shape[:-1], columns))]


def attention(graph: Graph, node: Node, inputs: Types) -> Types:
    """The output of MultiHeadAttention; with caches that have room these, too."""
    if len(inputs) > 8 and inputs[8] is not None:
        return [_tensor(inputs), *_caches(inputs, 6)]
    dtype, query = (of := _tensor(inputs)).dtype, of.shape
    value = _tensor(inputs, 2).shape
    if query is None or len(query) != 3 or value is None or len(value) != 3:
        return [TensorType(dtype)]
    return [TensorType(dtype, (*query[:2], value[2]))]


def decoder_attention(graph: Graph, node: Node, inputs: Types) -> Types:
    """DecoderMaskedMultiHeadAttention, whose output is of its queries' shape; caches
    where they have room."""
    room = len(inputs) > 7 and inputs[7] is not None
    return [_tensor(inputs), *(_caches(inputs, 5) if room else ())]


def _caches(inputs: Types, first: int) -> list[TensorType]:
    """Caches of the shapes of those before, which are two inputs from *first* on."""
    return [_tensor(inputs, first), _tensor(inputs, first + 1)]


def grouped_attention(graph: Graph, node: Node, inputs: Types) -> Types:
    """The output and the caches of GroupQueryAttention, whose rows are not known."""
    query, value = _tensor(inputs), _tensor(inputs, 2).shape
    dtype, before = query.dtype, _tensor(inputs, 3)
    past = before.shape
    cache = TensorType(before.dtype or dtype)
    if past is not None and len(past) == 4:
        cache = TensorType(cache.dtype, (*past[:2], None, past[3]))
    if query.shape is None or len(query.shape) != 3 or value is None or len(value) != 3:
        return [TensorType(dtype), cache, cache]
    return [query, cache, cache]


def quantized_pool(graph: Graph, node: Node, inputs: Types) -> Types:
    """QLinearAveragePool, of an image whose sizes are known.

    Raises:
        OutOfBounds: attributes are none of a pool.
    """
    dtype, shape = (of := _tensor(inputs)).dtype, of.shape
    if shape is None or len(shape) < 3:
        return [TensorType(dtype)]
    last = bool(node.attributes.get("channels_last", 0))
    image = shape[1:-1] if last else shape[2:]
    sizes = [size for size in image if isinstance(size, int)]
    pooled: Shape = (None,) * len(image)
    if len(sizes) == len(image):
        from onnxplug_kernels.pool import pooling_windows

        names = "strides", "pads", "auto_pad", "ceil_mode"
        given = {n: node.attributes[n] for n in names if n in node.attributes}
        kernel = node.attributes["kernel_shape"]
        pooled = pooling_windows(sizes, kernel, **given).count
    made = (shape[0], *pooled, shape[-1]) if last else (*shape[:2], *pooled)
    return [TensorType(dtype, made)]


def quantized_mean(graph: Graph, node: Node, inputs: Types) -> Types:
    """QLinearReduceMean; no axes are all axes.

    Raises:
        OutOfBounds: there are no such axes.
    """
    dtype, shape = (of := _tensor(inputs)).dtype, of.shape
    if shape is None:
        return [TensorType(dtype)]
    axes = normal_axes(node.attributes.get("axes") or range(len(shape)), len(shape))
    kept: list[Dimension] = []
    for axis, size in enumerate(shape):
        if axis not in axes:
            kept.append(size)
        elif node.attributes.get("keepdims", 1):
            kept.append(1)
    return [TensorType(dtype, tuple(kept))]


# Images with channels in blocks have the shape of what they would be with channels
# first, and these rounded up to a multiple of the block.

_LARGEST: Final = 16
"""Channels of the largest block, of which all others are divisors."""


def reorder_input(graph: Graph, node: Node, inputs: Types) -> Types:
    """[batch, channels, height, width], or channels last, into blocks."""
    dtype, shape = (of := _tensor(inputs)).dtype, of.shape
    if shape is None or len(shape) != 4:
        return [TensorType(dtype)]
    if node.attributes.get("channels_last", 0):
        shape = (shape[0], shape[3], *shape[1:3])
    channels = shape[1]
    whole = isinstance(channels, int) and channels % _LARGEST == 0
    return [TensorType(dtype, (shape[0], channels if whole else None, *shape[2:]))]


def reorder_output(graph: Graph, node: Node, inputs: Types) -> Types:
    """The first channels of what is in blocks.

    Raises:
        OutOfBounds: there are less than one.
    """
    dtype, shape = (of := _tensor(inputs)).dtype, of.shape
    stated = node.attributes.get("channels")
    if shape is None or len(shape) != 4 or not isinstance(stated, int):
        return [TensorType(dtype)]
    channels = at_least(1, (stated,), "channels")
    if node.attributes.get("channels_last", 0):
        return [TensorType(dtype, (shape[0], *shape[2:], *channels))]
    return [TensorType(dtype, (shape[0], *channels, *shape[2:]))]


def upsample(graph: Graph, node: Node, inputs: Types) -> Types:
    """Each size times its scale.

    Raises:
        OutOfBounds: scales are not 4 natural numbers.
    """
    dtype, shape = (of := _tensor(inputs)).dtype, of.shape
    stated = node.attributes.get("scales")
    if shape is None or len(shape) != 4 or not isinstance(stated, tuple):
        return [TensorType(dtype)]
    scales = at_least(1, stated, "scales", count=4)
    made: list[Dimension] = []
    for size, scale in zip(shape, scales, strict=True):
        extent = _extent(size)
        made.append(None if extent is None else _written(extent * scale))
    return [TensorType(dtype, tuple(made))]


# sizes


def _broadcast(one: Shape | None, other: Shape | None) -> Shape | None:
    """The shape that two have in common; ``None`` if one has no known rank."""
    if one is None or other is None:
        return None
    if one == other:
        return one
    if len(one) < len(other):
        one, other = other, one
    lead = len(one) - len(other)
    return one[:lead] + tuple(map(_common, one[lead:], other))


def _common(one: Dimension, other: Dimension) -> Dimension:
    extents = _extent(one), _extent(other)
    if extents[0] is None or extents[1] is None:
        return None
    return _written(broadcast(extents[0], extents[1]))


def _extent(size: Dimension) -> Extent | None:
    return Size.parse(size) if isinstance(size, str) else size


def _written(extent: Extent) -> Dimension:
    return extent if isinstance(extent, int) else str(extent)
