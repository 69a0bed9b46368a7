"""The kinds of attributes, against ONNX's schemas."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from onnxplug_directml import lowering
from onnxplug_directml.lowering.attributes import KINDS, is_of, kinds_of
from onnxplug_directml.lowering.call import RULES

SCHEMAS = [
    schema
    for schema in onnx.defs.get_all_schemas_with_history()
    if (schema.domain, schema.name) in RULES
]


def test_attributes_are_of_the_kinds_that_onnx_has_them() -> None:
    wrong = []
    for schema in SCHEMAS:
        for name, attribute in schema.attributes.items():
            if name in KINDS:
                kind = attribute.type.name
                if kind not in kinds_of(schema.name, name):
                    wrong.append((schema.name, schema.since_version, name, kind))
    assert not wrong


def test_the_kind_of_each_attribute_that_rules_read_is_known() -> None:
    named = {name.rpartition(".")[2] for name in KINDS}
    for path in Path(lowering.__path__[0]).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in ("attribute", "required", "count")
                and node.args
                and isinstance(node.args[0], ast.Constant)
            ):
                assert node.args[0].value in named, path.name


@pytest.mark.parametrize(
    ("kind", "right", "wrong"),
    [
        ("INT", 3, 3.0),
        ("FLOAT", np.float32(3), 3),
        ("STRING", "a", ("a",)),
        ("INTS", (1, 2), (1, 2.0)),
        ("FLOATS", (1.0, np.float32(2)), (1.0, "2")),
        ("STRINGS", ("a",), "a"),
        ("TENSOR", np.zeros(2), (0.0, 0.0)),
    ],
)
def test_the_values_of_a_kind(kind: str, right: Any, wrong: Any) -> None:
    assert is_of(right, kind)
    assert not is_of(wrong, kind)
