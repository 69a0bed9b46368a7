"""What the EP says it takes is what the allow-list has."""

from __future__ import annotations

import onnx.defs

from onnxplug.ep import DataType
from onnxplug_openvino.capability import load_list
from onnxplug_openvino.factory import OpenVINOFactory


def test_the_measured_versions_are_told_with_their_types() -> None:
    said = list(OpenVINOFactory().operators())
    add = [each for each in said if each.op_type == "Add"]
    assert [each.since for each in add] == sorted(
        map(int, load_list().operators["Add"]["since"])
    )
    assert all(each.since == each.until for each in said)
    assert DataType.FLOAT32 in add[-1].types["T"]
    assert DataType.FLOAT64 not in add[-1].types["T"]
    (gather,) = [e for e in said if (e.op_type, e.since) == ("Gather", 13)]
    assert gather.types["Tind"] == (DataType.INT32, DataType.INT64)


def test_control_flow_is_the_hosts() -> None:
    assert {each.op_type for each in OpenVINOFactory().operators()}.isdisjoint(
        {"If", "Loop", "Scan"}
    )


def test_type_variables_are_those_of_the_schema() -> None:
    for support in OpenVINOFactory().operators():
        schema = onnx.defs.get_schema(support.op_type, support.since)
        known = {each.type_param_str for each in schema.type_constraints}
        assert support.types.keys() <= known, support
