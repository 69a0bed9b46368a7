"""Types of what operators move, select, join or make without computing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from onnxplug.ep import DataType
from onnxplug.prepare.symbolic.dimension import (
    Extent,
    broadcast,
    exact_quotient,
    is_natural,
    maximum,
    minimum,
    product,
    quotient,
)
from onnxplug.prepare.symbolic.elementwise import Rule
from onnxplug.prepare.symbolic.facts import (
    NodeCall,
    Shape,
    Value,
    normal_axis,
    sliced_range,
)

_INT64 = DataType.INT64
_OPEN_END: Final = (1 << 31) - 1
"""A bound from which on exporters mean "to the end"."""


def _fresh_shape(call: NodeCall, rank: Extent) -> Shape | None:
    if not isinstance(rank, int):
        return None
    return tuple(call.fresh() for _ in range(rank))


# sizes


def _shape(call: NodeCall) -> Value:
    shape = call.value().shape
    if shape is None:
        return Value(_INT64, (call.fresh(),))
    wanted = shape[call.attribute("start", 0) : call.attribute("end")]
    return Value(_INT64, (len(wanted),))


def _size(call: NodeCall) -> Value:
    return Value(_INT64, ())


# the same elements in another shape


def _reshape(call: NodeCall) -> Value:
    dtype, shape = call.value()
    target: Sequence[Extent | None]
    if call.opset < 5:
        target = call.attribute("shape")
    else:
        content = call.content(1)
        if content is None:
            rank = call.value(1).shape
            if rank is None or len(rank) != 1:
                return Value(dtype)
            if rank == (1,) and shape is not None:
                return Value(dtype, (product(shape),))
            return Value(dtype, _fresh_shape(call, rank[0]))
        target = content.elements
    return Value(dtype, _reshaped(call, shape, target))


def _reshaped(
    call: NodeCall, shape: Shape | None, target: Sequence[Extent | None]
) -> Shape:
    """The shape that *target* asks for.

    A size that happens to be 0 copies another, which is not said here: it can only
    happen with a tensor that is empty.
    """
    copies = not call.attribute("allowzero", 0)
    sizes: list[Extent | None] = []
    for axis, size in enumerate(target):
        if size == 0 and copies:
            sizes.append(None if shape is None else shape[axis])
        elif size is None or not is_natural(size):  # not known, or -1
            sizes.append(None)
        else:
            sizes.append(size)
    if sizes.count(None) == 1 and shape is not None:
        at = sizes.index(None)
        rest = product(size for size in sizes if size is not None)
        # -1 needs that the others are not empty; what is not known at all does not
        if target[at] == -1 or (is_natural(rest - 1)):
            total = product(shape)
            left = exact_quotient(total, rest)
            if left is None and isinstance(rest, int):
                left = quotient(total, rest)
            if left is not None and is_natural(left):
                sizes[at] = left
    return tuple(call.fresh() if size is None else size for size in sizes)


def _flatten(call: NodeCall) -> Value:
    dtype, shape = call.value()
    if shape is None:
        return Value(dtype, (call.fresh(), call.fresh()))
    axis = call.attribute("axis", 1)
    axis = axis + len(shape) if axis < 0 else axis
    return Value(dtype, (product(shape[:axis]), product(shape[axis:])))


def _squeeze(call: NodeCall) -> Value:
    dtype, shape = call.value()
    axes = call.axes(1, ())
    if shape is None or axes is None:
        return Value(dtype)
    if not axes:
        if not all(isinstance(size, int) for size in shape):
            return Value(dtype)
        return Value(dtype, tuple(size for size in shape if size != 1))
    gone = {normal_axis(axis, len(shape)) for axis in axes}
    return Value(dtype, tuple(s for axis, s in enumerate(shape) if axis not in gone))


def _unsqueeze(call: NodeCall) -> Value:
    dtype, shape = call.value()
    axes = call.axes(1)
    if shape is None or axes is None:
        return Value(dtype)
    rank = len(shape) + len(axes)
    new = {normal_axis(axis, rank) for axis in axes}
    sizes = iter(shape)
    return Value(dtype, tuple(1 if a in new else next(sizes) for a in range(rank)))


def _transpose(call: NodeCall) -> Value:
    dtype, shape = call.value()
    if shape is None:
        return Value(dtype)
    order = call.attribute("perm") or range(len(shape))[::-1]
    return Value(dtype, tuple(shape[axis] for axis in order))


def _depth_to_space(call: NodeCall) -> Value:
    dtype, shape = call.value()
    if shape is None:
        return Value(dtype)
    (batch, channels, height, width), block = shape, call.attribute("blocksize")
    left = quotient(channels, block * block)
    assert left is not None
    return Value(dtype, (batch, left, height * block, width * block))


def _space_to_depth(call: NodeCall) -> Value:
    dtype, shape = call.value()
    if shape is None:
        return Value(dtype)
    (batch, channels, height, width), block = shape, call.attribute("blocksize")
    rows, columns = quotient(height, block), quotient(width, block)
    assert rows is not None and columns is not None
    return Value(dtype, (batch, channels * block * block, rows, columns))


# parts


def _slice(call: NodeCall) -> Value:
    dtype, shape = call.value()
    if shape is None:
        return Value(dtype)
    axes: Sequence[int] | None
    starts: Sequence[Extent | None]
    ends: Sequence[Extent | None]
    steps: Sequence[Extent | None]
    if call.opset < 10:
        starts, ends = call.attribute("starts"), call.attribute("ends")
        axes, steps = call.attribute("axes") or range(len(starts)), (1,) * len(starts)
    else:
        first, last = call.content(1), call.content(2)
        steps_known = call.content(4) if call.has(4) else None
        axes = call.numbers(3) if call.has(3) else None
        if call.has(3) and axes is None:
            return Value(dtype, _fresh_shape(call, len(shape)))
        count = _count(call, axes)
        if axes is None:
            axes = range(count)
        starts = first.elements if first else [None] * count
        ends = last.elements if last else [None] * count
        assumed = None if call.has(4) else 1
        steps = steps_known.elements if steps_known else [assumed] * count
    sizes = list(shape)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        axis = normal_axis(axis, len(shape))
        found = _sliced(shape[axis], start, end, step)
        sizes[axis] = call.fresh() if found is None else found
    return Value(dtype, tuple(sizes))


def _count(call: NodeCall, axes: Sequence[int] | None) -> int:
    """How many axes a Slice has to do with."""
    if axes is not None:
        return len(axes)
    shape = call.value(1).shape
    if shape is None or not isinstance(shape[0], int):
        raise ValueError("a slice of an unknown number of axes")
    return shape[0]


def _sliced(
    size: Extent, start: Extent | None, end: Extent | None, step: Extent | None
) -> Extent | None:
    """How many of *size* elements a slice has; None if that does not follow."""
    if start is None or end is None or not isinstance(step, int) or step == 0:
        return None
    if isinstance(size, int) and isinstance(start, int) and isinstance(end, int):
        return len(sliced_range(size, start, end, step))
    if step < 0:
        whole = step == -1 and start == -1 and isinstance(end, int)
        return size if whole and end <= -_OPEN_END else None  # type: ignore[operator]
    low = _bound(size, start)
    high = _bound(size, end)
    if low is None or high is None:
        return None
    high = minimum(high, size)
    count: Extent | None
    if high == size and isinstance(start, int) and start < 0:
        count = minimum(-start, size)
    else:
        low = maximum(low, 0)
        count = None if low is None or high is None else maximum(high - low, 0)
    if count is None or step == 1:
        return count
    return quotient(count + (step - 1), step)


def _bound(size: Extent, bound: Extent) -> Extent | None:
    """Where a slice's bound is, from the front; it may lie outside."""
    if isinstance(bound, int):
        if bound >= _OPEN_END:
            return size
        return size + bound if bound < 0 else bound
    return bound if is_natural(bound) else None


