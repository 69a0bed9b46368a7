"""ONNX's operators, for libraries that ask for them by name."""

from __future__ import annotations

from typing import Any

from onnxplug_native.functions.node import schema_of
from onnxplug_native.interface.codes import Code, InterfaceError
from onnxplug_native.interface.handles import Handle, find
from onnxplug_native.interface.host import implements
from onnxplug_native.interface.memory import put_int, put_pointer, put_size


class OperatorSchema(Handle):
    """An operator of ONNX's.

    Attributes:
        schema: ONNX's.
    """

    def __init__(self, schema: Any) -> None:
        super().__init__()
        self.schema = schema


@implements("GetOpSchema", "OrtEpApi")
def get_op_schema(
    name: bytes | None, version: int, domain: bytes | None, out: int
) -> None:
    """The operator as it is in a version of its domain; null if ONNX has none."""
    found = schema_of(
        (name or b"").decode("utf-8", "replace"),
        (domain or b"").decode("utf-8", "replace"),
        version,
    )
    put_pointer(out, None if found is None else OperatorSchema(found))


@implements("OpSchema_GetSinceVersion", "OrtEpApi")
def get_since_version(schema: int, out: int) -> None:
    """The version at which it last changed."""
    put_int(out, find(OperatorSchema, schema).schema.since_version)


@implements("OpSchema_GetNumInputs", "OrtEpApi")
def get_input_count(schema: int, out: int) -> None:
    """How many inputs, of which the last may stand for several."""
    put_size(out, len(find(OperatorSchema, schema).schema.inputs))


@implements("OpSchema_GetNumOutputs", "OrtEpApi")
def get_output_count(schema: int, out: int) -> None:
    """How many outputs, of which the last may stand for several."""
    put_size(out, len(find(OperatorSchema, schema).schema.outputs))


def _put_name(found: OperatorSchema, formals: Any, index: int, out: int) -> None:
    if index >= len(formals):
        raise InterfaceError(
            Code.INVALID_ARGUMENT, f"there is no argument {index} of {len(formals)}"
        )
    put_pointer(out, found.text(formals[index].name))


@implements("OpSchema_GetInputName", "OrtEpApi")
def get_input_name(schema: int, index: int, out: int) -> None:
    """The name of an input."""
    found = find(OperatorSchema, schema)
    _put_name(found, found.schema.inputs, index, out)


@implements("OpSchema_GetOutputName", "OrtEpApi")
def get_output_name(schema: int, index: int, out: int) -> None:
    """The name of an output."""
    found = find(OperatorSchema, schema)
    _put_name(found, found.schema.outputs, index, out)
