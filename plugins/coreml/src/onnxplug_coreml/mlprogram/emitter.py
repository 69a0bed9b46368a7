"""Writes a neutral program as one of MIL, the intermediate language of coremltools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from onnxplug import ep
from onnxplug.authoring.sizes import Extent, Size
from onnxplug_coreml.lowering.program import Operation, Program, Value
from onnxplug_coreml.mlprogram import operations
from onnxplug_coreml.mlprogram.registry import EMITTERS
from onnxplug_coreml.mlprogram.signature import border_dtype
from onnxplug_coreml.mlprogram.sizes import Sizes, bounds

del operations  # imported for what it registers

INSIDE: Final = "_inside"
"""Follows the name of a result in that of what an operation made for it."""


def shortened(error: Exception) -> str:
    """What coremltools says, in one line."""
    return " ".join(str(error).split())[:300]


class Refused(Exception):
    """MIL has no such thing.

    Attributes:
        node: the index of the ONNX node that it is for; ``None``: it is of an input or
            output.
    """

    def __init__(self, reason: str, node: int | None = None) -> None:
        super().__init__(reason)
        self.node: Final = node


def emit(tools: Any, program: Program) -> Any:
    """MIL's program, validated.

    Models have no inputs and outputs of bool, nor of rank 0: they are int32 there, and
    vectors of one element.

    Args:
        tools: coremltools.

    Raises:
        Refused: MIL cannot express it.
    """
    mil = tools.converters.mil.mil
    symbols: dict[Size, Any] = {}
    inputs = [port.value for port in program.inputs]
    placeholders = {value.name: _placeholder(mil, value, symbols) for value in inputs}
    result = mil.Program()
    with mil.Function(placeholders, opset_version=tools.target.iOS17) as function:
        writer = Writer(mil, program, function.inputs)
        for operation in program.operations:
            writer.write(operation)
        function.set_outputs([writer.output(value) for value in program.results])
    result.add_function("main", function)
    function.set_input_types(
        tuple(_input_type(tools, value, program) for value in inputs)
    )
    result.validate()
    return result


def _placeholder(mil: Any, value: Value, symbols: dict[Size, Any]) -> Any:
    shape = []
    for size in value.shape or (1,):
        if isinstance(size, Size):
            shape.append(symbols.setdefault(size, mil.get_new_symbol()))
        elif size == 0:
            raise Refused(f"the input {value.name!r} has no elements")
        else:
            shape.append(size)
    dtype = mil.types.numpy_type_to_builtin_type(border_dtype(value.dtype))
    return mil.Builder.placeholder(tuple(shape), dtype)


def _input_type(tools: Any, value: Value, program: Program) -> Any:
    shape = []
    for size in value.shape or (1,):
        low, high = bounds(size, program.ranges)
        shape.append(
            tools.RangeDim(low, high, default=low) if isinstance(size, Size) else size
        )
    return tools.TensorType(value.name, shape, dtype=border_dtype(value.dtype))


class Writer:
    """Writes operations into the function that is being made.

    Attributes:
        mb: coremltools' builder.
        kinds: the program's values by name.
    """

    def __init__(self, mil: Any, program: Program, inputs: Mapping[str, Any]) -> None:
        self.mb: Final = mil.Builder
        self._types = mil.types
        self.kinds: Final = {value.name: value for value in program.values()}
        self._constants = program.constants
        self._results = {value.name for value in program.results}
        self._values = {
            name: self._enter(variable, self.kinds[name])
            for name, variable in inputs.items()
        }
        self._sizes = Sizes(self.mb, program, inputs)

    def _enter(self, variable: Any, value: Value) -> Any:
        if value.rank == 0:
            variable = self.mb.squeeze(x=variable, axes=[0])
        if value.dtype is ep.DataType.BOOL:
            variable = self.mb.cast(x=variable, dtype="bool")
        return variable

    def write(self, operation: Operation) -> None:
        """Write one operation.

        Raises:
            Refused: MIL does not take it.
        """
        operands = [None if x is None else self.value(x) for x in operation.inputs]
        emitter = EMITTERS.get(operation.primitive)
        if emitter is None:
            raise Refused(f"MIL has no {operation.primitive}", operation.node)
        try:
            made = emitter(self, operation, *operands, **operation.attributes)
        except Refused as error:
            raise Refused(str(error), operation.node) from error
        except MemoryError:
            raise
        except Exception as error:  # coremltools raises of all kinds
            ep.raise_interruption(error)
            raise Refused(
                f"coremltools does not take {operation.primitive}: {shortened(error)}",
                operation.node,
            ) from error
        results = made if isinstance(made, (list, tuple)) else [made]
        for value, result in zip(operation.outputs, results, strict=True):
            self._check(value, result, operation)
            if value.name not in self._results:
                result.name = value.name
            elif result.op is not None:  # inputs keep their names
                result.name = value.name + INSIDE
            self._values[value.name] = result

    def _check(self, value: Value, variable: Any, operation: Operation) -> None:
        """Hold MIL's own inference of types against the program's.

        Raises:
            Refused: they differ.
        """
        is_symbolic = self._types.symbolic.is_symbolic
        found = tuple(variable.shape or ())
        fits = len(found) == value.rank and all(
            is_symbolic(theirs) or isinstance(ours, Size) or ours == theirs
            for ours, theirs in zip(value.shape, found, strict=True)
        )
        dtype = np.dtype(self._types.nptype_from_builtin(variable.dtype))
        if not fits or dtype != value.dtype.numpy:
            raise Refused(
                f"coremltools makes {dtype}{list(found)} of {operation.primitive}, "
                f"not {value.dtype}{[str(size) for size in value.shape]}",
                operation.node,
            )

    def value(self, name: str) -> Any:
        """MIL's variable for the value of this name."""
        if name not in self._values:
            array = self._constants[name].array
            self._values[name] = self.constant(array)
        return self._values[name]

    def output(self, value: Value) -> Any:
        """A variable that the model gives, called as the value is."""
        if 0 in value.shape:
            raise Refused(f"the output {value.name!r} has no elements")
        variable = self.value(value.name)
        if value.dtype is ep.DataType.BOOL:
            variable = self.mb.cast(x=variable, dtype="int32")
        if value.rank == 0:
            variable = self.mb.expand_dims(x=variable, axes=[0])
        return self.mb.identity(x=variable, name=value.name)

    def constant(self, array: Any) -> Any:
        """An array as a constant; it is not copied."""
        array = np.asarray(array)
        if array.size == 0:
            raise Refused("a constant has no elements")
        return self.mb.const(val=array if array.ndim else array[()])

    def dtype(self, operation: Operation) -> ep.DataType:
        """The type of the operation's first result."""
        return operation.outputs[0].dtype

    def kind(self, operation: Operation, operand: int = 0) -> Value:
        """The program's value for an operand of the operation."""
        name = operation.inputs[operand]
        assert name is not None
        return self.kinds[name]

    def like(self, variable: Any, number: float) -> Any:
        """A scalar of the type of *variable*."""
        return self._types.nptype_from_builtin(variable.dtype)(number)

    def sizes(self, shape: Sequence[Extent]) -> Any:
        """A shape as a vector; of numbers, or found in the run."""
        return self._sizes.vector(shape)