def _gather(call: NodeCall) -> Value:
    (dtype, shape), chosen = call.value(), call.value(1).shape
    if shape is None or chosen is None:
        return Value(dtype)
    axis = normal_axis(call.attribute("axis", 0), len(shape))
    return Value(dtype, shape[:axis] + chosen + shape[axis + 1 :])


def _gather_elements(call: NodeCall) -> Value:
    return Value(call.value().dtype, call.value(1).shape)


def _gather_nd(call: NodeCall) -> Value:
    (dtype, shape), indices = call.value(), call.value(1).shape
    if shape is None or indices is None or not isinstance(indices[-1], int):
        return Value(dtype)
    used = indices[-1] + call.attribute("batch_dims", 0)
    return Value(dtype, indices[:-1] + shape[used:])


def _split(call: NodeCall) -> list[Value]:
    dtype, shape = call.value()
    outputs = len(call.node.outputs)
    if shape is None:
        return [Value(dtype)] * outputs
    axis = normal_axis(call.attribute("axis", 0), len(shape))
    sizes: Sequence[Extent | None] | None = call.attribute("split")
    if sizes is None and call.has(1):
        content = call.content(1)
        sizes = content.elements if content else [None] * outputs
    elif sizes is None:
        sizes = _even_parts(call, shape[axis], call.attribute("num_outputs", outputs))
    return [
        Value(
            dtype, (*shape[:axis], call.fresh() if s is None else s, *shape[axis + 1 :])
        )
        for s in sizes
    ]


