"""Exporting: round trips of onnx's own models, parts of graphs, kinds of weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxplug.ep import (
    DataType,
    MapType,
    OptionalType,
    SequenceType,
    SparseTensorType,
    TensorType,
    ValueType,
)
from onnxplug.errors import InvalidModel, ModelError
from onnxplug.graph import Attribute, AttributeType, Graph, Model, Node, Weight
from onnxplug.graph.export import export_graph, node_to_proto, type_to_proto
from onnxplug.graph.load import load_model
from onnxplug.graph.value_type import read_type
from onnxplug.graph.wire import Message

Compare = Callable[[Model, onnx.ModelProto], None]

FLOATS = TensorType(DataType.FLOAT32, (4,))
BIG = np.arange(1000, dtype=np.float32)
SMALL = np.arange(4, dtype=np.float32)


def type_from_proto(proto: onnx.TypeProto) -> ValueType | None:
    return read_type(Message.whole(memoryview(proto.SerializeToString())))


def chain(**fields: Any) -> Graph:
    """x → A → a → B → b → C → y, where A uses ``big`` and C ``small``."""
    return Graph(
        "chain",
        inputs=["x"],
        outputs=["y"],
        nodes=[
            Node("A", ("x", "big"), ("a",)),
            Node("B", ("a",), ("b", None)),
            Node("C", ("b", "small"), ("y",)),
        ],
        constants={"big": Weight.from_array(BIG), "small": Weight.from_array(SMALL)},
        types={"x": FLOATS, "b": TensorType(DataType.FLOAT32, ("n", None))},
        opset_imports={"": 18},
        **fields,
    )


def names(values: Any) -> list[str]:
    return [value.name for value in values]


# round trips


def again(model: Model, **kind: Any) -> onnx.ModelProto:
    exported = export_graph(
        model.graph,
        functions=model.functions.values(),
        ir_version=model.ir_version,
        **kind,
    )
    proto: onnx.ModelProto = exported.model
    return proto


def assert_round_trip(proto: onnx.ModelProto, assert_same: Compare) -> None:
    model = load_model(proto)
    exported = again(model)
    reloaded = load_model(exported)
    assert_same(reloaded, exported)
    if proto.graph.sparse_initializer:
        return  # they are dense now
    # unused initializers are left out, which may be inputs in old models
    written = set(names(exported.graph.initializer))
    unused = set(names(proto.graph.initializer)) - written
    expected = onnx.ModelProto()
    expected.CopyFrom(proto)
    for values in (expected.graph.initializer, expected.graph.input):
        kept = [value for value in values if value.name not in unused]
        del values[:]
        values.extend(kept)
    assert_same(reloaded, expected)


def test_stored_models_survive_a_round_trip(
    stored_models: dict[str, onnx.ModelProto], assert_same: Compare
) -> None:
    for proto in stored_models.values():
        assert_round_trip(proto, assert_same)


@pytest.mark.slow
def test_node_models_survive_a_round_trip(
    node_models: dict[str, onnx.ModelProto], assert_same: Compare
) -> None:
    for proto in node_models.values():
        assert_round_trip(proto, assert_same)


def test_exported_models_pass_onnx_s_checker(
    stored_models: dict[str, onnx.ModelProto],
) -> None:
    for proto in stored_models.values():
        onnx.checker.check_model(again(load_model(proto)))


def test_functions_survive_a_round_trip(assert_same: Compare) -> None:
    node = helper.make_node("LeakyRelu", ["a"], ["b"])
    node.attribute.add(
        name="alpha", type=onnx.AttributeProto.FLOAT, ref_attr_name="slope"
    )
    function = helper.make_function(
        "d",
        "F",
        ["a"],
        ["b"],
        [node],
        [helper.make_opsetid("", 18)],
        attribute_protos=[helper.make_attribute("slope", 0.5)],
        overload="o",
        value_info=[helper.make_tensor_value_info("b", TensorProto.FLOAT, [2])],
    )
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
    call = helper.make_node("F", ["x"], ["y"], domain="d", overload="o")
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("d", 1)]
    proto = helper.make_model(
        helper.make_graph([call], "g", [x], [y]),
        functions=[function],
        opset_imports=imports,
        ir_version=10,
    )
    exported = again(load_model(proto))
    onnx.checker.check_model(exported)
    assert_same(load_model(exported), proto)
    assert exported.functions[0].value_info[0].name == "b"


# parts


def test_the_whole_graph_has_its_inputs_outputs_and_types() -> None:
    proto = export_graph(chain()).model.graph
    assert proto.name == "chain"
    assert [node.op_type for node in proto.node] == ["A", "B", "C"]
    assert names(proto.input) == ["x"]
    assert names(proto.output) == ["y"]
    assert names(proto.initializer) == ["big", "small"]
    assert names(proto.value_info) == ["b"]
    assert not proto.output[0].HasField("type")  # nothing is known of it


def test_a_part_has_what_it_needs_and_what_is_needed_of_it() -> None:
    graph = chain()
    proto = export_graph(graph, nodes=graph.nodes[1:2]).model.graph
    assert names(proto.input) == ["a"]
    assert names(proto.output) == ["b"]
    assert not proto.initializer
    assert list(proto.node[0].output) == ["b", ""]
    assert type_from_proto(proto.output[0].type) == graph.types["b"]


def test_a_part_s_inputs_and_outputs_can_be_given() -> None:
    graph = chain()
    proto = export_graph(
        graph, nodes=graph.nodes[1:], inputs=["spare", "a"], outputs=["y", "b"]
    ).model.graph
    assert names(proto.input) == ["spare", "a"]
    assert names(proto.output) == ["y", "b"]
    assert names(proto.initializer) == ["small"]


def test_inputs_with_a_default_keep_it_in_a_whole_graph_only() -> None:
    graph = chain(defaults={"d": Weight.from_array(SMALL)})
    graph.replace_nodes([*graph.nodes, Node("D", ("d",), ("e",))])
    whole = export_graph(graph).model.graph
    assert names(whole.input) == ["x", "d"]
    assert names(whole.initializer) == ["big", "small", "d"]
    part = export_graph(graph, nodes=graph.nodes[-1:], inputs=["d"], outputs=["e"])
    assert names(part.model.graph.input) == ["d"]
    assert not part.model.graph.initializer


def test_an_output_may_be_a_constant_or_an_input() -> None:
    graph = chain()
    graph.outputs = ["small", "x"]
    proto = export_graph(graph, nodes=[], outputs=graph.outputs).model.graph
    assert names(proto.initializer) == ["small"]
    assert names(proto.input) == ["x"]


def nested() -> Graph:
    """An If whose bodies use an outer constant, an outer value and their own."""
    bodies = [
        Graph(
            f"body{index}",
            inputs=[],
            outputs=["r"],
            nodes=[
                Node("Add", ("x", "small"), ("s",)),
                Node("Gemm", ("s", "own", f"only{index}"), ("r",)),
            ],
            constants={
                "own": Weight.from_array(BIG + index),
                f"only{index}": Weight.from_array(BIG),
                "unused": Weight.from_array(BIG),
            },
            types={"s": FLOATS},
        )
        for index in range(2)
    ]
    attributes = {
        key: Attribute(AttributeType.GRAPH, body)
        for key, body in zip(("then_branch", "else_branch"), bodies, strict=True)
    }
    return Graph(
        "outer",
        inputs=["c", "x"],
        outputs=["y"],
        nodes=[Node("If", ("c",), ("y",), attributes)],
        constants={"small": Weight.from_array(SMALL)},
        types={"x": FLOATS},
        opset_imports={"": 18},
    )


def test_captures_become_inputs_and_initializers() -> None:
    graph = nested()
    proto = export_graph(graph, nodes=graph.nodes).model.graph
    assert names(proto.input) == ["c", "x"]
    assert names(proto.initializer) == ["small"]
    body = proto.node[0].attribute[0].g
    assert names(body.initializer) == ["own", "only0"]
    assert names(body.value_info) == ["s"]


def test_a_body_can_be_exported_by_itself() -> None:
    body = nested().nodes[0].subgraphs["then_branch"]
    proto = export_graph(body).model.graph
    assert names(proto.input) == ["x"]
    assert names(proto.initializer) == ["small", "own", "only0"]
    assert type_from_proto(proto.input[0].type) == FLOATS


# weights


def test_external_weights_are_views_and_small_ones_stay() -> None:
    graph = chain()
    model, weights = export_graph(graph, weights="external")
    big, small = model.graph.initializer
    assert big.data_location == TensorProto.EXTERNAL
    entries = {entry.key: entry.value for entry in big.external_data}
    assert entries["length"] == "4000" and entries["offset"] == "0"
    assert set(weights) == {entries["location"]}
    buffer = weights[entries["location"]].raw()
    assert buffer.dtype == np.uint8 and buffer.flags.c_contiguous
    assert np.shares_memory(buffer, graph.constants["big"].array)
    assert numpy_helper.to_array(small).tolist() == SMALL.tolist()


def test_external_weights_of_a_file_are_its_mapping(tmp_path: Any) -> None:
    path = tmp_path / "m.onnx"
    large = {"big": Weight.from_array(np.zeros(1 << 20, np.float32))}
    graph = chain()
    graph.constants.update(large)
    onnx.save(export_graph(graph).model, path)
    loaded = load_model(path).graph
    _, weights = export_graph(loaded, weights="external")
    (weight,) = weights.values()
    assert not weight.raw().flags.owndata
    assert loaded.constants["big"]._array is None  # it was not even made


def test_external_weights_in_files_are_read_by_onnx_and_by_us(tmp_path: Any) -> None:
    graph = nested()
    model, weights = export_graph(graph, weights="external")
    assert len(weights) == len(set(weights)) == 4
    for location, weight in weights.items():
        (tmp_path / location).write_bytes(weight.raw())
    onnx.save(model, tmp_path / "m.onnx")
    theirs = onnx.load(tmp_path / "m.onnx").graph.node[0].attribute[1].g
    assert numpy_helper.to_array(theirs.initializer[0]).tolist() == (BIG + 1).tolist()
    ours = load_model(tmp_path / "m.onnx").graph.nodes[0].subgraphs["else_branch"]
    assert ours.constant("own").tolist() == (BIG + 1).tolist()


def test_inline_weights_beyond_protobuf_s_limit_are_refused() -> None:
    # no memory is taken: pages of zeros that nothing touches
    half = np.zeros(1 << 30, np.uint8)
    graph = Graph(
        "huge",
        inputs=[],
        outputs=["y"],
        nodes=[Node("Concat", ("a", "b"), ("y",))],
        constants={
            "a": Weight(DataType.UINT8, (1 << 31,), lambda: half),
            "b": Weight.from_array(half),
        },
    )
    with pytest.raises(ModelError, match=r'2 GiB.*weights="external"') as raised:
        export_graph(graph)
    assert isinstance(raised.value, ValueError)
    graph.constants["a"] = graph.constants["b"]
    assert len(export_graph(graph, weights="external").weights) == 2


@pytest.mark.parametrize("dtype", list(DataType))
def test_weights_of_every_element_type_survive(dtype: DataType) -> None:
    if dtype is DataType.STRING:
        array = np.array([["a", "ü"], ["\udcff", ""], ["", "z"]], object)
    else:
        array = np.arange(1, 7).astype(np.float32).astype(dtype.numpy).reshape(3, 2)
    graph = Graph(
        "g",
        inputs=[],
        outputs=["w"],
        nodes=[],
        constants={"w": Weight.from_array(array)},
        opset_imports={"": 18},
    )
    model = export_graph(graph).model
    loaded = load_model(model).graph.weight("w")
    assert loaded is not None
    assert loaded.dtype is dtype
    assert loaded.array.tolist() == array.tolist()
    if dtype is not DataType.STRING:
        theirs = numpy_helper.to_array(model.graph.initializer[0])
        assert theirs.tobytes() == array.tobytes()
        assert loaded.raw().tobytes() == model.graph.initializer[0].raw_data


@pytest.mark.parametrize(
    ("dtype", "version"),
    [
        (DataType.FLOAT32, 10),
        (DataType.INT4, 10),
        (DataType.FLOAT4_E2M1FN, 11),
        (DataType.FLOAT8_E8M0FNU, 12),
        (DataType.INT2, 13),
        (DataType.FLOAT6_E2M3FN, 14),
    ],
)
def test_the_ir_version_is_what_element_types_need(
    dtype: DataType, version: int
) -> None:
    graph = chain()
    graph.types["x"] = SequenceType(TensorType(dtype, ()))
    assert export_graph(graph).model.ir_version == version
    assert export_graph(graph, ir_version=14).model.ir_version == 14


def test_onnx_runtime_runs_what_is_exported() -> None:
    graph = Graph(
        "g",
        inputs=["x"],
        outputs=["y"],
        nodes=[Node("Add", ("x", "w"), ("s",)), Node("Relu", ("s",), ("y",))],
        constants={"w": Weight.from_array(SMALL)},
        types={"x": FLOATS, "y": FLOATS},
        opset_imports={"": 18},
    )
    session = onnxruntime.InferenceSession(
        export_graph(graph).model.SerializeToString(),
        providers=["CPUExecutionProvider"],
    )
    (y,) = session.run(None, {"x": -np.ones(4, np.float32)})
    assert y.tolist() == [0, 0, 1, 2]


# pieces


def test_a_node_is_written_as_it_was_read() -> None:
    proto = helper.make_node(
        "Op",
        ["a", "", "b"],
        ["", "c"],
        name="n",
        domain="d",
        overload="o",
        f=0.5,
        s=b"\xff",
        ints=[1, -1],
        t=numpy_helper.from_array(SMALL),
    )
    x = [helper.make_value_info(name, onnx.TypeProto()) for name in "ab"]
    y = [helper.make_value_info("c", onnx.TypeProto())]
    graph = helper.make_graph([proto], "g", x, y)
    node = load_model(helper.make_model(graph)).graph.nodes[0]
    assert node_to_proto(node) == proto


TYPES = [
    FLOATS,
    TensorType(DataType.STRING, None),
    TensorType(DataType.INT4, ()),
    TensorType(DataType.FLOAT64, (None, "n", 0)),
    TensorType(None, None),
    SparseTensorType(DataType.FLOAT32, (2,)),
    SequenceType(None),
    SequenceType(SequenceType(FLOATS)),
    OptionalType(SequenceType(FLOATS)),
    OptionalType(None),
    MapType(DataType.INT64, SequenceType(FLOATS)),
    MapType(DataType.STRING, None),
]


@pytest.mark.parametrize("value_type", TYPES, ids=str)
def test_types_survive(value_type: Any) -> None:
    assert type_from_proto(type_to_proto(value_type)) == value_type


def test_a_proto_with_an_undefined_element_type_is_refused() -> None:
    proto = helper.make_tensor_type_proto(99, [1])
    with pytest.raises(InvalidModel, match="element type 99"):
        type_from_proto(proto)
