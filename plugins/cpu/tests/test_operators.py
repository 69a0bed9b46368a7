"""What the EP says it runs is what sessions do with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx.defs
import pytest
from onnx import helper

import onnxplug
from onnxplug.ep import DataType, OperatorSupport
from onnxplug_cpu.factory import CpuFactory
from onnxplug_kernels import find_kernel


@pytest.fixture(scope="module")
def said() -> Sequence[OperatorSupport]:
    return tuple(CpuFactory().operators())


def of(said: Sequence[OperatorSupport], op_type: str, domain: str = "") -> list[Any]:
    return [e for e in said if (e.op_type, e.domain) == (op_type, domain)]


def test_every_version_that_has_a_kernel_is_told_once_a_tier(said) -> None:
    told = [(e.domain, e.op_type, e.since) for e in said if e.tier == "array"]
    assert len(told) == len(set(told))
    versions = {
        (schema.domain, schema.name, schema.since_version)
        for schema in onnx.defs.get_all_schemas_with_history()
        if not schema.deprecated
        and find_kernel(schema.domain, schema.name, schema.since_version)
    }
    assert versions <= set(told)


def test_nothing_needs_the_reference_tier(said) -> None:
    assert {e.tier for e in said} == {"compiled", "array"}


def test_operators_that_are_functions_or_control_flow_are_not_the_eps(said) -> None:
    for op_type in ("If", "Loop", "Scan", "SequenceMap"):
        assert of(said, op_type) == []


def test_types_of_arrays_are_all_that_onnx_allows(said) -> None:
    (support,) = [e for e in of(said, "Col2Im") if e.tier == "array"]
    assert DataType.COMPLEX64 in support.types["T"]
    assert DataType.STRING not in support.types["T"]
    *_, support = of(said, "Unique")
    assert DataType.STRING in support.types["T"]


def test_types_of_tensors_in_sequences_are_told_too(said) -> None:
    (support,) = of(said, "SequenceLength")
    assert DataType.COMPLEX64 in support.types["S"]


CASES = {
    "Abs": ((), {}),
    "Erf": ((), {}),
    "Add": (("x",), {}),
    "BitwiseAnd": (("x",), {}),
    "MatMul": (("x",), {}),
    "ReduceMax": ((), {"keepdims": 0}),
    "ReduceMean": ((), {"keepdims": 0}),
    "Transpose": ((), {"perm": [1, 0]}),
    "Softmax": ((), {"axis": 1}),
    "Concat": (("x",), {"axis": 0}),
    "Det": ((), {}),
}


@pytest.mark.parametrize("op_type", CASES)
def test_the_compiled_types_are_those_that_sessions_compile(said, op_type) -> None:
    more, attributes = CASES[op_type]
    version = onnx.defs.get_schema(op_type).since_version
    found = {e.tier: e.types["T"] for e in of(said, op_type) if e.since == version}
    for dtype in found["array"]:
        node = helper.make_node(op_type, ["x", *more], ["y"], name="n", **attributes)
        x = helper.make_tensor_value_info("x", dtype.onnx, [2, 2])
        y = helper.make_tensor_value_info("y", dtype.onnx, None)
        graph = helper.make_graph([node], "one", [x], [y])
        imports = [helper.make_opsetid("", version)]
        model = helper.make_model(graph, opset_imports=imports)
        session = onnxplug.InferenceSession(model)
        (placed,) = session.explain().to_dict()["nodes"]
        is_compiled = dtype in found.get("compiled", ())
        assert placed["tier"] == ("compiled" if is_compiled else "array"), dtype
