"""What of a chain behind a library's result the library does itself."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from onnxplug.authoring.record import Record
from onnxplug_compiler.ir.elementwise import Chain, ChainBuilder, Number, Step
from onnxplug_compiler.ir.views import View

_ACTIVATIONS: Final = {
    ("Relu", ()): "relu",
    ("Gelu", (("approximate", "tanh"),)): "gelu",
}


class Fused(Record):
    """What of a chain a library does, and what is left.

    Attributes:
        element: of the library's result.
        bias: the number of the chain's operand that it adds; ``None``: it adds none.
        activation: of ``product.ACTIVATIONS``.
        rest: a chain whose value 0 is the library's result; ``None``: nothing is left.
        operands: the numbers of the operands of the rest.
    """

    element: str
    bias: int | None
    activation: str
    rest: Chain | None
    operands: tuple[int, ...]


def fused(
    chain: Chain,
    results: frozenset[str],
    takes_bias: Callable[[int], bool],
    activations: Collection[str],
) -> Fused:
    """What of *chain*, whose value 0 is a sum of products, a library does.

    Args:
        results: the elements that its results may have; of float64 it adds no bias,
            and applies nothing.
        takes_bias: whether an operand of the chain, by its number, is a bias that the
            library adds.
        activations: those that it applies, of ``relu`` and ``gelu``.
    """
    prefix = _Prefix(chain)
    prefix.take_cast(results)
    bias, activation = None, ""
    if prefix.element != "f64":
        bias = prefix.take_bias(takes_bias)
        activation = prefix.take_activation(activations)
    return Fused(prefix.element, bias, activation, *prefix.rest())


class _Prefix:
    """The first steps of a chain, each of which alone reads the value before it.

    Attributes:
        value: the number of their result.
        element: of it.
    """

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self._first = len(chain.inputs) + len(chain.constants)
        self._used: list[int] = []
        self.value, self.element = 0, chain.inputs[0]

    def take_cast(self, results: frozenset[str]) -> None:
        """Take a change of the sum's element to one of *results*."""
        for number, step in self._next():
            is_cast = step.operator == "Cast" and not step.attributes
            if is_cast and step.element in results:
                self._take(number, step)

    def take_bias(self, takes: Callable[[int], bool]) -> int | None:
        """Take the addition of an operand; give its number."""
        chain = self._chain
        for number, step in self._next():
            others = [each for each in step.operands if each != self.value]
            if step.operator != "Add" or len(others) != 1:
                continue
            operand = others[0] - 1
            if not 0 <= operand < len(chain.inputs) - 1 or not takes(operand):
                continue
            if chain.inputs[others[0]] == step.element == self.element:
                self._take(number, step)
                return operand
        return None

    def take_activation(self, activations: Collection[str]) -> str:
        """Take one of *activations* that is applied to the value; give its name."""
        for number, step in self._next():
            name = _ACTIVATIONS.get((step.operator, step.attributes), "")
            if name in activations and name and step.element == self.element:
                self._take(number, step)
                return name
        return ""

    def _next(self) -> list[tuple[int, Step]]:
        """The step that alone reads the value, if there is one."""
        steps = enumerate(self._chain.steps)
        users = [(n, step) for n, step in steps if self.value in step.operands]
        is_one = len(users) == 1 and self.value not in self._chain.outputs
        return users if is_one else []

    def _take(self, number: int, step: Step) -> None:
        self._used.append(number)
        self.value, self.element = self._first + number, step.element

    def rest(self) -> tuple[Chain | None, tuple[int, ...]]:
        """What is left where the value was computed, and of which operands."""
        chain = self._chain
        left = [n for n in range(len(chain.steps)) if n not in self._used]
        if not left and chain.outputs == (self.value,):
            return None, ()
        read = {operand for n in left for operand in chain.steps[n].operands}
        read |= set(chain.outputs)
        builder = ChainBuilder()
        numbers: dict[int, Number] = {self.value: builder.input(self.element)}
        operands = [n for n in range(1, len(chain.inputs)) if n in read]
        for n in operands:
            numbers[n] = builder.input(chain.inputs[n])
        for n, scalar in enumerate(chain.constants, len(chain.inputs)):
            numbers[n] = builder.constant(scalar.element, scalar.value)
        for n in left:
            step = chain.steps[n]
            numbers[self._first + n] = builder.step(
                step.operator,
                [numbers[each] if each >= 0 else None for each in step.operands],
                step.element,
                step.attributes,
            )
        outputs = [numbers[output] for output in chain.outputs]
        return builder.build(outputs), tuple(n - 1 for n in operands)


def per_axis(axis: int, view: View) -> View | None:
    """The numbers of *view* along *axis*, if others are the same along all others."""
    size, stride = view.shape[axis], view.strides[axis]
    if size > 1 and stride != 1:
        return None
    others = [*zip(view.shape, view.strides, strict=True)]
    del others[axis]
    if any(step and many > 1 for many, step in others):
        return None
    return View(view.buffer, view.offset, view.dtype, (size,), (1,))
