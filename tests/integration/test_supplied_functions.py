"""What suppliers of domains can say of operators, beside a function as ONNX has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx.parser
import pytest

import onnxplug
from onnxplug import ep
from onnxplug.errors import PluginError, PluginLoadError, UnassignedNode
from onnxplug.graph.load import load_model
from onnxplug.prepare import infer_types
from onnxplug.prepare.expand import expand_node
from onnxplug.specialise.positions import axes_of_positions
from onnxplug_kernels import Registry

DOMAIN = "com.example"
X = np.array([[-1.0, 2.0, 3.0]], np.float32)


def domain(*operators: ep.Operator, name: str = DOMAIN) -> ep.Domain:
    return ep.Domain(name=name, spi_version=(0, 6), operators=operators)


def model(nodes: str, inputs: str = "float[N,3] x", more: str = "") -> onnx.ModelProto:
    return onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21, "{DOMAIN}" : 1]>\n'
        f"g ({inputs}) => (y) {more} {{ {nodes} }}"
    )


def session(
    model: onnx.ModelProto, *domains: ep.Domain, **entries: str
) -> onnxplug.InferenceSession:
    options = onnxplug.SessionOptions()
    for each in domains:
        options.register_custom_ops_library(each)
    for key, value in entries.items():
        options.add_session_config_entry(key.replace("__", "."), value)
    return onnxplug.InferenceSession(model, options)


asked: list[str] = []


def scaled(graph: ep.Graph, node: ep.Node) -> ep.Function:
    """Scaled (x, w): x times the squares of w, computed when they are asked for."""
    name = node.inputs[1]
    weights = graph.value(name or "")
    assert weights.is_constant and weights.dtype is not None

    def compute(array: Any) -> Any:
        asked.append(str(name))
        return array * array

    squares = ep.ComputedConstant(
        dtype=weights.dtype,
        shape=tuple(weights.shape or ()),
        of=["w"],
        compute=compute,
        key="w²",
    )
    return ep.Function(
        inputs=["x", "w"],
        outputs=["y"],
        calls=[
            ep.Call(
                op_type="Constant",
                inputs=(),
                outputs=["squares"],
                attributes={"value": squares},
            ),
            ep.Call(
                op_type="Mul", inputs=["x", "squares"], outputs=["y"], attributes={}
            ),
        ],
        opset_imports={"": graph.opset()},
    )


WITH_WEIGHTS = model(
    "y = com.example.Scaled (x, w)", more="<float[3] w = {1, 2, 3}>"
).SerializeToString()


def test_a_function_with_a_constant_that_is_computed() -> None:
    supplied = domain(ep.Operator(op_type="Scaled", function=scaled))
    graph = load_model(WITH_WEIGHTS).graph
    graph.domains = [supplied]
    asked.clear()
    assert expand_node(graph, graph.nodes[0])
    (name,) = graph.constants.keys() - {"w"}
    assert graph.constants[name].shape == (3,)
    assert not asked
    (result,) = session(onnx.load_from_string(WITH_WEIGHTS), supplied).run(
        None, {"x": X}
    )
    assert asked
    np.testing.assert_array_equal(result, X * np.float32([1, 4, 9]))


def test_a_computed_constant_that_is_not_what_was_said() -> None:
    def wrong(graph: ep.Graph, node: ep.Node) -> ep.Function:
        made = scaled(graph, node)
        value = replace(made.calls[0].attributes["value"], of=["x"])
        constant = replace(made.calls[0], attributes={"value": value})
        return replace(made, calls=[constant, made.calls[1]])

    supplied = domain(ep.Operator(op_type="Scaled", function=wrong))
    with pytest.raises(PluginError, match="computed from 'x', which is none"):
        session(onnx.load_from_string(WITH_WEIGHTS), supplied)


def test_types_by_the_name_of_an_operator_of_onnx() -> None:
    def inferred(name: str) -> Any:
        nodes = "p = com.example.Product (x, z)  y = Neg (p)"
        graph = load_model(model(nodes, inputs="float[N,3] x, float[3,M] z")).graph
        graph.domains = [domain(ep.Operator(op_type="Product", infer_types=name))]
        infer_types(graph)
        return graph.types["p"]

    assert inferred("MatMul") == ep.TensorType(ep.DataType.FLOAT32, ("N", "M"))
    with pytest.raises(PluginError, match="the types of Produkt; expected the name"):
        inferred("Produkt")


def test_a_trait_that_there_is_not() -> None:
    traits: Any = ("broadcast", "brodcast")
    with pytest.raises(PluginLoadError, match="expected some of broadcast, dequant"):
        session(
            model("y = com.example.Some (x)"),
            domain(ep.Operator(op_type="Some", traits=traits)),
        )


def test_an_operator_that_onnx_does_not_define_in_this_opset() -> None:
    """And not the one that it does."""
    negative = '<opset_import: ["" : 17]> {} (x) => (y) {{ y = Neg (x) }}'
    supplied = domain(
        *(
            ep.Operator(
                op_type=name, function=f'<domain: "", {negative[1:].format(name)}'
            )
            for name in ("Swish", "Relu")
        ),
        name="ai.onnx",
    )
    made = session(model("s = Swish (x)  y = Relu (s)"), supplied)
    np.testing.assert_array_equal(made.run(None, {"x": X})[0], np.maximum(-X, 0))
    with pytest.raises(UnassignedNode, match="ONNX has no operator Swosh"):
        session(model("y = Swosh (x)"), supplied)


def powers(editor: ep.GraphEditor) -> Sequence[str]:
    """Powers (x) is x times itself as often as the first graph was told."""
    times = editor.shared.setdefault("times", editor.entry("session.nchwc_block_size"))
    nodes: list[ep.Node] = []
    for node in editor.graph.nodes:
        if node.domain == DOMAIN:
            function = ep.Function(
                inputs=["x"],
                outputs=["y"],
                calls=[
                    ep.Call(
                        op_type="Constant",
                        inputs=(),
                        outputs=["n"],
                        attributes={"value": np.array(float(times), np.float32)},
                    ),
                    ep.Call(
                        op_type="Mul", inputs=["x", "n"], outputs=["y"], attributes={}
                    ),
                ],
                opset_imports={"": editor.graph.opset()},
            )
            nodes += editor.nodes_of(function, node)
        else:
            nodes.append(node)
    editor.replace_nodes(nodes)
    return [f"Powers by {times}"]


def test_a_rewrite_asks_for_an_entry_and_keeps_it_for_bodies() -> None:
    nodes = """t = com.example.Powers (x)
               y = If (b) <then_branch = t () => (u) { u = com.example.Powers (t) },
                           else_branch = e () => (v) { v = Neg (t) }>"""
    supplied = domain(ep.Operator(op_type="Powers", rewrite=powers))
    made = session(
        model(nodes, inputs="float[N,3] x, bool b"),
        supplied,
        session__nchwc_block_size="8",
    )
    assert made.explain().passes["rewrite"] == ["Powers by 8"] * 2
    (result,) = made.run(None, {"x": X, "b": np.array(True)})
    np.testing.assert_array_equal(result, X * 64)


KERNELS = Registry(DOMAIN)


@KERNELS.operator("Shift", since=1)
def shift(xp: Any, x: Any, *, by: float = 1.0) -> Any:
    return xp.asarray(x + by)


def test_a_new_operator_is_a_row_a_rule_and_a_kernel() -> None:
    """And nothing else: the checks, the types, the passes and the EP ask these."""
    row = ep.Operator(
        op_type="Shift",
        infer_types="Relu",
        kernel=KERNELS.function_of,
        traits=("unary",),
    )
    supplied = domain(row)
    made = session(model("s = com.example.Shift <by = 2.0> (x)  y = Neg (s)"), supplied)
    np.testing.assert_array_equal(made.run(None, {"x": X})[0], -X - 2)
    assert made.get_outputs()[0].shape == ["N", 3]
    graph = load_model(model("y = com.example.Shift (x)")).graph
    graph.domains = [supplied]
    infer_types(graph)
    assert axes_of_positions(graph, ["x"], ["y"], "N") == {"x": 0, "y": 0}
    with pytest.raises(UnassignedNode, match="Shift since version 1 has no attribute"):
        session(model("y = com.example.Shift <to = 1> (x)"), supplied)
