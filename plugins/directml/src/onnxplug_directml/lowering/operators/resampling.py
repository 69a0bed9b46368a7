"""Resize, and the upsampling that it replaced.

Where elements lie, and with which weights they are read, is computed here and exactly,
as the CPU EP has it.  Elements that are only chosen are gathered.  ``RESAMPLE2`` is
given what it can express: straight lines between two neighbours, evenly spaced.  The
rest, such as cubic curves, are products with a matrix of weights for each axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from onnxplug import ep
from onnxplug_directml.abi.directml import (
    DML_AXIS_DIRECTION,
    DML_INTERPOLATION_MODE,
    DML_OPERATOR_TYPE,
    DML_ROUNDING_MODE,
)
from onnxplug_directml.lowering.builder import Builder, Refused, Result, Value
from onnxplug_directml.lowering.call import FLOATS, Call, lowers
from onnxplug_directml.lowering.operators.gathering import around, refuse_long, taken
from onnxplug_directml.lowering.operators.product import matmul
from onnxplug_directml.lowering.support import SUPPORT
from onnxplug_kernels.resize import ResizedAxis, resized_axes, upsampled_axes

_RESAMPLED_RANK: Final = 4
_MOST_WEIGHTS: Final = 1 << 24
"""Of a matrix, which is a constant of the graph."""


@lowers("Upsample")
def _upsample(call: Call) -> Value:
    if call.since < 7:
        factors = (call.required("height_scale"), call.required("width_scale"))
        return _scaled(call, (1.0, 1.0, *factors))
    if call.since < 9:
        return _scaled(call, call.required("scales"))
    return _scaled(call, _row(call, 1).tolist())


@lowers("Resize")
def _resize(call: Call) -> Value:
    if call.since < 11:
        return _scaled(call, _row(call, 1).tolist())
    names = (
        "antialias", "axes", "coordinate_transformation_mode", "cubic_coeff_a",
        "exclude_outside", "keep_aspect_ratio_policy", "mode", "nearest_mode",
    )  # fmt: skip
    given = {name: call.attribute(name) for name in names}
    beyond = call.attribute("extrapolation_value", 0.0)
    crops = given["coordinate_transformation_mode"] == "tf_crop_and_resize"
    roi = call.content(1) if crops and call.has(1) else None
    scales, sizes = (_row(call, at) if call.has(at) else None for at in (2, 3))
    if sizes is not None and sizes.size:
        refuse_long(sizes.max())
    elif scales is not None and scales.size:
        refuse_long(max(call.shape(0)) * scales.max())
    try:
        axes = resized_axes(
            np, call.shape(0), roi, scales, sizes,
            **{name: value for name, value in given.items() if value is not None},
        )  # fmt: skip
    except ValueError as error:
        raise Refused(ep.RefusalCode.ATTRIBUTE, str(error)) from error
    return _resampled(call, axes, beyond)


def _row(call: Call, position: int) -> Any:
    """A list of numbers.

    Raises:
        Refused: it is computed, or no list.
    """
    call.require_rank(position, 1)
    return call.content(position)


def _scaled(call: Call, scales: Sequence[float]) -> Value:
    mode = call.attribute("mode", "nearest")
    refuse_long(max(call.shape(0)) * max(scales))
    try:
        axes = upsampled_axes(np, call.shape(0), scales, mode)
    except ValueError as error:
        raise Refused(ep.RefusalCode.ATTRIBUTE, str(error)) from error
    return _resampled(call, axes, 0.0)


def _resampled(call: Call, axes: Sequence[ResizedAxis], beyond: float) -> Value:
    build, x = call.build, call.operand(0)
    if all(weight is None for axis in axes for _, weight in axis.taps):
        found = _chosen(build, x, axes)
    else:
        found = _read(build, x, axes)
    for axis in axes:
        if axis.beyond is not None and axis.beyond.any():
            found = _outside(build, found, axis, beyond)
    return found


# elements that are only chosen


def _chosen(build: Builder, x: Value, axes: Sequence[ResizedAxis]) -> Value:
    repeats = {
        axis.axis: _repeats(axis.taps[0][0], x.shape[axis.axis]) for axis in axes
    }
    if all(repeats.values()):
        return _repeated(build, x, repeats)
    for axis in axes:
        x = taken(build, x, axis.axis, axis.taps[0][0])
    return x


def _repeats(indices: Any, size: int) -> int:
    """How often each of *size* elements is chosen in turn; 0 if it is otherwise."""
    times = len(indices) // size
    if times * size != len(indices):
        return 0
    return times if (indices == np.arange(len(indices)) // times).all() else 0


def _repeated(build: Builder, x: Value, repeats: dict[int, int]) -> Value:
    """*x* with the elements along axes repeated, by strides of 0 and one copy."""
    spread, wanted, shape = [], [], []
    for axis, size in enumerate(x.shape):
        times = repeats.get(axis, 1)
        shape.append(size * times)
        spread += [size] if times == 1 else [size, 1]
        wanted += [size] if times == 1 else [size, times]
    return build.reshape(build.broadcast_to(build.reshape(x, spread), wanted), shape)


# elements that are weighted


def _read(build: Builder, x: Value, axes: Sequence[ResizedAxis]) -> Value:
    dtype = x.dtype
    if dtype not in (*FLOATS, ep.DataType.UINT8, ep.DataType.INT8):
        raise Refused(
            ep.RefusalCode.DTYPE,
            f"weighs {dtype}; takes floats and integers of 8 bits, since DirectML "
            "weighs in float32",
        )
    if dtype not in FLOATS:
        x = build.cast(x, ep.DataType.FLOAT32)
    lines = [_line(axis, x.shape[axis.axis]) for axis in axes]
    shape = _merged(x.shape, [axis.axis for axis in axes])
    if (
        all(line is not None for line in lines)
        and len(shape) <= _RESAMPLED_RANK
        and _has_resample(build)
    ):
        found = _resample(build, x, axes, [line for line in lines if line])
    else:
        found = x
        for axis in axes:
            found = _weighted(build, found, axis)
    return found if found.dtype is dtype else _rounded(build, found, dtype)


def _has_resample(build: Builder) -> bool:
    return build.target.level >= SUPPORT[DML_OPERATOR_TYPE.RESAMPLE2][0].level


def _weights(axis: ResizedAxis) -> list[tuple[Any, Any]]:
    """By tap its indices and weights; elements that are chosen have all of it."""
    return [
        (index, np.ones(len(index)) if weight is None else weight)
        for index, weight in axis.taps
    ]


def _line(axis: ResizedAxis, size: int) -> tuple[float, float] | None:
    """Where the first element lies and how far the next is, if lines say it all.

    ``None`` unless each element is read between two neighbours, evenly spaced, with the
    outermost ones going on beyond the edges.
    """
    if len(axis.taps) != 2:
        return None
    (low, near), (high, far) = _weights(axis)
    if not np.allclose(near + far, 1, atol=1e-9):
        return None
    at = low + far * (high - low)
    inner = np.flatnonzero(high > low)
    if not len(inner):
        return None
    first, last = inner[0], inner[-1]
    step = (at[last] - at[first]) / (last - first) if last > first else 1.0
    start = at[first] - first * step
    expected = np.clip(start + step * np.arange(len(at)), 0, size - 1)
    if step <= 0 or not np.allclose(at, expected, atol=1e-6):
        return None
    return float(start), float(step)


def _merged(shape: Sequence[int], axes: Sequence[int]) -> list[int]:
    """*shape* with the dimensions in between *axes* merged."""
    merged: list[int] = []
    mergeable = False
    for axis, size in enumerate(shape):
        if axis in axes:
            merged.append(size)
            mergeable = False
        elif mergeable:
            merged[-1] *= size
        else:
            merged.append(size)
            mergeable = True
    return merged


def _resample(
    build: Builder,
    x: Value,
    axes: Sequence[ResizedAxis],
    lines: Sequence[tuple[float, float]],
) -> Value:
    wanted = list(x.shape)
    starts, steps = [0.0] * x.rank, [1.0] * x.rank
    for axis, (start, step) in zip(axes, lines, strict=True):
        wanted[axis.axis] = len(axis.taps[0][0])
        starts[axis.axis], steps[axis.axis] = start, step
    chosen = [axis.axis for axis in axes]
    kept = _representatives(x.rank, chosen)
    found = build(
        "RESAMPLE2",
        InputTensor=build.reshape(x, _merged(x.shape, chosen)),
        OutputTensor=Result(x.dtype, tuple(_merged(wanted, chosen))),
        InterpolationMode=DML_INTERPOLATION_MODE.LINEAR,
        RoundingDirection=DML_AXIS_DIRECTION.DECREASING,
        Scales=tuple(1 / steps[axis] for axis in kept),
        InputPixelOffsets=tuple(-starts[axis] for axis in kept),
        OutputPixelOffsets=(0.0,) * len(kept),
    )
    return build.reshape(found, wanted)


def _representatives(rank: int, axes: Sequence[int]) -> list[int]:
    """An axis for each dimension that :func:`_merged` leaves."""
    return [
        axis for axis in range(rank) if axis in axes or axis == 0 or axis - 1 in axes
    ]


def _weighted(build: Builder, x: Value, axis: ResizedAxis) -> Value:
    """*x* read along an axis by a product with the weights of its elements."""
    outer, size, inner = around(x.shape, axis.axis)
    wanted = len(axis.taps[0][0])
    if size * wanted > _MOST_WEIGHTS:
        raise Refused(
            ep.RefusalCode.OTHER,
            f"weights of {wanted} elements among {size}; takes {_MOST_WEIGHTS} weights",
        )
    weights = np.zeros((wanted, size))
    for index, weight in _weights(axis):
        np.add.at(weights, (np.arange(wanted), index), weight)
    matrix = build.constant(weights.astype(x.dtype.numpy))
    if inner == 1:
        rows = build.reshape(x, (outer, size))
        found = matmul(build, rows, build.transpose(matrix, (1, 0)))
    else:
        found = matmul(build, matrix, build.reshape(x, (outer, size, inner)))
    shape = (*x.shape[: axis.axis], wanted, *x.shape[axis.axis + 1 :])
    return build.reshape(found, shape)


def _rounded(build: Builder, x: Value, dtype: ep.DataType) -> Value:
    """Floats as the nearest integers of a type, within its limits."""
    limits = np.iinfo(dtype.numpy)
    halves = DML_ROUNDING_MODE.HALVES_TO_NEAREST_EVEN
    rounded = build.unary("ELEMENT_WISE_ROUND", x, RoundingMode=halves)
    clipped = build.unary(
        "ELEMENT_WISE_CLIP1", rounded, MinMaxDataType=build.data_type(x.dtype),
        Min=float(limits.min), Max=float(limits.max),
    )  # fmt: skip
    return build.cast(clipped, dtype)


def _outside(build: Builder, x: Value, axis: ResizedAxis, beyond: float) -> Value:
    """*x* with a number in place of what is not read from an axis at all."""
    behind = (1,) * (x.rank - 1 - axis.axis)
    outside = build.constant(np.asarray(axis.beyond).reshape(-1, *behind))
    return build.select(outside, build.scalar(beyond, x.dtype), x)
