"""The table of families, the declarations, and ONNX's own schemas agree."""

from __future__ import annotations

import importlib
import inspect
import math
from collections.abc import Iterator

import numpy as np
import onnx.defs
import pytest

from onnxplug.authoring.operators import having
from onnxplug_kernels import (
    UnsupportedAttribute,
    WrongInputs,
    find_kernel,
    registry,
)
from onnxplug_kernels.families import FAMILIES

OTHER_DEFAULTS = {
    "activations": "filled in for each direction",
    "direction": "GRU-1's schema spells it 'foward'",
}
"""Attributes whose default in the kernel's signature is not the schema's, and why."""


def schemas() -> Iterator[onnx.defs.OpSchema]:
    for schema in onnx.defs.get_all_schemas_with_history():
        if (schema.domain, schema.name) in FAMILIES and not schema.deprecated:
            yield schema


def test_every_family_declares_the_operators_of_the_table_and_no_others() -> None:
    for family in set(FAMILIES.values()):
        importlib.import_module(f"onnxplug_kernels.{family}")
    assert set(registry._OWN.declared()) == set(FAMILIES)


def test_every_version_of_every_operator_has_a_kernel_with_its_attributes() -> None:
    missing = []
    for schema in schemas():
        kernel = find_kernel(schema.domain, schema.name, schema.since_version)
        if kernel is None:
            missing.append(f"{schema.name}-{schema.since_version}")
            continue
        keywords = registry._form(kernel.function).attributes
        missing += [
            f"{schema.name}-{schema.since_version}.{attribute}"
            for attribute in schema.attributes
            if attribute not in keywords
        ]
    assert not missing


def test_defaults_are_those_of_the_schemas() -> None:
    wrong = []
    for schema in schemas():
        kernel = find_kernel(schema.domain, schema.name, schema.since_version)
        assert kernel is not None
        parameters = inspect.signature(kernel.function).parameters
        for name, attribute in schema.attributes.items():
            if not attribute.default_value.type or name in OTHER_DEFAULTS:
                continue
            expected = onnx.helper.get_attribute_value(attribute.default_value)
            expected = expected.decode() if isinstance(expected, bytes) else expected
            found = parameters[name].default
            if isinstance(expected, list):
                expected = tuple(expected)
            if found != expected and not (
                isinstance(expected, float) and np.isclose(found or 0.0, expected)
            ):
                where = f"{schema.name}-{schema.since_version}.{name}"
                wrong.append(f"{where}: {found!r}, not {expected!r}")
    assert not wrong


def test_the_operators_without_a_kernel_are_known() -> None:
    without = {
        (schema.domain, schema.name)
        for schema in onnx.defs.get_all_schemas()
        if (schema.domain, schema.name) not in FAMILIES
    }
    by_function = {
        ("", "SequenceMap"),
        ("ai.onnx.preview", "FlexAttention"),
    }
    by_host = {("", name) for name in having("control_flow")}
    without = {each for each in without if each[0] != "ai.onnx.preview.training"}
    assert without == by_function | by_host  # those of onnxplug-training aside


def test_an_unknown_operator_has_no_kernel() -> None:
    assert find_kernel("", "NoSuchOperator", 20) is None
    assert find_kernel("somebody.else", "Add", 1) is None


def test_an_unknown_attribute_is_refused_with_the_known_ones() -> None:
    kernel = find_kernel("", "Softmax", 13)
    assert kernel is not None
    with pytest.raises(UnsupportedAttribute, match=r"no attribute 'axes'; .*axis"):
        kernel.bind(np, {"axes": 1}, output_count=1)


def test_a_missing_attribute_and_a_wrong_number_of_inputs_are_refused() -> None:
    concat, relu = find_kernel("", "Concat", 13), find_kernel("", "Relu", 14)
    assert concat is not None and relu is not None
    with pytest.raises(UnsupportedAttribute, match="needs the attribute 'axis'"):
        concat.bind(np, {}, output_count=1)
    with pytest.raises(WrongInputs, match="has 1 inputs, and not 2"):
        relu.bind(np, {}, output_count=1, inputs=["x", "y"])


def test_signatures_take_as_many_inputs_as_the_schemas() -> None:
    wrong = []
    for schema in schemas():
        kernel = find_kernel(schema.domain, schema.name, schema.since_version)
        assert kernel is not None
        form = registry._form(kernel.function)
        most = schema.max_input
        if form.fewest > schema.min_input or form.most < min(most, 1 << 20):
            found = f"{form.fewest} to {form.most}"
            expected = f"{schema.min_input} to {most}"
            wrong.append(f"{schema.name}-{schema.since_version}: {found}, {expected}")
    assert not wrong


def test_what_is_bound_to_a_module_gets_that_module() -> None:
    kernel = find_kernel("", "Add", 14)
    assert kernel is not None
    assert kernel.bind_to(math, {}, output_count=1).args == (math,)  # type: ignore[attr-defined]
    assert kernel.bind(np, {}, output_count=1).args != (np,)  # type: ignore[attr-defined]
    with pytest.raises(UnsupportedAttribute):
        kernel.bind_to(math, {"axis": 1}, output_count=1)
