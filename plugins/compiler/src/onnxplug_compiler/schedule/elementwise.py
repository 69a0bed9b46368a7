"""Builds the chains of element-wise calls, and records those that stand alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from onnxplug.authoring.record import Record
from onnxplug_compiler.frontend.call import Call
from onnxplug_compiler.frontend.elementwise import StepForm, scalar_of
from onnxplug_compiler.frontend.fusion import Group
from onnxplug_compiler.frontend.quantization import SCALED, axis_of_scales
from onnxplug_compiler.ir.buffers import Constant
from onnxplug_compiler.ir.elements import element_of, wide_dtype
from onnxplug_compiler.ir.elementwise import Chain, Scalar, Step
from onnxplug_compiler.ir.quantization import (
    CODE_LIMITS,
    dequantised,
    in_steps,
    quantised,
    whole_codes,
)
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.schedule.operations.registry import Plan

_WORTH_A_VIEW: Final = 1 << 14
"""Elements that need not be computed for a result to be one that is stretched: who
reads few of them is faster where they lie in order."""

_MOST_SCALE: Final = 1e15
"""What scales are below, and not less than one part of, for their products and
quotients to be finite and no zeros."""

_MOST_STEPS: Final = 1024
"""Steps of a result that one of another code may be, for what is rounded of a multiple
of a zero point to be far less than a step."""

_FUSED: Final = (("fused", 1),)
"""The attribute of an Add whose product need not be rounded."""

Operand: TypeAlias = str | View
"""What a chain reads: a value, by its name, or what is no value of the plan."""


class Finish(Record):
    """What becomes of the sums of a product or convolution before all else.

    Attributes:
        scale: what they are multiplied with, if they are.
        alpha: a factor of them.
        addend: what is added, if something is.
        beta: a factor of it.
        sums: ``i32`` if they are integers of which floats are made.
    """

    scale: Operand | None = None
    alpha: float = 1.0
    addend: Operand | None = None
    beta: float = 1.0
    sums: str = ""

    def reads(self, operand: Operand) -> bool:
        """Whether it is an operand of this."""
        return any(operand == each for each in (self.scale, self.addend) if each)

    def dtype_of_sums(self, result: np.dtype[Any]) -> np.dtype[Any]:
        """Of what becomes *result*: wider than narrow floats."""
        return np.dtype(np.int32) if self.sums else wide_dtype(result)


class Built(Record):
    """A chain and its operands, the product's result left out."""

    chain: Chain
    operands: list[Operand]


def record_calls(plan: Plan, group: Group, outputs: Sequence[str]) -> None:
    """Record the chain of *group*, which writes *outputs*."""
    built = Builder(plan, group).build(outputs)
    views, label = operand_views(plan, built), label_of(group.calls)
    stretched = _stretched(plan, views, outputs)
    if not stretched:
        targets = [plan.destination(name, padded_rows=True) for name in outputs]
        record_chain(plan, built.chain, views, targets, label)
        return
    values = [plan.known(name) for name in outputs]
    shape = values[0].shape
    starts = [0] * len(shape)
    sizes = [1 if axis in stretched else n for axis, n in enumerate(shape)]
    once = [view.broadcast_to(shape).slice(starts, sizes) for view in views]
    targets = [plan.recorder.temporary(value.dtype, sizes) for value in values]
    record_chain(plan, built.chain, once, targets, label)
    for name, target in zip(outputs, targets, strict=True):
        plan.alias(name, target.broadcast_to(shape))


def record_chain(
    plan: Plan,
    chain: Chain,
    inputs: Sequence[View],
    outputs: Sequence[View],
    label: str,
) -> None:
    """Record *chain* applied to every element."""
    elementwise = plan.recorder.target.elementwise
    elementwise.record_chain(plan.recorder, chain, inputs, outputs, label=label)


def _stretched(
    plan: Plan, views: Sequence[View], outputs: Sequence[str]
) -> frozenset[int]:
    """Axes along which all *outputs* repeat what they have, if it is worth a view to
    compute that once."""
    shape, *others = [plan.known(name).shape for name in outputs]
    if any(other != shape for other in others) or not views:
        return frozenset()
    strides = [view.broadcast_to(shape).strides for view in views]
    repeated = frozenset(
        axis
        for axis, size in enumerate(shape)
        if size > 1 and not any(each[axis] for each in strides)
    )
    if not repeated or math.prod(shape) < _WORTH_A_VIEW:
        return frozenset()
    computed = math.prod(n for axis, n in enumerate(shape) if axis not in repeated)
    worth = math.prod(shape) - computed >= _WORTH_A_VIEW
    return repeated if worth else frozenset()


