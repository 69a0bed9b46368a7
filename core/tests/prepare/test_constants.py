"""``Constant`` nodes."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.helper
import pytest
from onnx import TensorProto

from onnxplug.ep import DataType, TensorType
from onnxplug.errors import InvalidModel
from onnxplug.graph import Attribute, AttributeType, Graph, Node
from onnxplug.graph.load import load_model
from onnxplug.prepare.constants import lift_constants


def _constant(**attributes):
    node = onnx.helper.make_node("Constant", [], ["k"], **attributes)
    output = onnx.ValueInfoProto(name="k")
    model = onnx.helper.make_model(onnx.helper.make_graph([node], "g", [], [output]))
    return load_model(model).graph


SPARSE = onnx.helper.make_sparse_tensor(
    onnx.helper.make_tensor("v", TensorProto.FLOAT, [2], [1.0, 2.0]),
    onnx.helper.make_tensor("i", TensorProto.INT64, [2], [1, 5]),
    [2, 3],
)
TENSOR = onnx.helper.make_tensor("t", TensorProto.INT32, [2], [7, 8])


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"value": TENSOR}, np.array([7, 8], np.int32)),
        ({"value_float": 1.5}, np.array(1.5, np.float32)),
        ({"value_floats": [1.5, 2.0]}, np.array([1.5, 2.0], np.float32)),
        ({"value_int": -3}, np.array(-3, np.int64)),
        ({"value_ints": [1, 2]}, np.array([1, 2], np.int64)),
        ({"value_string": "é"}, np.array("é", object)),
        ({"value_strings": ["a", "bc"]}, np.array(["a", "bc"], object)),
        ({"sparse_value": SPARSE}, np.array([[0, 1, 0], [0, 0, 2]], np.float32)),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_every_kind_of_value_is_lifted(attributes, expected, same):
    graph = _constant(**attributes)
    assert lift_constants(graph) == ["k"]
    assert graph.nodes == []
    assert same(graph.constant("k"), expected)
    dtype = DataType.from_numpy(expected.dtype)
    assert graph.types["k"] == TensorType(dtype, expected.shape)


def test_an_output_stays_an_output(run):
    graph = _constant(value=TENSOR)
    lift_constants(graph)
    assert graph.outputs == ["k"]
    assert run(graph)[0].tolist() == [7, 8]


def test_empty_lists_keep_their_type():
    graph = Graph(
        "g",
        inputs=[],
        outputs=["k"],
        nodes=[
            Node(
                "Constant",
                (),
                ("k",),
                {"value_floats": Attribute(AttributeType.FLOATS, ())},
            )
        ],
    )
    lift_constants(graph)
    assert graph.types["k"] == TensorType(DataType.FLOAT32, (0,))


def test_constants_in_bodies_stay_in_their_body(parse):
    model = parse(
        """g (bool c) => (float y) {
            y = If (c) <
                then_branch = t () => (float p) { p = Constant <value_float = 1.0> () },
                else_branch = e () => (float q) { q = Constant <value_float = 2.0> () }>
        }"""
    )
    assert lift_constants(model.graph) == ["p", "q"]
    bodies = model.graph.nodes[0].subgraphs
    assert list(bodies["then_branch"].constants) == ["p"]
    assert list(bodies["else_branch"].constants) == ["q"]
    assert not model.graph.constants


def test_constants_of_other_domains_are_left_alone(parse, ops):
    model = parse("g () => (float y) { y = local.Constant () }")
    assert lift_constants(model.graph) == []
    assert ops(model.graph) == ["Constant"]


@pytest.mark.parametrize("attributes", ["", "<value_int = 1, value_float = 1.0>"])
def test_a_constant_needs_exactly_one_value(parse, attributes):
    model = parse(f"g () => (y) {{ y = Constant {attributes} () }}")
    with pytest.raises(InvalidModel, match="must set exactly one of"):
        lift_constants(model.graph)


def test_a_value_that_contradicts_its_declaration_is_refused(parse):
    model = parse("g () => (float y) { y = Constant <value_int = 1> () }")
    with pytest.raises(InvalidModel, match=r"'y'.*declared as float32.*int64"):
        lift_constants(model.graph)


def test_a_value_of_the_wrong_kind_is_refused():
    node = Node("Constant", (), ("k",), {"value": Attribute(AttributeType.INT, 1)})
    graph = Graph("g", inputs=[], outputs=["k"], nodes=[node])
    with pytest.raises(InvalidModel, match="'value' holds no tensor"):
        lift_constants(graph)
