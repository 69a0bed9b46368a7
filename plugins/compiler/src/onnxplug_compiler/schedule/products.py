"""Records products, with the chains of element-wise calls behind them."""

from __future__ import annotations

from collections.abc import Sequence

from onnxplug_compiler.frontend.call import Call
from onnxplug_compiler.frontend.fusion import Group
from onnxplug_compiler.ir.elements import wide_dtype
from onnxplug_compiler.ir.epilogue import epilogue
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.schedule.elementwise import (
    Builder,
    Built,
    Finish,
    label_of,
    operand_views,
    record_chain,
)
from onnxplug_compiler.schedule.operations.matmul import (
    Folding,
    Product,
    foldings,
    product_of,
)
from onnxplug_compiler.schedule.operations.registry import Plan


def record_product(
    plan: Plan, call: Call, group: Group, outputs: Sequence[str]
) -> None:
    """Record the product *call* and the chain of *group* behind it, which write
    *outputs*: the chain applied to its tiles if all views can be folded alike."""
    product = product_of(plan, call)
    result = call.outputs[0]
    assert result is not None
    finish = Finish(alpha=product.alpha, addend=product.addend, beta=product.beta)
    built = Builder(plan, group, call, finish).build(outputs)
    shape = plan.known(_first_output(group, result)).shape
    operands = [
        view.broadcast_to(product.shape if name == product.addend else shape)
        for name, view in zip(built.operands, operand_views(plan, built), strict=True)
    ]
    targets = [plan.destination(name, padded_rows=True) for name in outputs]
    # with an epilogue it is not written to, and takes no memory
    alone = not built.chain.steps and outputs == [result]
    tile = (
        targets[0]
        if alone
        else plan.recorder.temporary(wide_dtype(product.a.dtype), product.shape)
    )
    label = label_of([call, *group.calls])
    for folding, a, b in foldings(product):
        views = _folded(folding, product, [tile, *operands, *targets])
        if views is None:
            continue
        out, inputs = views[0], views[1 : len(operands) + 1]
        after = None
        if not alone:
            results = views[len(operands) + 1 :]
            after = epilogue(built.chain, inputs, results)
        contractions = plan.recorder.target.contractions
        contractions.record_matmul(
            plan.recorder, a, b, out, epilogue=after, label=label
        )
        return
    _record_apart(plan, product, built, operands, targets, label)


def _first_output(group: Group, result: str) -> str:
    name = group.calls[0].outputs[0] if group.calls else result
    assert name is not None
    return name


def _record_apart(
    plan: Plan,
    product: Product,
    built: Built,
    operands: Sequence[View],
    targets: Sequence[View],
    label: str,
) -> None:
    """The product, its factors copied if they do not fold, and then the chain."""
    tile = plan.recorder.temporary(wide_dtype(product.a.dtype), product.shape)
    found = next(foldings(product), None)
    if found is None:
        *lead, rows, columns = product.shape
        inner = product.a.shape[-1]
        a = plan.contiguous(product.a.broadcast_to((*lead, rows, inner)))
        b = plan.contiguous(product.b.broadcast_to((*lead, inner, columns)))
        found = next(foldings(product._replace(a=a, b=b)))
    folding, a, b = found
    folded = _folded(folding, product, [tile])
    assert folded is not None
    contractions = plan.recorder.target.contractions
    contractions.record_matmul(plan.recorder, a, b, folded[0], label=label)
    shape = targets[0].shape
    inputs = [
        view.reshape(shape) or plan.contiguous(view).reshape(shape)
        for view in (tile, *operands)
    ]
    views = [view for view in inputs if view is not None]
    record_chain(plan, built.chain, views, targets, label)


def _folded(
    folding: Folding, product: Product, views: Sequence[View]
) -> list[View] | None:
    folded: list[View] = []
    for view in views:
        whole = view.reshape(product.shape)
        part = None if whole is None else folding.fold(whole)
        if part is None:
            return None
        folded.append(part)
    return folded