def _even_parts(call: NodeCall, size: Extent, count: int) -> list[Extent | None]:
    """The sizes of *count* parts, of which the last may be smaller since opset 18."""
    part = quotient(size + (count - 1) if call.opset >= 18 else size, count)
    if part is None:
        return [None] * count
    last = size - part * (count - 1)
    return [part] * (count - 1) + [last if is_natural(last) else None]


def _top_k(call: NodeCall) -> list[Value]:
    dtype, shape = call.value()
    if shape is None:
        return [Value(dtype), Value(_INT64)]
    count: Extent | None = call.attribute("k")
    if call.opset >= 10:
        content = call.content(1)
        count = content.elements[0] if content else None
    sizes = list(shape)
    axis = normal_axis(call.attribute("axis", -1), len(shape))
    sizes[axis] = call.fresh() if count is None or not is_natural(count) else count
    return [Value(dtype, tuple(sizes)), Value(_INT64, tuple(sizes))]


def _compress(call: NodeCall) -> Value:
    dtype, shape = call.value()
    axis = call.attribute("axis")
    if axis is None:
        return Value(dtype, (call.fresh(),))
    if shape is None:
        return Value(dtype)
    sizes = list(shape)
    sizes[normal_axis(axis, len(shape))] = call.fresh()
    return Value(dtype, tuple(sizes))


def _non_zero(call: NodeCall) -> Value:
    shape = call.value().shape
    rows = call.fresh() if shape is None else len(shape)
    return Value(_INT64, (rows, call.fresh()))


# more elements


def _concat(call: NodeCall) -> Value:
    values = call.values()
    dtype = next((v.dtype for v in values if v.dtype is not None), None)
    shapes = [value.shape for value in values]
    known = next((shape for shape in shapes if shape is not None), None)
    if known is None:
        return Value(dtype)
    axis = normal_axis(call.attribute("axis", 1), len(known))
    sizes = []
    for at in range(len(known)):
        column = [None if shape is None else shape[at] for shape in shapes]
        if at == axis:
            sizes.append(call.fresh() if None in column else sum(column))  # type: ignore[arg-type]
        else:
            sizes.append(_alike([size for size in column if size is not None]))
    return Value(dtype, tuple(sizes))


def _alike(sizes: Sequence[Extent]) -> Extent:
    """One of *sizes*, which are all the same when the model runs."""
    return next((size for size in sizes if isinstance(size, int)), sizes[0])


def _expand(call: NodeCall) -> Value:
    dtype, shape = call.value()
    content = call.content(1)
    if content is None:
        rank = call.value(1).shape
        if rank is None or shape is None or not isinstance(rank[0], int):
            return Value(dtype)
        target: Sequence[Extent | None] = [None] * rank[0]
    else:
        target = content.elements
    if shape is None:
        return Value(dtype)
    rank_made = max(len(shape), len(target))
    have = (1,) * (rank_made - len(shape)) + shape
    want = (*(1 for _ in range(rank_made - len(target))), *target)
    sizes: list[Extent] = []
    for own, size in zip(have, want, strict=True):
        if size is not None and is_natural(size):
            sizes.append(broadcast(own, size))
        else:
            sizes.append(own if isinstance(own, int) and own != 1 else call.fresh())
    return Value(dtype, tuple(sizes))


def _tile(call: NodeCall) -> Value:
    (dtype, shape), repeats = call.value(), call.content(1)
    if shape is None or call.opset < 6:
        return Value(dtype)
    if repeats is None:
        return Value(dtype, _fresh_shape(call, len(shape)))
    return Value(
        dtype,
        tuple(
            call.fresh() if times is None or not is_natural(times) else size * times
            for size, times in zip(shape, repeats.elements, strict=True)
        ),
    )


def _pad(call: NodeCall) -> Value:
    dtype, shape = call.value()
    if shape is None:
        return Value(dtype)
    pads: Any = call.attribute("pads", call.attribute("paddings"))
    if call.opset >= 11:
        content = call.content(1)
        pads = content.elements if content else None
    axes = call.numbers(3) if call.has(3) else range(len(shape))
    if pads is None or axes is None:
        return Value(dtype, _fresh_shape(call, len(shape)))
    sizes = list(shape)
    for at, axis in enumerate(axes):
        axis = normal_axis(axis, len(shape))
        before, after = pads[at], pads[at + len(axes)]
        padded = (
            None if before is None or after is None else sizes[axis] + before + after
        )
        sizes[axis] = (
            call.fresh() if padded is None or not is_natural(padded) else padded
        )
    return Value(dtype, tuple(sizes))


# from nothing


