"""Operators that read pixels between pixels.

Most models have none, so the kernels are imported when one is recorded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from onnxplug_cpu.compiler.frontend.call import Call, NotCompiled
from onnxplug_cpu.compiler.schedule.operations.registry import (
    F32,
    Dtypes,
    Inputs,
    Operation,
    Plan,
    Results,
    given,
    register,
)

if TYPE_CHECKING:
    from onnxplug_kernels.resize import ResizedAxis

_MOST_PLACES: Final = 1 << 20
"""Elements of an axis above which no table of its places is made."""

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


def _accepts_resize(call: Call, dtypes: Dtypes) -> str | None:
    if dtypes[0] != F32:
        return f"{call.op_type} is compiled for float32; found {dtypes[0]}"
    if call.op_type == "Upsample" and call.version < 7:
        return "Upsample is compiled since opset 7"
    return None


def _check_resize(call: Call, inputs: Inputs, results: Results) -> None:
    for value in (given(inputs), given(results)):
        if any(size > _MOST_PLACES for size in value.shape):
            raise NotCompiled(f"a table for an axis of {value.shape}", call)


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
    from onnxplug_cpu.compiler.kernels.movement.copy import record_fill
    from onnxplug_cpu.compiler.kernels.spatial.resample import (
        ResampledAxis,
        record_resample,
    )

    source, output = call.inputs[0], call.outputs[0]
    assert source is not None and output is not None
    x, out = plan.view(source), plan.target(output)
    contents = [
        None if name is None else plan.known(name).content for name in call.inputs[1:]
    ]
    axes = _resized(call, x.shape, contents)
    tables = []
    for axis in axes:
        weights = [weight for _, weight in axis.taps if weight is not None]
        tables.append(
            ResampledAxis(
                axis.axis,
                np.stack([index for index, _ in axis.taps]),
                np.stack(weights).astype(np.float32) if weights else None,
            )
        )
    record_resample(plan.recorder, x, out, tables, label=call.op_type)
    beyond = np.array(call.attributes.get("extrapolation_value", 0), np.float32)
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


register(
    "Resize Upsample",
    Operation(_record_resize, _accepts_resize, _check_resize, frozenset({1, 2, 3})),
)
