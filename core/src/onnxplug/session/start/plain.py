"""Types, nodes and weights as plain values, which ``marshal`` writes."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxplug.ep.types import (
    DataType,
    MapType,
    OptionalType,
    SequenceType,
    SparseTensorType,
    TensorType,
    ValueType,
)

_TENSOR, _SPARSE, _SEQUENCE, _OPTIONAL, _MAP = range(5)


def plain_type(type: ValueType | None) -> Any:
    """A type as plain values."""
    match type:
        case TensorType(dtype, shape):
            return _TENSOR, _text(dtype), shape
        case SparseTensorType(dtype, shape):
            return _SPARSE, _text(dtype), shape
        case SequenceType(element):
            return _SEQUENCE, plain_type(element)
        case OptionalType(element):
            return _OPTIONAL, plain_type(element)
        case MapType(key, value):
            return _MAP, str(key), plain_type(value)
    return None


def type_of(plain: Any) -> ValueType | None:
    """The type that :func:`plain_type` gave *plain* for."""
    if plain is None:
        return None
    kind, *rest = plain
    if kind == _SEQUENCE:
        return SequenceType(type_of(rest[0]))
    if kind == _OPTIONAL:
        return OptionalType(type_of(rest[0]))
    if kind == _MAP:
        return MapType(DataType(rest[0]), type_of(rest[1]))
    dtype = None if rest[0] is None else DataType(rest[0])
    return (TensorType if kind == _TENSOR else SparseTensorType)(dtype, rest[1])


def _text(dtype: DataType | None) -> str | None:
    return None if dtype is None else str(dtype)


def plain_attribute(value: Any) -> Any:
    """An attribute as plain values.

    Raises:
        TypeError: there are none.
    """
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return "array", value.dtype.name, value.shape, value.tobytes()
    if isinstance(value, tuple | list):
        if all(isinstance(each, int | float | str | bytes) for each in value):
            return "several", tuple(value)
    elif isinstance(value, int | float | str | bytes):
        return "one", value
    raise TypeError(f"{type(value).__name__} has no plain value")


def attribute_of(plain: Any) -> Any:
    """The attribute that :func:`plain_attribute` gave *plain* for."""
    kind, *rest = plain
    if kind != "array":
        return rest[0]
    name, shape, content = rest
    return np.frombuffer(content, DataType(name).numpy).reshape(shape)
