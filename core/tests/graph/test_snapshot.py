"""A model's graphs, changed and changed back."""

from __future__ import annotations

import numpy as np
import onnx.parser

from onnxplug.graph import Model, Node, Weight
from onnxplug.graph.export import export_graph
from onnxplug.graph.load import load_model
from onnxplug.graph.scopes import all_graphs
from onnxplug.graph.snapshot import Snapshot
from onnxplug.prepare import expand_nodes, prepare


def load() -> Model:
    return load_model(
        onnx.parser.parse_model(
            """
            <ir_version: 10, opset_import: ["" : 21]>
            g (float[N] x, bool yes) => (float[N] y) <float[1] w = {2}> {
                a = Softplus (x)
                i = Identity (a)
                b = Mul (i, w)
                y = If (yes) <
                    then_branch = t () => (float[N] p) {
                        c = Constant <value = float {3}> ()
                        q = Add (b, c)
                        p = Softplus (q)
                    },
                    else_branch = e () => (float[N] r) { r = Neg (b) }
                >
            }
            """
        )
    )


def test_all_is_as_it_was() -> None:
    model = load()
    graph = model.graph
    before = export_graph(graph).model.SerializeToString(deterministic=True)
    nodes = [each.nodes for each in all_graphs(graph)]
    types = [dict(each.types) for each in all_graphs(graph)]
    snapshot = Snapshot(graph)
    for _ in range(2):
        expand_nodes(graph, graph.nodes[:1])
        prepare(model, evaluate=None)
        graph.add_constant("new", Weight.from_array(np.zeros(3, np.float32)))
        graph.opset_imports["com.example"] = 1
        graph.outputs.append("b")
        graph.replace_nodes([*graph.nodes, Node("Neg", ("x",), ("z",))])
        assert export_graph(graph).model.SerializeToString() != before
        snapshot.restore()
        again = export_graph(graph).model.SerializeToString(deterministic=True)
        assert again == before
        # the same objects, in their places
        assert [each.nodes for each in all_graphs(graph)] == nodes
        assert [each.types for each in all_graphs(graph)] == types
        for each in all_graphs(graph):
            assert [node.index for node in each.nodes] == [*range(len(each.nodes))]
            assert all(node.graph is each for node in each.nodes)
            assert all(
                body.parent is each
                for node in each.nodes
                for body in node.subgraphs.values()
            )
