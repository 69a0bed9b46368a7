"""Constraints that the pages of many operators state in the same words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from . import Rejected, Tensor

Tensors = Mapping[str, Any]
"""The tensors of a description by field; a list of them where the field is an array."""


def uniform(fields: str, levels: str) -> str:
    """A table "Tensor support" in which all tensors of a feature level are alike.

    Args:
        fields: names in the struct's order, the last of which is the output.
        levels: a line for each feature level: the level, the numbers of dimensions,
            the data types, and after ``>`` those of the output if they are others.
    """
    *inputs, output = fields.split()
    lines = []
    for level in filter(None, map(str.strip, levels.splitlines())):
        since, counts, types = level.split(maxsplit=2)
        of_inputs, _, of_output = types.partition(">")
        rows = [f"{each} input {counts} {of_inputs}" for each in inputs]
        rows.append(f"{output} output {counts} {of_output or of_inputs}")
        lines += [f"{since} {rows[0]}", *rows[1:]]
    return "\n".join(lines)


def present(tensors: Tensors, fields: str) -> dict[str, Tensor]:
    """The tensors of fields, without those that are null."""
    return {name: tensors[name] for name in fields.split() if name in tensors}


def same(tensors: Tensors, fields: str, *, sizes: bool = True) -> None:
    """All of one data type and dimension count, and of the same sizes if asked.

    Raises:
        Rejected: they are not.
    """
    same_data_type(tensors, fields)
    (same_sizes if sizes else same_dimension_count)(tensors, fields)


def same_data_type(tensors: Tensors, fields: str) -> None:
    """All of one ``DataType``, or `Rejected`."""
    agree("DataType", {k: v.type_name for k, v in present(tensors, fields).items()})


def same_dimension_count(tensors: Tensors, fields: str) -> None:
    """All of one ``DimensionCount``, or `Rejected`."""
    counts = {k: len(v.sizes) for k, v in present(tensors, fields).items()}
    agree("DimensionCount", counts)


def same_sizes(tensors: Tensors, fields: str) -> None:
    """All of the same ``Sizes``, or `Rejected`."""
    agree("Sizes", {k: v.sizes for k, v in present(tensors, fields).items()})


def agree(what: str, values: Mapping[str, object]) -> None:
    """`Rejected` unless all values are equal."""
    if len(set(values.values())) > 1:
        raise Rejected(f"{what} must be the same: {values}")


def sized(tensors: Tensors, field: str, sizes: Iterable[int]) -> None:
    """A tensor has the sizes that its operator's page gives, or `Rejected`."""
    expected = tuple(sizes)
    if field in tensors and tensors[field].sizes != expected:
        raise Rejected(f"{field} has Sizes {tensors[field].sizes}, not {expected}")


def broadcast(tensors: Tensors, fields: str, to: str) -> None:
    """Each dimension is 1 or that of another tensor of the same rank, or `Rejected`."""
    same_dimension_count(tensors, f"{fields} {to}")
    full = tensors[to].sizes
    for name, tensor in present(tensors, fields).items():
        pairs = zip(tensor.sizes, full, strict=True)
        if any(size not in (1, whole) for size, whole in pairs):
            raise Rejected(f"{name} {tensor.sizes} does not broadcast to {to} {full}")


def one_of_each(tensors: Tensors, fields: str) -> None:
    """Tensors of one element, or `Rejected`."""
    for name, tensor in present(tensors, fields).items():
        if any(size != 1 for size in tensor.sizes):
            raise Rejected(f"{name} must have one element, not Sizes {tensor.sizes}")


def axes_of(axes: Sequence[int], tensor: Tensor) -> None:
    """``Axes`` in ``[0, DimensionCount - 1]``, or `Rejected`.

    The pages do not say what an axis named twice means.
    """
    if len(set(axes)) < len(axes) or any(a >= len(tensor.sizes) for a in axes):
        raise Rejected(f"Axes {tuple(axes)} of a tensor of Sizes {tensor.sizes}")
