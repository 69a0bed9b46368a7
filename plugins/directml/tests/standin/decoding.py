"""Descriptions of operators and tensors, from the bytes that DirectML would get."""

from __future__ import annotations

import ctypes
import functools
import importlib
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .. import definitions
from . import operators
from .operators import DTYPES, OPERATORS, Desc, Meaning, Rejected, Support, Tensor
from .schema import Schema, members, operator_names, schema

OWNED_BY_DML = 1
MINIMUM_ALIGNMENT = 16


@dataclass(frozen=True)
class Operator:
    """A decoded operator.

    Attributes:
        desc: its fields.
        meaning: what it computes.
        inputs: tensors that it reads, with None for each that is null, in the order of
            fields, where arrays have a place for each of theirs.
        outputs: likewise, those that it writes.
        optional: whether each input, and each output, need not be connected.
    """

    desc: Desc
    meaning: Meaning
    inputs: tuple[Tensor | None, ...]
    outputs: tuple[Tensor | None, ...]
    optional: tuple[tuple[bool, ...], tuple[bool, ...]]

    @property
    def name(self) -> str:
        """Such as ``GEMM``."""
        return self.desc.operator


@functools.cache
def load() -> dict[str, Meaning]:
    """The operators of all modules of the package ``operators``."""
    for found in pkgutil.iter_modules(operators.__path__):
        importlib.import_module(f"{operators.__name__}.{found.name}")
    return OPERATORS


def decode(desc: Any, level: tuple[int, int], supported: frozenset[str]) -> Operator:
    """An operator from a ``DML_OPERATOR_DESC``.

    Args:
        desc: the structure.
        level: the feature level of the device.
        supported: the data types that it computes with.

    Raises:
        Rejected: a constraint is broken.
    """
    found = _decode(desc)
    meaning = load().get(found.operator)
    if meaning is None:
        raise Rejected(f"the stand-in knows nothing of DML_OPERATOR_{found.operator}")
    try:
        return _operator(found, meaning, level, supported)
    except Rejected as error:
        raise Rejected(f"DML_OPERATOR_{found.operator}: {error}") from error


def _operator(
    desc: Desc, meaning: Meaning, level: tuple[int, int], supported: frozenset[str]
) -> Operator:
    table = meaning.supported(level)
    layout = schema(desc.operator)
    if tuple(table) != layout.tensors:
        raise AssertionError(
            f"{desc.operator} at {level}: the table of support has {tuple(table)}, the "
            f"structure {layout.tensors}"
        )
    sides: dict[bool, list[tuple[Tensor | None, bool]]] = {True: [], False: []}
    tensors: dict[str, Any] = {}
    for field in layout.tensors:
        value, support = getattr(desc, field), table[field]
        _present(field, value, support)
        if value is not None:
            tensors[field] = value
        for name, tensor in _each(field, value):
            if tensor is not None:
                _supported(name, tensor, support, level, supported)
            sides[support.is_input].append((tensor, support.optional))
    _fusable(desc, layout, level)
    meaning.check(desc, tensors)
    meaning.check_level(desc, tensors, level)
    return Operator(
        desc,
        meaning,
        tuple(tensor for tensor, _ in sides[True]),
        tuple(tensor for tensor, _ in sides[False]),
        (tuple(o for _, o in sides[True]), tuple(o for _, o in sides[False])),
    )


def _each(field: str, value: Any) -> Iterator[tuple[str, Tensor | None]]:
    if isinstance(value, tuple):
        yield from ((f"{field}[{i}]", tensor) for i, tensor in enumerate(value))
    else:
        yield field, value


def _present(field: str, value: Any, support: Support) -> None:
    if value is None and not support.optional:
        raise Rejected(f"{field} is null")


def _supported(
    name: str,
    tensor: Tensor,
    support: Support,
    level: tuple[int, int],
    supported: frozenset[str],
) -> None:
    dimensions = len(tensor.sizes)
    if dimensions not in support.dimension_counts:
        raise Rejected(
            f"{name} has {dimensions} dimensions; at feature level "
            f"{level[0]}.{level[1]} it may have {support.dimension_counts}"
        )
    if tensor.type_name not in support.data_types:
        raise Rejected(
            f"{name} is {tensor.type_name}; at feature level {level[0]}.{level[1]} it "
            f"may be {', '.join(support.data_types)}"
        )
    if tensor.type_name not in supported:
        raise Rejected(f"{name} is {tensor.type_name}, which the device does not have")
    if tensor.flags & OWNED_BY_DML and not support.is_input:
        raise Rejected(f"{name} is an output and cannot be OWNED_BY_DML")
    if not support.is_input and _overlaps(tensor):
        raise Rejected(f"elements of the output {name} lie on one another")


def _overlaps(tensor: Tensor) -> bool:
    if tensor.strides is None:
        return False
    axes = sorted(
        (stride, size)
        for stride, size in zip(tensor.strides, tensor.sizes, strict=True)
        if size > 1
    )
    reach = 0  # the furthest element of the axes before
    for stride, size in axes:
        if stride <= reach:
            return True
        reach += stride * (size - 1)
    return False


def _fusable(desc: Desc, layout: Schema, level: tuple[int, int]) -> None:
    for field, kind in layout.fields.items():
        if kind not in ("operator", "operators"):
            continue
        value = getattr(desc, field)
        for fused in value if isinstance(value, tuple) else (value,):
            if fused is not None:
                _fused(field, fused, level)


