"""Writes operations into a graph of Core AI."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxplug import ep
from onnxplug_coreml.coreai.registry import EMITTERS
from onnxplug_coreml.lowering.program import Operation, Program, Value


def tensor_type(
    authoring: Any, dtype: ep.DataType, shape: Sequence[Any], name: str | None = None
) -> Any:
    """Core AI's type of a tensor; it finds sizes that are no numbers."""
    sizes = tuple(size if isinstance(size, int) else -1 for size in shape)
    return authoring.TensorType(sizes, dtype.numpy, name)


class Writer:
    """Writes operations into the graph that is being made.

    Attributes:
        authoring: ``coreai.authoring``.
    """

    def __init__(
        self, authoring: Any, program: Program, values: dict[str, Any]
    ) -> None:
        self.authoring = authoring
        self._program = program
        self._values = values
        self._kinds = {value.name: value for value in program.values()}

    def write(self, operation: Operation) -> None:
        """Write one operation."""
        operands = [None if x is None else self.value(x) for x in operation.inputs]
        results = EMITTERS[operation.primitive](
            self, operation, *operands, **operation.attributes
        )
        if len(operation.outputs) == 1:
            results = [results]
        for value, result in zip(operation.outputs, results, strict=True):
            self._values[value.name] = result

    def value(self, name: str) -> Any:
        """What the graph has of this name."""
        if name not in self._values:
            self._values[name] = self.constant(self._program.constants[name].array)
        return self._values[name]

    def constant(self, array: Any) -> Any:
        """An array as a constant."""
        from coreai.authoring.constant import constant

        return constant(np.asarray(array, order="C"))

    def like(self, operation: Operation, number: float) -> Any:
        """A scalar of the type of the operation's first operand."""
        dtype = self.kind(operation).dtype
        return self.constant(np.asarray(number, dtype.numpy))

    def kind(self, operation: Operation, operand: int = 0) -> Value:
        """The program's value for an operand of the operation."""
        name = operation.inputs[operand]
        assert name is not None
        return self._kinds[name]

    def scalar_type(self, operation: Operation) -> Any:
        """The operation's element type, as numpy's scalar type."""
        return operation.outputs[0].dtype.numpy.type

    def sizes(self, shape: Sequence[Any]) -> Any:
        """A shape as the engine wants it: one size may be -1, to be found by it."""
        numbers = [size if isinstance(size, int) else -1 for size in shape]
        return self.constant(np.asarray(numbers, np.int32))

    def indices(self, numbers: Sequence[int]) -> Any:
        """Numbers as int32."""
        return self.constant(np.asarray(numbers, np.int32))

    def counts(self, numbers: Sequence[int] | int) -> Any:
        """Numbers as uint32."""
        return self.constant(np.asarray(numbers, np.uint32))
