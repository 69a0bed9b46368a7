"""ONNX Runtime's operators as functions; what they compute is tested in tests/."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest
from onnx.reference import ReferenceEvaluator

import onnxplug_microsoft.functions
from onnxplug import domains
from onnxplug.graph import Graph, Node
from onnxplug.graph.export import export_graph
from onnxplug.graph.load import load_model
from onnxplug.prepare import why_not_expanded
from onnxplug.prepare.expand import expand_node
from onnxplug_microsoft import table
from onnxplug_microsoft.functions import makers
from onnxplug_microsoft.kernels import KERNELS

X = np.array([[-1.0, 2.0, 0.5]], np.float32)
GELU = np.array([[-0.15865525, 1.95449974, 0.34573123]], np.float32)

HEADER = '<ir_version: 10, opset_import: ["" : {opset}, "com.microsoft" : 1]>\n'


def load(text: str) -> Graph:
    return load_model(onnx.parser.parse_model(text)).graph


def one(node: str, opset: int) -> Graph:
    """A graph of one node: ``one("Gelu (x)", opset)``."""
    text = f"g (float[1,3] x) => (float[1,3] y) {{ y = com.microsoft.{node} }}"
    return load(HEADER.format(opset=opset) + text)


def run(graph: Graph, *inputs: Any) -> list[Any]:
    feeds = dict(zip(graph.inputs, inputs, strict=True))
    results: list[Any] = ReferenceEvaluator(export_graph(graph).model).run(None, feeds)
    return results


def test_rows_name_the_functions_and_the_kernels_that_there_are() -> None:
    for package in (onnxplug_microsoft.functions, onnxplug_microsoft.kernels):
        for path in Path(package.__path__[0]).glob("[!_]*.py"):
            import_module(f"{package.__name__}.{path.stem}")
    rows = [*table.ADDED.operators, *table.OPERATORS.operators]
    assert makers._OPERATORS.keys() == {
        row.op_type for row in rows if row.function is not None
    }
    assert {op_type for _, op_type in KERNELS.declared()} == {
        row.op_type for row in rows if row.kernel is not None
    }


@pytest.mark.parametrize("opset", [9, 14, 15, 20, 25])
def test_a_body_is_written_in_the_opset_of_the_model(opset: int) -> None:
    graph = one("Gelu (x)", opset)
    assert expand_node(graph, graph.nodes[0])
    assert ("Gelu" in [node.op_type for node in graph.nodes]) == (opset >= 20)
    assert graph.opset() == opset
    np.testing.assert_allclose(run(graph, X)[0], GELU, atol=1e-6)


def test_a_model_without_operators_of_onnx_imports_them_then() -> None:
    text = '<ir_version: 10, opset_import: ["com.microsoft" : 1]>\n'
    text += "g (float[1,3] x) => (float[1,3] y) { y = com.microsoft.Gelu (x) }"
    graph = load(text)
    assert expand_node(graph, graph.nodes[0])
    assert graph.opset() > 0
    np.testing.assert_allclose(run(graph, X)[0], GELU, atol=1e-6)


def test_an_operator_that_onnx_has_in_this_opset_is_onnx_s() -> None:
    for opset, known in ((13, True), (17, False)):
        node = Node("LayerNormalization", ("x", "s"), ("y",))
        graph = Graph(
            "g",
            inputs=["x", "s"],
            outputs=["y"],
            nodes=[node],
            opset_imports={"": opset},
        )
        found = domains.find(graph, node)
        assert (found is not None) == known
        # the types, which a body before opset 17 needs, are not known
        assert (why_not_expanded(graph, node) is not None) == known


def test_why_not() -> None:
    graph = one("Gelu <other = 1> (x)", 13)
    assert not expand_node(graph, graph.nodes[0])
    assert "attribute 'other'" in str(why_not_expanded(graph, graph.nodes[0]))
    graph = one("Unheard (x)", 13)
    assert "onnxplug-microsoft supplies 'com.microsoft' without an operator" in str(
        why_not_expanded(graph, graph.nodes[0])
    )


def test_a_model_without_them_imports_none() -> None:
    """Also where a node becomes its function."""
    program = """
import sys, onnx.parser
from onnxplug.graph.load import load_model
from onnxplug.prepare import expand_nodes, infer_types
text = '<ir_version: 8, opset_import: ["" : 17]> g (float[N] x) => (y) '
graph = load_model(onnx.parser.parse_model(text + '{ y = HardSwish (x) }')).graph
infer_types(graph)
assert expand_nodes(graph, graph.nodes)
print([name for name in sys.modules if name.startswith("onnxplug_")])
"""
    found = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert found.stdout.strip() == "[]"
