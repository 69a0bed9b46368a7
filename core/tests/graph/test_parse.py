"""Nodes, attributes, bodies, types and functions of hand-made models."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from onnxplug.ep import (
    DataType,
    MapType,
    OptionalType,
    SequenceType,
    SparseTensorType,
    TensorType,
)
from onnxplug.errors import InvalidModel
from onnxplug.graph import AttributeType, Graph
from onnxplug.graph.load import load_model, parse_function

X = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, "n"])
Y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
IDENTITY = helper.make_node("Identity", ["x"], ["y"], name="only")


def model_of(
    nodes: Any = (IDENTITY,),
    inputs: Any = (X,),
    outputs: Any = (Y,),
    initializers: Any = (),
    **fields: Any,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes), "main", list(inputs), list(outputs), list(initializers)
    )
    return helper.make_model(graph, **fields)


def graph_of(*args: Any, **fields: Any) -> Graph:
    return load_model(model_of(*args, **fields)).graph


# nodes


def test_left_out_inputs_and_outputs_are_none_and_trailing_ones_dropped() -> None:
    node = helper.make_node("Op", ["", "x", "", ""], ["", "y", ""], domain="d")
    loaded = graph_of([node]).nodes[0]
    assert loaded.inputs == (None, "x")
    assert loaded.outputs == (None, "y")


def test_nodes_out_of_order_are_sorted() -> None:
    nodes = [
        helper.make_node("B", ["a"], ["y"]),
        helper.make_node("A", ["x"], ["a"]),
    ]
    graph = graph_of(nodes)
    assert [node.op_type for node in graph.nodes] == ["A", "B"]
    assert [node.index for node in graph.nodes] == [0, 1]


def test_a_node_without_operator_is_refused() -> None:
    with pytest.raises(InvalidModel, match="names no operator"):
        graph_of([onnx.NodeProto(input=["x"], output=["y"], name="n")])


@pytest.mark.parametrize(
    ("nodes", "initializers", "expected"),
    [
        (
            [("A", ["x"], ["y"]), ("B", ["x"], ["y"])],
            [],
            "B '' in .*'y'.* one producer",
        ),
        ([("A", ["x"], ["x", "y"])], [], "makes value 'x'"),
        ([("A", ["x"], ["w", "y"])], ["w"], "makes value 'w'"),
        ([("A", ["x"], ["y", "y"])], [], "makes value 'y'"),
        ([("A", ["x"], ["y"])], ["w", "w"], "'main' has two initializers named 'w'"),
        ([("A", ["x"], ["y"])], [""], "input or initializer with no name"),
        ([("A", ["x", "z"], ["y"])], [], "A '' in graph 'main' .*input 1.*'z'"),
        ([("A", ["x"], ["z"])], [], "graph 'main', as its output, uses value 'y'"),
        ([("A", ["x", "b"], ["y"]), ("B", ["y"], ["b"])], [], "cycle"),
        ([("A", ["y"], ["y"])], [], "cycle"),
    ],
)
def test_each_value_has_one_producer(
    nodes: list[tuple[str, list[str], list[str]]],
    initializers: list[str],
    expected: str,
) -> None:
    tensors = [numpy_helper.from_array(np.zeros(1), name) for name in initializers]
    with pytest.raises(InvalidModel, match=expected):
        graph_of([helper.make_node(*node) for node in nodes], initializers=tensors)


def test_two_inputs_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidModel, match="two inputs named 'x'"):
        graph_of(inputs=[X, X])


# attributes


def test_attributes_of_every_type_are_read() -> None:
    tensor = numpy_helper.from_array(np.arange(3), "t")
    body = helper.make_graph([], "b", [X], [X])
    tensor_type = helper.make_tensor_type_proto(TensorProto.INT8, [1])
    sparse = helper.make_sparse_tensor(
        numpy_helper.from_array(np.array([5.0]), "v"),
        numpy_helper.from_array(np.array([2])),
        [4],
    )
    given = {
        "f": 0.5,
        "i": -3,
        "s": "text",
        "t": tensor,
        "g": body,
        "sp": sparse,
        "tp": tensor_type,
        "fs": [1.0, -2.0],
        "is": [-1, 2**62, 0],
        "ss": ["a", "", "ü"],
        "ts": [tensor, tensor],
        "gs": [body],
        "sps": [sparse],
        "tps": [tensor_type],
    }
    node = helper.make_node("Op", ["x"], ["y"], domain="d", **given)
    loaded = graph_of([node]).nodes[0]
    values = loaded.attributes
    assert {a.type for a in loaded.typed_attributes.values()} == (
        set(AttributeType) - {AttributeType.UNDEFINED}
    )
    assert (values["f"], values["i"], values["s"]) == (0.5, -3, "text")
    assert values["t"].tolist() == [0, 1, 2]
    assert values["g"].inputs == values["g"].outputs == ["x"]
    assert values["sp"].values.tolist() == [5.0] and values["sp"].shape == (4,)
    assert values["tp"] == TensorType(DataType.INT8, (1,))
    assert values["fs"] == (1.0, -2.0)
    assert values["is"] == (-1, 2**62, 0)
    assert values["ss"] == ("a", "", "ü")
    assert [each.tolist() for each in values["ts"]] == [[0, 1, 2]] * 2
    assert [each.name for each in values["gs"]] == ["b"]
    assert values["sps"][0].indices.tolist() == [2]
    assert values["tps"] == (TensorType(DataType.INT8, (1,)),)
    assert set(loaded.subgraphs) == {"g", "gs[0]"}


def attribute_of(proto: AttributeProto) -> Any:
    node = helper.make_node("Op", ["x"], ["y"], domain="d")
    node.attribute.append(proto)
    return graph_of([node]).nodes[0].typed_attributes[proto.name]


def test_long_lists_of_numbers_are_arrays_as_well() -> None:
    given = {"i": list(range(-4000, 4000)), "f": [0.1 * n for n in range(2000)]}
    node = helper.make_node("Made", ["x"], ["y"], domain="d", **given)
    attributes = graph_of([node]).nodes[0].attributes
    for name, dtype in (("i", np.int64), ("f", np.float64)):
        value = attributes[name]
        expected = np.array(given[name], np.float32 if name == "f" else dtype)
        assert value == tuple(expected.tolist())
        found = np.asarray(value)
        assert (found.dtype, found.flags.writeable) == (dtype, False)
        assert found.tolist() == list(value)
        assert np.array(value).flags.writeable  # a copy
        same = pickle.loads(pickle.dumps(value))
        assert (same, same.element) == (value, value.element)


def test_strings_that_are_not_utf8_are_bytes() -> None:
    proto = AttributeProto(name="s", type=AttributeProto.STRING, s=b"\xff\0")
    assert attribute_of(proto).value == b"\xff\0"


@pytest.mark.parametrize(
    ("fields", "kind", "value"),
    [
        ({"f": 0.5}, AttributeType.FLOAT, 0.5),
        ({"i": 0}, AttributeType.INT, 0),
        ({"s": b""}, AttributeType.STRING, ""),
        ({"floats": [1.0]}, AttributeType.FLOATS, (1.0,)),
        ({"ints": [3, 4]}, AttributeType.INTS, (3, 4)),
        ({"strings": [b"a"]}, AttributeType.STRINGS, ("a",)),
    ],
)
def test_a_missing_type_is_that_of_the_field_in_use(
    fields: dict[str, Any], kind: AttributeType, value: Any
) -> None:
    attribute = attribute_of(AttributeProto(name="a", **fields))
    assert (attribute.type, attribute.value) == (kind, value)


@pytest.mark.parametrize(
    ("kind", "value"),
    [("FLOAT", 0.0), ("INT", 0), ("STRING", ""), ("INTS", ()), ("GRAPHS", ())],
)
def test_a_missing_value_is_protobuf_s_default(kind: str, value: Any) -> None:
    proto = AttributeProto(name="a", type=getattr(AttributeProto, kind))
    assert attribute_of(proto).value == value


@pytest.mark.parametrize(
    ("proto", "expected"),
    [
        (AttributeProto(name="a"), "neither type nor value"),
        (AttributeProto(name="a", type=AttributeProto.TENSOR), "no value of its type"),
        (AttributeProto(name="a", type=AttributeProto.GRAPH, i=1), "no value of its"),
    ],
)
def test_attributes_without_value_are_refused(
    proto: AttributeProto, expected: str
) -> None:
    with pytest.raises(InvalidModel, match=expected):
        attribute_of(proto)


def test_an_unknown_attribute_type_is_refused() -> None:
    proto = AttributeProto(name="a", i=1, type=AttributeProto.INT)
    data = model_of(
        [onnx.NodeProto(op_type="A", input=["x"], output=["y"], attribute=[proto])]
    ).SerializeToString()
    damaged = data.replace(b"\xa0\x01\x02", b"\xa0\x01\x63")
    assert damaged != data
    with pytest.raises(InvalidModel, match="type 99; ONNX defines 1 to 14"):
        load_model(damaged)


def part(number: int, content: bytes) -> bytes:
    """A field of bytes, fewer than 128."""
    return bytes([number << 3 | 2, len(content)]) + content


NAME, TYPE_INTS, TYPE_FLOATS = b"\x0a\x01a", b"\xa0\x01\x07", b"\xa0\x01\x06"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (part(8, b"\x01" + b"\xff" * 9 + b"\x01\x05") + TYPE_INTS, (1, -1, 5)),
        (b"\x40\x07" + part(8, b"\x08\x09") + b"\x40\x0a" + TYPE_INTS, (7, 8, 9, 10)),
        (part(7, np.array([1, 2], "<f4").tobytes()) + TYPE_FLOATS, (1.0, 2.0)),
    ],
)
def test_packed_and_unpacked_numbers_are_alike(content: bytes, expected: Any) -> None:
    """proto3 packs what onnx's proto2 does not, and readers take both."""
    node = IDENTITY.SerializeToString() + part(5, NAME + content)
    x, y = X.SerializeToString(), Y.SerializeToString()
    graph = part(1, node) + part(11, x) + part(12, y)
    loaded = load_model(b"\x08\x02" + part(7, graph)).graph
    assert loaded.nodes[0].attributes["a"] == expected


