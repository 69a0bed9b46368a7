"""Where elements are: shapes, orders, pieces, borders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from onnxplug import ep
from onnxplug.authoring.sizes import product
from onnxplug_coreml.lowering.builder import Builder, Refused
from onnxplug_coreml.lowering.call import Call, front, lowers, numbers
from onnxplug_coreml.lowering.program import Shape, Value


@lowers("Reshape")
def _reshape(call: Call) -> Value:
    return call.build.reshape(call.operand(0), _resolved(call))


def _resolved(call: Call) -> Shape:
    """The new shape; it follows from sizes, or the model's types state it."""
    given = call.shape(0)
    copies = not call.attribute("allowzero", 0)
    wanted: Sequence[Any]
    if call.since < 5:
        wanted = call.attribute("shape")
    else:
        known = call.known(1)
        if known is None:
            return call.output_shape()
        wanted = [int(size) for size in known.reshape(-1)]
    shape = [
        given[axis] if size == 0 and copies and axis < len(given) else size
        for axis, size in enumerate(wanted)
    ]
    if -1 in shape:
        return call.output_shape()
    return tuple(shape)


@lowers("Flatten")
def _flatten(call: Call) -> Value:
    x = call.operand(0)
    axis = call.attribute("axis", 1)
    axis = axis + x.rank if axis < 0 else axis
    shape = (product(x.shape[:axis]), product(x.shape[axis:]))
    return call.build.reshape(x, shape)


@lowers("Squeeze", "Unsqueeze")
def _with_ones(call: Call) -> Value:
    x = call.operand(0)
    axes = call.attribute("axes")
    if call.since >= 13:
        axes = call.integers(1) if call.has(1) else None
    shape = list(x.shape)
    if call.op_type == "Unsqueeze":
        rank = x.rank + len(axes)
        for axis in sorted(front(axis, rank) for axis in axes):
            shape.insert(axis, 1)
        return call.build.reshape(x, tuple(shape))
    if axes is None:
        gone = {i for i, size in enumerate(numbers(x.shape)) if size == 1}
    else:
        gone = {front(axis, x.rank) for axis in axes}
    left = tuple(size for i, size in enumerate(shape) if i not in gone)
    return call.build.reshape(x, left)


@lowers("Transpose")
def _transpose(call: Call) -> Value:
    x = call.operand(0)
    order = call.attribute("perm", tuple(reversed(range(x.rank))))
    return call.build.transpose(x, order)


@lowers("Expand")
def _expand(call: Call) -> Value:
    known = call.known(1)
    x = call.operand(0)
    if known is None:
        return call.build.broadcast_to(x, call.output_shape())
    wanted = [int(size) for size in known.reshape(-1)]
    rank = max(len(wanted), x.rank)
    before = (1,) * (rank - x.rank) + x.shape
    asked = [1] * (rank - len(wanted)) + wanted
    shape = tuple(a if b == 1 else b for a, b in zip(before, asked, strict=True))
    return call.build.broadcast_to(x, shape)


@lowers("Tile")
def _tile(call: Call) -> Value:
    if call.since < 6:
        raise Refused(ep.RefusalCode.OPSET, "Tile before version 6")
    repeats = tuple(call.integers(1))
    x = call.operand(0)
    if all(times == 1 for times in repeats):
        return x
    return call.build("tile", x, repeats=repeats)


@lowers("Concat")
def _concat(call: Call) -> Value:
    rank = len(call.shape(0))
    axis = call.axis(rank, 1)
    there = [
        call.operand(position)
        for position in range(call.input_count)
        if 0 not in call.shape(position)
    ]
    return call.build.concat(there, axis)


