"""An ``If`` of constant condition becomes the branch that it takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from onnxplug.graph import Graph, Model
from onnxplug.graph.export import export_graph
from onnxplug.graph.scopes import all_graphs, made_in
from onnxplug.prepare import prepare
from onnxplug.prepare.branches import take_branches

Parse = Callable[..., Model]
X = np.arange(4, dtype=np.float32)

BOTH_WAYS = """
agraph (float[4] x) => (float[4] a, float[4] b, float[4] d, float[4] e)
<bool c = {%d}, float[4] w = {1, 2, 3, 4}>
{
    s = Sin (x)
    a, b, d, e = If (c) <
        then_branch = yes () => (float[4] p, float[4] p, float[4] w2, float[4] s2)
            <float[4] k = {5, 6, 7, 8}>
            { q = Add (w, k) p = Mul (q, x) w2 = Identity (k) s2 = Identity (s) },
        else_branch = no () => (float[4] p, float[4] q, float[4] s2, float[4] w2)
            { s = Cos (x) p = Add (s, s) q = Mul (w, x) s2 = Abs (s) w2 = Neg (p) }>
}
"""


def assert_names_are_unique(graph: Graph) -> None:
    made = [name for each in all_graphs(graph) for name in sorted(made_in(each))]
    assert len(set(made)) == len(made)


@pytest.mark.parametrize("condition", [0, 1])
def test_the_branch_taken_stays_and_computes_the_same(
    parse: Parse,
    run: Callable[..., list[Any]],
    ops: Callable[[Graph], list[str]],
    condition: int,
) -> None:
    graph = parse(BOTH_WAYS % condition).graph
    expected = run(graph, X)
    assert take_branches(graph) == ["If giving 'a'"]
    assert "If" not in ops(graph)
    assert ("Cos" in ops(graph)) == (not condition)
    assert graph.outputs == ["a", "b", "d", "e"]
    assert_names_are_unique(graph)
    for found, wanted in zip(run(graph, X), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)
    assert take_branches(graph) == []


def test_an_if_within_a_branch_is_decided_too_and_a_loop_keeps_its_captures(
    parse: Parse, run: Callable[..., list[Any]], ops: Callable[[Graph], list[str]]
) -> None:
    text = """
    agraph (int64 n, float[4] x) => (float[4] y) <bool c = {1}>
    {
        y = If (c) <
            then_branch = yes () => (float[4] p)
            {
                s = Sin (x)
                p = If (c) <
                    then_branch = inner () => (float[4] q)
                    {
                        q = Loop (n, c, s) <body = steps (int64 i, bool go, float[4] a)
                            => (bool on, float[4] t)
                            { on = Identity (go) t = Add (a, s) }>
                    },
                    else_branch = other () => (float[4] r) { r = Neg (s) }>
            },
            else_branch = no () => (float[4] z) { z = foo.Nothing (x) }>
    }
    """
    graph = parse(text).graph
    assert len(take_branches(graph)) == 2
    assert ops(graph) == ["Sin", "Loop"]
    assert_names_are_unique(graph)
    (result,) = run(graph, np.array(2), X)
    np.testing.assert_allclose(result, 3 * np.sin(X), rtol=1e-6)


def test_an_if_within_a_loop_is_decided(
    parse: Parse, run: Callable[..., list[Any]], ops: Callable[[Graph], list[str]]
) -> None:
    text = """
    agraph (int64 n, float[4] x) => (float[4] y) <bool c = {0}, bool yes = {1}>
    {
        y = Loop (n, yes, x) <body = steps (int64 i, bool go, float[4] a)
            => (bool on, float[4] t)
            {
                on = Identity (go)
                t = If (c) <
                    then_branch = yes () => (float[4] p) { p = Neg (a) },
                    else_branch = no () => (float[4] q) { q = Add (a, x) }>
            }>
    }
    """
    graph = parse(text).graph
    assert len(take_branches(graph)) == 1
    (body,) = graph.nodes[0].subgraphs.values()
    assert ops(body) == ["Identity", "Add"]
    np.testing.assert_array_equal(run(graph, np.array(2), X)[0], 3 * X)


@pytest.mark.parametrize(
    ("inputs", "constants"), [("bool c, ", ""), ("", "<bool[2] c = {1, 1}>")]
)
def test_what_is_not_one_constant_stays(
    parse: Parse, ops: Callable[[Graph], list[str]], inputs: str, constants: str
) -> None:
    text = f"""
    agraph ({inputs}float[4] x) => (float[4] y) {constants}
    {{
        y = If (c) <then_branch = yes () => (float[4] p) {{ p = Neg (x) }},
            else_branch = no () => (float[4] q) {{ q = Abs (x) }}>
    }}
    """
    graph = parse(text).graph
    assert take_branches(graph) == []
    assert ops(graph) == ["If"]


def test_preparing_decides_and_sweeps(
    parse: Parse, evaluate: Any, ops: Callable[[Graph], list[str]]
) -> None:
    model = parse(BOTH_WAYS % 1)
    report = prepare(model, evaluate=evaluate)
    assert report.changed("branches")
    assert ops(model.graph) == ["Sin", "Mul", "Identity"]  # an output twice
    export_graph(model.graph)
    model = parse(BOTH_WAYS % 1)
    prepare(model, evaluate=evaluate, disabled={"branches"})
    assert "If" in ops(model.graph)
