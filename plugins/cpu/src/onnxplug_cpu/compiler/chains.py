"""Records groups of element-wise calls: chains alone, and behind a product."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from onnxplug_cpu.compiler.call import Abstract, Call
from onnxplug_cpu.compiler.chain import Chain, Scalar, Step
from onnxplug_cpu.compiler.fuse import Group
from onnxplug_cpu.compiler.kernels.elementwise import record_chain
from onnxplug_cpu.compiler.kernels.epilogue import epilogue
from onnxplug_cpu.compiler.kernels.matmul import record_matmul
from onnxplug_cpu.compiler.operations.elementwise import (
    StepForm,
    element_of,
    scalar_of,
)
from onnxplug_cpu.compiler.operations.matmul import (
    Folding,
    Product,
    foldings,
    product_of,
)
from onnxplug_cpu.compiler.operations.registry import F32, Plan
from onnxplug_cpu.compiler.record import View


class _Built(NamedTuple):
    """A chain and the names of its operands, the product's result left out."""

    chain: Chain
    operands: list[str]


def record_group(plan: Plan, group: Group, outputs: Sequence[str]) -> None:
    """Record the commands of *group*, which write *outputs*."""
    if group.anchor is not None:
        _record_product(plan, group.anchor, group, outputs)
    elif group.forms:
        _record_chain(plan, group, outputs)
    else:
        _record_product(plan, group.calls[0], Group([]), outputs)


def _record_chain(plan: Plan, group: Group, outputs: Sequence[str]) -> None:
    built = _Builder(plan, group).build(outputs)
    record_chain(
        plan.recorder,
        built.chain,
        [plan.view(name) for name in built.operands],
        [plan.target(name, apart=True) for name in outputs],
        label=_label(group.calls),
    )


def _record_product(
    plan: Plan, call: Call, group: Group, outputs: Sequence[str]
) -> None:
    """A product, the chain applied to its tiles if all views can be folded alike."""
    product = product_of(plan, call)
    result = call.outputs[0]
    assert result is not None
    built = _Builder(plan, group, result, product).build(outputs)
    shape = plan.known(_first_output(group, result)).shape
    operands = [
        plan.view(name).broadcast_to(product.shape if name == product.addend else shape)
        for name in built.operands
    ]
    targets = [plan.target(name, apart=True) for name in outputs]
    # with an epilogue it is not written to, and takes no memory
    alone = not built.chain.steps and outputs == [result]
    tile = targets[0] if alone else plan.recorder.temporary(F32, product.shape)
    label = _label([call, *group.calls])
    for folding, a, b in foldings(product):
        views = _folded(folding, product, [tile, *operands, *targets])
        if views is None:
            continue
        out, inputs = views[0], views[1 : len(operands) + 1]
        after = None
        if not alone:
            results = views[len(operands) + 1 :]
            after = epilogue(plan.recorder, built.chain, inputs, results)
        record_matmul(plan.recorder, a, b, out, epilogue=after, label=label)
        return
    _record_apart(plan, product, built, operands, targets, label)


def _first_output(group: Group, result: str) -> str:
    name = group.calls[0].outputs[0] if group.calls else result
    assert name is not None
    return name


def _record_apart(
    plan: Plan,
    product: Product,
    built: _Built,
    operands: Sequence[View],
    targets: Sequence[View],
    label: str,
) -> None:
    """The product, its factors copied if they do not fold, and then the chain."""
    tile = plan.recorder.temporary(F32, product.shape)
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
    record_matmul(plan.recorder, a, b, folded[0], label=label)
    shape = targets[0].shape
    inputs = [
        view.reshape(shape) or plan.contiguous(view).reshape(shape)
        for view in (tile, *operands)
    ]
    record_chain(
        plan.recorder,
        built.chain,
        [view for view in inputs if view is not None],
        targets,
        label=label,
    )


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


def _label(calls: Sequence[Call]) -> str:
    return " + ".join(call.op_type for call in calls)


