"""ONNX Runtime's operators as functions; what they compute is tested in tests/."""

from __future__ import annotations

import importlib
import subprocess
import sys

import numpy as np
import pytest

from onnxplug import domains, functions
from onnxplug.functions import operators
from onnxplug.graph import Graph, Node
from onnxplug.layout import NHWC_DOMAIN
from onnxplug.prepare import why_not_expanded
from onnxplug.prepare.expand import expand_node

X = np.array([[-1.0, 2.0, 0.5]], np.float32)
GELU = np.array([[-0.15865525, 1.95449974, 0.34573123]], np.float32)

HEADER = '<ir_version: 10, opset_import: ["" : {opset}, "com.microsoft" : 1]>\n'


@pytest.fixture
def one(parse):
    """A graph of one node: ``one("Gelu (x)", opset)``."""

    def make(node: str, opset: int) -> Graph:
        text = f"g (float[1,3] x) => (float[1,3] y) {{ y = com.microsoft.{node} }}"
        return parse(HEADER.format(opset=opset) + text).graph

    return make


def test_every_operator_of_the_table_has_a_maker():
    for family in functions._FAMILIES:
        importlib.import_module(f"onnxplug.functions.{family}")
    named = {
        operator.op_type
        for name, domain in functions.DOMAINS.items()
        for operator in domain.operators
        if operator.function is not None and name != NHWC_DOMAIN
    }
    assert operators._OPERATORS.keys() == named


@pytest.mark.parametrize("opset", [9, 14, 15, 20, 25])
def test_a_body_is_written_in_the_opset_of_the_model(one, ops, run, opset):
    graph = one("Gelu (x)", opset)
    assert expand_node(graph, graph.nodes[0])
    assert ("Gelu" in ops(graph)) == (opset >= 20)
    assert graph.opset() == opset
    np.testing.assert_allclose(run(graph, X)[0], GELU, atol=1e-6)


def test_a_model_without_operators_of_onnx_imports_them_then(parse, run):
    text = '<ir_version: 10, opset_import: ["com.microsoft" : 1]>\n'
    text += "g (float[1,3] x) => (float[1,3] y) { y = com.microsoft.Gelu (x) }"
    graph = parse(text).graph
    assert expand_node(graph, graph.nodes[0])
    assert graph.opset() > 0
    np.testing.assert_allclose(run(graph, X)[0], GELU, atol=1e-6)


def test_an_operator_that_onnx_has_in_this_opset_is_onnx_s():
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


def test_why_not(one):
    graph = one("Gelu <other = 1> (x)", 13)
    assert not expand_node(graph, graph.nodes[0])
    assert "attribute 'other'" in str(why_not_expanded(graph, graph.nodes[0]))
    graph = one("Unheard (x)", 13)
    assert "without an operator 'Unheard'" in why_not_expanded(graph, graph.nodes[0])


def test_a_model_without_them_imports_none():
    program = (
        "import sys, onnxplug.prepare.expand\n"
        "print([n for n in sys.modules if n.startswith('onnxplug.functions.')])"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert found.stdout.strip() == "[]"
