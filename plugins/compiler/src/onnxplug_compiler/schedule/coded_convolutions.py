"""Records convolutions whose weights are codes, with the chains behind them."""

from __future__ import annotations

from collections.abc import Sequence

from onnxplug_compiler.frontend.call import Call
from onnxplug_compiler.frontend.fusion import Group
from onnxplug_compiler.ir.coded import Codes, Factor
from onnxplug_compiler.ir.elements import wide_dtype
from onnxplug_compiler.ir.elementwise import Chain
from onnxplug_compiler.ir.epilogue import Epilogue, epilogue
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.schedule.coded import as_shape, coded_products
from onnxplug_compiler.schedule.elementwise import (
    Builder,
    Finish,
    label_of,
    operand_views,
    record_chain,
)
from onnxplug_compiler.schedule.operations.convolution import (
    Part,
    per_channel,
    plain_parts,
)
from onnxplug_compiler.schedule.operations.integer_convolution import as_conv, spread
from onnxplug_compiler.schedule.operations.registry import Plan


def record_coded_convolution(
    plan: Plan, call: Call, group: Group, outputs: Sequence[str]
) -> None:
    """Record the convolution *call*, of codes, their scale and zero point, and the
    chain of *group* behind it, which write *outputs*."""
    result, dtype, bias = call.outputs[0], call.dtypes[0], call.input(4)
    assert result is not None and dtype is not None
    shape = plan.known(result).shape
    rank = len(shape) - 2
    added = None if bias is None else per_channel(plan.view(bias), rank)
    built = Builder(plan, group, call, Finish(addend=added)).build(outputs)
    first = group.calls[0].outputs[0] if group.calls else result
    assert first is not None
    after_shape = plan.known(first).shape
    operands = [
        view.broadcast_to(shape if operand is added else after_shape)
        for operand, view in zip(
            built.operands, operand_views(plan, built), strict=True
        )
    ]
    targets = [plan.destination(name) for name in outputs]
    label = label_of([call, *group.calls])
    whole = [view.reshape(shape) for view in (*operands, *targets)]
    views = [view for view in whole if view is not None]
    if len(views) == len(whole):
        inputs, results = views[: len(operands)], views[len(operands) :]
        after = epilogue(built.chain, inputs, results)
        _record(plan, call, after, label)
        return
    tile = plan.recorder.channels_last(wide_dtype(dtype), shape)
    alone = Chain(built.chain.inputs[:1], (), (), (0,))
    _record(plan, call, epilogue(alone, [], [tile]), label)
    again = [as_shape(plan, view, after_shape) for view in (tile, *operands)]
    record_chain(plan, built.chain, again, targets, label)


def _record(plan: Plan, call: Call, after: Epilogue, label: str) -> None:
    """Each contraction with its part of what becomes of the sums."""
    recorder, family = plan.recorder, coded_products(plan.recorder)
    for part, factor in _parts(plan, call, after.outputs[0].shape):
        folded = Epilogue(
            after.chain,
            tuple(map(part.fold, after.operands)),
            tuple(map(part.fold, after.outputs)),
        )
        left = Factor(Codes(part.a))
        tile = recorder.temporary(wide_dtype(part.a.dtype), folded.outputs[0].shape)
        family.record_coded(recorder, left, factor, tile, epilogue=folded, label=label)


def _parts(plan: Plan, call: Call, shape: tuple[int, ...]) -> list[tuple[Part, Factor]]:
    """The contractions, and their right factors."""
    x_name, w_name, scale_name, zero_name = call.inputs[:4]
    assert x_name is not None and w_name is not None and scale_name is not None
    x, codes = plan.view(x_name), plan.view(w_name)
    conv = as_conv(call, 0, 1)
    arrays: list[View] = [codes, spread(plan, plan.view(scale_name), codes, rows=True)]
    if zero_name is not None:
        arrays.append(spread(plan, plan.view(zero_name), codes, rows=True))
    found = zip(*plain_parts(plan, conv, x, arrays, shape), strict=True)
    return [
        (
            parts[0],
            Factor(
                Codes(parts[0].b),
                Codes(parts[2].b) if zero_name is not None else None,
                scale=parts[1].b,
            ),
        )
        for parts in found
    ]
