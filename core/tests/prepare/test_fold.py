"""Nodes of constants."""

from __future__ import annotations

import numpy as np
import pytest

from onnxplug.ep import DataType
from onnxplug.prepare.fold import LARGE, fold
from onnxplug.prepare.infer import infer_types


def test_nodes_of_constants_become_constants(parse, ops, evaluate):
    model = parse(
        """g (float[2] x) => (y) <float[2] k = {1, 2}>
        { a = Neg (k)  b = Add (a, k)  y = Add (x, b) }"""
    )
    assert len(fold(model.graph, evaluate)) == 2
    assert ops(model.graph) == ["Add"]
    assert model.graph.constant("b").tolist() == [0.0, 0.0]
    assert model.graph.value("b").is_constant


def test_an_output_that_is_folded_stays_an_output(parse, run, evaluate):
    model = parse("g () => (y) <float[2] k = {1, 2}> { y = Neg (k) }")
    fold(model.graph, evaluate)
    assert run(model.graph)[0].tolist() == [-1.0, -2.0]


def test_nothing_is_computed_when_nothing_can(parse, ops):
    model = parse("g () => (y) <float[2] k = {1, 2}> { y = Neg (k) }")
    assert fold(model.graph, None) == []
    assert fold(model.graph, lambda graph, node: None) == []
    assert ops(model.graph) == ["Neg"]


def test_defaults_of_inputs_are_no_constants(parse, evaluate):
    model = parse("g (float[2] x) => (y) <float[2] x = {1, 2}> { y = Neg (x) }")
    assert fold(model.graph, evaluate) == []


def test_bodies_fold_with_constants_from_around(parse, evaluate):
    model = parse(
        """g (float[2] x, bool c) => (y) <float[2] k = {1, 2}> {
            y = If (c) <
                then_branch = t () => (p) { a = Neg (k)  p = Add (x, a) },
                else_branch = e () => (q) { q = Neg (k) }>
        }"""
    )
    assert len(fold(model.graph, evaluate)) == 2
    bodies = model.graph.nodes[0].subgraphs
    assert bodies["then_branch"].constant("a").tolist() == [-1.0, -2.0]
    assert bodies["else_branch"].constant("q").tolist() == [-1.0, -2.0]
    assert not model.graph.constants.keys() & {"a", "q"}


@pytest.mark.parametrize(
    "node",
    [
        "RandomNormalLike (k)",
        "RandomUniformLike (k)",
        "Bernoulli (k)",
        "Multinomial (m)",
        "Dropout (k, half, on)",
        "DequantizeLinear (q, half)",
        "SequenceConstruct (k)",
        "Optional (k)",
        "local.Neg (k)",
        "RandomNormal <shape = [2]> ()",
        "If (on) <then_branch = t () => (p) { p = Neg (k) }, "
        "else_branch = e () => (r) { r = Abs (k) }>",
    ],
)
def test_some_nodes_are_never_folded(parse, ops, evaluate, node):
    model = parse(
        f"""g () => (y) <float[2] k = {{0, 1}}, float[1,2] m = {{1, 1}},
        float half = {{0.5}}, bool on = {{1}}, int8[2] q = {{1, 2}}>
        {{ y = {node} }}"""
    )
    fold(model.graph, evaluate)
    assert len(ops(model.graph)) == 1


@pytest.mark.parametrize(
    ("size", "typed", "folded"),
    [
        (LARGE // 4, True, True),
        (LARGE // 4 + 1, True, False),
        (LARGE // 4 + 1, False, False),
    ],
)
def test_large_results_are_not_stored(parse, evaluate, size, typed, folded):
    model = parse(
        f"""g () => (y) <int64[1] n = {{{size}}}>
        {{ y = ConstantOfShape (n) }}"""
    )
    if typed:
        infer_types(model.graph)
    computed = []

    def counted(graph, node):
        computed.append(node.op_type)
        return evaluate(graph, node)

    fold(model.graph, counted)
    assert ("y" in model.graph.constants) is folded
    assert ("ConstantOfShape" in computed) is folded


def test_large_results_that_replace_as_much_are_stored(parse, evaluate):
    model = parse("g () => (y) <float[1] k = {1}> { y = Neg (k) }")
    from onnxplug.graph import Weight

    large = np.ones(LARGE, np.float32)
    model.graph.add_constant("k", Weight.from_array(large))
    assert len(fold(model.graph, evaluate)) == 1


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ("y = Shape (x)", None),
        ("y = Shape <start = 1> (x)", [3, 4]),
        ("y = Shape <start = 1, end = -1> (x)", [3]),
        ("y = Shape <start = -1, end = 9> (x)", [4]),
        ("y = Shape (z)", [5, 6]),
        ("y = Size (x)", None),
        ("y = Size (z)", 30),
        ("s = Shape (x) y = Gather (s, one)", 3),
        ("s = Shape (x) y = Gather (s, several)", [4, 3]),
        ("s = Shape (x) y = Gather (s, zero)", None),
        ("s = Shape (x) t = Cast <to = 7> (s) y = Gather (t, one)", 3),
        ("s = Shape (x) y = Slice (s, ones, ends)", [3, 4]),
        ("s = Shape (x) y = Slice (s, ones, ends, axis)", [3, 4]),
        ("s = Shape (x) y = Slice (s, ones, ends, axis, steps)", [3]),
        ("s = Shape (x) y = Slice (s, axis, ends)", None),
    ],
)
def test_what_shapes_tell_is_folded_without_arithmetic(parse, nodes, expected):
    model = parse(
        f"""g (float[N,3,4] x, float[5,6] z) => (y)
        <int64 zero = {{0}}, int64 one = {{1}}, int64[2] several = {{-1, 1}},
        int64[1] ones = {{1}}, int64[1] ends = {{9}}, int64[1] axis = {{0}},
        int64[1] steps = {{2}}> {{ {nodes} }}"""
    )
    fold(model.graph, None)
    if expected is None:
        assert "y" not in model.graph.constants
    else:
        assert model.graph.constant("y").tolist() == expected
        assert model.graph.value("y").dtype is DataType.INT64


def test_a_constant_cast_to_the_type_of_a_value_is_folded(parse, ops, evaluate):
    model = parse(
        """g (float16[2] x) => (y) <float k = {1.5}>
        { c = CastLike (k, x)  y = Mul (x, c) }"""
    )
    fold(model.graph, evaluate)
    assert ops(model.graph) == ["Mul"]
    assert model.graph.constant("c").dtype == np.float16


def test_results_do_not_share_memory_with_what_made_them(parse):
    model = parse("g () => (y) <float[2] k = {1, 2}> { y = Reshape (k, k) }")
    fold(model.graph, lambda graph, node: [graph.constant("k")])
    assert not np.shares_memory(model.graph.constant("y"), model.graph.constant("k"))


def test_results_are_for_the_outputs_that_are_wanted(parse, evaluate):
    model = parse(
        """g () => (y) <float[2] k = {2, 1}, int64[1] n = {1}>
        { , y = TopK (k, n) }"""
    )
    fold(model.graph, evaluate)
    assert model.graph.constant("y").tolist() == [0]
    assert list(model.graph.constants) == ["k", "n", "y"]
