"""Constraints of operators that move elements, beside those of `agreement`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from . import Desc, Rejected, Tensor
from .agreement import Tensors, agree

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


def each(tensors: Tensors, fields: str) -> Iterator[tuple[str, Tensor]]:
    """The tensors of fields that are not null; of those that are arrays, all."""
    for name in fields.split():
        value = tensors.get(name, ())
        if isinstance(value, Tensor):
            yield name, value
        else:
            yield from ((f"{name}[{at}]", tensor) for at, tensor in enumerate(value))


def all_alike(tensors: Tensors, fields: str) -> None:
    """All, also those in arrays, of one DataType and DimensionCount, or `Rejected`."""
    found = dict(each(tensors, fields))
    agree("DataType", {name: tensor.type_name for name, tensor in found.items()})
    agree("DimensionCount", {name: len(t.sizes) for name, t in found.items()})


def last(tensor: Tensor, count: int, name: str) -> tuple[int, ...]:
    """The last ``count`` sizes, of a tensor that has at most ones ahead of them.

    Raises:
        Rejected: it has other sizes ahead, or fewer dimensions.
    """
    ahead = len(tensor.sizes) - count
    require(
        ahead >= 0 and set(tensor.sizes[:ahead]) <= {1},
        f"{name} of {tensor.sizes} has not {count} dimensions beside leading ones",
    )
    return tensor.sizes[ahead:]


def ends(tensors: Tensors, field: str, sizes: Sequence[int]) -> None:
    """A tensor that is not null has these sizes after leading ones, or `Rejected`."""
    if field in tensors:
        found = last(tensors[field], len(sizes), field)
        require(found == tuple(sizes), f"{field} has Sizes {found}, not {tuple(sizes)}")


def axis_within(desc: Desc, tensor: Tensor) -> int:
    """``Axis``, which must be less than a tensor's DimensionCount."""
    axis: int = desc.Axis
    count = len(tensor.sizes)
    require(axis < count, f"Axis {axis} of a tensor of {count} dimensions")
    return axis


def along(tensor: Tensor, axis: int, size: int) -> tuple[int, ...]:
    """A tensor's sizes with another along an axis."""
    return (*tensor.sizes[:axis], size, *tensor.sizes[axis + 1 :])


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


def not_owned(tensors: Tensors, fields: str) -> None:
    """*The tensor doesn't support the DML_TENSOR_FLAG_OWNED_BY_DML flag.*"""
    for name, tensor in each(tensors, fields):
        require(
            not tensor.flags & OWNED_BY_DML,
            f"{name} does not support DML_TENSOR_FLAG_OWNED_BY_DML",
        )
