"""The kernels of the array tier run on the element types that the CPU EP lists.

The suite's cases of one node are run in each type that the first type variable of their
operator may stand for: a kernel must take it, and give what ONNX says it gives.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from typing import Any, Final

import numpy as np
import onnx
import pytest
from onnx import defs, helper, numpy_helper
from onnx.backend.test.loader import load_model_tests

from onnxplug.ep import DataType
from onnxplug_cpu.factory import CpuFactory
from onnxplug_kernels import find_kernel

BOUND: Final = {
    "BitCast": "only to a type of as many bits",
    "LabelEncoder": "its attributes have the type of its input",
}
"""Operators whose cases cannot be run in other types than their own, and why."""

TRIED: Final = 6
"""Of so many cases of an operator one must run: some are for their own type only."""


def cases_by_operator() -> dict[tuple[str, str], list[Any]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the suite's own generators overflow
        cases = load_model_tests(kind="node")
    found = defaultdict(list)
    for case in cases:
        if case.model is not None and len(case.model.graph.node) == 1:
            (node,) = case.model.graph.node
            if not case.model.functions:
                found[node.domain, node.op_type].append(case)
    return found


def attributes_of(node: Any) -> dict[str, Any]:
    return {each.name: attribute_of(each) for each in node.attribute}


def attribute_of(attribute: Any) -> Any:
    value = helper.get_attribute_value(attribute)
    match value:
        case bytes():
            return value.decode()
        case onnx.TensorProto():
            return numpy_helper.to_array(value)
        case [bytes(), *_]:
            return [each.decode() for each in value]
    return value


def converted(value: Any, dtype: DataType) -> Any:
    """A tensor, or the tensors of a sequence, as *dtype*."""
    if isinstance(value, list):
        return [converted(each, dtype) for each in value]
    if value is None:
        return None
    array = np.asarray(value)
    with np.errstate(all="ignore"):
        if dtype is DataType.STRING:
            return array.astype(str).astype(object)
        if array.dtype == object:  # texts that are no numbers
            return np.zeros(array.shape, dtype.numpy)
        return array.astype(dtype.numpy)


def run(case: Any, schema: Any, variable: str, dtype: DataType) -> Any:
    """The first output of a case whose *variable* is *dtype*."""
    (node,) = case.model.graph.node
    given = iter(case.data_sets[0][0])
    inputs: list[Any] = []
    for position, name in enumerate(node.input):
        value = next(given) if name else None
        if isinstance(value, onnx.TensorProto):
            value = numpy_helper.to_array(value)
        formal = schema.inputs[min(position, len(schema.inputs) - 1)]
        if formal.type_str == variable:
            value = converted(value, dtype)
        inputs.append(value)
    kernel = find_kernel(node.domain, node.op_type, schema.since_version)
    assert kernel is not None
    function = kernel.bind(
        np,
        attributes_of(node),
        output_count=len(node.output),
        inputs=inputs,
    )
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = function(*inputs)
    return result[0] if isinstance(result, tuple) else result


def problem(case: Any, schema: Any, variable: str, dtype: DataType) -> str:
    """What is wrong with a case in *dtype*; empty if nothing is."""
    try:
        result = run(case, schema, variable, dtype)
    except Exception as error:  # noqa: BLE001 (whatever a kernel raises)
        return f"{type(error).__name__}: {error}"
    if schema.outputs[0].type_str == variable and isinstance(result, np.ndarray):
        found = DataType.from_numpy(result.dtype)
        if found != dtype:
            return f"it gives {found}"
    return ""


def test_every_listed_type_runs_on_arrays() -> None:
    cases = cases_by_operator()
    newest = {(each.domain, each.name): each for each in defs.get_all_schemas()}
    tried, wrong = 0, []
    for support in CpuFactory().operators():
        key = support.domain, support.op_type
        if support.tier != "array" or key not in cases or support.op_type in BOUND:
            continue
        schema = newest[key]
        if schema.since_version != support.since or not schema.inputs:
            continue
        variable = schema.inputs[0].type_str
        for dtype in support.types.get(variable, ()):
            problems = []
            for case in cases[key][:TRIED]:
                problems.append(problem(case, schema, variable, dtype))
                if not problems[-1]:
                    break
            tried += 1
            if problems[-1]:
                wrong.append(f"{support.op_type} of {dtype}: {problems[0]}")
    assert not wrong
    assert tried > 1300, "the suite's cases are not found any more"


@pytest.mark.parametrize("op_type", ["Col2Im", "GridSample"])
def test_what_is_left_out_does_not_run(op_type: str) -> None:
    schema = defs.get_schema(op_type)
    variable = schema.inputs[0].type_str
    (support,) = (
        each
        for each in CpuFactory().operators()
        if (each.op_type, each.since, each.tier)
        == (op_type, schema.since_version, "array")
        and not each.domain
    )
    assert DataType.STRING not in support.types[variable]
    for case in cases_by_operator()["", op_type][:TRIED]:
        assert problem(case, schema, variable, DataType.STRING)
