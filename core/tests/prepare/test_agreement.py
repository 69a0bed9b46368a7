"""Stated types that contradict an operator are found without ONNX's help."""

from __future__ import annotations

import onnx
import pytest
from onnx import TensorProto, helper

from onnxplug.errors import InvalidModel
from onnxplug.graph.load import load_model
from onnxplug.prepare import prepare


def model(op_type: str, inputs: dict[str, int], output: int) -> onnx.ModelProto:
    values = [
        helper.make_tensor_value_info(name, dtype, [2])
        for name, dtype in inputs.items()
    ]
    attributes = {"axis": 0} if op_type == "Concat" else {}
    graph = helper.make_graph(
        [helper.make_node(op_type, list(inputs), ["out"], name="odd", **attributes)],
        "g",
        values,
        [helper.make_tensor_value_info("out", output, [2])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


F, N, B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


@pytest.mark.parametrize(
    ("op_type", "inputs", "output"),
    [
        ("Add", {"x": F, "y": N}, F),
        ("Add", {"x": F, "y": F}, N),
        ("Relu", {"x": F}, N),
        ("Concat", {"x": F, "y": F, "z": N}, F),
        ("Where", {"c": B, "x": F, "y": N}, F),
        ("Less", {"x": F, "y": N}, B),
    ],
)
def test_a_contradiction_names_the_node_and_the_values(
    op_type: str, inputs: dict[str, int], output: int
) -> None:
    with pytest.raises(InvalidModel, match=rf"{op_type} 'odd' binds .*int64"):
        prepare(load_model(model(op_type, inputs, output)), evaluate=None)


@pytest.mark.parametrize(
    ("op_type", "inputs", "output"),
    [
        ("Add", {"x": F, "y": F}, F),
        ("Where", {"c": B, "x": F, "y": F}, F),
        ("Less", {"x": F, "y": F}, B),
        ("Pow", {"x": F, "y": N}, F),
    ],
)
def test_what_agrees_passes(op_type: str, inputs: dict[str, int], output: int) -> None:
    prepare(load_model(model(op_type, inputs, output)), evaluate=None)


@pytest.mark.parametrize("op_type", ["Identity", "Size"])
def test_no_operator_takes_a_sparse_tensor(op_type: str) -> None:
    proto = model(op_type, {"x": F}, N if op_type == "Size" else F)
    proto.graph.input[0].type.CopyFrom(helper.make_sparse_tensor_type_proto(F, [2]))
    with pytest.raises(InvalidModel, match=f"{op_type} 'odd' .* sparse tensor 'x'"):
        prepare(load_model(proto), evaluate=None)
    proto.graph.node[0].domain = "my.domain"
    prepare(load_model(proto), evaluate=None)