def test_two_attributes_of_one_name_are_refused() -> None:
    node = helper.make_node("Op", ["x"], ["y"], domain="d", a=1)
    node.attribute.append(helper.make_attribute("a", 2))
    with pytest.raises(InvalidModel, match="two attributes named 'a'"):
        graph_of([node])


# bodies


def if_node(then: onnx.GraphProto, otherwise: onnx.GraphProto) -> onnx.NodeProto:
    return helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=otherwise)


C = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
Z = helper.make_tensor_value_info("z", TensorProto.FLOAT, None)


def body_using(name: str, **weights: np.ndarray) -> onnx.GraphProto:
    node = helper.make_node("Identity", [name], ["z"])
    tensors = [numpy_helper.from_array(array, key) for key, array in weights.items()]
    return helper.make_graph([node], "body", [], [Z], tensors)


def test_bodies_know_their_parent_and_its_opset() -> None:
    graph = graph_of([if_node(body_using("x"), body_using("x"))], [X, C])
    body = graph.nodes[0].subgraphs["then_branch"]
    assert body.parent is graph
    assert body.opset_imports == graph.opset_imports
    assert graph.nodes[0].captures == ("x",)
    assert body.value("x").dtype is DataType.FLOAT32


def test_values_of_a_body_hide_those_around() -> None:
    outer = numpy_helper.from_array(np.zeros(1, np.float32), "w")
    own = body_using("w", w=np.ones(1, np.float32))
    made = helper.make_graph(
        [
            helper.make_node("Identity", ["x"], ["w"]),
            helper.make_node("Identity", ["w"], ["z"]),
        ],
        "made",
        [],
        [Z],
    )
    graph = graph_of([if_node(own, made)], [X, C], initializers=[outer])
    bodies = graph.nodes[0].subgraphs
    assert bodies["then_branch"].constant("w").tolist() == [1]
    assert bodies["else_branch"].constant("w") is None
    assert graph.constant("w").tolist() == [0]


