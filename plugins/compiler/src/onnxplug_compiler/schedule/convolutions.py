"""Records convolutions, with the chains of element-wise calls behind them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from onnxplug_compiler.frontend.call import Call
from onnxplug_compiler.frontend.fusion import Group
from onnxplug_compiler.ir.elements import wide_dtype
from onnxplug_compiler.ir.elementwise import Chain
from onnxplug_compiler.ir.epilogue import Epilogue, epilogue
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.target import Target
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.schedule.elementwise import (
    Builder,
    label_of,
    operand_views,
    record_chain,
)
from onnxplug_compiler.schedule.operations.convolution import (
    Part,
    Parts,
    finish_of,
    parts_of,
    result_shape,
)
from onnxplug_compiler.schedule.operations.depthwise import (
    Depthwise,
    record_depthwise,
)
from onnxplug_compiler.schedule.operations.geometry import slides_of_call
from onnxplug_compiler.schedule.operations.registry import Plan

if TYPE_CHECKING:
    from onnxplug_compiler.schedule.winograd import Transformed


def record_convolution(
    plan: Plan, call: Call, group: Group, outputs: Sequence[str]
) -> None:
    """Record the convolution *call* and the chain of *group* behind it, which write
    *outputs*: the chain applied to its tiles if all views have its axes."""
    result = call.outputs[0]
    assert result is not None
    finish, whole_shape = finish_of(plan, call), result_shape(plan, call)
    built = Builder(plan, group, call, finish).build(outputs)
    first = group.calls[0].outputs[0] if group.calls else result
    assert first is not None
    shape = plan.known(first).shape
    operands = [
        view.broadcast_to(
            whole_shape if operand in (finish.scale, finish.addend) else shape
        )
        for operand, view in zip(
            built.operands, operand_views(plan, built), strict=True
        )
    ]
    targets = [plan.destination(name) for name in outputs]
    label = label_of([call, *group.calls])
    whole = [view.reshape(whole_shape) for view in (*operands, *targets)]
    views = [view for view in whole if view is not None]
    if len(views) == len(whole):
        inputs, results = views[: len(operands)], views[len(operands) :]
        _record(plan, call, built.chain, inputs, results, label)
        return
    dtype = call.dtypes[0]
    assert dtype is not None
    tile = plan.recorder.channels_last(wide_dtype(dtype), whole_shape)
    identity = Chain(built.chain.inputs[:1], (), (), (0,))
    _record(plan, call, identity, [], [tile], label)
    again = [
        view.reshape(shape) or plan.contiguous(view).reshape(shape)
        for view in (tile, *operands)
    ]
    views = [view for view in again if view is not None]
    record_chain(plan, built.chain, views, targets, label)


def _record(
    plan: Plan,
    call: Call,
    chain: Chain,
    operands: Sequence[View],
    targets: Sequence[View],
    label: str,
) -> None:
    """A convolution with a chain; all views are of its result's shape."""
    library = plan.recorder.target.convolutions
    if library is not None and 0 not in targets[0].shape:
        x, w = (plan.view(name or "") for name in call.inputs[:2])
        if library.record_convolution(
            plan.recorder,
            x,
            w,
            slides_of_call(call, x.shape, w.shape, targets[0].shape),
            epilogue(chain, operands, targets),
            transposed=call.op_type == "ConvTranspose",
            label=label,
        ):
            return
    _record_parts(plan, parts_of(plan, call), chain, operands, targets, label)


def _record_parts(
    plan: Plan,
    parts: Parts,
    chain: Chain,
    operands: Sequence[View],
    targets: Sequence[View],
    label: str,
) -> None:
    """Each contraction with its part of a chain; all views are of the result's
    shape."""
    recorder = plan.recorder
    plain = not chain.steps and len(targets) == 1
    for part in parts:
        folded = [part.fold(view) for view in (*operands, *targets)]
        out, after = folded[-1], None
        if not plain or not _can_write(part, out):
            inputs, results = folded[: len(operands)], folded[len(operands) :]
            after = epilogue(chain, inputs, results)
        if isinstance(part, Depthwise):
            record_depthwise(recorder, part, out, after, label)
            continue
        if not isinstance(part, Part):
            _record_transformed(recorder, part, after, label)
            continue
        if after is not None:
            # not written to, it takes no memory
            out = recorder.temporary(wide_dtype(part.a.dtype), out.shape)
        recorder.target.contractions.record_contraction(
            recorder, part.a, part.b, out, epilogue=after, label=label
        )


def _can_write(part: Part | Depthwise | Transformed, out: View) -> bool:
    """Whether results can be written to *out* without an epilogue."""
    if not isinstance(part, Part):
        return isinstance(part, Depthwise)
    return out.shape[-1] < 2 or out.strides[-1] == 1


def _record_transformed(
    recorder: Recorder[Target],
    part: Transformed,
    after: Epilogue | None,
    label: str,
) -> None:
    transforms = recorder.target.transforms
    assert after is not None and transforms is not None
    transforms.record_transformed(
        recorder, part.x, part.weights, part.pads, after, tile=part.tile, label=label
    )
