"""Pools."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from onnxplug import ep
from onnxplug_directml.abi.directml import DML_TENSOR_DATA_TYPE
from onnxplug_directml.lowering.builder import Builder, Refused, Result, Value
from onnxplug_directml.lowering.call import Call, lowers
from onnxplug_directml.lowering.operators.arithmetic import power
from onnxplug_directml.lowering.operators.normalization import require_rank
from onnxplug_directml.lowering.operators.reduction import reduced
from onnxplug_directml.lowering.windows import Windows, lifted, lifted_shape, windows_of


@lowers("AveragePool")
def _average_pool(call: Call) -> Value:
    build, x = call.build, call.operand(0)
    stated = _windows(call, x)
    windows = _to_size(call, stated, x)
    with_padding = bool(call.attribute("count_include_pad", 0))
    fields: dict[str, Any] = {"IncludePadding": with_padding}
    made = _pooled(call, "AVERAGE_POOLING", x, windows, fields)
    if with_padding and windows != stated:
        made = build.binary(
            "ELEMENT_WISE_MULTIPLY", made, _corrections(call, x, stated)
        )
    return made


def _corrections(call: Call, x: Value, windows: Windows) -> Value:
    """By window: the elements that it has, over those that count.

    What ``ceil_mode`` has windows reach beyond the padding does not count.
    """
    factors = np.ones((1, 1), np.float64)
    shape = call.output_shape()
    for axis, size in enumerate(x.shape[2:]):
        limit = size + windows.starts[axis] + windows.ends[axis]
        there = np.arange(windows.sizes[axis]) * windows.dilations[axis]
        first = np.arange(shape[axis + 2]) * windows.strides[axis]
        counts = (first[:, None] + there[None] < limit).sum(1)
        factors = factors[..., None] * (windows.sizes[axis] / counts)
    return call.build.constant(factors.astype(x.dtype.numpy))


@lowers("LpPool")
def _lp_pool(call: Call) -> Value:
    build, x = call.build, call.operand(0)
    windows = _to_size(call, _windows(call, x), x)
    p = _order(call)
    if p % 2:  # the documented sum is of powers as they are
        x = build.unary("ELEMENT_WISE_ABS", x)
    return _pooled(call, "LP_POOLING", x, windows, {"P": p})


def _order(call: Call) -> int:
    found = call.attribute("p", 2)
    if not (math.isfinite(found) and found == int(found) and found >= 1):
        raise call.refuse_attribute("p", "natural numbers")
    return int(found)


@lowers("MaxPool")
def _max_pool(call: Call) -> Sequence[Value | None]:
    build, x = call.build, call.operand(0)
    windows = _to_size(call, _windows(call, x), x)
    there = windows.lifted()
    shape = call.output_shape()
    fields: dict[str, Any] = _fields(there)
    wants_places = call.wants(1)
    order = call.attribute("storage_order", 0)
    if wants_places and order:
        raise call.refuse_attribute("storage_order", "0 where indices are wanted")
    if wants_places:
        fields["OutputIndicesTensor"] = Result(_place_type(build), lifted_shape(shape))
    made = build.several(
        "MAX_POOLING2", InputTensor=lifted(build, x),
        OutputTensor=Result(x.dtype, lifted_shape(shape)),
        Dilations=there.dilations, **fields,
    )  # fmt: skip
    found = [build.reshape(value, shape) for value in made]
    if not wants_places:
        return found
    return [found[0], _as_int64(build, found[1])]


def _place_type(build: Builder) -> ep.DataType:
    """That of indices: of 64 bits if the device has it."""
    has_long = DML_TENSOR_DATA_TYPE.UINT64 in build.target.data_types
    return ep.DataType.UINT64 if has_long else ep.DataType.UINT32


def _as_int64(build: Builder, places: Value) -> Value:
    if places.dtype is ep.DataType.UINT64:  # none is as large as the sign
        return build.reinterpret(places, ep.DataType.INT64)
    return build.cast(places, ep.DataType.INT64)


def _windows(call: Call, x: Value) -> Windows:
    sizes = call.attribute("kernel_shape")
    if sizes is None or len(sizes) != x.rank - 2:
        raise call.refuse_attribute("kernel_shape", f"{x.rank - 2} numbers")
    return windows_of(call, sizes, x.shape[2:])


def _to_size(call: Call, windows: Windows, x: Value) -> Windows:
    """Windows that are as many as the output has elements.

    DirectML has no ``ceil_mode``: what it reaches beyond the padding is padding, too.
    """
    call.ignore("ceil_mode")
    ends = []
    for axis, (size, wanted) in enumerate(
        zip(x.shape[2:], call.output_shape()[2:], strict=True)
    ):
        reach = (wanted - 1) * windows.strides[axis] + windows.reaches[axis]
        lacking = reach - size - windows.starts[axis] - windows.ends[axis]
        ends.append(windows.ends[axis] + max(lacking, 0))
        if lacking <= -windows.strides[axis]:
            raise Refused(
                ep.RefusalCode.OTHER, "has more windows than elements come out"
            )
    found = tuple(ends)
    return windows if found == windows.ends else replace(windows, ends=found)


def _fields(windows: Windows) -> dict[str, Any]:
    return {
        "Strides": windows.strides,
        "WindowSize": windows.sizes,
        "StartPadding": windows.starts,
        "EndPadding": windows.ends,
    }


def _pooled(
    call: Call, operator: str, x: Value, windows: Windows, fields: dict[str, Any]
) -> Value:
    """A pool; where there are gaps in windows, by the operator's later version."""
    build, shape, there = call.build, call.output_shape(), windows.lifted()
    if max(there.dilations) > 1:
        operator, fields = f"{operator}1", {**fields, "Dilations": there.dilations}
    made = build(
        operator, InputTensor=lifted(build, x),
        OutputTensor=Result(x.dtype, lifted_shape(shape)), **_fields(there), **fields,
    )  # fmt: skip
    return build.reshape(made, shape)


_GLOBAL: Final = {"GlobalAveragePool": "AVERAGE", "GlobalMaxPool": "MAX"}


@lowers(*_GLOBAL)
def _global_pool(call: Call) -> Value:
    x = call.operand(0)
    require_rank(x, 3)
    axes = range(2, x.rank)
    return reduced(call.build, _GLOBAL[call.op_type], x, axes, keep=True)


@lowers("GlobalLpPool")
def _global_lp_pool(call: Call) -> Value:
    build, x = call.build, call.operand(0)
    require_rank(x, 3)
    axes, p = range(2, x.rank), _order(call)
    if p <= 2:
        return reduced(build, f"L{p}", x, axes, keep=True)
    powers = power(build, build.unary("ELEMENT_WISE_ABS", x), float(p))
    return power(build, reduced(build, "SUM", powers, axes, keep=True), 1 / p)