def operand_views(plan: Plan, built: Built) -> list[View]:
    """Where the operands of a chain are."""
    return [
        operand if isinstance(operand, View) else plan.view(operand)
        for operand in built.operands
    ]


def label_of(calls: Sequence[Call]) -> str:
    """How profiles call the commands of *calls*."""
    return " + ".join(call.op_type for call in calls)


class Builder:
    """Numbers the values of a chain.

    Args:
        anchor: the product or convolution whose result is value 0, if there is one.
        finish: what becomes of its sums, which are wider than narrow floats.
    """

    def __init__(
        self,
        plan: Plan,
        group: Group,
        anchor: Call | None = None,
        finish: Finish | None = None,
    ) -> None:
        self.plan = plan
        self.group = group
        self.result = None if anchor is None else anchor.outputs[0]
        dtype = None if anchor is None else anchor.dtypes[0]
        self.element = "" if dtype is None else _element(wide_dtype(dtype))
        self.rounded = "" if dtype is None else _element(dtype)
        self.finish = finish
        self.operands: list[Operand] = []
        self.constants: list[Scalar] = []
        self.steps: list[tuple[str, tuple[object, ...], str, object]] = []
        # of a chain behind sums of integers alone, which is within a step
        self._whole: dict[str, _Typed] = {}
        self._of_sums: set[str] = set()
        self._made: dict[str, StepForm] = {}
        self._reciprocals: dict[str, View] = {}
        self._multiples: dict[tuple[str, object], _Typed] = {}

    def build(self, outputs: Sequence[str]) -> Built:
        """The chain of the group, after what finishes the sums."""
        group = self.group
        numbers: dict[str, object] = {}
        if self.result is not None:
            value = numbers[self.result] = self._finished()
            numbers |= {r.outputs[0]: value for r in group.reshapes if r.outputs[0]}
            if self._is_of_integers:
                self._of_sums = set(numbers)
        for call, form in zip(group.calls, group.forms, strict=True):
            name = call.outputs[0]
            assert name is not None
            numbers[name] = self._add_form(name, form, numbers)
            self._made[name] = form
            if not self._of_sums.isdisjoint(call.inputs):
                self._of_sums.add(name)
        inputs = [self._sums] * (self.result is not None) + [
            self._element_of(operand) for operand in self.operands
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

    def _finished(self, per: _Typed | None = None) -> object:
        """The sums with what finishes them, times *per*."""
        finish = self.finish
        assert finish is not None

        def times(value: object) -> object:
            return value if per is None else self._add_sum("Mul", value, per.value)

        value = self._cast("result", self._sums, self.element)
        if finish.scale is not None:
            value = self._add_sum("Mul", value, times(self._summand(finish.scale)))
        if finish.alpha != 1:
            alpha = self._constant(finish.alpha, self.element)
            value = self._add_sum("Mul", value, alpha)
        if finish.addend is not None and finish.beta != 0:
            addend = times(self._summand(finish.addend))
            if finish.beta != 1:
                beta = self._constant(finish.beta, self.element)
                addend = self._add_sum("Mul", addend, beta)
            value = self._add(
                "Add", (value, addend), self.element, () if per is None else _FUSED
            )
        return self._cast(value, self.element, self.rounded)

    @property
    def _sums(self) -> str:
        """The element of the anchor's sums."""
        finish = self.finish
        return self.element if finish is None or not finish.sums else finish.sums

    @property
    def _is_of_integers(self) -> bool:
        """Whether the sums are integers, scaled by numbers that are not too large to be
        multiplied before the sums are."""
        finish = self.finish
        if finish is None or not finish.sums or not isinstance(finish.scale, View):
            return False
        buffer = finish.scale.buffer
        if not isinstance(buffer, Constant) or buffer.key is not None:
            return False
        return bool((np.abs(buffer.array) < _MOST_SCALE).all())

    def _add_form(
        self, result: str, form: StepForm, numbers: dict[str, object]
    ) -> object:
        if form.operator in SCALED:
            return self._add_scaled(result, form, numbers)
        operands: list[object] = []
        first: str | None = None
        for operand in form.operands:
            if operand is None:
                operands.append(None)
            elif isinstance(operand, str):
                first = first or _element(self.plan.known(operand).dtype)
                operands.append(
                    numbers[operand] if operand in numbers else self._operand(operand)
                )
            else:
                operands.append(self._constant(operand, first or form.element))
        return self._add(form.operator, operands, form.element, form.attributes)

    def _add_scaled(
        self, result: str, form: StepForm, numbers: dict[str, object]
    ) -> object:
        """The steps that quantise or dequantise."""
        attributes = dict(form.attributes)
        x, scale, zero = (*form.operands, None)[:3]
        assert isinstance(x, str) and isinstance(scale, str)
        steps = _Steps(self)
        shape = self.plan.known(x).shape
        axis = axis_of_scales(attributes, shape)

        def read(name: str) -> _Typed:
            element = _element(self.plan.known(name).dtype)
            if name in numbers:
                return _Typed(numbers[name], element)
            if name == x:
                return _Typed(self._operand(name), element)
            # no part of the code, as each call has others
            view = _along(self.plan, self.plan.view(name), axis, len(shape))
            return _Typed(self._operand(view), element)

        shift = None
        if isinstance(zero, str) and not self._is_nothing(zero):
            shift = steps.cast(read(zero), "f32")
        if form.operator == "DequantizeLinear":
            value, factor = self._whole.get(x) or read(x), read(scale)
            value, factor = (steps.cast(each, "f32") for each in (value, factor))
            found = dequantised(steps, value, factor, shift)
            return steps.cast(found, form.element).value
        found = self._in_steps_of_sums(x, scale, axis, numbers)
        if found is None:
            value, factor = read(x), read(scale)
            narrow = "f32" if attributes.get("precision") else factor.element
            found = in_steps(steps, value, factor, narrow)
        if x in self._of_sums and form.element in CODE_LIMITS:
            self._whole[result] = whole_codes(steps, found, shift, form.element)
            return steps.cast(self._whole[result], form.element).value
        saturates = bool(attributes.get("saturate", 1))
        found = quantised(steps, found, shift, form.element, saturates=saturates)
        return steps.cast(found, form.element).value

    def _in_steps_of_sums(
        self, x: str, scale: str, axis: int, numbers: Mapping[str, object]
    ) -> _Typed | None:
        """A value behind sums of integers in steps of *scale*, multiplied instead of
        divided; ``None`` where that might overflow, or is not within a step."""
        content = self.plan.known(scale).content
        dtypes = {self.plan.known(name).dtype for name in (x, scale)}
        if x not in self._of_sums or content is None or dtypes != {np.dtype("f4")}:
            return None
        if not ((content > 1 / _MOST_SCALE) & (content < _MOST_SCALE)).all():
            return None
        if scale not in self._reciprocals:
            view = self.plan.recorder.constant(np.asarray(np.float32(1) / content))
            rank = len(self.plan.known(x).shape)
            self._reciprocals[scale] = _along(self.plan, view, axis, rank)
        per = _Typed(self._operand(self._reciprocals[scale]), "f32")
        return self._times(x, per, float(content.min()), numbers)

    def _times(
        self, name: str, per: _Typed, step: float, numbers: Mapping[str, object]
    ) -> _Typed:
        """A value of float32 behind sums of integers, or beside one, times *per*.

        Args:
            step: the least of what *per* are the reciprocals of.
        """
        key = name, per.value
        if key not in self._multiples:
            self._multiples[key] = self._multiple(name, per, step, numbers)
        return self._multiples[key]

    def _multiple(
        self, name: str, per: _Typed, step: float, numbers: Mapping[str, object]
    ) -> _Typed:
        steps, form = _Steps(self), self._made.get(name)
        if form is None and name in self._of_sums:
            return _Typed(self._finished(per), "f32")
        operator = "" if form is None else form.operator
        operands = () if form is None else form.operands
        names = [each for each in operands if isinstance(each, str)]
        if operator == "Relu":
            return steps.step("Relu", self._times(names[0], per, step, numbers))
        if operator == "Add" and len(names) == 2:
            parts = [self._times(each, per, step, numbers) for each in names]
            return steps.step("Add", *parts, fused=1)
        if form is not None and operator == "DequantizeLinear":
            content = self.plan.known(names[1]).content
            if content is not None and (np.abs(content) < _MOST_STEPS * step).all():
                return self._codes_times(form, per, numbers)
        found = numbers[name] if name in numbers else self._operand(name)
        return steps.step("Mul", _Typed(found, "f32"), per)

    def _codes_times(
        self, form: StepForm, per: _Typed, numbers: Mapping[str, object]
    ) -> _Typed:
        """What codes stand for, times *per*."""
        codes, scale, zero = (*form.operands, None)[:3]
        assert isinstance(codes, str) and isinstance(scale, str)
        steps, known = _Steps(self), self.plan.known(codes)
        axis = axis_of_scales(dict(form.attributes), known.shape)

        def read(name: str) -> _Typed:
            view = _along(self.plan, self.plan.view(name), axis, len(known.shape))
            found = _Typed(self._operand(view), _element(self.plan.known(name).dtype))
            return steps.cast(found, "f32")

        value = self._whole.get(codes)
        if value is None:
            found = numbers[codes] if codes in numbers else self._operand(codes)
            value = steps.cast(_Typed(found, _element(known.dtype)), "f32")
        factor = steps.step("Mul", read(scale), per)
        product = steps.step("Mul", value, factor)
        if not isinstance(zero, str) or self._is_nothing(zero):
            return product
        shift = steps.step("Neg", steps.step("Mul", read(zero), factor))
        return steps.step("Add", product, shift, fused=1)

    def _is_nothing(self, zero: str) -> bool:
        """Whether zero points are known to be 0."""
        content = self.plan.known(zero).content
        return content is not None and not content.any()

    def add_step(
        self,
        operator: str,
        operands: Sequence[object],
        element: str,
        attributes: Mapping[str, Any],
    ) -> object:
        """One more step."""
        return self._add(operator, operands, element, tuple(sorted(attributes.items())))

    def constant(self, number: float, element: str) -> object:
        """A number that is part of the code."""
        return self._constant(number, element)

    def _summand(self, operand: Operand) -> object:
        """An operand of what finishes the sums, as wide as these are."""
        found = self._operand(operand)
        return self._cast(found, self._element_of(operand), self.element)

    def _cast(self, value: object, element: str, wanted: str) -> object:
        return value if element == wanted else self._add("Cast", (value,), wanted, ())

    def _operand(self, operand: Operand) -> object:
        if isinstance(operand, str):
            value = self.plan.known(operand)
            number = scalar_of(value)
            if number is not None:
                return self._constant(number, _element(value.dtype))
        if operand not in self.operands:
            self.operands.append(operand)
        return "operand", self.operands.index(operand)

    def _element_of(self, operand: Operand) -> str:
        if isinstance(operand, str):
            return _element(self.plan.known(operand).dtype)
        return _element(operand.dtype)

    def _add_sum(self, operator: str, one: object, other: object) -> object:
        return self._add(operator, (one, other), self.element, ())

    def _constant(self, number: float, element: str) -> object:
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
        element: str,
        attributes: object,
    ) -> object:
        self.steps.append((operator, tuple(operands), element, attributes))
        return "step", len(self.steps) - 1


class _Typed(NamedTuple):
    """A value of a builder, and its element."""

    value: object
    element: str


class _Steps:
    """A builder as :class:`~..ir.quantization.Steps`."""

    def __init__(self, builder: Builder) -> None:
        self._builder = builder

    def number(self, value: float, element: str = "f32") -> _Typed:
        return _Typed(self._builder.constant(value, element), element)

    def step(
        self, operator: str, *operands: _Typed, element: str = "f32", **attributes: Any
    ) -> _Typed:
        values = [each.value for each in operands]
        found = self._builder.add_step(operator, values, element, attributes)
        return _Typed(found, element)

    def cast(self, operand: _Typed, element: str, **attributes: Any) -> _Typed:
        if operand.element == element:
            return operand
        return self.step("Cast", operand, element=element, **attributes)


def _along(plan: Plan, view: View, axis: int, rank: int) -> View:
    """One number for all, or one for each place of an axis."""
    sizes = () if view.size == 1 else (view.size, *[1] * (rank - 1 - axis))
    found = view.reshape(sizes) or plan.contiguous(view).reshape(sizes)
    assert found is not None, "a vector becomes any column"
    return found


def _element(dtype: np.dtype[Any]) -> str:
    element = element_of(dtype)
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
