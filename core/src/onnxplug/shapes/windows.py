"""Types of convolutions and pools, and of what else looks at data through windows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final, TypeAlias

from onnxplug.authoring.bounds import OutOfBounds, at_least, per_axis, split_pads
from onnxplug.authoring.sizes import Extent, is_natural, minimum, product, quotient
from onnxplug.ep import DataType
from onnxplug.shapes.elementwise import Rule
from onnxplug.shapes.facts import NodeCall, Shape, Value, check_known

_Sizes: TypeAlias = tuple[int, ...]


def _places(call: NodeCall, rank: int) -> tuple[_Sizes, _Sizes, _Sizes, _Sizes]:
    """Strides, dilations, and paddings before and after, of *rank* axes.

    Raises:
        OutOfBounds: an attribute is not of as many axes, or is less than it may be.
    """
    return (
        per_axis("strides", call.attribute("strides"), rank),
        per_axis("dilations", call.attribute("dilations"), rank),
        *split_pads(call.attribute("pads"), rank),
    )


def _spatial_rank(shape: Shape) -> int:
    """How many axes there are besides those of the batch and the channels.

    Raises:
        OutOfBounds: these two are not there.
    """
    if len(shape) < 2:
        raise OutOfBounds(
            f"an input is of rank {len(shape)}; expected [batch, channels, ...]"
        )
    return len(shape) - 2


def _windows(
    call: NodeCall, sizes: Sequence[Extent], kernel: Sequence[Extent]
) -> tuple[Extent, ...]:
    """How many places a window of size *kernel* takes on each spatial axis."""
    rank = len(sizes)
    strides, dilations, begin, end = _places(call, rank)
    how = call.attribute("auto_pad", "NOTSET")
    result: list[Extent] = []
    for axis, (size, length) in enumerate(zip(sizes, kernel, strict=True)):
        stride = strides[axis]
        span = (length - 1) * dilations[axis] + 1
        places: Extent | None
        if how in ("SAME_UPPER", "SAME_LOWER"):
            places = quotient(size + (stride - 1), stride)
        elif call.attribute("ceil_mode", 0) and how != "VALID":
            places = _rounded_up(size, span, stride, begin[axis], end[axis])
        else:
            padding = 0 if how == "VALID" else begin[axis] + end[axis]
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
    if not isinstance(span, int):
        return None
    places = quotient(size + (before + after - span + stride - 1), stride)
    most = quotient(size + (before + stride - 1), stride)
    if places is None or most is None or after >= span:
        return None
    # it cannot where windows are at least as far from the end as from each other
    return places + 1 if span - after >= stride else minimum(places + 1, most)


def _kernel(call: NodeCall, weights: Shape) -> Shape:
    """The spatial sizes of *weights*.

    Raises:
        OutOfBounds: an attribute says that they are less than 1.
    """
    stated = call.attribute("kernel_shape")
    if stated is not None:
        at_least(1, stated, "kernel_shape", count=_spatial_rank(weights))
    return weights[2:]


def _check_group(call: NodeCall) -> int:
    return at_least(1, (call.attribute("group", 1),), "group")[0]


def _conv(call: NodeCall, data: int = 0, weight: int = 1) -> Value:
    dtype, shape = call.value(data)
    weights = call.value(weight).shape
    _check_group(call)
    if call.node.op_type == "ConvInteger":
        dtype = DataType.INT32
    elif call.node.op_type == "QLinearConv":
        dtype = call.value(7).dtype
    if weights is None:
        return Value(dtype, None if shape is None else _open(call, shape[:1], shape))
    kernel = _kernel(call, weights)
    if shape is None:
        return Value(dtype, _open(call, (call.fresh(), weights[0]), weights))
    return Value(dtype, (shape[0], weights[0], *_windows(call, shape[2:], kernel)))


def _open(call: NodeCall, known: Shape, like: Shape) -> Shape:
    """A shape of the rank of *like* that begins with *known*."""
    return (*known, *(call.fresh() for _ in like[len(known) :]))


def _conv_transpose(call: NodeCall) -> Value:
    (dtype, shape), weights = call.value(), call.value(1).shape
    if shape is None or weights is None:
        like = weights if shape is None else shape
        known = () if shape is None else shape[:1]
        return Value(dtype, None if like is None else _open(call, known, like))
    rank = _spatial_rank(shape)
    kernel = _kernel(call, weights)
    strides, dilations, begin, end = _places(call, rank)
    extra = call.attribute("output_padding") or (0,) * rank
    extra = at_least(0, extra, "output_padding", count=rank)
    stated = call.attribute("output_shape")
    if stated:  # of the spatial axes, or of all
        at_least(0, stated[-rank:], "output_shape", count=rank)
    how = call.attribute("auto_pad", "NOTSET")
    sizes: list[Extent] = []
    for axis in range(rank):
        size, stride = shape[axis + 2], strides[axis]
        if stated:
            sizes.append(stated[axis - rank])
        elif how.startswith("SAME"):
            sizes.append(size * stride)
        else:
            padding = 0 if how == "VALID" else begin[axis] + end[axis]
            span = (kernel[axis] - 1) * dilations[axis] + 1
            sizes.append(size * stride - stride + extra[axis] + span - padding)
    channels = weights[1] * _check_group(call)
    return Value(dtype, (shape[0], channels, *sizes))


def _deform_conv(call: NodeCall) -> Value:
    at_least(1, (call.attribute("offset_group", 1),), "offset_group")
    return _conv(call)


def _pool(call: NodeCall) -> list[Value]:
    dtype, shape = call.value()
    if shape is None:
        return [Value(dtype), Value(DataType.INT64)]
    rank = _spatial_rank(shape)
    kernel = at_least(1, call.attribute("kernel_shape"), "kernel_shape", count=rank)
    found = shape[:2] + _windows(call, shape[2:], kernel)
    return [Value(dtype, found), Value(DataType.INT64, found)]


def _global_pool(call: NodeCall) -> Value:
    dtype, shape = call.value()
    if shape is None:
        return Value(dtype)
    return Value(dtype, shape[:2] + (1,) * _spatial_rank(shape))


def _max_unpool(call: NodeCall) -> Value:
    dtype, shape = call.value()
    if shape is None:
        return Value(dtype)
    rank = _spatial_rank(shape)
    kernel = at_least(1, call.attribute("kernel_shape"), "kernel_shape", count=rank)
    if call.has(2):
        content = call.content(2)
        wanted = [None] * len(shape) if content is None else content.elements
        check_known(0, wanted, "output_shape")
        return Value(
            dtype,
            tuple(
                call.fresh() if size is None or not is_natural(size) else size
                for size in wanted
            ),
        )
    strides, _, begin, end = _places(call, rank)
    spatial = (
        (size - 1) * strides[axis] + kernel[axis] - begin[axis] - end[axis]
        for axis, size in enumerate(shape[2:])
    )
    return Value(dtype, (*shape[:2], *spatial))


def _col2im(call: NodeCall) -> Value:
    """[batch, channels, *image] of [batch, channels * elements of a block, blocks]."""
    dtype, shape = call.value()
    image, block = call.content(1), call.content(2)
    rank = call.length(1) or call.length(2)
    if rank is None:
        return Value(dtype)
    _places(call, rank)
    check_known(0, image.elements if image else (), "image_shape")
    check_known(1, block.elements if block else (), "block_shape")
    spatial = [None] * rank if image is None else image.elements
    channels = None
    block_sizes = call.numbers(2)
    if shape is not None and block_sizes is not None:
        elements = product(block_sizes)
        assert isinstance(elements, int)
        channels = quotient(shape[1], elements)
    batch = call.fresh() if shape is None else shape[0]
    return Value(
        dtype,
        (
            batch,
            *(
                call.fresh() if size is None or not is_natural(size) else size
                for size in (channels, *spatial)
            ),
        ),
    )


def _causal_conv(call: NodeCall) -> list[Value]:
    """The output, and the last values, one fewer than the kernel has.

    Source: CausalConvWithState of opset 27.
    """
    (dtype, shape), weights = call.value(), call.value(1).shape
    batch, channels = (call.fresh(), call.fresh()) if shape is None else shape[:2]
    state = call.fresh() if weights is None else weights[2] - 1
    return [Value(dtype, shape), Value(dtype, (batch, channels, state))]


RULES: Final[dict[str, Rule]] = {
    **dict.fromkeys(["AveragePool", "LpPool", "MaxPool"], _pool),
    **dict.fromkeys(["Conv", "ConvInteger"], _conv),
    "CausalConvWithState": _causal_conv,
    "Col2Im": _col2im,
    "ConvTranspose": _conv_transpose,
    "DeformConv": _deform_conv,
    **dict.fromkeys(
        ["GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool"], _global_pool
    ),
    "MaxUnpool": _max_unpool,
    "QLinearConv": partial(_conv, data=0, weight=3),
}
