"""Records convolutions of which a factor, or both, are codes, with the chains behind
them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from onnxplug_compiler.frontend.call import Call
from onnxplug_compiler.frontend.fusion import Group
from onnxplug_compiler.ir.coded import Codes, Factor
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
from onnxplug_compiler.schedule.operations.convolution import plain_parts
from onnxplug_compiler.schedule.operations.registry import Plan, find_operation


class CodedConvolution(NamedTuple):
    """A convolution.

    Attributes:
        conv: the convolution alone.
        image: what is convolved, with one zero point, an array without axes.
        codes: the filters.
        zero, scale: zero points and scales of them, of their shape.
        offset: a zero point of all.
        finish: what becomes of the sums, of operands that broadcast to the result.
    """

    conv: Call
    image: Factor
    codes: View
    zero: View | None = None
    offset: int = 0
    scale: View | None = None
    finish: Finish = Finish()


def as_conv(call: Call, x: int, w: int) -> Call:
    """The convolution alone, of the inputs at these positions."""
    names = call.inputs[x], call.inputs[w]
    return Call(
        "Conv", "", call.version, names, call.outputs[:1], call.attributes, call.nodes,
        call.dtypes[:1],
    )  # fmt: skip


Maker: TypeAlias = Callable[[Plan, Call], CodedConvolution]

_DTYPES: Final = {"f32": np.dtype(np.float32), "i32": np.dtype(np.int32)}
"""Of sums."""

CONVOLUTIONS: Final[dict[str, Maker]] = {}
"""What makes the convolution of a call, by its operator, as the registry names them."""


def record_coded_convolution(
    plan: Plan, call: Call, group: Group, outputs: Sequence[str]
) -> None:
    """Record the convolution *call* and the chain of *group* behind it, which write
    *outputs*."""
    result, dtype = call.outputs[0], call.dtypes[0]
    assert result is not None and dtype is not None
    find_operation(call)  # of one that a pattern made nobody has asked yet
    made = CONVOLUTIONS[call.op_type](plan, call)
    shape, finish = plan.known(result).shape, made.finish
    built = Builder(plan, group, call, finish).build(outputs)
    first = group.calls[0].outputs[0] if group.calls else result
    assert first is not None
    after_shape = plan.known(first).shape
    operands = [
        view.broadcast_to(shape if finish.reads(operand) else after_shape)
        for operand, view in zip(
            built.operands, operand_views(plan, built), strict=True
        )
    ]
    targets = [plan.destination(name) for name in outputs]
    label = label_of([call, *group.calls])
    whole = [view.reshape(shape) for view in (*operands, *targets)]
    views = [view for view in whole if view is not None]
    sums = finish.dtype_of_sums(dtype)
    if len(views) == len(whole):
        inputs, results = views[: len(operands)], views[len(operands) :]
        after = epilogue(built.chain, inputs, results)
        record_parts(plan, made, after, label)
        return
    tile = plan.recorder.channels_last(sums, shape)
    alone = Chain(built.chain.inputs[:1], (), (), (0,))
    record_parts(plan, made, epilogue(alone, [], [tile]), label)
    again = [as_shape(plan, view, after_shape) for view in (tile, *operands)]
    record_chain(plan, built.chain, again, targets, label)


def record_parts(
    plan: Plan, made: CodedConvolution, after: Epilogue, label: str
) -> None:
    """Record each contraction with its part of what becomes of the sums."""
    recorder, family = plan.recorder, coded_products(plan.recorder)
    image, sums = made.image, _DTYPES[after.chain.inputs[0]]
    arrays = [each for each in (made.codes, made.zero, made.scale) if each is not None]
    shape = after.outputs[0].shape
    found = plain_parts(plan, made.conv, image.codes.view, arrays, shape)
    for parts in zip(*found, strict=True):
        part, others = parts[0], iter(parts[1:])
        zero, scale = (
            None if each is None else next(others).b for each in (made.zero, made.scale)
        )
        folded = Epilogue(
            after.chain,
            tuple(map(part.fold, after.operands)),
            tuple(map(part.fold, after.outputs)),
        )
        of_all = image.zero and Codes(image.zero.view.broadcast_to(part.a.shape))
        zeros = None if zero is None else Codes(zero)
        family.record_coded(
            recorder,
            Factor(Codes(part.a), of_all, image.offset),
            Factor(Codes(part.b), zeros, made.offset, scale),
            recorder.temporary(sums, folded.outputs[0].shape),
            epilogue=folded,
            label=label,
        )
