"""Element-wise operators that are computed in one pass over their arrays.

A chain is a directed acyclic graph in static single assignment over scalars; kernels
apply it to every element of its broadcast inputs.  Values are numbered: the inputs
first, then the constants, then the steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NewType, TypeVar

from onnxplug_compiler.ir.parameters import Parameters


class Step(Parameters):
    """One operator.

    Attributes:
        operator: ONNX's name, ``Add``, ``Erf``, ``Clip`` …, with the semantics of the
            newest opset; inputs that an older version had as attributes are operands.
        operands: numbers of values; -1 for an optional input that is left out.
        element: the result's element type, a name of :mod:`~.elements`.
        attributes: the operator's attributes, defaults filled in, sorted by name; of
            an Add ``fused``, if products among its operands need not be rounded.
    """

    operator: str
    operands: tuple[int, ...]
    element: str
    attributes: tuple[tuple[str, Any], ...] = ()


class Scalar(Parameters):
    """A constant of the chain."""

    element: str
    value: float | int | bool


class Chain(Parameters):
    """Steps over inputs.

    Attributes:
        inputs: the element type of each input.
        constants: scalars that are part of the code.
        steps: in an order in which each uses only values before it.
        outputs: numbers of the values that are written.
    """

    inputs: tuple[str, ...]
    constants: tuple[Scalar, ...]
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]

    def element(self, value: int) -> str:
        """The element type of the value numbered *value*."""
        if value < len(self.inputs):
            return self.inputs[value]
        value -= len(self.inputs)
        if value < len(self.constants):
            return self.constants[value].element
        return self.steps[value - len(self.constants)].element


_V = TypeVar("_V")

Number = NewType("Number", int)
"""A value of a :class:`ChainBuilder`; :meth:`~ChainBuilder.build` numbers it anew."""


class ChainBuilder:
    """Puts a chain together in any order: values may be added when they are needed.

    Equal constants and equal steps become one value.  What no output needs is left out,
    inputs excepted, whose numbers are the order of their addition.
    """

    def __init__(self) -> None:
        self._values: list[str | Scalar | Step] = []  # a text is an input's element
        self._known: dict[str, Number] = {}

    def input(self, element: str) -> Number:
        """One more input."""
        return self._add(element)

    def constant(self, element: str, value: float | int | bool) -> Number:
        """A scalar; those that differ only in a zero's sign are two."""
        return self._shared(Scalar(element, value))

    def step(
        self,
        operator: str,
        operands: Sequence[Number | None],
        element: str,
        attributes: Mapping[str, Any] | Iterable[tuple[str, Any]] = (),
    ) -> Number:
        """An operator on values of this builder; ``None`` for what is left out."""
        numbers = tuple(-1 if operand is None else operand for operand in operands)
        written = tuple(sorted(dict(attributes).items()))
        if operator == "Identity":
            return Number(numbers[0])
        return self._shared(Step(operator, numbers, element, written))

    def append(
        self,
        chain: Chain,
        inputs: Sequence[Number],
        instead: Mapping[Step, Number] | None = None,
    ) -> list[Number]:
        """All steps of another chain, whose inputs are *inputs*; gives its outputs.

        Args:
            instead: what takes the place of some steps.
        """
        known = instead or {}
        values = list(inputs)
        values += [self.constant(*scalar) for scalar in chain.constants]
        for step in chain.steps:
            operands = [values[o] if o >= 0 else None for o in step.operands]
            made = known.get(step)
            if made is None:
                made = self.step(step.operator, operands, step.element, step.attributes)
            values.append(made)
        return [values[output] for output in chain.outputs]

    def element(self, number: Number) -> str:
        """The element type of a value."""
        value = self._values[number]
        return value if isinstance(value, str) else value.element

    def build(self, outputs: Sequence[Number]) -> Chain:
        """The chain that computes *outputs*."""
        live: set[int] = set(outputs)
        for number in range(len(self._values) - 1, -1, -1):
            value = self._values[number]
            if number in live and isinstance(value, Step):
                live.update(value.operands)
        inputs = [n for n, v in enumerate(self._values) if isinstance(v, str)]
        constants = self._of(Scalar, live)
        steps = self._of(Step, live)
        order = [*inputs, *(n for n, _ in constants), *(n for n, _ in steps)]
        place = {number: position for position, number in enumerate(order)} | {-1: -1}
        return Chain(
            tuple(v for v in self._values if isinstance(v, str)),
            tuple(scalar for _, scalar in constants),
            tuple(
                step._replace(operands=tuple(place[o] for o in step.operands))
                for _, step in steps
            ),
            tuple(place[output] for output in outputs),
        )

    def _of(self, kind: type[_V], live: set[int]) -> list[tuple[int, _V]]:
        return [
            (number, value)
            for number, value in enumerate(self._values)
            if number in live and isinstance(value, kind)
        ]

    def _shared(self, value: Scalar | Step) -> Number:
        # by its text, because equality takes -0 for 0 and True for 1
        key = repr(value)
        if key not in self._known:
            self._known[key] = self._add(value)
        return self._known[key]

    def _add(self, value: str | Scalar | Step) -> Number:
        self._values.append(value)
        return Number(len(self._values) - 1)
