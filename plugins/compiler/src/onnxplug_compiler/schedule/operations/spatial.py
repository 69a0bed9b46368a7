"""Operators that read pixels between pixels.

Most models have none, so the kernels are imported when one is recorded.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from onnxplug_compiler.frontend.call import Call, NotCompiled
from onnxplug_compiler.ir.elements import INTEGERS, element_of, wide_dtype
from onnxplug_compiler.ir.formula import Formula
from onnxplug_compiler.ir.target import Support
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.schedule.copies import record_fill
from onnxplug_compiler.schedule.operations.registry import (
    Dtypes,
    Inputs,
    Operation,
    Plan,
    Results,
    computed,
    given,
    register,
)
from onnxplug_compiler.schedule.resizing import record_resampled, record_resized

if TYPE_CHECKING:
    from onnxplug_kernels.resize import ResizedAxis

_MOST_PLACES: Final = 1 << 20
"""Elements of an axis above which no table of its places is made."""

_MOST_TAPS: Final = 1 << 10
"""Elements of an axis that become one, above which no table is made: with each a few
arrays are computed."""

# Resize and Upsample

_RESIZE: Final = (
    "antialias",
    "axes",
    "coordinate_transformation_mode",
    "cubic_coeff_a",
    "exclude_outside",
    "keep_aspect_ratio_policy",
    "mode",
    "nearest_mode",
)


def _accepts_resize(call: Call, dtypes: Dtypes, target: Support) -> str | None:
    if call.op_type == "Upsample" and call.version < 7:
        return "Upsample is compiled since opset 7"
    first = dtypes[0]
    element = None if first is None else element_of(first)
    if element in target.elements(call.op_type):
        return None
    if call.attributes["mode"] == "nearest":
        is_taken = element in target.elements("Gather")
    else:
        is_summed = target.supports_step("Mul", ("f64", "f64"), "f64", {})
        is_taken = is_summed and element in INTEGERS | {"f64", "i1"}
    return None if is_taken else f"{call.op_type} is not compiled for {first}"


def _check_resize(call: Call, inputs: Inputs, results: Results) -> None:
    before, after = given(inputs).shape, given(results).shape
    if any(size > _MOST_PLACES for size in (*before, *after)):
        raise NotCompiled(f"tables for axes of {before} and {after}", call)
    if call.attributes.get("antialias") and any(
        size > _MOST_TAPS * wanted for size, wanted in zip(before, after, strict=True)
    ):
        raise NotCompiled(f"{before} is averaged to {after}", call)


def _resized(
    call: Call, shape: tuple[int, ...], contents: list[Any]
) -> list[ResizedAxis]:
    """The axes of *shape* that the call changes.

    Args:
        contents: of the inputs behind the first.
    """
    from onnxplug_kernels.resize import resized_axes, upsampled_axes

    if call.op_type == "Resize" and call.version > 10:
        roi, scales, sizes = (*contents, None, None, None)[:3]
        attributes = {name: call.attributes[name] for name in _RESIZE}
        return resized_axes(np, shape, roi, scales, sizes, **attributes)
    scales = contents[0].reshape(-1) if contents else call.attributes["scales"]
    return upsampled_axes(
        np, shape, [float(n) for n in scales], call.attributes["mode"]
    )


def _record_resize(plan: Plan, call: Call) -> None:
    source, output = call.inputs[0], call.outputs[0]
    assert source is not None and output is not None
    x = plan.view(source)
    contents = [
        None if name is None else plan.known(name).content for name in call.inputs[1:]
    ]
    # whose tables are arrays, which are made of numbers
    axes = _resized(call, tuple(map(int, x.shape)), contents)
    if not axes:
        plan.alias(output, x)
        return
    out = plan.destination(output)
    if element_of(x.dtype) in plan.recorder.target.elements(call.op_type):
        record_resampled(plan.recorder, x, out, axes, label=call.op_type)
    else:
        record_resized(plan.recorder, x, out, axes, label=call.op_type)
    beyond = _beyond(call, x.dtype)
    for axis in axes:
        if axis.beyond is None or not out.size:
            continue
        # places go one way, so what is beyond the axis is at the ends
        inside = np.flatnonzero(~axis.beyond)
        first, last = (inside[0], inside[-1] + 1) if inside.size else (0, 0)
        for start, stop in ((0, int(first)), (int(last), out.shape[axis.axis])):
            starts, sizes = [0] * len(out.shape), list(out.shape)
            starts[axis.axis], sizes[axis.axis] = start, stop - start
            border = out.slice(starts, sizes)
            record_fill(plan.recorder, beyond, border, label=call.op_type)


def _beyond(call: Call, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """What is beyond the input; of integers rounded, and within their limits."""
    value = np.float64(call.attributes.get("extrapolation_value", 0))
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        value = np.clip(np.round(value), float(limits.min), float(limits.max))
    return np.array(value).astype(dtype)


register(
    "Resize Upsample",
    Operation(_record_resize, _accepts_resize, _check_resize, frozenset({1, 2, 3})),
)


# GridSample

_MODES: Final = {"bilinear": "linear", "bicubic": "cubic"}
"""The names of modes before opset 20 to those since."""


def _check_grid_sample(call: Call, inputs: Inputs, results: Results) -> None:
    x, grid = given(inputs).shape, given(inputs, 1).shape
    wanted = (*x[:2], *grid[1:-1])
    if (
        not 3 <= len(x) <= 5
        or len(grid) != len(x)
        or (grid[0], grid[-1]) != (x[0], len(x) - 2)
        or given(results).shape != wanted
    ):
        raise NotCompiled(f"GridSample of {x} at {grid}", call)


def _record_grid_sample(plan: Plan, call: Call) -> None:
    x, grid = (plan.view(name) for name in call.inputs if name is not None)
    output = call.outputs[0]
    assert output is not None
    out = plan.destination(output)
    count = math.prod(grid.shape[1:-1])
    points = grid.reshape((grid.shape[0], count, grid.shape[-1]))
    if points is None:
        whole = plan.contiguous(grid)
        points = whole.reshape((grid.shape[0], count, grid.shape[-1]))
    target = out.reshape((*out.shape[:2], count))
    if points is None or target is None:
        raise NotCompiled(f"the points of {grid.shape} are not in a row", call)
    mode = call.attributes["mode"]
    plan.recorder.target.grid_sampling.record_grid_sample(
        plan.recorder,
        x,
        points,
        target,
        mode=_MODES.get(mode, mode),
        padding=call.attributes["padding_mode"],
        align_corners=bool(call.attributes["align_corners"]),
    )


register(
    "GridSample",
    Operation(_record_grid_sample, computed, _check_grid_sample),
)


def _accepts_first(call: Call, dtypes: Dtypes, target: Support) -> str | None:
    return computed(call, dtypes[:1], target)


# RoiAlign


def _accepts_roi_align(call: Call, dtypes: Dtypes, target: Support) -> str | None:
    if dtypes[2] != np.dtype(np.int64):
        return f"RoiAlign is compiled for indices of int64; found {dtypes[2]}"
    return computed(call, dtypes[:2], target)


def _check_roi_align(call: Call, inputs: Inputs, results: Results) -> None:
    x, regions, images = (given(inputs, position).shape for position in range(3))
    out = given(results).shape
    if len(x) != 4 or regions != (*out[:1], 4) or images != regions[:1]:
        raise NotCompiled(f"RoiAlign of {x}, {regions} and {images}", call)


def _record_roi_align(plan: Plan, call: Call) -> None:
    x, regions, images = (plan.view(name) for name in call.inputs if name is not None)
    output = call.outputs[0]
    assert output is not None
    attributes = call.attributes
    shift = attributes.get("coordinate_transformation_mode", "output_half_pixel")
    if shift not in ("half_pixel", "output_half_pixel"):
        raise NotCompiled(f"RoiAlign in mode {shift}", call)
    plan.recorder.target.region_pools.record_roi_align(
        plan.recorder,
        x,
        regions,
        images,
        plan.destination(output),
        mode=attributes["mode"],
        samples=int(attributes["sampling_ratio"]),
        scale=float(attributes["spatial_scale"]),
        half_pixel=shift == "half_pixel",
    )


register("RoiAlign", Operation(_record_roi_align, _accepts_roi_align, _check_roi_align))

# AffineGrid


def _check_affine_grid(call: Call, inputs: Inputs, results: Results) -> None:
    theta, out = given(inputs).shape, given(results).shape
    rank = len(out) - 2
    if rank not in (2, 3) or theta != (out[0], rank, rank + 1) or out[-1] != rank:
        raise NotCompiled(f"AffineGrid of {theta} gives no {out}", call)
    if max(out[1:-1]) > _MOST_PLACES:
        raise NotCompiled(f"coordinates for axes of {out}", call)


def _record_affine_grid(plan: Plan, call: Call) -> None:
    """A chain of *theta*, repeated for all places, and the coordinates of each axis,
    repeated along the others."""
    source, output = call.inputs[0], call.outputs[0]
    assert source is not None and output is not None
    theta, out = plan.view(source), plan.destination(output)
    if not out.size:
        return
    spatial = out.shape[1:-1]
    lines = _coordinates(spatial, wide_dtype(theta.dtype), call)
    numbers = plan.recorder.constant(np.concatenate(lines))
    chain = Formula.wide(theta)
    total, first = None, 0
    # columns are of the innermost axis first, and the last one is added as it is
    for column in range(len(spatial) + 1):
        term = chain.read_wide(_for_places(theta, column, len(spatial)))
        if column < len(spatial):
            axis = len(spatial) - 1 - column
            line = numbers.slice((first,), (spatial[axis],))
            first += spatial[axis]
            shape = [1] * len(out.shape)
            shape[1 + axis] = spatial[axis]
            along = line.reshape(shape)
            assert along is not None
            term = chain.step("Mul", term, chain.read(along))
        total = term if total is None else chain.step("Add", total, term)
    assert total is not None
    chain.record(plan.recorder, total, out, call.op_type)


def _coordinates(
    spatial: tuple[int, ...], dtype: np.dtype[Any], call: Call
) -> list[np.ndarray[Any, Any]]:
    """The coordinates of each axis' places between -1 and 1, the innermost axis
    first."""
    found = []
    for size in map(int, reversed(spatial)):
        steps = np.arange(size, dtype=np.float64)
        if call.attributes["align_corners"]:
            line = steps * 2 / max(size - 1, 1) - 1
        else:
            line = (2 * steps + 1) / size - 1
        found.append(line.astype(dtype))
    return found


def _for_places(theta: View, column: int, rank: int) -> View:
    """A column of each matrix [N, axes, axes + 1], as [N, *spatial, axes] with sizes of
    1."""
    images, axis, along = theta.strides
    return View(
        theta.buffer,
        theta.offset + column * along * theta.dtype.itemsize,
        theta.dtype,
        (theta.shape[0], *(1,) * rank, theta.shape[1]),
        (images, *(0,) * rank, axis),
    )


register(
    "AffineGrid",
    Operation(
        _record_affine_grid, _accepts_first, _check_affine_grid, known=frozenset({1})
    ),
)
