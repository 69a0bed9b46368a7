"""Which fields of operators' descriptions are tensors, and which of those are made."""

from __future__ import annotations

import ctypes
from functools import cache

from onnxplug_directml.abi.directml import (
    DML_OPERATOR_TYPE,
    DML_TENSOR_DESC,
    OPERATOR_DESCS,
)


@cache
def tensor_fields(
    kind: DML_OPERATOR_TYPE,
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of the fields that are inputs, and those that are outputs.

    Both stand in the order of the description, which is that of bindings and of the
    edges of graphs.  By Microsoft's names outputs begin with ``Output``.
    """
    tensors = [
        field[0]
        for field in OPERATOR_DESCS[kind]._fields_
        if field[1] is ctypes.POINTER(DML_TENSOR_DESC)
    ]
    return (
        tuple(name for name in tensors if not name.startswith("Output")),
        tuple(name for name in tensors if name.startswith("Output")),
    )
