"""Structures, enumerations and identifiers, against Microsoft's own definitions."""

from __future__ import annotations

import ctypes
import enum
import types
from typing import Any

import pytest

from onnxplug_directml.abi import d3d12, directml, dxcore, dxgi, guids
from onnxplug_directml.abi.directml import (
    DML_FEATURE_LEVEL,
    DML_OPERATOR_TYPE,
    OPERATOR_DESCS,
    OPERATOR_FIELDS,
)
from onnxplug_directml.abi.operators import FieldKind
from onnxplug_directml.abi.types import GUID, LUID
from onnxplug_directml.lowering.support import SUPPORT

from . import definitions

HEADERS = (d3d12, directml, dxcore, dxgi)

PREFIXES = {
    "D3D12_RESOURCE_STATES": "D3D12_RESOURCE_STATE_",
    "D3D_FEATURE_LEVEL": "D3D_FEATURE_",
    "DML_CREATE_DEVICE_FLAGS": "DML_CREATE_DEVICE_FLAG_",
    "DML_EXECUTION_FLAGS": "DML_EXECUTION_FLAG_",
    "DML_FEATURE_LEVEL": "DML_FEATURE_",
    "DML_OPERATOR_TYPE": "DML_OPERATOR_",
    "DML_TENSOR_FLAGS": "DML_TENSOR_FLAG_",
    "D3D12_COMMAND_QUEUE_FLAGS": "D3D12_COMMAND_QUEUE_FLAG_",
    "D3D12_DESCRIPTOR_HEAP_FLAGS": "D3D12_DESCRIPTOR_HEAP_FLAG_",
    "D3D12_FENCE_FLAGS": "D3D12_FENCE_FLAG_",
    "D3D12_HEAP_FLAGS": "D3D12_HEAP_FLAG_",
    "D3D12_RESOURCE_BARRIER_FLAGS": "D3D12_RESOURCE_BARRIER_FLAG_",
    "D3D12_RESOURCE_FLAGS": "D3D12_RESOURCE_FLAG_",
}
"""What the members of an enumeration begin with, where it is not its name."""

NEWER_MEMBERS = {
    "DML_GRAPH_NODE_TYPE": {"CONSTANT"},
    "DML_PADDING_MODE": {"WRAP"},
    "DML_TENSOR_DATA_TYPE": {"UINT4", "INT4"},
}
NEWER_ENUMERATIONS = {"DML_MULTIHEAD_ATTENTION_MASK_TYPE", "DML_QUANTIZATION_TYPE"}
NEWER_STRUCTURES = {"DML_CONSTANT_DATA_GRAPH_NODE_DESC"}
"""Of DirectML's redistributable, which is newer than Windows' metadata."""

NEWER_OPERATORS = {
    "ACTIVATION_GELU": (157, [8, 8]),
    "RESAMPLE2": (161, [8, 8, 4, 4, 4, 8, 8, 8]),
    "DIAGONAL_MATRIX1": (163, [8, 8, 4, 8, 4, 4]),
    "MULTIHEAD_ATTENTION": (164, [8] * 14 + [4] * 4),
    "LP_POOLING1": (165, [8, 8, 4, 8, 8, 8, 8, 8, 4]),
    "AVERAGE_POOLING1": (166, [8, 8, 4, 8, 8, 8, 8, 8, 4]),
    "DEQUANTIZE": (174, [8, 4, 4, 8, 8]),
}
"""Operators behind the last of Windows' metadata: their numbers, which count on, and
the sizes of their fields, which are aligned to them."""


NEWER_LEVELS = {
    DML_FEATURE_LEVEL.LEVEL_5_1: "ACTIVATION_GELU RESAMPLE2 DIAGONAL_MATRIX1",
    DML_FEATURE_LEVEL.LEVEL_6_1: "MULTIHEAD_ATTENTION",
    DML_FEATURE_LEVEL.LEVEL_6_2: "LP_POOLING1 AVERAGE_POOLING1",
    DML_FEATURE_LEVEL.LEVEL_6_3: "DEQUANTIZE",
}
"""The feature levels that brought them, as the header has it."""


def _of(kind: type, modules: tuple[types.ModuleType, ...] = HEADERS) -> dict[str, Any]:
    return {
        name: value
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, kind)
        and value.__module__ == module.__name__
        and not name.startswith("_")
    }


STRUCTURES = {
    **_of(ctypes.Structure),
    **_of(ctypes.Union),
    "LUID": LUID,
    **{desc.__name__: desc for desc in OPERATOR_DESCS.values()},
}
ENUMERATIONS = _of(enum.IntEnum) | _of(enum.IntFlag)


def _layout(structure: Any) -> dict[str, tuple[int, int]]:
    """Where each field begins and how many bytes it has, by its name."""
    found: dict[str, tuple[int, int]] = {}
    anonymous = set(getattr(structure, "_anonymous_", ()))
    for name, kind, *_ in structure._fields_:
        begin = structure.__dict__[name].offset
        if name in anonymous or name == "Anonymous":
            inner = _layout(kind).items()
            found |= {each: (begin + at, nbytes) for each, (at, nbytes) in inner}
        else:
            found[name] = (begin, ctypes.sizeof(kind))
    return found


def test_operators_that_windows_metadata_lacks_are_the_newest() -> None:
    known = definitions.members("DML_OPERATOR_TYPE")
    last = max(known.values())
    ours = {op.name for op in OPERATOR_DESCS if op > last}
    assert ours == set(NEWER_OPERATORS)