def _constant_of_shape(call: NodeCall) -> Value:
    value = call.node.attributes.get("value")
    dtype = DataType.FLOAT32 if value is None else DataType.from_numpy(value.dtype)
    return Value(dtype, _of_content(call, 0))


def _of_content(call: NodeCall, position: int) -> Shape | None:
    """The shape that an input says."""
    content = call.content(position)
    if content is None:
        rank = call.value(position).shape
        return _fresh_shape(call, rank[0]) if rank else None
    return tuple(
        call.fresh() if size is None or not is_natural(size) else size
        for size in content.elements
    )


def _range(call: NodeCall) -> Value:
    dtype = call.value().dtype or call.value(1).dtype
    contents = [call.content(position) for position in range(3)]
    if None not in contents:
        start, limit, step = (c.elements[0] for c in contents if c)
        if start is not None and limit is not None and isinstance(step, int):
            if step < 0:
                start, limit, step = -start, -limit, -step
            steps = quotient(limit - start + (step - 1), step)
            count = None if steps is None else maximum(steps, 0)
            if count is not None:
                return Value(dtype, (count,))
    return Value(dtype, (call.fresh(),))


def _one_hot(call: NodeCall) -> Value:
    shape, depth = call.value().shape, call.content(1)
    dtype = call.value(2).dtype
    if shape is None:
        return Value(dtype)
    axis = call.attribute("axis", -1)
    axis = axis + len(shape) + 1 if axis < 0 else axis
    size = depth.elements[0] if depth else None
    size = call.fresh() if size is None or not is_natural(size) else size
    return Value(dtype, (*shape[:axis], size, *shape[axis:]))


def _eye_like(call: NodeCall) -> Value:
    number = call.attribute("dtype")
    dtype = call.value().dtype if number is None else DataType.from_onnx(number)
    return Value(dtype, call.value().shape)


def _random(call: NodeCall) -> Value:
    return Value(
        DataType.from_onnx(call.attribute("dtype", 1)), tuple(call.attribute("shape"))
    )


def _resize(call: NodeCall) -> Value:
    dtype, shape = call.value()
    if shape is None:
        return Value(dtype)
    scales, sizes = (1, None) if call.opset < 11 else (2, 3)
    axes = [
        normal_axis(a, len(shape)) for a in call.attribute("axes") or range(len(shape))
    ]
    found = list(shape)
    for axis in axes:
        found[axis] = call.fresh()
    if sizes is not None and call.has(sizes):
        content = call.content(sizes)
        policy = call.attribute("keep_aspect_ratio_policy", "stretch")
        if content is not None and policy == "stretch":
            for axis, size in zip(axes, content.elements, strict=True):
                if size is not None and is_natural(size):
                    found[axis] = size
        return Value(dtype, tuple(found))
    factors: Any = call.attribute("scales")
    if factors is None and call.has(scales):
        constant = call.facts.graph.constant(call.node.inputs[scales] or "")
        factors = None if constant is None else constant.tolist()
    crops = call.attribute("coordinate_transformation_mode") == "tf_crop_and_resize"
    if factors and not crops:
        for axis, factor in zip(axes, factors, strict=True):
            if factor == int(factor):
                found[axis] = shape[axis] * int(factor)
            elif factor == 0.5:
                half = quotient(shape[axis], 2)
                found[axis] = call.fresh() if half is None else half
    return Value(dtype, tuple(found))


def _unique(call: NodeCall) -> list[Value]:
    dtype, shape = call.value()
    axis, count = call.attribute("axis"), call.fresh()
    counts = Value(_INT64, (count,))
    inverse = Value(_INT64, (call.fresh(),))
    if axis is None:
        return [Value(dtype, (count,)), counts, inverse, counts]
    if shape is None:
        return [Value(dtype), counts, inverse, counts]
    sizes = list(shape)
    sizes[normal_axis(axis, len(shape))] = count
    return [Value(dtype, tuple(sizes)), counts, inverse, counts]


RULES: Final[dict[str, Rule]] = {
    "Compress": _compress,
    "Concat": _concat,
    "ConstantOfShape": _constant_of_shape,
    "DepthToSpace": _depth_to_space,
    "Expand": _expand,
    "EyeLike": _eye_like,
    "Flatten": _flatten,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "NonZero": _non_zero,
    "OneHot": _one_hot,
    "Pad": _pad,
    "RandomNormal": _random,
    "RandomUniform": _random,
    "Range": _range,
    "Reshape": _reshape,
    "Resize": _resize,
    "Shape": _shape,
    "Size": _size,
    "Slice": _slice,
    "SpaceToDepth": _space_to_depth,
    "Split": _split,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "TopK": _top_k,
    "Transpose": _transpose,
    "Unique": _unique,
    "Unsqueeze": _unsqueeze,
    "Upsample": _resize,
}
