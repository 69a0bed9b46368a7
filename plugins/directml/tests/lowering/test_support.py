"""What the tables say that operators take, against a reading of its own."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

import pytest

from onnxplug_directml.abi.directml import (
    DML_FEATURE_LEVEL,
    DML_OPERATOR_TYPE,
    OPERATOR_FIELDS,
)
from onnxplug_directml.abi.operators import FieldKind
from onnxplug_directml.lowering.support import SUPPORT, level_named
from onnxplug_directml.lowering.support.table import level_name
from onnxplug_directml.lowering.target import LEAST_LEVEL

from ..standin import operators

for module in iter_modules(operators.__path__):  # each declares some
    import_module(f"{operators.__name__}.{module.name}")

NOT_THERE = {"INT4", "UINT4"}
"""Types of which the stand-in knows no tensors, as numpy has none."""

LEVELS = [level for level in DML_FEATURE_LEVEL if level >= LEAST_LEVEL]


def test_levels_are_written_as_people_do() -> None:
    assert [level_name(level) for level in LEVELS][:4] == ["5.0", "5.1", "5.2", "6.0"]
    assert [level_named(level_name(level)) for level in LEVELS] == LEVELS


@pytest.mark.parametrize("kind", SUPPORT, ids=lambda kind: kind.name)
def test_a_row_is_of_the_fields_that_the_operator_has(kind: DML_OPERATOR_TYPE) -> None:
    tensors = {
        field.name
        for field in OPERATOR_FIELDS[kind]
        if field.kind in (FieldKind.INPUT, FieldKind.OUTPUT)
    }
    rows = SUPPORT[kind]
    assert all(set(row.tensors) <= tensors for row in rows)
    assert {name for row in rows for group in row.agreeing for name in group} <= tensors


@pytest.mark.parametrize("level", LEVELS, ids=level_name)
def test_no_more_is_said_than_the_documentation_does(level: DML_FEATURE_LEVEL) -> None:
    """The stand-in's tables were copied from it by others."""
    wrong = []
    for kind, rows in SUPPORT.items():
        if rows[0].level > level:
            continue
        said = {}
        for row in rows:
            said |= row.tensors if row.level <= level else {}
        documented = operators.OPERATORS[kind.name].supported(
            (level >> 12, level >> 8 & 0xF)
        )
        for name, taken in said.items():
            support = documented[name]
            types = {each.name for each in taken.data_types} - set(support.data_types)
            types -= NOT_THERE
            ranks = taken.ranks - set(support.dimension_counts)
            if types or ranks:
                wrong.append((kind.name, name, types, ranks))
    assert not wrong