@pytest.mark.parametrize("name", sorted(STRUCTURES))
def test_a_structure_lies_as_in_windows(name: str) -> None:
    ours = STRUCTURES[name]
    short = name.removeprefix("DML_").removesuffix("_OPERATOR_DESC")
    if name in NEWER_STRUCTURES or short in NEWER_OPERATORS:
        with pytest.raises(LookupError):
            definitions.find(name)
        return
    theirs = definitions.find(name.replace("SCATTER_ELEMENTS", "SCATTER"))
    assert _layout(ours) == _layout(theirs)
    assert ctypes.sizeof(ours) == ctypes.sizeof(theirs)
    assert ctypes.alignment(ours) == ctypes.alignment(theirs)


@pytest.mark.parametrize("name", sorted(NEWER_OPERATORS))
def test_a_newer_operator_lies_as_its_header_says(name: str) -> None:
    number, sizes = NEWER_OPERATORS[name]
    operator = DML_OPERATOR_TYPE[name]
    assert operator == number
    desc = OPERATOR_DESCS[operator]
    begin, expected = 0, []
    for size in sizes:
        begin = -(-begin // size) * size
        expected.append((begin, size))
        begin += size
    assert list(_layout(desc).values()) == expected
    assert ctypes.sizeof(desc) == -(-begin // 8) * 8


def test_no_operator_is_used_below_its_feature_level() -> None:
    levels = {
        name: level for level, names in NEWER_LEVELS.items() for name in names.split()
    }
    assert set(levels) == set(NEWER_OPERATORS)
    assert len(SUPPORT) > 100
    for operator, rows in SUPPORT.items():
        least = levels.get(operator.name, DML_FEATURE_LEVEL.LEVEL_5_0)
        assert rows[0].level >= least, operator.name


@pytest.mark.parametrize("name", sorted(ENUMERATIONS))
def test_an_enumeration_counts_as_in_windows(name: str) -> None:
    ours = {each.name: int(each) for each in ENUMERATIONS[name].__members__.values()}
    if name in NEWER_ENUMERATIONS:
        with pytest.raises(LookupError):
            definitions.find(name)
        assert list(ours.values()) == list(range(len(ours)))
        return
    prefix = PREFIXES.get(name, f"{name}_")
    theirs = {
        each.removeprefix(prefix): value & 0xFFFFFFFF
        for each, value in definitions.members(name).items()
        if each.startswith(prefix)
    }
    newer = NEWER_MEMBERS.get(name, set())
    if name == "DML_OPERATOR_TYPE":
        last = max(theirs.values())
        newer = {each for each, value in ours.items() if value > last}
        assert theirs.pop("SCATTER") == ours["SCATTER_ELEMENTS"]
        assert set(theirs) <= set(ours), "numbers count through"
    assert not newer & set(theirs)
    assert {each: ours[each] for each in ours if each not in newer} == {
        each: theirs[each] for each in ours if each not in newer
    }


def test_identifiers_are_those_of_windows() -> None:
    ours = {name: each for name, each in vars(guids).items() if isinstance(each, GUID)}
    assert len(ours) > 20
    for name, each in ours.items():
        if name.startswith("IID_"):
            assert bytes(each) == definitions.iid(name.removeprefix("IID_")), name
        else:
            assert bytes(each) == bytes(definitions.find(name)), name


def test_limits_are_those_of_windows() -> None:
    limits = {
        name: value
        for name, value in vars(directml).items()
        if name.startswith("DML_") and type(value) is int
    }
    assert limits == {name: definitions.find(name) for name in limits}
    assert len(limits) == 5


def test_fields_that_count_and_tell_types_are_there() -> None:
    for operator, fields in OPERATOR_FIELDS.items():
        by_name = {field.name: field for field in fields}
        for field in fields:
            if field.count:
                assert by_name[field.count].kind is FieldKind.COUNT, operator
            if field.data_type:
                assert by_name[field.data_type].type == "TENSOR_DATA_TYPE", operator
        counts = {f.name for f in fields if f.kind is FieldKind.COUNT}
        assert counts == {f.count for f in fields if f.count}, operator
        assert any(f.kind is FieldKind.OUTPUT for f in fields), operator


@pytest.mark.parametrize(
    "operator",
    [each for each in OPERATOR_FIELDS if each.name not in NEWER_OPERATORS],
    ids=lambda each: each.name,
)
def test_a_field_has_the_type_of_windows(operator: DML_OPERATOR_TYPE) -> None:
    """Which enumeration or type, which size and place do not tell."""
    name = f"DML_{operator.name}_OPERATOR_DESC"
    theirs = definitions.find(name.replace("SCATTER_ELEMENTS", "SCATTER"))
    plain = {"UInt32": "UINT", "Int32": "INT", "Single": "FLOAT"}
    for field in OPERATOR_FIELDS[operator]:
        hint = str(theirs.__annotations__[field.name])
        points = hint.startswith("POINTER(")
        hint = hint.removeprefix("POINTER(").removesuffix(")").split(".")[-1]
        assert plain.get(hint, hint.removeprefix("DML_")) == field.type, field.name
        assert points == hasattr(
            dict(OPERATOR_DESCS[operator]._fields_)[field.name], "contents"
        )
