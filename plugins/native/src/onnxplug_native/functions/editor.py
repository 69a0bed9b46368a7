"""Nodes that libraries make: those that stand for what they have compiled."""

from __future__ import annotations

import ctypes
from typing import Any, Final

import numpy as np

from onnxplug_native.functions.node import Attribute, AttributeType
from onnxplug_native.interface.codes import Code, InterfaceError
from onnxplug_native.interface.handles import Handle, find
from onnxplug_native.interface.host import implements
from onnxplug_native.interface.memory import (
    pointers,
    put_pointer,
    require_array,
    texts,
)

_MOST: Final = 1 << 20
"""How many inputs, outputs or attributes a node can have: more is a mistake."""

_LONGEST: Final = (1 << 31) - 1
"""How long attributes can be, of which protobuf holds less than 2 GiB."""

_WIDTHS: Final = {
    AttributeType.INT: 8,
    AttributeType.INTS: 8,
    AttributeType.FLOAT: 4,
    AttributeType.FLOATS: 4,
    AttributeType.STRINGS: ctypes.sizeof(ctypes.c_void_p),
}
"""Bytes that a value takes; others are bytes."""


class MadeNode(Handle):
    """A node that a library made.

    Attributes:
        op_type: the operator.
        domain: its domain.
        name: the node's.
        inputs: names.
        outputs: names.
        attributes: values by name.
    """

    def __init__(
        self,
        op_type: str,
        domain: str,
        name: str,
        inputs: list[str],
        outputs: list[str],
        attributes: dict[str, Any],
    ) -> None:
        super().__init__()
        self.op_type = op_type
        self.domain = domain
        self.name = name
        self.inputs = inputs
        self.outputs = outputs
        self.attributes = attributes


@implements("CreateNode", "OrtModelEditorApi")
def create_node(
    op_type: bytes | None,
    domain: bytes | None,
    name: bytes | None,
    inputs: int,
    input_count: int,
    outputs: int,
    output_count: int,
    attributes: int,
    attribute_count: int,
    out: int,
) -> None:
    """A node; its attributes are the node's from now on."""
    given = pointers(attributes, attribute_count, _MOST, "attributes")
    found = [find(Attribute, each) for each in given]
    made = MadeNode(
        _text(op_type),
        _text(domain),
        _text(name),
        texts(inputs, input_count, _MOST, "inputs"),
        texts(outputs, output_count, _MOST, "outputs"),
        {each.name: each.value for each in found},
    )
    for each in found:
        each.release()
    put_pointer(out, made)


def _text(data: bytes | None) -> str:
    return (data or b"").decode("utf-8", "replace")


@implements("CreateOpAttr")
def create_attribute(
    name: bytes | None, data: int | None, length: int, kind: int, out: int
) -> None:
    """An attribute of numbers or texts.

    *length* is in bytes for one text, and in elements for several values.
    """
    text = (name or b"").decode("utf-8", "replace")
    try:
        type = AttributeType(kind)
    except ValueError:
        type = AttributeType.UNDEFINED
    put_pointer(out, Attribute(text, type, _read(text, type, data or 0, length)))


def _read(name: str, type: AttributeType, data: int, length: int) -> Any:
    count = 1 if type in (AttributeType.INT, AttributeType.FLOAT) else length
    if count < 0 or (count and not data):
        raise InterfaceError(Code.INVALID_ARGUMENT, f"attribute {name!r} has no data")
    what = f"values of attribute {name!r}"
    require_array(data, count, _LONGEST, _WIDTHS.get(type, 1), what)
    match type:
        case AttributeType.INT:
            return ctypes.c_int64.from_address(data).value
        case AttributeType.FLOAT:
            return ctypes.c_float.from_address(data).value
        case AttributeType.INTS:
            return tuple((ctypes.c_int64 * length).from_address(data))
        case AttributeType.FLOATS:
            return tuple(
                float(np.float32(each))
                for each in (ctypes.c_float * length).from_address(data)
            )
        case AttributeType.STRING:
            return ctypes.string_at(data, length)
        case AttributeType.STRINGS:
            return tuple(texts(data, length, _LONGEST, what))
    raise InterfaceError(
        Code.NOT_IMPLEMENTED,
        f"attribute {name!r} is of type {type.name}, which nodes are not made with",
    )
