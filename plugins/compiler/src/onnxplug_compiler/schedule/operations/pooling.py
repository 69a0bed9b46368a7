"""Pools: windows that slide over the spatial axes, or that are all of them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from onnxplug_compiler.frontend.call import Call, NotCompiled
from onnxplug_compiler.ir.target import Support
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.ir.windows import (
    LARGEST,
    MEAN,
    STILL,
    Slide,
    norm,
    slides_of,
)
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
from onnxplug_compiler.schedule.operations.window_places import family

if TYPE_CHECKING:
    from onnxplug_kernels.windows import Windows

_SPATIAL_AXES = (1, 2, 3)


def _placed(call: Call, shape: tuple[int, ...]) -> Windows:
    """The windows of *call* over an input of *shape*.

    Raises:
        NotCompiled: there are none that the kernels take.
    """
    from onnxplug_kernels.pool import pooling_windows

    if len(shape) - 2 not in _SPATIAL_AXES:
        raise NotCompiled(f"{call.op_type} of {list(shape)}", call)
    attributes = call.attributes
    try:
        return pooling_windows(
            shape[2:],
            attributes["kernel_shape"],
            strides=attributes["strides"],
            pads=attributes["pads"],
            dilations=attributes["dilations"],
            auto_pad=attributes["auto_pad"],
            ceil_mode=attributes["ceil_mode"],
        )
    except ValueError as error:
        raise NotCompiled(str(error), call) from error


def _slides(windows: Windows) -> list[Slide]:
    pads = (*windows.begin, *windows.end)
    return slides_of(windows.kernel, windows.strides, windows.dilations, pads)


def _check(call: Call, inputs: Inputs, results: Results) -> None:
    shape = given(inputs).shape
    windows = _placed(call, shape)
    if (*shape[:2], *windows.count) != given(results).shape:
        raise NotCompiled(
            f"{call.op_type} of {list(shape)} gives {list(given(results).shape)}", call
        )


def _record(plan: Plan, call: Call) -> None:
    source, output = call.inputs[0], call.outputs[0]
    assert source is not None and output is not None
    x = plan.view(source)
    if call.output(1) is not None:
        _record_places(plan, call, x)
        return
    if call.op_type == "LpPool":
        how = norm(float(call.attributes["p"]))
    else:
        how = LARGEST if call.op_type == "MaxPool" else MEAN
    plan.recorder.target.pools.record_pool(
        plan.recorder,
        how,
        x,
        plan.destination(output),
        _slides(_placed(call, x.shape)),
        counts_padding=bool(call.attributes.get("count_include_pad", 0)),
        label=call.op_type,
    )


def _record_places(plan: Plan, call: Call, x: View) -> None:
    output, places = call.output(0), call.output(1)
    assert output is not None and places is not None
    family(plan).record_max_places(
        plan.recorder,
        x,
        plan.destination(output),
        plan.destination(places),
        _slides(_placed(call, x.shape)),
        column_major=bool(call.attributes.get("storage_order", 0)),
    )


def _accepts(call: Call, dtypes: Dtypes, target: Support) -> str | None:
    if call.output(1) is not None and not target.elements("MaxPlaces"):
        return f"{call.op_type} is compiled without its indices"
    return _accepts_norm(call, dtypes, target)


def _accepts_norm(call: Call, dtypes: Dtypes, target: Support) -> str | None:
    p = call.attributes.get("p", 2)
    if not 0 < p < math.inf:
        return f"p of {call.op_type} is {p}; a norm takes a finite number above 0"
    return computed(call, dtypes, target)


register("MaxPool AveragePool LpPool", Operation(_record, _accepts, _check))


def _check_global(call: Call, inputs: Inputs, results: Results) -> None:
    shape = given(inputs).shape
    if len(shape) - 2 not in _SPATIAL_AXES or 0 in shape[2:]:
        raise NotCompiled(f"{call.op_type} of {list(shape)}", call)
    if given(results).shape != (*shape[:2], *(1,) * (len(shape) - 2)):
        raise NotCompiled(
            f"{call.op_type} of {list(shape)} gives {list(given(results).shape)}", call
        )


def _record_global(plan: Plan, call: Call) -> None:
    source, output = call.inputs[0], call.outputs[0]
    assert source is not None and output is not None
    x, out = plan.view(source), plan.destination(output)
    p = float(call.attributes.get("p", 2))
    kinds = {"GlobalMaxPool": "ReduceMax", "GlobalAveragePool": "ReduceMean"}
    if call.op_type in kinds or p in (1, 2):
        kind = kinds.get(call.op_type, f"ReduceL{p:.0f}")
        axes = tuple(range(2, len(x.shape)))
        reductions = plan.recorder.target.reductions
        reductions.record_reduce(plan.recorder, kind, x, out, axes)
        return
    from onnxplug_compiler.ir.windows import norm

    plan.recorder.target.pools.record_pool(
        plan.recorder,
        norm(p),
        x,
        out,
        [STILL._replace(taps=size) for size in x.shape[2:]],
        label=call.op_type,
    )


register(
    "GlobalMaxPool GlobalAveragePool GlobalLpPool",
    Operation(_record_global, _accepts_norm, _check_global),
)
