"""Writes a neutral program as one of Core AI."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, Final

from onnxplug_coreml.coreai import operations
from onnxplug_coreml.coreai.writer import Writer, tensor_type
from onnxplug_coreml.lowering.program import Program, Value

del operations  # imported for what it registers

ENTRY: Final = "main"
"""The name of the function that a model has."""


def emit(authoring: Any, program: Program) -> Any:
    """The program as Core AI's ``AIProgram``.

    Its inputs and outputs are called as the program's values are.

    Args:
        authoring: ``coreai.authoring``.
    """
    module = authoring.Module.create()
    with module:
        authoring.graph(_body(authoring, program), provided_name=ENTRY)
    return authoring.AIProgram(module)


def _body(authoring: Any, program: Program) -> Callable[..., Any]:
    """A function as ``coreai.authoring.graph`` reads them: by its annotations."""

    def body(*inputs: Any) -> Any:
        values = dict(
            zip((port.value.name for port in program.inputs), inputs, strict=True)
        )
        writer = Writer(authoring, program, values)
        for operation in program.operations:
            writer.write(operation)
        return tuple(writer.value(value.name) for value in program.results)

    kinds = {
        port.value.name: _annotated(authoring, port.value) for port in program.inputs
    }
    results = tuple(_annotated(authoring, value) for value in program.results)
    result = results[0] if len(results) == 1 else tuple[results]  # type: ignore[valid-type]
    parameters = [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        for name in kinds
    ]
    body.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    body.__annotations__ = {**kinds, "return": result}
    return body


def _annotated(authoring: Any, value: Value) -> Any:
    kind = tensor_type(authoring, value.dtype, value.shape, value.name)
    return Annotated[authoring.Value, kind]
