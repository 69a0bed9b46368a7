"""Reductions, and what is found or ordered along an axis."""

from __future__ import annotations

from typing import Final

from onnxplug import ep
from onnxplug_coreml.lowering.builder import Builder, Refused
from onnxplug_coreml.lowering.call import FLOATS, NUMBERS, Call, front, lowers, numbers
from onnxplug_coreml.lowering.program import Value

_PLAIN: Final = {
    "ReduceMax": "reduce_max",
    "ReduceMean": "reduce_mean",
    "ReduceMin": "reduce_min",
    "ReduceProd": "reduce_prod",
    "ReduceSum": "reduce_sum",
}

_COMPOSED: Final = (
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceSumSquare",
)


@lowers(*_PLAIN, *_COMPOSED)
def _reduce(call: Call) -> Value:
    build, x = call.build, call.operand(0)
    keeps_order = call.op_type in ("ReduceMax", "ReduceMin")
    call.require_type(0, *(NUMBERS if keeps_order else FLOATS))
    axes, keep = _axes(call, x.rank), bool(call.attribute("keepdims", 1))
    if axes is None:
        return x

    def reduced(primitive: str, of: Value) -> Value:
        # along no axes Core AI reduces all
        return build(primitive, of, axes=axes, keep=keep) if axes else of

    match call.op_type:
        case "ReduceL1":
            return reduced("reduce_sum", build("abs", x))
        case "ReduceL2":
            return build("sqrt", reduced("reduce_sum", build("mul", x, x)))
        case "ReduceSumSquare":
            return reduced("reduce_sum", build("mul", x, x))
        case "ReduceLogSum":
            return build("log", reduced("reduce_sum", x))
        case "ReduceLogSumExp":
            return _log_sum_exp(build, x, axes, keep) if axes else x
        case _:
            return reduced(_PLAIN[call.op_type], x)


def _axes(call: Call, rank: int) -> tuple[int, ...] | None:
    """The axes to reduce; ``None`` if there is nothing to do."""
    in_input = call.since >= (13 if call.op_type == "ReduceSum" else 18)
    axes = call.attribute("axes")
    noop = call.attribute("noop_with_empty_axes", 0)
    if in_input:
        axes = call.integers(1) if call.has(1) else None
        if not axes and noop:
            if call.op_type in _COMPOSED:
                return ()
            return None
    if not axes:
        return tuple(range(rank))
    return tuple(sorted({front(axis, rank) for axis in axes}))


def _log_sum_exp(build: Builder, x: Value, axes: tuple[int, ...], keep: bool) -> Value:
    largest = build("reduce_max", x, axes=axes, keep=True)
    # infinities less themselves are not 0
    zero = build.scalar(0, x.dtype)
    finite = build("equal", build("sub", largest, largest), zero)
    base = build("select", finite, largest, zero)
    powers = build("exp", build("sub", x, base))
    total = build("log", build("reduce_sum", powers, axes=axes, keep=True))
    found = build("add", total, base)
    if keep:
        return found
    left = tuple(size for axis, size in enumerate(x.shape) if axis not in axes)
    return build.reshape(found, left)


@lowers("ArgMax", "ArgMin")
def _position(call: Call) -> Value:
    call.require_type(0, *FLOATS, ep.DataType.INT32)
    build, x = call.build, call.operand(0)
    if x.rank == 0:
        raise Refused(ep.RefusalCode.RANK, f"{call.op_type} of a scalar")
    axis = call.axis(x.rank)
    if call.op_type == "ArgMin" and x.dtype is ep.DataType.INT32:
        raise Refused(ep.RefusalCode.DTYPE, "ArgMin of int32; takes floats")
    keep = bool(call.attribute("keepdims", 1))
    primitive = "argmax" if call.op_type == "ArgMax" else "argmin"
    if call.attribute("select_last_index", 0):
        last = numbers(x.shape)[axis] - 1
        turned = build("reverse", x, axes=(axis,))
        found = build(primitive, turned, axis=axis, keep=keep)
        found = build("sub", build.scalar(last, found.dtype), found)
    else:
        found = build(primitive, x, axis=axis, keep=keep)
    return build.cast(found, build.type_of(ep.DataType.INT64))


@lowers("TopK")
def _top_k(call: Call) -> tuple[Value, Value]:
    call.require_type(0, *FLOATS, ep.DataType.INT32)
    build, x = call.build, call.operand(0)
    axis = call.axis(x.rank, -1)
    call.ignore("sorted")  # which allows any order
    k = call.attribute("k") if call.since < 10 else call.integers(1)[0]
    size = x.shape[axis]
    if isinstance(size, int) and not 0 < k <= size:
        raise Refused(ep.RefusalCode.OTHER, f"the {k} largest of {size}")
    largest = bool(call.attribute("largest", 1))
    values, where = build.several("topk", x, k=k, axis=axis, largest=largest)
    return values, build.cast(where, build.type_of(ep.DataType.INT64))


@lowers("CumSum")
def _cumulate(call: Call) -> Value:
    # where a sum of integers does not fit Core AI ends the process
    call.require_type(0, *FLOATS)
    x = call.operand(0)
    (axis,) = call.integers(1)
    return call.build(
        "cumsum",
        x,
        axis=front(axis, x.rank),
        exclusive=bool(call.attribute("exclusive", 0)),
        backward=bool(call.attribute("reverse", 0)),
    )