def _fused(field: str, fused: Desc, level: tuple[int, int]) -> None:
    for name in schema(fused.operator).tensors:
        if getattr(fused, name) is not None:
            raise Rejected(f"{field}: {name} of a fused activation is null")
    meaning = load().get(fused.operator)
    if meaning is None or meaning.apply is None:
        raise Rejected(f"{field}: DML_OPERATOR_{fused.operator} cannot be fused")
    meaning.supported(level)


def _decode(desc: Any) -> Desc:
    names = operator_names()
    if desc.Type not in names:
        raise Rejected(f"there is no operator {desc.Type}")
    name = names[desc.Type]
    if not desc.Desc:
        raise Rejected(f"DML_OPERATOR_{name} has no description")
    layout = schema(name)
    structure = layout.structure.from_address(desc.Desc)
    try:
        fields = {f: _field(layout, structure, f) for f in layout.fields}
    except Rejected as error:
        raise Rejected(f"DML_OPERATOR_{name}: {error}") from error
    return Desc(name, fields)


def _field(layout: Schema, structure: Any, name: str) -> Any:
    kind, value = layout.fields[name], getattr(structure, name)
    if kind in ("uint", "int", "float"):
        return value
    if kind == "bool":
        return bool(value)
    if kind == "scalar":
        return bytes(value)
    if kind == "size_2d":
        return Desc("SIZE_2D", {"Width": value.Width, "Height": value.Height})
    if kind.startswith("DML_"):
        if value not in members(kind):
            raise Rejected(f"{name}: {kind} has no {value}")
        return members(kind)[value]
    if kind in ("tensors", "operators", "uints", "ints", "floats"):
        return _array(layout, structure, name)
    if not value:
        return None
    if kind == "scale_bias":
        found = value.contents
        return Desc("SCALE_BIAS", {"Scale": found.Scale, "Bias": found.Bias})
    if kind == "operator":
        return _decode(value.contents)
    return tensor_of(name, value.contents)


def _array(layout: Schema, structure: Any, name: str) -> Any:
    counted = layout.count_of(name)
    count, value = getattr(structure, counted), getattr(structure, name)
    if count and not value:
        raise Rejected(f"{name} is null, and {counted} is {count}")
    if not count:
        return ()
    kind = layout.fields[name]
    if kind == "tensors":
        return tuple(tensor_of(f"{name}[{i}]", value[i]) for i in range(count))
    if kind == "operators":
        return tuple(_decode(value[i]) for i in range(count))
    return tuple(value[i] for i in range(count))


def tensor_of(name: str, desc: Any) -> Tensor:
    """A tensor from a ``DML_TENSOR_DESC``.

    Raises:
        Rejected: a constraint of ``DML_BUFFER_TENSOR_DESC`` is broken.
    """
    if desc.Type != 1 or not desc.Desc:
        raise Rejected(f"{name} is no DML_TENSOR_TYPE_BUFFER with a description")
    found = definitions.find("DML_BUFFER_TENSOR_DESC").from_address(desc.Desc)
    types = members("DML_TENSOR_DATA_TYPE")
    data_type = DTYPES.get(types.get(found.DataType, "UNKNOWN"))
    if data_type is None:
        raise Rejected(f"{name}: there is no data type {found.DataType}")
    if found.Flags & ~OWNED_BY_DML:
        raise Rejected(f"{name}: flags {found.Flags:#x} of a tensor")
    count = found.DimensionCount
    if not 1 <= count <= 8 or not found.Sizes:
        raise Rejected(f"{name} has {count} dimensions; there are from 1 to 8")
    sizes = tuple(found.Sizes[i] for i in range(count))
    strides = tuple(found.Strides[i] for i in range(count)) if found.Strides else None
    tensor = Tensor(
        data_type,
        sizes,
        strides,
        found.Flags,
        found.TotalTensorSizeInBytes,
        found.GuaranteedBaseOffsetAlignment,
    )
    _check_buffer(name, tensor)
    return tensor


def packed(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Strides in elements of a tensor that has none."""
    strides = [1]
    for size in reversed(sizes[1:]):
        strides.append(strides[-1] * size)
    return tuple(reversed(strides))


def _check_buffer(name: str, tensor: Tensor) -> None:
    if not all(tensor.sizes):
        raise Rejected(f"{name}: sizes {tensor.sizes} with a zero")
    strides = tensor.strides or packed(tensor.sizes)
    last = sum((n - 1) * s for n, s in zip(tensor.sizes, strides, strict=True))
    if last >= 2**32 - 1:
        raise Rejected(f"{name} has more than 2^32 - 1 elements")
    least = -(-(last + 1) * tensor.data_type.itemsize // 4) * 4
    if tensor.total_bytes < least:
        raise Rejected(
            f"{name}: TotalTensorSizeInBytes is {tensor.total_bytes}; sizes "
            f"{tensor.sizes} and strides {strides} of {tensor.type_name} need {least}"
        )
    if tensor.total_bytes % 4:
        raise Rejected(
            f"{name}: TotalTensorSizeInBytes, {tensor.total_bytes}, is no multiple of 4"
        )
    alignment = tensor.alignment
    if alignment and (
        alignment.bit_count() != 1 or alignment < tensor.data_type.itemsize
    ):
        raise Rejected(
            f"{name}: GuaranteedBaseOffsetAlignment is {alignment}; it is 0, or a "
            "power of 2 of at least an element's size"
        )


def pointer(address: int, kind: Any) -> Any:
    """What is at an address, as a structure."""
    return ctypes.cast(address, ctypes.POINTER(kind)).contents
