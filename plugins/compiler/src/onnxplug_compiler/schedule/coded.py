"""Records products of codes, with the chains of element-wise calls behind them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

from onnxplug_compiler.frontend.call import Call, NotCompiled
from onnxplug_compiler.frontend.fusion import Group
from onnxplug_compiler.ir.coded import CodedProducts, Factor
from onnxplug_compiler.ir.epilogue import epilogue
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.target import Target
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.schedule.elementwise import (
    Builder,
    Finish,
    label_of,
    operand_views,
    record_chain,
)
from onnxplug_compiler.schedule.operations.registry import Plan, find_operation

BYTES_LEVEL: Final = 4
"""The ``accuracy_level`` of MatMulNBits and QMoE at which rows may be int8."""

_AS_THEY_ARE: Final = Finish()


class CodedProduct(NamedTuple):
    """A product whose axes are folded.

    Attributes:
        a: [batch0, batch1, M, *sums].
        b: [batch0, batch1, *sums, N].
        shape: the result's, [*batch, M, N].
        finish: what becomes of the sums, of operands that broadcast to the result.
    """

    a: Factor
    b: Factor
    shape: tuple[int, ...]
    finish: Finish = _AS_THEY_ARE

    @property
    def folded(self) -> tuple[int, ...]:
        """The result's shape with two axes of batches."""
        return (*self.a.codes.shape[:3], self.shape[-1])


Maker: TypeAlias = Callable[[Plan, Call], CodedProduct]

MAKERS: Final[dict[str, Maker]] = {}
"""What makes the product of a call, by its operator, as the registry names them."""


def coded_products(recorder: Recorder[Target]) -> CodedProducts:
    """The target's family.

    Raises:
        NotCompiled: it has none, though it named operators of it.
    """
    family = recorder.target.coded_products
    if family is None:
        raise NotCompiled("products of codes are not computed")
    return family


def record_coded(plan: Plan, call: Call, group: Group, outputs: Sequence[str]) -> None:
    """Record the product *call* and the chain of *group* behind it, which write
    *outputs*."""
    name = f"{call.domain}.{call.op_type}" if call.domain else call.op_type
    find_operation(call)  # of one that a pattern made nobody has asked yet
    product = MAKERS[name](plan, call)
    result, dtype = call.outputs[0], call.dtypes[0]
    assert result is not None and dtype is not None
    finish = product.finish
    built = Builder(plan, group, call, finish).build(outputs)
    first = group.calls[0].outputs[0] if group.calls else result
    assert first is not None
    shape = plan.known(first).shape
    operands = [
        view.broadcast_to(product.shape if finish.reads(operand) else shape)
        for operand, view in zip(
            built.operands, operand_views(plan, built), strict=True
        )
    ]
    targets = [plan.destination(name) for name in outputs]
    family, label = coded_products(plan.recorder), label_of([call, *group.calls])
    tile = plan.recorder.temporary(finish.dtype_of_sums(dtype), product.folded)
    whole = [view.reshape(product.folded) for view in (*operands, *targets)]
    views = [view for view in whole if view is not None]
    if len(views) == len(whole):
        inputs, results = views[: len(operands)], views[len(operands) :]
        after = epilogue(built.chain, inputs, results)
        family.record_coded(
            plan.recorder, product.a, product.b, tile, epilogue=after, label=label
        )
        return
    family.record_coded(plan.recorder, product.a, product.b, tile, label=label)
    again = [as_shape(plan, view, shape) for view in (tile, *operands)]
    record_chain(plan, built.chain, again, targets, label)


def as_shape(plan: Plan, view: View, shape: tuple[int, ...]) -> View:
    """*view*, or a copy of it, as an array of another shape."""
    found = view.reshape(shape) or plan.contiguous(view).reshape(shape)
    if found is None or math.prod(view.shape) != math.prod(shape):
        raise NotCompiled(f"the axes of {view.shape} do not become {shape}")
    return found