@lowers("Split")
def _split(call: Call) -> Sequence[Value | None]:
    x = call.operand(0)
    axis = call.axis(x.rank)
    size = numbers(x.shape)[axis]
    sizes = call.attribute("split")
    count = call.attribute("num_outputs", len(call.output_names))
    if call.since >= 13 and call.has(1):
        sizes = call.integers(1)
    if sizes is None:
        each = -(-size // count)
        sizes = [min(each, max(size - i * each, 0)) for i in range(count)]
    stops = np.cumsum(sizes).tolist()
    if stops[-1] != size:
        raise Refused(ep.RefusalCode.OTHER, f"pieces of {list(sizes)} of {size}")
    if len(sizes) == 1:
        return [x]
    if 0 not in sizes:
        return call.build.several("split", x, axis=axis, sizes=tuple(sizes))
    return [
        None if size == 0 else call.build.between(x, axis, stop - size, stop)
        for size, stop in zip(sizes, stops, strict=True)
    ]


_FAR: Final = 2**31 - 1


@lowers("Slice")
def _slice(call: Call) -> Value:
    x = call.operand(0)
    if call.since < 10:
        starts, stops = call.attribute("starts"), call.attribute("ends")
        axes, steps = call.attribute("axes"), None
    else:
        starts, stops = call.integers(1), call.integers(2)
        axes = call.integers(3) if call.has(3) else None
        steps = call.integers(4) if call.has(4) else None
    axes = range(len(starts)) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    begins, strides = [0] * x.rank, [1] * x.rank
    ends: list[int | None] = [None] * x.rank
    turned = []
    for axis, start, stop, step in zip(axes, starts, stops, steps, strict=True):
        axis = front(axis, x.rank)
        size = x.shape[axis]
        if not isinstance(size, int):
            begins[axis], ends[axis] = _open(start, stop, step)
            strides[axis] = step
            continue
        first, last, stride = slice(start, stop, step).indices(size)
        if stride < 0:
            # of the elements from the other end
            turned.append(axis)
            first, last, stride = size - 1 - first, size - 1 - last, -stride
        begins[axis], strides[axis] = first, stride
        ends[axis] = None if last >= size else last
    if turned:
        x = call.build("reverse", x, axes=tuple(turned))
    if not any(begins) and ends == [None] * x.rank and strides == [1] * x.rank:
        return x
    return call.build(
        "slice", x, starts=tuple(begins), stops=tuple(ends), steps=tuple(strides)
    )


def _open(start: int, stop: int, step: int) -> tuple[int, None]:
    """A slice to the end of a dimension whose size is known in runs only."""
    if step < 1 or start != 0 or stop < _FAR:
        raise Refused(
            ep.RefusalCode.DYNAMIC_SHAPE,
            f"a slice from {start} to {stop} by {step} of a size that is known in "
            "runs only",
        )
    return start, None


_MODES: Final = {"constant": "constant", "reflect": "reflect", "edge": "edge"}


@lowers("Pad")
def _pad(call: Call) -> Value:
    x = call.operand(0)
    mode = call.attribute("mode", "constant")
    if mode not in _MODES:
        raise call.refuse_attribute("mode", ", ".join(_MODES))
    value: Any = call.attribute("value", 0.0)
    before_11 = call.attribute("pads", call.attribute("paddings"))
    if call.since < 11:
        flat = list(before_11)
    else:
        flat = call.integers(1)
        value = call.content(2).item() if call.has(2) else 0
    axes = range(x.rank)
    if call.since >= 18 and call.has(3):
        axes = [front(axis, x.rank) for axis in call.integers(3)]  # type: ignore[assignment]
    half = len(flat) // 2
    pads = [(0, 0)] * x.rank
    for axis, before, after in zip(axes, flat[:half], flat[half:], strict=True):
        pads[axis] = before, after
    for axis, (before, after) in enumerate(pads):
        if min(before, after) < 0:
            size = numbers(x.shape)[axis]
            start, stop = max(-before, 0), size - max(-after, 0)
            x = call.build.between(x, axis, start, stop)
            pads[axis] = max(before, 0), max(after, 0)
    if not any(map(any, pads)):
        return x
    if mode == "reflect":
        for pair, there in zip(pads, numbers(x.shape), strict=True):
            if max(pair) >= there:
                raise Refused(
                    ep.RefusalCode.ATTRIBUTE,
                    f"reflects {max(pair)} elements of {there}",
                )
    return call.build("pad", x, mode=mode, pads=tuple(pads), value=value)


@lowers("DepthToSpace", "SpaceToDepth")
def _blocks(call: Call) -> Value:
    build, x = call.build, call.operand(0)
    n, c, h, w = numbers(x.shape)
    b, mode = call.attribute("blocksize"), call.attribute("mode", "DCR")
    if call.op_type == "SpaceToDepth":
        # [n, c, h/b, b, w/b, b], in tensors of 5 dimensions and less, to [n, b, b, c,
        # h/b, w/b], or to [n, c, b, b, h/b, w/b]
        x = build.reshape(x, (n * c, h // b, b, w))
        x = build.transpose(x, (0, 2, 1, 3))
        x = build.reshape(x, (n, c, b * (h // b), w // b, b))
        x = build.transpose(x, (0, 4, 1, 2, 3))
        x = build.reshape(x, (n * b, c, b, (h // b) * (w // b)))
        x = build.transpose(x, (0, 2, 1, 3))
        x = build.reshape(x, (n, b, b, c * (h // b) * (w // b)))
        x = build.transpose(x, (0, 2, 1, 3))
        if mode == "CRD":
            x = build.reshape(x, (n, b * b, c, (h // b) * (w // b)))
            x = build.transpose(x, (0, 2, 1, 3))
        return build.reshape(x, (n, b * b * c, h // b, w // b))
    m = c // (b * b)
    if mode == "CRD":
        # [n, m, b, b, h, w]
        x = build.reshape(x, (n * m, b, b, h * w))
        x = build.transpose(x, (0, 1, 3, 2))
        x = build.reshape(x, (n * m, b, h, w * b))
        x = build.transpose(x, (0, 2, 1, 3))
        return build.reshape(x, (n, m, h * b, w * b))
    # [n, b, b, m, h, w]
    x = build.reshape(x, (n * b, b, m * h, w))
    x = build.transpose(x, (0, 2, 3, 1))
    x = build.reshape(x, (n, b, m * h, w * b))
    x = build.transpose(x, (0, 2, 1, 3))
    return build.reshape(x, (n, m, h * b, w * b))


@lowers("Trilu")
def _triangle(call: Call) -> Value:
    build, x = call.build, call.operand(0)
    k = call.integers(1)[0] if call.has(1) else 0
    rows, columns = numbers(x.shape[-2:])
    inside = np.tri(rows, columns, k if not call.attribute("upper", 1) else k - 1)
    mask = inside.astype(np.bool_)
    if call.attribute("upper", 1):
        mask = ~mask
    if x.dtype is ep.DataType.BOOL:
        return build("logical_and", x, build.constant(mask))
    return build("select", build.constant(mask), x, build.scalar(0, x.dtype))


def merged(build: Builder, x: Value, first: int, last: int) -> Value:
    """*x* with its dimensions from *first* up to *last*, not included, as one."""
    shape = (*x.shape[:first], product(x.shape[first:last]), *x.shape[last:])
    return build.reshape(x, shape)
