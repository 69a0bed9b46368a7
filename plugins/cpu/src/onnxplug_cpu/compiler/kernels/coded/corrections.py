"""What sums of products of codes lack whose zero points were not subtracted before."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from onnxplug_compiler.ir.elements import element_of
from onnxplug_compiler.ir.elementwise import ChainBuilder, Number
from onnxplug_compiler.ir.epilogue import Epilogue
from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.kernels.coded.factors import BATCHES, LEAD

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxplug_cpu.compiler.commands.recording import Recorder


class Missing(NamedTuple):
    """What is to be subtracted from sums: ``(zero + offset) * sums``; all but the
    offset broadcast to the result."""

    zero: View | None
    offset: int
    sums: View

    @property
    def is_nothing(self) -> bool:
        """Whether it is 0 in any case."""
        return self.zero is None and not self.offset


def of_rows(zero: View) -> View:
    """Zero points of A, which are the same along the sums, as those of a result with
    lines."""
    shape, strides = (*zero.shape[:LEAD], 1), (*zero.strides[:LEAD], 0)
    return View(zero.buffer, zero.offset, zero.dtype, shape, strides)


def of_columns(zero: View) -> View:
    """The same of B."""
    shape = (*zero.shape[:BATCHES], 1, 1, zero.shape[-1])
    strides = (*zero.strides[:BATCHES], 0, 0, zero.strides[-1])
    return View(zero.buffer, zero.offset, zero.dtype, shape, strides)


def completed(
    recorder: Recorder,
    missing: Sequence[Missing],
    out: View,
    epilogue: Epilogue | None,
) -> Epilogue | None:
    """What subtracts *missing* from sums, before *epilogue*."""
    if not missing:
        return epilogue
    builder = ChainBuilder()
    total = builder.input("i32")
    operands: list[View] = []
    terms: list[tuple[Number, Number, int]] = []
    for each in missing:
        zero, offset = each.zero, each.offset
        if zero is None:
            # no part of the code, of which all networks need one
            zero, offset = recorder.constant(np.array(offset, np.int32)), 0
        operands += [view.broadcast_to(out.shape) for view in (each.sums, zero)]
        element = element_of(zero.dtype)
        assert element is not None
        terms.append((builder.input("i32"), builder.input(element), offset))
    for sums, code, offset in terms:
        point = builder.step("Cast", [code], "i32")
        if offset:
            point = builder.step("Add", [point, builder.constant("i32", offset)], "i32")
        subtracted = builder.step("Mul", [point, sums], "i32")
        total = builder.step("Sub", [total, subtracted], "i32")
    if epilogue is None:
        return Epilogue(builder.build([total]), tuple(operands), (out,))
    others = [builder.input(each) for each in epilogue.chain.inputs[1:]]
    results = builder.append(epilogue.chain, [total, *others])
    return Epilogue(
        builder.build(results), (*operands, *epilogue.operands), epilogue.outputs
    )
