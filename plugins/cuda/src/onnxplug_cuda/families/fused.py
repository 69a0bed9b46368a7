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
        added: the same, of one as large as the result.
        activation: of ``product.ACTIVATIONS``.
        rest: a chain whose value 0 is the library's result; ``None``: nothing is left.
        operands: the numbers of the operands of the rest.
    """

    element: str
    bias: int | None
    added: int | None
    activation: str
    rest: Chain | None
    operands: tuple[int, ...]


def fused(
    chain: Chain,
    results: frozenset[str],
    takes_bias: Callable[[int], bool],
    activations: Collection[str],
    takes_added: Callable[[int], bool] = lambda _: False,
) -> Fused:
    """What of *chain*, whose value 0 is a sum of products, a library does.

    Args:
        results: the elements that its results may have; of float64 it adds no bias,
            and applies nothing.
        takes_bias: whether an operand of the chain, by its number, is a bias that the
            library adds.
        activations: those that it applies, of ``relu`` and ``gelu``.
        takes_added: whether it adds an operand, by its number, that is as large as the
            result.
    """
    prefix = _Prefix(chain)
    bias, added, activation = prefix.take_wide_bias(results, takes_bias), None, ""
    if bias is None:
        prefix.take_cast(results)
    if prefix.element != "f64":
        if bias is None:
            bias = prefix.take_bias(takes_bias)
        added = prefix.take_bias(takes_added)
        activation = prefix.take_activation(activations)
    return Fused(prefix.element, bias, added, activation, *prefix.rest())


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

    def take_wide_bias(
        self, results: frozenset[str], takes: Callable[[int], bool]
    ) -> int | None:
        """Take the addition of a narrower operand before the sum is rounded to its
        element; give its number."""
        for number, step in self._next():
            other = self._addend(step) - self._first
            if not 0 <= other < len(self._chain.steps):
                continue
            widening = self._chain.steps[other]
            if widening.operator != "Cast" or widening.attributes:
                continue
            operand = self._operand(widening.operands[0], takes)
            casts = self._users(self._first + number)
            if operand is None or step.element != self.element or len(casts) != 1:
                continue
            at, narrowing = casts[0]
            narrow = self._chain.inputs[operand + 1]
            is_cast = narrowing.operator == "Cast" and not narrowing.attributes
            if is_cast and narrowing.element == narrow and narrow in results:
                if len(self._users(self._first + other)) == 1:
                    self._used.append(other)
                self._take(number, step)
                self._take(at, narrowing)
                return operand
        return None

    def take_bias(self, takes: Callable[[int], bool]) -> int | None:
        """Take the addition of an operand; give its number."""
        for number, step in self._next():
            other = self._addend(step)
            operand = self._operand(other, takes)
            if operand is None:
                continue
            if self._chain.inputs[other] == step.element == self.element:
                self._take(number, step)
                return operand
        return None

    def _addend(self, step: Step) -> int:
        """The value that *step* adds to the value; -1 if it does something else."""
        others = [each for each in step.operands if each != self.value]
        return others[0] if step.operator == "Add" and len(others) == 1 else -1

    def _operand(self, value: int, takes: Callable[[int], bool]) -> int | None:
        """The number of the chain's operand that is *value*, if it is a bias."""
        is_one = 1 <= value < len(self._chain.inputs)
        return value - 1 if is_one and takes(value - 1) else None

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
        users = self._users(self.value)
        return users if len(users) == 1 else []

    def _users(self, value: int) -> list[tuple[int, Step]]:
        """The steps that read *value*; none if it is a result, too."""
        if value in self._chain.outputs:
            return []
        steps = enumerate(self._chain.steps)
        return [(n, step) for n, step in steps if value in step.operands]

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