class _Builder:
    """Numbers the values of a chain.

    *result* is the product's result, which is value 0 if it is given.
    """

    def __init__(
        self,
        plan: Plan,
        group: Group,
        result: str | None = None,
        product: Product | None = None,
    ) -> None:
        self.plan = plan
        self.group = group
        self.result = result
        self.product = product
        self.operands: list[str] = []
        self.constants: list[Scalar] = []
        self.steps: list[tuple[str, tuple[object, ...], str, object]] = []

    def build(self, outputs: Sequence[str]) -> _Built:
        """The chain of the group, after the factors and the addend of a product."""
        group = self.group
        numbers: dict[str, object] = {}
        if self.result is not None:
            value = numbers[self.result] = self._scaled_result()
            numbers |= {r.outputs[0]: value for r in group.reshapes if r.outputs[0]}
        for call, form in zip(group.calls, group.forms, strict=True):
            name = call.outputs[0]
            assert name is not None
            numbers[name] = self._add_form(form, numbers)
        inputs = ["f32"] * (self.result is not None) + [
            _element(self.plan.known(name)) for name in self.operands
        ]
        place = _Places(self.result is not None, len(inputs), len(self.constants))
        return _Built(
            Chain(
                tuple(inputs),
                tuple(self.constants),
                tuple(
                    Step(
                        operator,
                        tuple(place(operand) for operand in operands),
                        element,
                        attributes,  # type: ignore[arg-type]
                    )
                    for operator, operands, element, attributes in self.steps
                ),
                tuple(place(numbers[name]) for name in outputs),
            ),
            self.operands,
        )

    def _scaled_result(self) -> object:
        value: object = "result"
        product = self.product
        assert product is not None
        if product.alpha != 1:
            value = self._add("Mul", (value, self._constant(product.alpha)))
        if product.addend is not None and product.beta != 0:
            addend = self._operand(product.addend)
            if product.beta != 1:
                addend = self._add("Mul", (addend, self._constant(product.beta)))
            value = self._add("Add", (value, addend))
        return value

    def _add_form(self, form: StepForm, numbers: dict[str, object]) -> object:
        operands: list[object] = []
        first: str | None = None
        for operand in form.operands:
            if operand is None:
                operands.append(None)
            elif isinstance(operand, str):
                first = first or _element(self.plan.known(operand))
                operands.append(
                    numbers[operand] if operand in numbers else self._operand(operand)
                )
            else:
                operands.append(self._constant(operand, first or form.element))
        return self._add(form.operator, operands, form.element, form.attributes)

    def _operand(self, name: str) -> object:
        value = self.plan.known(name)
        number = scalar_of(value)
        if number is not None:
            return self._constant(number, _element(value))
        if name not in self.operands:
            self.operands.append(name)
        return "operand", self.operands.index(name)

    def _constant(self, number: float, element: str = "f32") -> object:
        scalar = Scalar(element, number)
        for index, known in enumerate(self.constants):
            if repr(known) == repr(scalar):  # equality takes -0 for 0
                return "constant", index
        self.constants.append(scalar)
        return "constant", len(self.constants) - 1

    def _add(
        self,
        operator: str,
        operands: Sequence[object],
        element: str = "f32",
        attributes: object = (),
    ) -> object:
        self.steps.append((operator, tuple(operands), element, attributes))
        return "step", len(self.steps) - 1


def _element(value: Abstract) -> str:
    element = element_of(value.dtype)
    assert element is not None
    return element


class _Places(NamedTuple):
    """Where the kinds of values begin among a chain's numbers."""

    has_result: bool
    inputs: int
    constants: int

    def __call__(self, value: object) -> int:
        match value:
            case None:
                return -1
            case "result":
                return 0
            case ("operand", int(index)):
                return index + self.has_result
            case ("constant", int(index)):
                return self.inputs + index
            case ("step", int(index)):
                return self.inputs + self.constants + index
        raise AssertionError(value)
