"""Elements chosen by their size, places told by indices, and sequences reversed."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from onnxplug import ep
from onnxplug_directml.abi.directml import DML_AXIS_DIRECTION
from onnxplug_directml.lowering.builder import Builder, Refused, Result, Value
from onnxplug_directml.lowering.call import Call, lowers
from onnxplug_directml.lowering.operators.borders import padded
from onnxplug_directml.lowering.operators.gathering import around
from onnxplug_directml.lowering.operators.limits import held
from onnxplug_directml.lowering.operators.normalization import require_rank

_INDICES: Final = (
    ep.DataType.INT64,
    ep.DataType.INT32,
    ep.DataType.UINT64,
    ep.DataType.UINT32,
)
"""The types of indices that DirectML takes."""


@lowers("TopK")
def _top_k(call: Call) -> tuple[Value, ...]:
    call.ignore("sorted")  # they may be sorted where they need not
    build, x = call.build, call.operand(0)
    axis = call.axis(x.rank, -1)
    (count,) = [call.required("k")] if call.since < 10 else call.integers(1)
    if not 0 < count <= x.shape[axis]:
        raise Refused(ep.RefusalCode.OTHER, f"the first {count} of {x.shape[axis]}")
    largest = bool(call.attribute("largest", 1))
    outer, size, inner = around(x.shape, axis)
    rows = build.reshape(x, (outer, size, inner))
    if count == size:
        # DirectML chooses fewer than there are
        last = _last(x.dtype, largest)
        rows = padded(build, rows, (0, 0, 0), (0, 1, 0), last)
    chosen = (outer, count, inner)
    values, indices = build.several(
        "TOP_K1", InputTensor=rows, OutputValueTensor=Result(x.dtype, chosen),
        OutputIndexTensor=Result(ep.DataType.UINT32, chosen), Axis=1, K=count,
        AxisDirection=DML_AXIS_DIRECTION.DECREASING
        if largest
        else DML_AXIS_DIRECTION.INCREASING,
    )  # fmt: skip
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
    places = build.cast(indices, ep.DataType.INT64)
    return build.reshape(values, shape), build.reshape(places, shape)


def _last(dtype: ep.DataType, largest: bool) -> float:
    """What no other number comes after, in the order of the largest or smallest."""
    kind = np.dtype(dtype.numpy)
    if kind.kind == "f":
        return -math.inf if largest else math.inf
    limits = np.iinfo(kind)
    return int(limits.min if largest else limits.max)


@lowers("OneHot")
def _one_hot(call: Call) -> Value:
    build, indices = call.build, call.operand(0)
    if indices.dtype not in _INDICES:
        indices = build.cast(indices, ep.DataType.INT32)
    shape = call.output_shape()
    outer, depth, inner = around(shape, call.axis(len(shape), -1))
    values = call.operand(2)
    found = build(
        "ONE_HOT", IndicesTensor=build.reshape(indices, (outer, 1, inner)),
        ValuesTensor=build.reshape(values, (1, 1, 2)),
        OutputTensor=Result(values.dtype, (outer, depth, inner)), Axis=1,
    )  # fmt: skip
    return build.reshape(found, shape)


@lowers("ReverseSequence")
def _reverse_sequence(call: Call) -> Value:
    call.require_rank(1, 1)
    build, x = call.build, call.operand(0)
    require_rank(x, 2)
    time, batch = call.axis(x.rank, 0, "time_axis"), call.axis(x.rank, 1, "batch_axis")
    if {time, batch} != {0, 1}:
        raise call.refuse_attribute("time_axis", "0 and 1, batch_axis being the other")
    inner = math.prod(x.shape[2:])
    rows = build.reshape(x, (1, *x.shape[:2], inner))
    found = build(
        "REVERSE_SUBSEQUENCES", InputTensor=rows, Axis=1 + time,
        SequenceLengthsTensor=_lengths(build, call.operand(1), rows, 1 + time),
        OutputTensor=Result(x.dtype, rows.shape),
    )  # fmt: skip
    return build.reshape(found, x.shape)


def _lengths(build: Builder, lengths: Value, rows: Value, time: int) -> Value:
    """A length for each sequence of *rows* [1, …, inner] along *time*."""
    most = rows.shape[time]
    wrong = f"a length of a sequence is out of range; takes 0 to {most}"
    lengths = held(build, lengths, 0, most + 1, wrong)
    shape = [1] * rows.rank
    batch = 3 - time
    shape[batch] = lengths.size
    each = build.reshape(build.cast(lengths, ep.DataType.UINT32), shape)
    wanted = [1 if axis == time else size for axis, size in enumerate(rows.shape)]
    # packed, as the elements of one sequence are not broadcast in the documentation
    return build.packed(build.broadcast_to(each, wanted))
