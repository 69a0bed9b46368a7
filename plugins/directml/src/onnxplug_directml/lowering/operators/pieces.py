"""Tensors cut into pieces, and put together of them."""

from __future__ import annotations

from collections.abc import Sequence

from onnxplug import ep
from onnxplug_directml.lowering.builder import Builder, Refused, Result, Value
from onnxplug_directml.lowering.call import Call, front, lowers


@lowers("Slice")
def _slice(call: Call) -> Value:
    x = call.operand(0)
    if call.since < 10:
        starts, ends = call.required("starts"), call.required("ends")
        axes, steps = call.attribute("axes"), None
    else:
        starts, ends = call.integers(1), call.integers(2)
        axes = call.integers(3) if call.has(3) else None
        steps = call.integers(4) if call.has(4) else None
    axes = range(len(starts)) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise Refused(
            ep.RefusalCode.OTHER,
            f"{len(starts)} starts, {len(ends)} ends, {len(axes)} axes, {len(steps)} "
            "steps; takes as many of each",
        )
    cuts = [slice(None)] * x.rank
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        if step == 0:
            raise Refused(ep.RefusalCode.OTHER, f"steps by 0 along axis {axis}")
        cuts[front(axis, x.rank)] = slice(start, end, step)
    return cut(call.build, x, cuts)


def cut(build: Builder, x: Value, cuts: Sequence[slice]) -> Value:
    """A part of *x*, with steps of either sign.

    Args:
        cuts: as of NumPy, one for each dimension.
    """
    ranges = [
        range(*each.indices(size)) for each, size in zip(cuts, x.shape, strict=True)
    ]
    if all(each == range(size) for each, size in zip(ranges, x.shape, strict=True)):
        return x
    shape = tuple(map(len, ranges))
    if 0 in shape:
        raise Refused(ep.RefusalCode.OTHER, f"a part {list(shape)} without elements")
    return build(
        "SLICE1", InputTensor=x, OutputTensor=Result(x.dtype, shape),
        InputWindowOffsets=tuple(min(each[0], each[-1]) for each in ranges),
        InputWindowSizes=tuple(abs(each[-1] - each[0]) + 1 for each in ranges),
        # a step that is not made may be of any size
        InputWindowStrides=tuple(each.step if len(each) > 1 else 1 for each in ranges),
    )  # fmt: skip


def between(build: Builder, x: Value, axis: int, start: int, stop: int) -> Value:
    """The elements of *x* from *start* to before *stop* along an axis."""
    cuts = [slice(None)] * x.rank
    cuts[axis] = slice(start, stop)
    return cut(build, x, cuts)


@lowers("Split")
def _split(call: Call) -> Sequence[Value | None]:
    x = call.operand(0)
    axis = call.axis(x.rank)
    size = x.shape[axis]
    given = call.attribute("split")
    if given is None and call.has(1):
        given = call.integers(1)
    sizes = _equal_parts(call, axis, size) if given is None else list(given)
    if not sizes or sum(sizes) != size or min(sizes) < 0:
        raise Refused(
            ep.RefusalCode.OTHER, f"parts {sizes} of {size} along axis {axis}"
        )
    return parts(call.build, x, axis, sizes)


def _equal_parts(call: Call, axis: int, size: int) -> list[int]:
    """Parts of the same size, of which the last may be smaller."""
    count = call.attribute("num_outputs")
    if count is None:
        wanted = next(i for i in range(call.output_count) if call.wants(i))
        count = size // call.output_shape(wanted)[axis]
    if not 0 < count <= size:
        raise Refused(ep.RefusalCode.OTHER, f"{count} parts of {size} elements")
    each = -(-size // count)
    return [max(0, min(each, size - each * i)) for i in range(count)]


def parts(
    build: Builder, x: Value, axis: int, sizes: Sequence[int]
) -> Sequence[Value | None]:
    """*x* in parts of *sizes* along an axis; ``None`` for those without elements."""
    there = [size for size in sizes if size]
    if len(there) == 1:
        return [x if size else None for size in sizes]
    made = iter(
        build.several(
            "SPLIT", InputTensor=x, Axis=axis,
            OutputTensors=tuple(
                Result(x.dtype, (*x.shape[:axis], size, *x.shape[axis + 1 :]))
                for size in there
            ),
        )
    )  # fmt: skip
    return [next(made) if size else None for size in sizes]


@lowers("Concat")
def _concat(call: Call) -> Value:
    axis = call.axis(len(call.shape(0)), 1)
    there = [
        call.operand(position)
        for position in range(call.input_count)
        if 0 not in call.shape(position)
    ]
    return joined(call.build, there, axis)


def joined(build: Builder, values: Sequence[Value], axis: int) -> Value:
    """Values one after another along an axis.

    Raises:
        Refused: there are none, or they differ in another dimension.
    """
    beside = {(*each.shape[:axis], *each.shape[axis + 1 :]) for each in values}
    if len(beside) != 1 or len({each.rank for each in values}) != 1:
        shapes = ", ".join(str(list(each.shape)) for each in values)
        raise Refused(
            ep.RefusalCode.OTHER, f"[{shapes}] do not go together along axis {axis}"
        )
    if len(values) == 1:
        return values[0]
    shape = list(values[0].shape)
    for each in values[1:]:
        alike = (*each.shape[:axis], shape[axis], *each.shape[axis + 1 :])
        if alike != values[0].shape:
            raise Refused(
                ep.RefusalCode.OTHER,
                f"{list(each.shape)} does not go behind {shape} along axis {axis}",
            )
    shape[axis] = sum(each.shape[axis] for each in values)
    return build(
        "JOIN", InputTensors=tuple(values), Axis=axis,
        OutputTensor=Result(values[0].dtype, tuple(shape)),
    )  # fmt: skip
