"""A node's attribute, as the model states it."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from onnxplug.authoring.record import Record


class AttributeType(IntEnum):
    """``AttributeProto.AttributeType`` of the ONNX IR specification."""

    UNDEFINED = 0
    FLOAT = 1
    INT = 2
    STRING = 3
    TENSOR = 4
    GRAPH = 5
    FLOATS = 6
    INTS = 7
    STRINGS = 8
    TENSORS = 9
    GRAPHS = 10
    SPARSE_TENSOR = 11
    SPARSE_TENSORS = 12
    TYPE_PROTO = 13
    TYPE_PROTOS = 14


class Attribute(Record):
    """A typed attribute.

    Attributes:
        type: ONNX's type of the attribute, which an empty tuple would not show.
        value: int, float, str (bytes when not UTF-8), ``Weight``, ``SparseTensor`` of
            arrays, ``Graph``, ``ValueType``, or a tuple of one of these; ``None``
            with a reference.
        reference: inside a function, the name of the function's attribute that gives
            the value; empty otherwise.
    """

    type: AttributeType
    value: Any
    reference: str = ""
