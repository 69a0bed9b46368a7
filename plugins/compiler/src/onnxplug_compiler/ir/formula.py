"""Chains of element-wise operators that other operators are put together from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnxplug_compiler.ir.elements import element_of, wide_dtype
from onnxplug_compiler.ir.elementwise import ChainBuilder, Number
from onnxplug_compiler.ir.epilogue import Epilogue, epilogue
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.views import View


class Formula:
    """A chain in the making: its inputs, and what they are.

    Args:
        element: of all constants and results, unless a step says otherwise.
    """

    def __init__(self, element: str) -> None:
        self._element = element
        self._builder = ChainBuilder()
        self._views: list[View] = []

    @classmethod
    def of(cls, view: View) -> Formula:
        """One of the elements of *view*."""
        element = element_of(view.dtype)
        assert element is not None
        return cls(element)

    @classmethod
    def wide(cls, view: View) -> Formula:
        """One in which *view* is computed with: float32 for narrower floats."""
        element = element_of(wide_dtype(view.dtype))
        assert element is not None
        return cls(element)

    def tile(self) -> Number:
        """The result of a contraction, of a formula for :meth:`epilogue`; to be asked
        for before anything is read."""
        return self.tile_of(self._element)

    def tile_of(self, element: str) -> Number:
        """The same, of other elements than the formula's."""
        return self._builder.input(element)

    def read(self, view: View) -> Number:
        """One more input."""
        element = element_of(view.dtype)
        assert element is not None
        self._views.append(view)
        return self._builder.input(element)

    def read_wide(self, view: View) -> Number:
        """One more input, as the formula's element."""
        return self.cast(self.read(view), self._element)

    def number(self, value: float, element: str = "") -> Number:
        """A constant that is part of the code."""
        return self._builder.constant(element or self._element, value)

    def step(
        self, operator: str, *operands: Number, element: str = "", **attributes: Any
    ) -> Number:
        """An operator."""
        return self._builder.step(
            operator, operands, element or self._element, attributes
        )

    def cast(self, operand: Number, element: str, **attributes: Any) -> Number:
        """*operand* as another element, if it is none already."""
        if self._builder.element(operand) == element:
            return operand
        return self.step("Cast", operand, element=element, **attributes)

    def record(
        self, recorder: Recorder[Any], result: Number, out: View, label: str
    ) -> None:
        """Write the result, as its element, to *out*; what was read is broadcast."""
        element = element_of(out.dtype)
        assert element is not None
        self.record_all(recorder, [self.cast(result, element)], [out], label)

    def record_all(
        self,
        recorder: Recorder[Any],
        results: Sequence[Number],
        outs: Sequence[View],
        label: str,
    ) -> None:
        """Write several results, all of one shape."""
        chain = self._builder.build(results)
        elementwise = recorder.target.elementwise
        elementwise.record_chain(recorder, chain, self._views, outs, label=label)

    def epilogue(self, results: Sequence[Number], outs: Sequence[View]) -> Epilogue:
        """The same for the tiles of a contraction."""
        operands = [view.broadcast_to(outs[0].shape) for view in self._views]
        return epilogue(self._builder.build(results), operands, outs)


def record_cast(
    recorder: Recorder[Any], source: View, target: View, label: str = "Cast"
) -> None:
    """Write the elements of *source* as those of *target*."""
    element = element_of(target.dtype)
    assert element is not None
    formula = Formula.of(source)
    value = formula.step("Cast", formula.read(source), element=element)
    formula.record(recorder, value, target, label)
