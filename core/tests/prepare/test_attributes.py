"""Attributes that a node must have, and their types."""

from __future__ import annotations

from typing import Any

import pytest

from onnxplug.ep import TensorType
from onnxplug.errors import InvalidModel
from onnxplug.graph import Attribute, AttributeType, Graph, Node
from onnxplug.prepare import prepare
from onnxplug.prepare.attributes import check_attributes


def node(op_type: str, attributes: dict[str, Attribute], **fields: Any) -> Graph:
    made = Node(op_type, ("x",), ("y",), attributes, name="odd", **fields)
    return Graph(
        "g",
        inputs=["x"],
        outputs=["y"],
        nodes=[made],
        types={"x": TensorType()},
        opset_imports={"": 21, "ai.onnx.ml": 3},
    )


TEXT = Attribute(AttributeType.STRING, "1")


@pytest.mark.parametrize("op_type", ["If", "Loop", "Scan", "Cast", "Einsum", "Concat"])
def test_an_attribute_that_is_missing_is_named(op_type):
    with pytest.raises(InvalidModel, match=rf"{op_type} 'odd' lacks the attribute '"):
        check_attributes(node(op_type, {}))


def test_an_attribute_of_another_type_is_named_with_both_types():
    message = "Softmax 'odd' has the attribute 'axis' of type STRING; expected INT"
    with pytest.raises(InvalidModel, match=message):
        check_attributes(node("Softmax", {"axis": TEXT}))


def test_the_opset_says_whether_an_attribute_is_needed():
    graph = node("Unsqueeze", {})
    check_attributes(graph)
    graph.opset_imports[""] = 12
    with pytest.raises(InvalidModel, match="'axes' of type INTS"):
        check_attributes(graph)


def test_an_attribute_that_refers_to_a_function_is_in_one():
    reference = Attribute(AttributeType.INT, None, "alpha")
    with pytest.raises(InvalidModel, match="refers to 'alpha' of a function"):
        check_attributes(node("Softmax", {"axis": reference}))


def test_attributes_in_bodies_are_checked_too():
    body = node("Softmax", {"axis": TEXT})
    attributes = {
        name: Attribute(AttributeType.GRAPH, body)
        for name in ("then_branch", "else_branch")
    }
    with pytest.raises(InvalidModel, match="Softmax 'odd'"):
        check_attributes(node("If", attributes))


def test_what_onnx_does_not_define_is_not_checked():
    check_attributes(node("Softmax", {"axis": TEXT}, domain="my.domain"))
    check_attributes(node("Softmax", {"spelled": TEXT}))


def test_what_a_call_gives_an_operator_of_a_function_is_checked(parse):
    model = parse(
        """<ir_version: 10, opset_import: ["" : 21, "local" : 1]>
        g (float[2] x) => (y) { y = local.f <a = "text"> (x) }
        <domain: "local", opset_import: ["" : 21]>
        f <a> (x) => (y) { y = Softmax <axis : int = @a> (x) }"""
    )
    with pytest.raises(InvalidModel, match=r"Softmax .*STRING; expected INT"):
        prepare(model, evaluate=None)
