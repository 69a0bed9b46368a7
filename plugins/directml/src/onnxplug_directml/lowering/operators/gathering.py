"""Elements read at indices.

Indices that are known are held against the sizes here.  Of those that are computed
DirectML counts negative ones from the end, and does not say what it reads where one is
out of range: there a run fails, by a check in the graph.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from onnxplug import ep
from onnxplug_directml.lowering.builder import Builder, Refused, Result, Value
from onnxplug_directml.lowering.call import Call, lowers
from onnxplug_directml.lowering.operators.limits import held
from onnxplug_directml.lowering.operators.pieces import cut

_INDICES: Final = (ep.DataType.INT64, ep.DataType.INT32)
_MOST_PLACES: Final = 1 << 24


@lowers("Gather")
def _gather(call: Call) -> Value:
    x = call.operand(0)
    axis = call.axis(x.rank)
    indices = indices_of(call, 1, x.shape[axis])
    found = gathered(call.build, x, axis, indices)
    return call.build.reshape(found, call.output_shape())


def refuse_long(count: float) -> None:
    """Refuse to have so many places along an axis told by a constant.

    Raises:
        Refused: they are too many.
    """
    if count > _MOST_PLACES:
        raise Refused(
            ep.RefusalCode.OTHER,
            f"an axis of {count:g} elements, each told where it comes from; takes "
            f"{_MOST_PLACES}",
        )


def taken(build: Builder, x: Value, axis: int, indices: Any) -> Value:
    """*x* at known *indices*, an array of rank 1, along an axis."""
    found = gathered(build, x, axis, build.constant(indices.astype(np.uint32)))
    return build.reshape(found, (*x.shape[:axis], indices.size, *x.shape[axis + 1 :]))


def gathered(build: Builder, x: Value, axis: int, indices: Value) -> Value:
    """*x* at *indices* along an axis, as [outer, indices, inner]."""
    outer, size, inner = around(x.shape, axis)
    return build(
        "GATHER", InputTensor=build.reshape(x, (outer, size, inner)),
        IndicesTensor=build.reshape(indices, (1, 1, indices.size)),
        OutputTensor=Result(x.dtype, (outer, indices.size, inner)),
        Axis=1, IndexDimensions=1,
    )  # fmt: skip


def around(shape: tuple[int, ...], axis: int) -> tuple[int, int, int]:
    """The elements in front of an axis, along it and behind it."""
    return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])


def indices_of(call: Call, position: int, size: int) -> Value:
    """Indices along an axis of *size*.

    Raises:
        Refused: one that is known is out of range.
    """
    call.require_type(position, *_INDICES)
    known = call.known(position)
    if known is None:
        return _checked(call, call.operand(position), np.array(size))
    return call.build.constant(_within(known, size))


def _checked(call: Call, indices: Value, sizes: Any) -> Value:
    """Computed *indices*, which runs hold against *sizes*."""
    wrong = f"an index is out of range; sizes are {sizes}"
    return held(call.build, indices, -sizes, sizes, wrong)


def _within(indices: Any, size: Any) -> Any:
    """Known *indices* counted from the front, as uint32."""
    outside = (indices < -size) | (indices >= size)
    if outside.any():
        raise Refused(
            ep.RefusalCode.OTHER,
            f"index {indices[outside].flat[0]} is out of range; sizes are {size}",
        )
    return np.where(indices < 0, indices + size, indices).astype(np.uint32)


@lowers("GatherElements")
def _gather_elements(call: Call) -> Value:
    build, x = call.build, call.operand(0)
    axis = call.axis(x.rank)
    indices = indices_of(call, 1, x.shape[axis])
    x = covered(build, x, axis, indices.shape)
    return call.build.reshape(
        gathered_elements(build, x, axis, indices), call.output_shape()
    )


def covered(build: Builder, x: Value, axis: int, shape: tuple[int, ...]) -> Value:
    """The part of *x* that indices of *shape* can reach along an axis.

    In other dimensions ONNX lets there be fewer indices than elements, and DirectML
    does not.
    """
    return cut(
        build,
        x,
        [slice(None if each == axis else size) for each, size in enumerate(shape)],
    )


def gathered_elements(build: Builder, x: Value, axis: int, indices: Value) -> Value:
    """*x* at *indices* along an axis, as [outer, indices, inner]."""
    outer, size, inner = around(x.shape, axis)
    shape = (outer, indices.shape[axis], inner)
    return build(
        "GATHER_ELEMENTS", InputTensor=build.reshape(x, (outer, size, inner)),
        IndicesTensor=build.reshape(indices, shape),
        OutputTensor=Result(x.dtype, shape), Axis=1,
    )  # fmt: skip


@lowers("GatherND")
def _gather_nd(call: Call) -> Value:
    x = call.operand(0)
    batch = call.attribute("batch_dims", 0)
    given = call.shape(1)
    if not 0 <= batch < min(x.rank, len(given)) or x.shape[:batch] != given[:batch]:
        raise call.refuse_attribute(
            "batch_dims", f"dimensions that {list(x.shape)} and {list(given)} share"
        )
    indices = tuples_of(call, 1, x.shape[batch:])
    found = gathered_slices(call.build, x, indices, batch)
    return call.build.reshape(found, call.output_shape())


def tuples_of(call: Call, position: int, shape: tuple[int, ...]) -> Value:
    """Tuples of indices into the first dimensions of *shape*.

    Raises:
        Refused: one that is known is out of range.
    """
    count = call.shape(position)[-1] if call.shape(position) else 0
    if not 0 < count <= len(shape):
        raise Refused(
            ep.RefusalCode.OTHER, f"{count} indices into {list(shape)}; takes 1 or more"
        )
    call.require_type(position, *_INDICES)
    known, sizes = call.known(position), np.array(shape[:count])
    if known is None:
        return _checked(call, call.operand(position), sizes)
    return call.build.constant(_within(known, sizes))


def gathered_slices(build: Builder, x: Value, indices: Value, batch: int) -> Value:
    """The slices of *x* that tuples of indices tell, as [batches, tuples, slice].

    Args:
        batch: how many dimensions both have in common.
    """
    count = indices.shape[-1]
    batches = math.prod(x.shape[:batch])
    indexed, inner = x.shape[batch : batch + count], math.prod(x.shape[batch + count :])
    tuples = math.prod(indices.shape[batch:-1])
    rank = count + 2
    return build.reshape(
        build(
            "GATHER_ND1",
            InputTensor=build.at_rank(
                build.reshape(x, (batches, *indexed, inner)), rank
            ),
            IndicesTensor=build.at_rank(
                build.reshape(indices, (batches, tuples, count)), rank
            ),
            OutputTensor=Result(x.dtype, (1,) * (rank - 3) + (batches, tuples, inner)),
            InputDimensionCount=count + 2, IndicesDimensionCount=3,
            BatchDimensionCount=1,
        ),
        (batches, tuples, inner),
    )  # fmt: skip
