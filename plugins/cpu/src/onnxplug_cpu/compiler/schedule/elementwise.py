"""Builds the chains of element-wise calls, and records those that stand alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from onnxplug.ep.record import Record
from onnxplug_cpu.compiler.frontend.call import Abstract, Call
from onnxplug_cpu.compiler.frontend.elementwise import StepForm, element_of, scalar_of
from onnxplug_cpu.compiler.frontend.fusion import Group
from onnxplug_cpu.compiler.ir.elementwise import Chain, Scalar, Step
from onnxplug_cpu.compiler.kernels.elementwise.commands import record_chain
from onnxplug_cpu.compiler.schedule.operations.registry import Plan

if TYPE_CHECKING:
    from onnxplug_cpu.compiler.schedule.operations.matmul import Product


class Built(Record):
    """A chain and the names of its operands, the product's result left out."""

    chain: Chain
    operands: list[str]


def record_calls(plan: Plan, group: Group, outputs: Sequence[str]) -> None:
    """Record the chain of *group*, which writes *outputs*."""
    built = Builder(plan, group).build(outputs)
    record_chain(
        plan.recorder,
        built.chain,
        [plan.view(name) for name in built.operands],
        [plan.target(name, apart=True) for name in outputs],
        label=label_of(group.calls),
    )


def label_of(calls: Sequence[Call]) -> str:
    """How profiles call the commands of *calls*."""
    return " + ".join(call.op_type for call in calls)


class Builder:
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

    def build(self, outputs: Sequence[str]) -> Built:
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
        return Built(
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


class _Places(Record):
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
