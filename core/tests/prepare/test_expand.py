"""Operators that ONNX defines by others."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import onnx.defs
import pytest
from onnx.reference import ReferenceEvaluator

from onnxplug.graph.export import export_graph
from onnxplug.graph.load import load_model
from onnxplug.graph.scopes import all_graphs
from onnxplug.prepare import expand_nodes, infer_types
from onnxplug.prepare.expand import expand_node

X = np.array([[-1.0, 2.0, 0.5]], np.float32)


def _has_body(graph) -> bool:
    (node,) = graph.nodes
    schema: Any = onnx.defs.get_schema(
        node.op_type, graph.opset(node.domain), node.domain
    )
    versions = (
        *schema.function_opset_versions,
        *schema.context_dependent_function_opset_versions,
    )
    # an operator may be older than the opset that its body is written for
    return any(version <= graph.opset(node.domain) for version in versions)


def test_every_operator_with_a_body_can_be_expanded(suite):
    """The result is what the suite expects; it has bodies for two hundred cases."""
    done = failed = 0
    for case in suite:
        graph = load_model(case.model).graph
        if len(graph.nodes) != 1 or not _has_body(graph):
            continue
        operator = graph.nodes[0].op_type
        assert expand_node(graph, graph.nodes[0]), case.name
        assert operator not in [node.op_type for node in graph.nodes], case.name
        if operator in ("Bernoulli", "Range"):
            continue  # random; and the evaluator's Loop adds an axis to scalars
        inputs, expected = case.data_sets[0]
        feeds = dict(zip(graph.inputs, inputs, strict=True))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                results = ReferenceEvaluator(export_graph(graph).model).run(None, feeds)
        except TypeError:  # the evaluator's Cast knows no round_mode
            assert operator == "CastLike", case.name
            failed += 1
            continue
        for result, wanted in zip(results, expected, strict=True):
            for one, other in _pairs(result, wanted):
                assert one.dtype == other.dtype and one.shape == other.shape, case.name
                np.testing.assert_allclose(
                    one.astype(np.float64),
                    other.astype(np.float64),
                    rtol=case.rtol,
                    atol=1e-5,
                    err_msg=case.name,
                )
        done += 1
    assert done > 300 and failed < 60


def _pairs(result, wanted):
    if isinstance(wanted, list):
        return zip(map(np.asarray, result), map(np.asarray, wanted), strict=True)
    return [(np.asarray(result), np.asarray(wanted))]


def test_the_nodes_take_the_place_of_the_one(parse, ops, run):
    model = parse(
        "g (float[1,3] x) => (y) { a = Neg (x)  b = HardSwish (a)  y = Abs (b) }", 22
    )
    node = model.graph.nodes[1]
    node.name = "swish"
    before = run(model.graph, X)
    assert expand_node(model.graph, node)
    assert ops(model.graph) == ["Neg", "HardSigmoid", "Mul", "Abs"]
    assert model.graph.nodes[1].outputs[0].startswith("swish/")
    assert model.graph.nodes[2].outputs == ("b",)
    assert np.allclose(run(model.graph, X)[0], before[0])


def test_constants_of_the_body_are_lifted_and_defaults_count(parse, ops, run):
    model = parse("g (float[1,3] x) => (y) { y = Elu (x) }")
    before = run(model.graph, X)
    assert expand_node(model.graph, model.graph.nodes[0])
    assert "Constant" not in ops(model.graph)
    assert model.graph.constants
    assert np.allclose(run(model.graph, X)[0], before[0])


def test_a_node_in_a_body_is_expanded_there(parse, ops, run):
    model = parse(
        """g (float[1,3] x, bool c) => (y) {
            y = If (c) <
                then_branch = t () => (p) { p = HardSwish (x) },
                else_branch = e () => (q) { q = Celu (x) }>
        }""",
        opset=28,
    )
    before = [run(model.graph, X, np.array(c))[0] for c in (True, False)]
    infer_types(model.graph)
    for body in list(all_graphs(model.graph))[1:]:
        assert expand_node(body, body.nodes[0])
        assert body.parent is model.graph
    assert ops(model.graph.nodes[0].subgraphs["then_branch"]) == ["HardSigmoid", "Mul"]
    after = [run(model.graph, X, np.array(c))[0] for c in (True, False)]
    assert all(map(np.allclose, before, after))


def test_several_nodes_are_expanded_at_once(parse, ops, run):
    model = parse("g (float[1,3] x) => (y) { a = Elu (x)  b = Neg (a)  y = Elu (b) }")
    before = run(model.graph, X)
    wanted = list(model.graph.nodes)
    assert expand_nodes(model.graph, wanted) == [wanted[0], wanted[2]]
    assert np.allclose(run(model.graph, X)[0], before[0])


@pytest.mark.parametrize(
    ("opset", "node"),
    [
        (21, "Conv (x, x)"),
        (21, "local.Elu (x)"),
        (14, "Relu (x)"),  # the body is written for opset 18
        (13, "Softmax (unknown)"),
        (17, "Neg (x)"),
    ],
    ids=["no body", "foreign", "too old", "type unknown", "no body either"],
)
def test_what_cannot_be_expanded_is_left_alone(parse, ops, opset, node):
    model = parse(
        f"g (float[1,3] x) => (y) {{ unknown = local.Op (x)  y = {node} }}", opset
    )
    before = ops(model.graph)
    assert not expand_node(model.graph, model.graph.nodes[1])
    assert ops(model.graph) == before


def test_a_body_of_an_older_opset_is_used_if_it_means_the_same(parse, run):
    # DynamicQuantizeLinear's body is written for opset 11
    model = parse(
        "g (float[1,3] x) => (y, s, z) { y, s, z = DynamicQuantizeLinear (x) }"
    )
    before = run(model.graph, X)
    assert expand_node(model.graph, model.graph.nodes[0])
    after = run(model.graph, X)
    assert all(map(np.allclose, before, after))


def test_an_output_that_the_body_does_not_make_stops_it(parse):
    text = """g (float[2,3] x, float[3] s) => (y, m)
    { y, m = LayerNormalization (x, s) }"""
    model = parse(text, opset=17)
    expanded = expand_node(model.graph, model.graph.nodes[0])
    made = {name for node in model.graph.nodes for name in node.outputs}
    assert {"y", "m"} <= made
    assert expanded == (len(model.graph.nodes) > 1)


def test_expanding_twice_gives_the_same_names(parse):
    texts = []
    for _ in range(2):
        model = parse("g (float[1,3] x) => (y) { a = Elu (x)  y = Elu (a) }")
        expand_nodes(model.graph, list(model.graph.nodes))
        texts.append(export_graph(model.graph).model.SerializeToString())
    assert texts[0] == texts[1]
