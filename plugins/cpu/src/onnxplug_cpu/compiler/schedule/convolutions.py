"""Records convolutions, with the chains of element-wise calls behind them."""

from __future__ import annotations

from collections.abc import Sequence

from onnxplug_cpu.compiler.frontend.call import Call
from onnxplug_cpu.compiler.frontend.fusion import Group
from onnxplug_cpu.compiler.ir.elementwise import Chain
from onnxplug_cpu.compiler.ir.views import View
from onnxplug_cpu.compiler.kernels.contraction.commands import record_contraction
from onnxplug_cpu.compiler.kernels.contraction.epilogue import epilogue
from onnxplug_cpu.compiler.kernels.elementwise.commands import record_chain
from onnxplug_cpu.compiler.schedule.elementwise import (
    Builder,
    label_of,
    operand_views,
)
from onnxplug_cpu.compiler.schedule.operations.convolution import (
    Convolution,
    convolution_of,
)
from onnxplug_cpu.compiler.schedule.operations.registry import F32, Plan


def record_convolution(
    plan: Plan, call: Call, group: Group, outputs: Sequence[str]
) -> None:
    """Record the convolution *call* and the chain of *group* behind it, which write
    *outputs*: the chain applied to its tiles if all views have its axes."""
    convolution = convolution_of(plan, call)
    result = call.outputs[0]
    assert result is not None
    finish = convolution.finish
    built = Builder(plan, group, result, finish).build(outputs)
    first = group.calls[0].outputs[0] if group.calls else result
    assert first is not None
    shape = plan.known(first).shape
    operands = [
        view.broadcast_to(
            convolution.shape if operand in (finish.scale, finish.addend) else shape
        )
        for operand, view in zip(
            built.operands, operand_views(plan, built), strict=True
        )
    ]
    targets = [plan.target(name) for name in outputs]
    label = label_of([call, *group.calls])
    whole = [view.reshape(convolution.shape) for view in (*operands, *targets)]
    views = [view for view in whole if view is not None]
    if len(views) == len(whole):
        inputs, results = views[: len(operands)], views[len(operands) :]
        _record(plan, convolution, built.chain, inputs, results, label)
        return
    tile = _tile(plan, convolution.shape)
    _record(plan, convolution, Chain(("f32",), (), (), (0,)), [], [tile], label)
    again = [
        view.reshape(shape) or plan.contiguous(view).reshape(shape)
        for view in (tile, *operands)
    ]
    record_chain(
        plan.recorder,
        built.chain,
        [view for view in again if view is not None],
        targets,
        label=label,
    )


def _record(
    plan: Plan,
    convolution: Convolution,
    chain: Chain,
    operands: Sequence[View],
    targets: Sequence[View],
    label: str,
) -> None:
    """Each contraction with its part of a chain; all views are of the result's
    shape."""
    recorder = plan.recorder
    for part in convolution.parts:
        folded = [part.fold(view) for view in (*operands, *targets)]
        out, after = folded[-1], None
        columns = out.shape[-1]
        if chain.steps or len(targets) > 1 or (columns > 1 and out.strides[-1] != 1):
            inputs, results = folded[: len(operands)], folded[len(operands) :]
            after = epilogue(chain, inputs, results)
            # not written to, it takes no memory
            out = recorder.temporary(F32, out.shape)
        record_contraction(recorder, part.a, part.b, out, epilogue=after, label=label)


def _tile(plan: Plan, shape: Sequence[int]) -> View:
    """Memory for a result, channels last."""
    batch, channels, *spatial = shape
    whole = plan.recorder.temporary(F32, (batch, *spatial, channels))
    rank = len(spatial)
    return whole.transpose((0, rank + 1, *range(1, rank + 1)))