def test_what_a_body_uses_must_be_made_around_it() -> None:
    nodes = [if_node(body_using("x"), body_using("gone"))]
    with pytest.raises(InvalidModel, match=r"Identity '' in graph 'body' .*'gone'"):
        graph_of(nodes, [X, C])


def test_what_a_body_gives_must_be_made_around_it() -> None:
    empty = helper.make_graph([], "empty", [], [Z])
    with pytest.raises(InvalidModel, match="body 'empty' of If '', as its output"):
        graph_of([if_node(body_using("x"), empty)], [X, C])


def test_a_body_that_uses_its_own_node_s_output_is_a_cycle() -> None:
    with pytest.raises(InvalidModel, match="cycle"):
        graph_of([if_node(body_using("x"), body_using("y"))], [X, C])


# types


def test_types_of_every_kind_are_read() -> None:
    tensor = helper.make_tensor_type_proto(TensorProto.FLOAT, [1, "n", None])
    open_rank = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
    opaque = onnx.TypeProto()
    opaque.opaque_type.name = "thing"
    negative = helper.make_tensor_type_proto(TensorProto.FLOAT, [-1])
    mapping = onnx.TypeProto()
    mapping.map_type.key_type = TensorProto.STRING
    mapping.map_type.value_type.CopyFrom(tensor)
    ours = TensorType(DataType.FLOAT32, (1, "n", None))
    cases = {
        "tensor": (tensor, ours),
        "open": (open_rank, TensorType(DataType.FLOAT32, None)),
        "scalar": (
            helper.make_tensor_type_proto(TensorProto.BFLOAT16, []),
            TensorType(DataType.BFLOAT16, ()),
        ),
        "negative": (negative, TensorType(DataType.FLOAT32, (None,))),
        "untyped": (
            helper.make_tensor_type_proto(TensorProto.UNDEFINED, [2]),
            TensorType(None, (2,)),
        ),
        "sequence": (helper.make_sequence_type_proto(tensor), SequenceType(ours)),
        "optional": (
            helper.make_optional_type_proto(helper.make_sequence_type_proto(tensor)),
            OptionalType(SequenceType(ours)),
        ),
        "map": (mapping, MapType(DataType.STRING, ours)),
        "sparse": (
            helper.make_sparse_tensor_type_proto(TensorProto.INT64, [3]),
            SparseTensorType(DataType.INT64, (3,)),
        ),
        "opaque": (opaque, None),
        "none": (onnx.TypeProto(), None),
    }
    inputs = [helper.make_value_info(name, proto) for name, (proto, _) in cases.items()]
    graph = graph_of(inputs=[X, *inputs])
    for name, (_, expected) in cases.items():
        assert graph.value(name).type == expected, name
    assert graph.inputs == ["x", *cases]


