"""Chains of element-wise operators that other operators are put together from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnxplug_compiler.ir.elements import element_of
from onnxplug_compiler.ir.elementwise import ChainBuilder, Number
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.views import View


class Formula:
    """A chain in the making: its inputs, and what they are.

    Args:
        element: of all inputs and, unless a step says otherwise, results.
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

    def read(self, view: View) -> Number:
        """One more input."""
        self._views.append(view)
        return self._builder.input(self._element)

    def number(self, value: float) -> Number:
        """A constant that is part of the code."""
        return self._builder.constant(self._element, value)

    def step(self, operator: str, *operands: Number, element: str = "") -> Number:
        """An operator."""
        return self._builder.step(operator, operands, element or self._element)

    def record(
        self, recorder: Recorder[Any], result: Number, out: View, label: str
    ) -> None:
        """Write the result to *out*; what was read is broadcast."""
        self.record_all(recorder, [result], [out], label)

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
