"""The table of what operators take, and the question that it answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from onnxplug import ep
from onnxplug_directml.abi.directml import (
    DML_FEATURE_LEVEL,
    DML_OPERATOR_TYPE,
    DML_TENSOR_DATA_TYPE,
)
from onnxplug_directml.lowering.graph import MOST_AXES, TensorDesc
from onnxplug_directml.lowering.target import LEAST_LEVEL, Target

_SETS: Final[Mapping[str, str]] = {
    "FLOATS": "FLOAT32 FLOAT16",
    "INTS": "INT32 INT16 INT8 UINT32 UINT16 UINT8",
    "LONGS": "INT64 UINT64",
    "BYTES": "INT8 UINT8",
    "ALL": "FLOAT32 FLOAT16 INT64 INT32 INT16 INT8 UINT64 UINT32 UINT16 UINT8",
}
"""Names for several types in rows."""

_ALL_RANKS: Final = frozenset(range(1, MOST_AXES + 1))


@dataclass(frozen=True, slots=True)
class Taken:
    """What a tensor may be."""

    data_types: frozenset[DML_TENSOR_DATA_TYPE]
    ranks: frozenset[int]


@dataclass(frozen=True, slots=True)
class Row:
    """What an operator takes from a feature level on.

    Attributes:
        tensors: by field.
        agreeing: fields that have one type.
    """

    level: int
    tensors: Mapping[str, Taken]
    agreeing: Sequence[Sequence[str]]


SUPPORT: Final[dict[DML_OPERATOR_TYPE, list[Row]]] = {}
"""By operator, lower levels first; a tensor of a later row replaces an earlier one."""


def supports(operators: str, *lines: str, level: int = LEAST_LEVEL) -> None:
    """Declare what operators take from a feature level on.

    Args:
        operators: members of ``DML_OPERATOR_TYPE``, with spaces between.
        lines: ``"field …: type …; ranks rank …"``.  Fields with ``=`` between have one
            type.  Types may be names of sets: FLOATS, INTS (of 8 to 32 bits), LONGS (of
            64), BYTES, ALL.  Without ``; ranks``, 1 to 8 are taken.
    """
    tensors: dict[str, Taken] = {}
    agreeing = []
    for line in lines:
        names, _, rest = line.partition(":")
        types, _, ranks = rest.partition("; ranks")
        taken = Taken(
            frozenset(
                DML_TENSOR_DATA_TYPE[each]
                for word in types.split()
                for each in _SETS.get(word, word).split()
            ),
            frozenset(map(int, ranks.split())) or _ALL_RANKS,
        )
        groups = [group.split("=") for group in names.split()]
        agreeing += [group for group in groups if len(group) > 1]
        tensors |= dict.fromkeys((name for group in groups for name in group), taken)
    for name in operators.split():
        rows = SUPPORT.setdefault(DML_OPERATOR_TYPE[name], [])
        assert all(row.level < level for row in rows), f"{name} is declared twice"
        rows.append(Row(level, tensors, agreeing))


def why_unsupported(
    target: Target,
    kind: DML_OPERATOR_TYPE,
    tensors: Mapping[str, Sequence[TensorDesc]],
) -> ep.Reason | None:
    """Why a device does not take an operator with these tensors; ``None`` if it does.

    Args:
        tensors: by field; arrays have several, fields that are no tensors none.
    """
    rows = SUPPORT[kind]
    if target.level < rows[0].level:
        return ep.Reason(
            ep.RefusalCode.OP,
            f"{kind.name} is of feature level {level_name(rows[0].level)}; the device "
            f"has {level_name(target.level)}: a newer DirectML.dll may have it",
        )
    known: dict[str, Taken] = {}
    for row in rows:
        if row.level <= target.level:
            known |= row.tensors
    for name, descs in tensors.items():
        for desc in descs:
            taken = known[name]
            if desc.data_type not in taken.data_types:
                types = ", ".join(sorted(each.name for each in taken.data_types))
                return ep.Reason(
                    ep.RefusalCode.DTYPE,
                    f"{name} of {kind.name} is {desc.data_type.name}; takes {types} at "
                    f"feature level {level_name(target.level)}",
                )
            if len(desc.sizes) not in taken.ranks:
                ranks = ", ".join(map(str, sorted(taken.ranks)))
                return ep.Reason(
                    ep.RefusalCode.RANK,
                    f"{name} of {kind.name} has {len(desc.sizes)} dimensions; takes "
                    f"{ranks}",
                )
    return _disagreement(kind, rows[0].agreeing, tensors)


def _disagreement(
    kind: DML_OPERATOR_TYPE,
    agreeing: Sequence[Sequence[str]],
    tensors: Mapping[str, Sequence[TensorDesc]],
) -> ep.Reason | None:
    for group in agreeing:
        types = {
            name: desc.data_type.name
            for name in group
            for desc in tensors.get(name, ())
        }
        if len(set(types.values())) > 1:
            said = ", ".join(f"{name} is {found}" for name, found in types.items())
            return ep.Reason(
                ep.RefusalCode.DTYPE, f"of {kind.name} {said}; takes one type"
            )
    return None


def level_name(level: int) -> str:
    """A feature level as people write it: 0x5100 is 5.1."""
    return f"{level >> 12}.{level >> 8 & 0xF}"


def level_named(text: str) -> DML_FEATURE_LEVEL:
    """The feature level that people write as *text*."""
    major, _, minor = text.partition(".")
    return DML_FEATURE_LEVEL(int(major) << 12 | int(minor) << 8)
