"""Elements found by indices."""

from __future__ import annotations

import numpy as np

from onnxplug import ep
from onnxplug_coreml.lowering.builder import Refused
from onnxplug_coreml.lowering.call import Call, lowers, numbers
from onnxplug_coreml.lowering.program import Value


@lowers("Gather")
def _gather(call: Call) -> Value:
    build, x = call.build, call.operand(0)
    axis = call.axis(x.rank)
    known = call.known(1)
    if known is not None and known.size == 1:
        # a slice, which engines run without moving the rest
        size = numbers(x.shape)[axis]
        index = int(known.item())
        _require_inside(known, size)
        index %= size
        piece = build.between(x, axis, index, index + 1)
        return build.reshape(
            piece, x.shape[:axis] + (1,) * known.ndim + x.shape[axis + 1 :]
        )
    return build("gather", x, _indices(call, 1, numbers(x.shape)[axis]), axis=axis)


@lowers("GatherElements")
def _gather_elements(call: Call) -> Value:
    build, x = call.build, call.operand(0)
    axis = call.axis(x.rank)
    indices = _indices(call, 1, numbers(x.shape)[axis])
    for other, (size, wanted) in enumerate(
        zip(numbers(x.shape), numbers(indices.shape), strict=True)
    ):
        if other != axis:
            if wanted > size:
                raise Refused(ep.RefusalCode.OTHER, f"{wanted} indices for {size}")
            x = build.between(x, other, 0, wanted)
    return build("gather_along_axis", x, indices, axis=axis)


@lowers("GatherND")
def _gather_nd(call: Call) -> Value:
    build, x = call.build, call.operand(0)
    if call.attribute("batch_dims", 0):
        raise call.refuse_attribute("batch_dims", "0")
    depth = numbers(call.shape(1))[-1]
    sizes = np.asarray(numbers(x.shape)[:depth], np.int32)
    return build("gather_nd", x, _indices(call, 1, sizes))


@lowers("ScatterND")
def _scatter_nd(call: Call) -> Value:
    if call.attribute("reduction", "none") != "none":
        raise call.refuse_attribute("reduction", "none")
    build, x = call.build, call.operand(0)
    if x.dtype is ep.DataType.BOOL:
        raise Refused(ep.RefusalCode.DTYPE, "ScatterND of bool; takes numbers")
    depth = numbers(call.shape(1))[-1]
    sizes = np.asarray(numbers(x.shape)[:depth], np.int32)
    call.content(1)  # of those that are fed some may be the same
    return build("scatter_nd", x, _indices(call, 1, sizes), call.operand(2))


@lowers("OneHot")
def _one_hot(call: Call) -> Value:
    build = call.build
    call.require_type(0, ep.DataType.INT32, ep.DataType.INT64)
    indices, values = call.operand(0), call.operand(2)
    depth = call.integers(1)[0]
    rank = indices.rank + 1
    axis = call.axis(rank, -1)
    shape = [1] * rank
    shape[axis] = depth
    each = np.arange(depth, dtype=indices.dtype.numpy).reshape(shape)
    spread = list(indices.shape)
    spread.insert(axis, 1)
    wide = build.reshape(indices, tuple(spread))
    here = build("equal", wide, build.constant(each))
    # counted from the end, too
    back = build.constant(each - np.asarray(depth, each.dtype))
    hot = build("logical_or", here, build("equal", wide, back))
    off = build.reshape(build.between(values, 0, 0, 1), ())
    on = build.reshape(build.between(values, 0, 1, 2), ())
    return build("select", hot, on, off)


def _indices(call: Call, position: int, sizes: int | np.ndarray) -> Value:
    """Indices from the front, as int32, all of them inside.

    Those that are not constants are checked in runs, and moved inside before.

    Args:
        sizes: how many elements there are; of each dimension for the last dimension of
            indices.
    """
    build = call.build
    known = call.known(position)
    if known is not None:
        _require_inside(known, sizes)
        return build.constant(
            np.where(known < 0, known + sizes, known).astype(np.int32)
        )
    indices = call.operand(position)
    limit = build.constant(np.asarray(sizes, indices.dtype.numpy))
    zero = build.scalar(0, indices.dtype)
    back = build("less", indices, zero)
    found = build("select", back, build("add", indices, limit), indices)
    most = build.constant(np.asarray(np.asarray(sizes) - 1, indices.dtype.numpy))
    inside = build("minimum", build("maximum", found, zero), most)
    name, said = call.input_name(position), np.asarray(sizes).tolist()
    build.check_none(
        build("not_equal", inside, found),
        f"{call.describe()}: an index of {name!r} is not among {said} elements",
    )
    return build.cast(inside, ep.DataType.INT32)


def _require_inside(indices: np.ndarray, sizes: int | np.ndarray) -> None:
    if ((indices < -np.asarray(sizes)) | (indices >= sizes)).any():
        raise Refused(
            ep.RefusalCode.OTHER,
            f"a constant index is not among {np.asarray(sizes).tolist()} elements",
        )
