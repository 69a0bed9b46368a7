"""Reductions along dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from onnxplug import ep
from onnxplug_directml.abi.directml import DML_AXIS_DIRECTION, DML_REDUCE_FUNCTION
from onnxplug_directml.lowering.builder import Builder, Refused, Result, Value
from onnxplug_directml.lowering.call import FLOATS, Call, front, lowers

_FUNCTIONS: Final = {
    "ReduceL1": "L1", "ReduceL2": "L2", "ReduceLogSum": "LOG_SUM",
    "ReduceMax": "MAX", "ReduceMean": "AVERAGE", "ReduceMin": "MIN",
    "ReduceProd": "MULTIPLY", "ReduceSum": "SUM", "ReduceSumSquare": "SUM_SQUARE",
}  # fmt: skip
_WIDE: Final = frozenset(
    {
        *FLOATS, ep.DataType.INT64, ep.DataType.INT32, ep.DataType.UINT64,
        ep.DataType.UINT32,
    }
)  # fmt: skip
_TAKEN: Final = {
    **dict.fromkeys(("AVERAGE", "L2", "LOG_SUM", "LOG_SUM_EXP"), frozenset(FLOATS)),
    **dict.fromkeys(("L1", "SUM_SQUARE", "MULTIPLY", "SUM"), _WIDE),
}
"""The types that functions take; others take all."""


@lowers(*_FUNCTIONS)
def _reduce(call: Call) -> Value:
    x = call.operand(0)
    axes = _axes(call, x.rank)
    keep = call.attribute("keepdims", 1)
    if axes is None:
        return _alone(call.build, _FUNCTIONS[call.op_type], x)
    return reduced(call.build, _FUNCTIONS[call.op_type], x, axes, keep=bool(keep))


def _alone(build: Builder, function: str, x: Value) -> Value:
    """What a function makes of each element alone, where no axis is reduced.

    Raises:
        Refused: the function does not take the type.
    """
    _require_taken(function, x.dtype)
    if function in ("L1", "L2"):
        return build.unary("ELEMENT_WISE_ABS", x)
    if function == "SUM_SQUARE":
        return build.binary("ELEMENT_WISE_MULTIPLY", x, x)
    return build.unary("ELEMENT_WISE_LOG", x) if function == "LOG_SUM" else x


@lowers("ReduceLogSumExp")
def _reduce_log_sum_exp(call: Call) -> Value:
    """Less the largest, which is added in the end, so that nothing overflows."""
    build, x = call.build, call.operand(0)
    axes = _axes(call, x.rank)
    keep = bool(call.attribute("keepdims", 1))
    if axes is None:
        return x
    largest = reduced(build, "MAX", x, axes, keep=True)
    infinite = build(
        "ELEMENT_WISE_IS_INFINITY", InputTensor=largest,
        OutputTensor=Result(ep.DataType.BOOL, largest.shape),
    )  # fmt: skip
    largest = build.select(infinite, build.scalar(0, x.dtype), largest)
    left = build.binary("ELEMENT_WISE_SUBTRACT", x, largest)
    found = reduced(build, "LOG_SUM_EXP", left, axes, keep=True)
    total = build.binary("ELEMENT_WISE_ADD", found, largest)
    return total if keep else build.reshape(total, _without(x, axes))


def _axes(call: Call, rank: int) -> list[int] | None:
    """The axes to reduce; ``None`` if there are none to be."""
    listed = call.attribute("axes")
    if listed is None and call.has(1):
        listed = call.integers(1)
    if not listed:
        return None if call.attribute("noop_with_empty_axes", 0) else list(range(rank))
    call.ignore("noop_with_empty_axes")
    return sorted({front(axis, rank) for axis in listed})


def reduced(
    build: Builder, function: str, x: Value, axes: Sequence[int], *, keep: bool
) -> Value:
    """*x* reduced along axes.

    Args:
        function: a member of ``DML_REDUCE_FUNCTION``.
        keep: the axes stay, with a size of 1.
    """
    _require_taken(function, x.dtype)
    ones = tuple(1 if i in axes else size for i, size in enumerate(x.shape))
    if not x.shape:  # DirectML sees one dimension
        axes, ones = [0], ()
    made = build(
        "REDUCE", Function=DML_REDUCE_FUNCTION[function], InputTensor=x,
        OutputTensor=Result(x.dtype, ones), Axes=tuple(axes),
    )  # fmt: skip
    return made if keep else build.reshape(made, _without(x, axes))


def _require_taken(function: str, dtype: ep.DataType) -> None:
    taken = _TAKEN.get(function)
    if taken is not None and dtype not in taken:
        raise Refused(
            ep.RefusalCode.DTYPE,
            f"{function} of {dtype}; DirectML takes {', '.join(sorted(taken))}",
        )


def _without(x: Value, axes: Sequence[int]) -> tuple[int, ...]:
    return tuple(size for i, size in enumerate(x.shape) if i not in axes)


@lowers("ArgMax", "ArgMin")
def _arg(call: Call) -> Value:
    build, x = call.build, call.operand(0)
    axis = call.axis(x.rank, 0)
    last = call.attribute("select_last_index", 0)
    keep = call.attribute("keepdims", 1)
    shape = tuple(1 if i == axis else size for i, size in enumerate(x.shape))
    made = build(
        call.op_type.upper(), InputTensor=x,
        OutputTensor=Result(ep.DataType.INT64, shape), Axes=(axis,),
        AxisDirection=DML_AXIS_DIRECTION.DECREASING if last
        else DML_AXIS_DIRECTION.INCREASING,
    )  # fmt: skip
    return made if keep else build.reshape(made, _without(x, [axis]))


@lowers("CumSum", "CumProd")
def _cumulative(call: Call) -> Value:
    x = call.operand(0)
    (axis,) = call.integers(1)
    is_sum = call.op_type == "CumSum"
    exclusive = "HasExclusiveSum" if is_sum else "HasExclusiveProduct"
    fields = {
        "Axis": front(axis, x.rank),
        "AxisDirection": DML_AXIS_DIRECTION.DECREASING
        if call.attribute("reverse", 0)
        else DML_AXIS_DIRECTION.INCREASING,
        exclusive: call.attribute("exclusive", 0),
    }
    kind = "SUMMATION" if is_sum else "PRODUCT"
    return call.build.unary(f"CUMULATIVE_{kind}", x, **fields)
