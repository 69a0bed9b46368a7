"""Types of what operators move, select or join without computing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from onnxplug.authoring.bounds import (
    MOST_ELEMENTS,
    OutOfBounds,
    at_least,
    normal_axes,
    normal_axis,
    permutation,
    sliced_range,
)
from onnxplug.authoring.sizes import (
    Extent,
    broadcast,
    exact_quotient,
    is_natural,
    maximum,
    minimum,
    product,
    quotient,
)
from onnxplug.ep import DataType
from onnxplug.shapes.elementwise import Rule
from onnxplug.shapes.facts import (
    NodeCall,
    Shape,
    Value,
    check_known,
    countable,
)

_INT64 = DataType.INT64
_COUNTS: Final = range(-MOST_ELEMENTS, MOST_ELEMENTS + 1)
_OPEN_END: Final = (1 << 31) - 1
"""A bound from which on exporters mean "to the end"."""


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
            rank = call.length(1)
            if rank == 1 and shape is not None:
                return Value(dtype, (product(shape),))
            return Value(dtype, call.fresh_shape(rank))
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
    _check_target(target, None if shape is None else len(shape), copies)
    sizes: list[Extent | None] = []
    for axis, size in enumerate(target):
        if size == 0 and copies:
            sizes.append(None if shape is None else shape[axis])
        elif size is not None and shape is not None and size in shape:
            sizes.append(size)  # as one of a tensor's it is not less than 0
        elif size is not None and size != -1 and -1 in target:
            sizes.append(maximum(size, 0))  # a second -1 would be an error
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
            if left is not None and (is_natural(left) or left in shape):
                sizes[at] = left
    return tuple(call.fresh() if size is None else size for size in sizes)


def _check_target(
    target: Sequence[Extent | None], rank: int | None, copies: bool
) -> None:
    """Check the numbers in the target of a Reshape, whatever is reshaped.

    Raises:
        OutOfBounds: one cannot be, or copies a size that a tensor of *rank* has not.
    """
    numbers = [size for size in target if isinstance(size, int)]
    if min(numbers, default=0) < -1:
        at_least(-1, numbers, "the target shape")
    if numbers.count(-1) > 1:
        raise OutOfBounds(f"the target shape {numbers} has -1 more than once")
    if math.prod(numbers) not in _COUNTS or 0 in numbers:
        countable(tuple(size for size in numbers if size > 0), "the target shape")
    if copies and rank is not None and 0 in target[rank:]:
        raise OutOfBounds(
            f"the target shape has a 0 after axis {rank - 1}, where an input of rank "
            f"{rank} has no size for it"
        )


def _flatten(call: NodeCall) -> Value:
    dtype, shape = call.value()
    if shape is None:
        return Value(dtype, (call.fresh(), call.fresh()))
    axis = call.attribute("axis", 1)
    # the rank itself is an axis too, after all others
    axis = axis if axis == len(shape) else normal_axis(axis, len(shape))
    return Value(dtype, (product(shape[:axis]), product(shape[axis:])))


def _squeeze(call: NodeCall) -> Value:
    dtype, shape = call.value()
    axes = call.axes(1, ())
    if shape is None:
        return Value(dtype)
    if axes is None:
        count = call.length(1)
        return Value(dtype, call.fresh_shape(len(shape) - count) if count else None)
    if not axes:
        if not all(isinstance(size, int) for size in shape):
            return Value(dtype)
        return Value(dtype, tuple(size for size in shape if size != 1))
    gone = set(normal_axes(axes, len(shape)))
    return Value(dtype, tuple(s for axis, s in enumerate(shape) if axis not in gone))


def _unsqueeze(call: NodeCall) -> Value:
    dtype, shape = call.value()
    axes = call.axes(1)
    if shape is None:
        return Value(dtype)
    if axes is None:
        count = call.length(1)
        return Value(dtype, call.fresh_shape(len(shape) + count) if count else None)
    rank = len(shape) + len(axes)
    new = set(normal_axes(axes, rank))
    sizes = iter(shape)
    return Value(dtype, tuple(1 if a in new else next(sizes) for a in range(rank)))


def _transpose(call: NodeCall) -> Value:
    dtype, shape = call.value()
    if shape is None:
        return Value(dtype)
    order = call.attribute("perm")
    if order:
        order = permutation(order, len(shape))
        return Value(dtype, tuple(shape[axis] for axis in order))
    return Value(dtype, shape[::-1])


def _depth_to_space(call: NodeCall) -> Value:
    dtype, shape = call.value()
    if shape is None:
        return Value(dtype)
    batch, channels, height, width = shape
    (block,) = at_least(1, (call.attribute("blocksize"),), "blocksize")
    left = quotient(channels, block * block)
    assert left is not None
    return Value(dtype, (batch, left, height * block, width * block))


def _space_to_depth(call: NodeCall) -> Value:
    dtype, shape = call.value()
    if shape is None:
        return Value(dtype)
    batch, channels, height, width = shape
    (block,) = at_least(1, (call.attribute("blocksize"),), "blocksize")
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
        count = _count(call, axes)
        if count is None or (call.has(3) and axes is None):
            return Value(dtype, call.fresh_shape(len(shape)))
        if axes is None:
            axes = range(count)
        starts = first.elements if first else [None] * count
        ends = last.elements if last else [None] * count
        assumed = None if call.has(4) else 1
        steps = steps_known.elements if steps_known else [assumed] * count
    if 0 in steps:
        raise OutOfBounds(f"steps {list(steps)} has a 0; a slice never ends with it")
    sizes = list(shape)
    normal = normal_axes(axes, len(shape))
    for axis, start, end, step in zip(normal, starts, ends, steps, strict=True):
        found = _sliced(shape[axis], start, end, step)
        sizes[axis] = call.fresh() if found is None else found
    return Value(dtype, tuple(sizes))


def _count(call: NodeCall, axes: Sequence[int] | None) -> int | None:
    """How many axes a Slice has to do with; None if that is not known."""
    if axes is not None:
        return len(axes)
    return call.length(1)


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
    axis = call.axis(len(shape), 0)
    return Value(dtype, shape[:axis] + chosen + shape[axis + 1 :])


def _gather_elements(call: NodeCall) -> Value:
    shape = call.value().shape
    if shape is not None:
        call.axis(len(shape), 0)
    return Value(call.value().dtype, call.value(1).shape)


def _gather_nd(call: NodeCall) -> Value:
    (dtype, shape), indices = call.value(), call.value(1).shape
    if shape is None or indices is None or not isinstance(indices[-1], int):
        return Value(dtype)
    (batch,) = at_least(0, (call.attribute("batch_dims", 0),), "batch_dims")
    used = indices[-1] + batch
    if batch >= len(indices) or used > len(shape):
        raise OutOfBounds(
            f"indices of {indices[-1]} axes each and batch_dims {batch}, for data of "
            f"rank {len(shape)} and indices of rank {len(indices)}"
        )
    return Value(dtype, indices[:-1] + shape[used:])


def _split(call: NodeCall) -> list[Value]:
    dtype, shape = call.value()
    outputs = len(call.node.outputs)
    if shape is None:
        return [Value(dtype)] * outputs
    axis = call.axis(len(shape), 0)
    sizes: Sequence[Extent | None] | None = call.attribute("split")
    if sizes is None and call.has(1):
        content = call.content(1)
        sizes = content.elements if content else [None] * outputs
    elif sizes is None:
        count = call.attribute("num_outputs", outputs)
        at_least(1, (count,), "num_outputs")
        if count < outputs:
            raise OutOfBounds(f"num_outputs is {count}, but there are {outputs}")
        # of a million that nobody takes, none is worth a type
        sizes = _even_parts(call, shape[axis], count, outputs)
    check_known(0, sizes, "split")
    return [
        Value(
            dtype, (*shape[:axis], call.fresh() if s is None else s, *shape[axis + 1 :])
        )
        for s in sizes
    ]


def _even_parts(
    call: NodeCall, size: Extent, count: int, outputs: int
) -> list[Extent | None]:
    """The sizes of the first *outputs* of *count* parts.

    The last ones may be smaller since opset 18; before, no part may be.
    """
    if call.opset < 18:
        uneven = isinstance(size, int) and size % count
        return [None if uneven else quotient(size, count)] * outputs
    part = quotient(size + (count - 1), count)
    if isinstance(size, int) and isinstance(part, int):
        return [min(part, max(0, size - part * place)) for place in range(outputs)]
    if part is None or outputs < count:
        return [part] * outputs
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
    check_known(0, (count,), "k")
    sizes = list(shape)
    axis = call.axis(len(shape), -1)
    sizes[axis] = call.fresh() if count is None or not is_natural(count) else count
    return [Value(dtype, tuple(sizes)), Value(_INT64, tuple(sizes))]


def _compress(call: NodeCall) -> Value:
    dtype, shape = call.value()
    axis, count = call.attribute("axis"), _non_zeros(call, 1)
    if axis is None:
        return Value(dtype, (count,))
    if shape is None:
        return Value(dtype)
    sizes = list(shape)
    sizes[call.axis(len(shape), 0)] = count
    return Value(dtype, tuple(sizes))


def _non_zero(call: NodeCall) -> Value:
    shape = call.value().shape
    rows = call.fresh() if shape is None else len(shape)
    return Value(_INT64, (rows, _non_zeros(call, 0)))


def _non_zeros(call: NodeCall, position: int) -> Extent:
    """How many elements of an input are not 0."""
    constant = call.constant(position)
    if constant is None or constant.dtype.hasobject:
        return call.fresh()
    return int((constant != 0).sum())


# more elements


def _concat(call: NodeCall) -> Value:
    values = call.values()
    dtype = next((v.dtype for v in values if v.dtype is not None), None)
    shapes = [value.shape for value in values]
    known = next((shape for shape in shapes if shape is not None), None)
    if known is None:
        return Value(dtype)
    axis = call.axis(len(known), 1)
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
        rank = call.length(1)
        if rank is None or shape is None:
            return Value(dtype)
        target: Sequence[Extent | None] = [None] * rank
    else:
        target = content.elements
    # as NumPy broadcasts: -1 is no size
    check_known(0, target, "the shape")
    if shape is None:
        return Value(dtype)
    rank_made = max(len(shape), len(target))
    have = (1,) * (rank_made - len(shape)) + shape
    want = (*(1 for _ in range(rank_made - len(target))), *target)
    sizes: list[Extent] = []
    for own, size in zip(have, want, strict=True):
        if size is not None:
            size = maximum(size, 0)  # less is an error
        if size is not None:
            sizes.append(broadcast(own, size))
        else:
            sizes.append(own if isinstance(own, int) and own != 1 else call.fresh())
    return Value(dtype, countable(tuple(sizes), "the shape asked for"))


def _tile(call: NodeCall) -> Value:
    (dtype, shape), repeats = call.value(), call.content(1)
    if shape is None or repeats is None or call.opset < 6:
        return Value(dtype, None if shape is None else call.fresh_shape(len(shape)))
    check_known(0, repeats.elements, "repeats")
    if len(repeats.elements) != len(shape):
        raise OutOfBounds(
            f"there are {len(repeats.elements)} repeats for an input of rank "
            f"{len(shape)}"
        )
    sizes = tuple(
        call.fresh() if times is None or not is_natural(times) else size * times
        for size, times in zip(shape, repeats.elements, strict=True)
    )
    return Value(dtype, countable(sizes, "the repeated shape"))


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
        return Value(dtype, call.fresh_shape(len(shape)))
    if len(pads) != 2 * len(axes):
        raise OutOfBounds(
            f"there are {len(pads)} pads for {len(axes)} axes; expected two for each"
        )
    sizes = list(shape)
    for at, axis in enumerate(normal_axes(axes, len(shape))):
        before, after = pads[at], pads[at + len(axes)]
        padded = (
            None if before is None or after is None else sizes[axis] + before + after
        )
        # a size that turns out to be less than 0 is an error
        known = padded is not None and (not isinstance(padded, int) or padded >= 0)
        sizes[axis] = padded if known and padded is not None else call.fresh()
    return Value(dtype, countable(tuple(sizes), "the padded shape"))


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
    sizes[call.axis(len(shape), 0)] = count
    return [Value(dtype, tuple(sizes)), counts, inverse, counts]


RULES: Final[dict[str, Rule]] = {
    "Compress": _compress,
    "Concat": _concat,
    "DepthToSpace": _depth_to_space,
    "Expand": _expand,
    "Flatten": _flatten,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "NonZero": _non_zero,
    "Pad": _pad,
    "Reshape": _reshape,
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
}
