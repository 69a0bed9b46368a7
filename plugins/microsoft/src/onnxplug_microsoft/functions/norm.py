"""Layer, root mean square and group normalization, with what is fused before them."""

from __future__ import annotations

import numpy as np

from onnxplug.ep import DataType
from onnxplug_microsoft.functions.body import Body, NoFunction
from onnxplug_microsoft.functions.makers import all_or_none, operator

_NARROW = frozenset({DataType.FLOAT16, DataType.BFLOAT16})

_LAYER_NORMALIZATION = 17
_RMS_NORMALIZATION = 23
"""The opsets that brought the operators."""


@operator("LayerNormalization")
def _layer_normalization(
    body: Body,
    x: str,
    scale: str,
    b: str | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> tuple[str | None, ...]:
    """As ONNX's operator of opset 17, which ONNX Runtime has in any opset."""
    if stash_type != 1:
        raise NoFunction(f"its attribute 'stash_type' is {stash_type}; expected 1")
    statistics = body.wants(1) or body.wants(2)
    return layer_norm(body, x, (x, scale, b), scale, b, epsilon, axis, statistics)


@operator("SimplifiedLayerNormalization")
def _simplified(
    body: Body,
    x: str,
    scale: str,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> tuple[str | None, ...]:
    if stash_type != 1:
        raise NoFunction(f"its attribute 'stash_type' is {stash_type}; expected 1")
    y, inverse = rms_norm(body, x, (x,), scale, epsilon, axis, inverse=body.wants(1))
    return y, inverse


@operator("SkipLayerNormalization")
def _skip_layer_normalization(
    body: Body,
    input: str,
    skip: str,
    gamma: str,
    beta: str | None = None,
    bias: str | None = None,
    *,
    epsilon: float = 1e-12,
) -> tuple[str | None, ...]:
    total = _summed(body, input, skip, bias)
    statistics = body.wants(1) or body.wants(2)
    y, mean, inverse = layer_norm(
        body, total, (input, skip, gamma), gamma, beta, epsilon, -1, statistics
    )
    return y, mean, inverse, total


@operator("SkipSimplifiedLayerNormalization")
def _skip_simplified(
    body: Body,
    input: str,
    skip: str,
    gamma: str,
    bias: str | None = None,
    *,
    epsilon: float = 1e-12,
) -> tuple[str | None, ...]:
    total = _summed(body, input, skip, bias)
    y, inverse = rms_norm(
        body, total, (input, skip, gamma), gamma, epsilon, inverse=body.wants(2)
    )
    return y, None, inverse, total


def _summed(body: Body, x: str, skip: str, bias: str | None) -> str:
    total = body.op("Add", x, skip)
    return total if bias is None else body.op("Add", total, bias)


@operator("EmbedLayerNormalization", since=11)
def _embed_layer_normalization(
    body: Body,
    input_ids: str,
    segment_ids: str | None,
    word_embedding: str,
    position_embedding: str,
    segment_embedding: str | None,
    gamma: str,
    beta: str,
    mask: str | None = None,
    position_ids: str | None = None,
    *,
    epsilon: float = 1e-12,
    mask_index_type: int = 0,
) -> tuple[str | None, ...]:
    words = body.op("Gather", word_embedding, input_ids, axis=0)
    if position_ids is None:
        length = body.size(input_ids, 1)
        positions = body.slice(position_embedding, 0, length, 0)
    else:
        positions = body.op("Gather", position_embedding, position_ids, axis=0)
    total = body.op("Add", words, positions)
    if all_or_none(segment_ids=segment_ids, segment_embedding=segment_embedding):
        segments = body.op("Gather", segment_embedding, segment_ids, axis=0)
        total = body.op("Add", total, segments)
    y, *_ = layer_norm(body, total, (word_embedding, gamma, beta), gamma, beta, epsilon)
    lengths = None
    if body.wants(1):
        source = input_ids if mask is None else mask
        if mask is None:
            source = body.op("Sub", source, source)
        source = body.cast(source, DataType.INT32)
        lengths = body.reduce("ReduceSum", source, 1, keepdims=0)
    return y, lengths, total


@operator("GroupNorm")
def _group_norm(
    body: Body,
    x: str,
    gamma: str,
    beta: str,
    *,
    activation: int,
    groups: int,
    channels_last: int = 1,
    epsilon: float = 1e-5,
) -> str:
    return _grouped(body, x, x, gamma, beta, activation, groups, channels_last, epsilon)


@operator("SkipGroupNorm")
def _skip_group_norm(
    body: Body,
    x: str,
    gamma: str,
    beta: str,
    skip: str,
    bias: str | None = None,
    *,
    activation: int,
    groups: int,
    channels_last: int = 1,
    epsilon: float = 1e-5,
) -> tuple[str, ...]:
    if not channels_last:
        raise NoFunction("its attribute 'channels_last' is 0; its function is for 1")
    added = body.unsqueeze(skip, 1, 2) if body.rank(skip) == 2 else skip
    total = _summed(body, x, added, bias)
    y = _grouped(body, total, x, gamma, beta, activation, groups, 1, epsilon)
    return y, total


def _grouped(
    body: Body,
    x: str,
    like: str,
    gamma: str,
    beta: str,
    activation: int,
    groups: int,
    channels_last: int,
    epsilon: float,
) -> str:
    """Group normalization of [N, C, H, W], or of [N, H, W, C] with *channels_last*."""
    if activation not in (0, 1):
        raise NoFunction(f"its attribute 'activation' is {activation}; expected 0 or 1")
    dtype = body.dtype(like)
    wide = body.cast(x, DataType.FLOAT32) if dtype in _NARROW else x
    scale, offset = gamma, beta
    if body.dtype(gamma) is not DataType.FLOAT32 and dtype in _NARROW:
        scale = body.cast(scale, DataType.FLOAT32)
        offset = body.cast(offset, DataType.FLOAT32)
    if channels_last:
        wide = body.transpose(wide, 0, 3, 1, 2)
    rows = body.reshape(wide, 0, groups, -1)
    centred = body.op("Sub", rows, body.reduce("ReduceMean", rows, -1))
    even = DataType.FLOAT32 if dtype in _NARROW else dtype
    normal, _ = _scaled_down(body, centred, even, epsilon, (-1,))
    y = body.op("Reshape", normal, body.op("Shape", wide))
    y = body.op("Mul", y, body.unsqueeze(scale, 1, 2))
    y = body.op("Add", y, body.unsqueeze(offset, 1, 2))
    if channels_last:
        y = body.transpose(y, 0, 2, 3, 1)
    if activation:
        y = body.op("Mul", y, body.op("Sigmoid", y))
    return body.cast(y, dtype) if dtype in _NARROW else y


def layer_norm(
    body: Body,
    x: str,
    like: tuple[str | None, ...],
    scale: str,
    bias: str | None,
    epsilon: float,
    axis: int = -1,
    statistics: bool = False,
) -> tuple[str, str | None, str | None]:
    """Layer normalization over the axes from *axis* on.

    Args:
        like: inputs of the element type of *x*, the first also of its rank.

    Returns:
        The result, and if wanted the mean and the inverse deviation in float32.
    """
    if body.opset >= _LAYER_NORMALIZATION:
        made = body.ops(
            "LayerNormalization",
            3 if statistics else 1,
            *(x, scale, bias),
            axis=axis,
            epsilon=epsilon,
        )
        return (made[0], made[1], made[2]) if statistics else (made[0], None, None)
    dtype = body.dtype(*like)
    wide, weight, offset = _widened(body, dtype, x, scale, bias)
    assert wide is not None
    axes = _axes(body, like[0], axis)
    mean = body.reduce("ReduceMean", wide, *axes)
    centred = body.op("Sub", wide, mean)
    even = DataType.FLOAT32 if dtype in _NARROW else dtype
    y, root = _scaled_down(body, centred, even, epsilon, axes)
    y = body.op("Mul", y, weight)
    if offset is not None:
        y = body.op("Add", y, offset)
    if dtype in _NARROW:
        y = body.cast(y, dtype)
    if not statistics:
        return y, None, None
    inverse = body.op("Reciprocal", root)
    if dtype is DataType.FLOAT64:
        mean, inverse = (body.cast(v, DataType.FLOAT32) for v in (mean, inverse))
    return y, mean, inverse


def rms_norm(
    body: Body,
    x: str,
    like: tuple[str | None, ...],
    scale: str,
    epsilon: float,
    axis: int = -1,
    *,
    inverse: bool = False,
) -> tuple[str, str | None]:
    """Root mean square normalization, as :func:`layer_norm`.

    Returns:
        The result, of the element type of *scale*, and if wanted the inverse root mean
        square in float32.
    """
    if body.opset >= _RMS_NORMALIZATION and not inverse:
        return body.op("RMSNormalization", x, scale, axis=axis, epsilon=epsilon), None
    dtype = body.dtype(*like)
    target = body.dtype(scale, *like)
    (wide,) = _widened(body, dtype, x)
    assert wide is not None
    even = DataType.FLOAT32 if dtype in _NARROW else dtype
    axes = _axes(body, like[0], axis)
    y, root = _scaled_down(body, wide, even, epsilon, axes)
    weight = scale if target is even else body.cast(scale, even)
    y = body.op("Mul", y, weight)
    if target is not even:
        y = body.cast(y, target)
    if not inverse:
        return y, None
    reciprocal = body.op("Reciprocal", root)
    if even is not DataType.FLOAT32:
        reciprocal = body.cast(reciprocal, DataType.FLOAT32)
    return y, reciprocal


def _axes(body: Body, like: str | None, axis: int) -> tuple[int, ...]:
    """The axes from *axis* on, counted from the last."""
    if axis == -1:
        return (-1,)
    first = axis if axis < 0 else axis - body.rank(like or "")
    return tuple(range(first, 0))


def _widened(
    body: Body, dtype: DataType, *values: str | None
) -> tuple[str | None, ...]:
    """Values of *dtype* in the element type that sums are made in."""
    if dtype not in _NARROW:
        return values
    return tuple(
        None if value is None else body.cast(value, DataType.FLOAT32)
        for value in values
    )


def _scaled_down(
    body: Body, x: str, dtype: DataType, epsilon: float, axes: tuple[int, ...]
) -> tuple[str, str]:
    """*x* divided by its root mean square over *axes*, and that root."""
    square = body.reduce("ReduceMean", body.op("Mul", x, x), *axes)
    small = body.constant(np.array(epsilon, dtype.numpy))
    root = body.op("Sqrt", body.op("Add", square, small))
    return body.op("Div", x, root), root
