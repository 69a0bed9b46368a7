"""Constraints that the pages of many operators state, in their words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from . import Desc, Rejected, Tensor

OWNED_BY_DML = 1
"""``DML_TENSOR_FLAG_OWNED_BY_DML``."""

ANY = "FLOAT64 FLOATS SIGNED UNSIGNED"
"""All data types, in a table of support; most operators that copy came to have them."""

UP_TO_32 = "FLOATS INT32 INT16 INT8 UINT32 UINT16 UINT8"
"""All data types but those of 64 bits."""


def require(holds: bool, reason: str) -> None:
    """Raises `Rejected` with a reason unless a constraint holds."""
    if not holds:
        raise Rejected(reason)


def each(tensors: dict[str, Any], names: str) -> Iterator[tuple[str, Tensor]]:
    """The tensors of fields, named in one text, that are not null; of arrays, all."""
    for name in names.split():
        value = tensors.get(name)
        if isinstance(value, Tensor):
            yield name, value
        elif value is not None:
            for at, tensor in enumerate(value):
                yield f"{name}[{at}]", tensor


def same_types(tensors: dict[str, Any], names: str) -> None:
    """*These must have the same DataType.*"""
    found = {name: tensor.type_name for name, tensor in each(tensors, names)}
    require(len(set(found.values())) <= 1, f"not of one DataType: {found}")


def same_counts(tensors: dict[str, Any], names: str) -> None:
    """*These must have the same DimensionCount.*"""
    found = {name: len(tensor.sizes) for name, tensor in each(tensors, names)}
    require(len(set(found.values())) <= 1, f"not of one DimensionCount: {found}")


def same_sizes(tensors: dict[str, Any], names: str) -> None:
    """*These must have the same Sizes*, and so the same DimensionCount."""
    found = {name: tensor.sizes for name, tensor in each(tensors, names)}
    require(len(set(found.values())) <= 1, f"not of the same Sizes: {found}")


def sizes_are(
    tensors: dict[str, Any], name: str, sizes: Sequence[int], ones: bool = False
) -> None:
    """A field, unless it is null, has these sizes.

    With ``ones`` it may have leading dimensions of 1 beside them.
    """
    for field, tensor in each(tensors, name):
        found = tensor.sizes
        if ones:
            found = tensor.sizes[max(len(found) - len(sizes), 0) :]
            padding = tensor.sizes[: len(tensor.sizes) - len(found)]
            require(set(padding) <= {1}, f"{field} is of {tensor.sizes}, not 1 ahead")
        require(found == tuple(sizes), f"{field} is of {found}, not {tuple(sizes)}")


def axis_within(desc: Desc, tensor: Tensor) -> int:
    """``Axis``, which must be less than a tensor's DimensionCount."""
    axis: int = desc.Axis
    count = len(tensor.sizes)
    require(axis < count, f"Axis {axis} of a tensor of {count} dimensions")
    return axis


def count_is(desc: Desc, name: str, tensor: Tensor) -> None:
    """An array has a number for each dimension of a tensor."""
    found, count = len(getattr(desc, name)), len(tensor.sizes)
    require(found == count, f"{name} has {found} numbers for {count} dimensions")


def value_type_is(desc: Desc, name: str, tensor: Tensor) -> None:
    """The data type of a ``DML_SCALAR_UNION`` must match a tensor's."""
    found = getattr(desc, name)
    require(
        found == tensor.type_name, f"{name} is {found}, the tensor {tensor.type_name}"
    )


def not_owned(tensors: dict[str, Any], names: str) -> None:
    """*The tensor doesn't support the DML_TENSOR_FLAG_OWNED_BY_DML flag.*"""
    for name, tensor in each(tensors, names):
        require(
            not tensor.flags & OWNED_BY_DML,
            f"{name} does not support DML_TENSOR_FLAG_OWNED_BY_DML",
        )