def test_an_element_type_that_onnx_does_not_define_is_refused() -> None:
    value = helper.make_tensor_value_info("x", 99, [1])
    with pytest.raises(InvalidModel, match="element type 99"):
        graph_of(inputs=[value])


# functions


def test_functions_are_read() -> None:
    function = helper.make_function(
        "my.domain",
        "Scale",
        ["a"],
        ["b"],
        [
            helper.make_node("Constant", [], ["k"], value_float=2.0),
            helper.make_node("Mul", ["a", "k"], ["b"]),
        ],
        [helper.make_opsetid("", 17)],
        ["by"],
        [helper.make_attribute("alpha", 0.5)],
        overload="v2",
    )
    function.node[0].attribute[0].ref_attr_name = "by"
    call = helper.make_node("Scale", ["x"], ["y"], domain="my.domain", overload="v2")
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("my.domain", 1)]
    model = load_model(model_of([call], functions=[function], opset_imports=imports))
    loaded = model.functions["my.domain", "Scale", "v2"]
    assert loaded.attributes == ("by",)
    assert loaded.attribute_defaults["alpha"].value == 0.5
    assert loaded.body.inputs == ["a"] and loaded.body.outputs == ["b"]
    assert loaded.body.opset_imports == {"": 17}
    reference = loaded.body.nodes[0].typed_attributes["value_float"]
    assert (reference.reference, reference.value) == ("by", None)
    assert model.graph.nodes[0].overload == "v2"


def test_a_reference_to_a_graph_is_no_body() -> None:
    function = helper.make_function(
        "d", "F", ["a"], ["b"], [helper.make_node("If", ["a"], ["b"])], [], ["g"]
    )
    function.node[0].attribute.add(
        name="then_branch", type=AttributeProto.GRAPH, ref_attr_name="g"
    )
    loaded = parse_function(function.SerializeToString())
    assert loaded.body.nodes[0].subgraphs == {}


def test_a_function_may_not_use_what_it_does_not_have() -> None:
    node = helper.make_node("Add", ["a", "z"], ["b"])
    function = helper.make_function("d", "F", ["a"], ["b"], [node], [])
    with pytest.raises(InvalidModel, match=r"Add '' in graph 'F' .*'z'"):
        parse_function(function.SerializeToString())


def test_two_functions_of_one_name_are_refused() -> None:
    node = helper.make_node("Identity", ["a"], ["b"])
    function = helper.make_function("d", "F", ["a"], ["b"], [node], [])
    with pytest.raises(InvalidModel, match="two functions are 'd:F:'"):
        load_model(model_of(functions=[function, function]))
