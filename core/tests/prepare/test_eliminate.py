"""Nodes that change nothing, and what nobody uses."""

from __future__ import annotations

import numpy as np
import pytest

from onnxplug.ep import DataType, TensorType
from onnxplug.prepare.eliminate import eliminate

X = np.array([-1.0, 2.0], np.float32)


def test_what_nobody_uses_goes_with_all_that_only_it_used(parse, ops):
    model = parse(
        """g (float[2] x) => (float[2] y) <float[1] k = {1}> {
            a = Neg (x)
            b = Add (a, k)
            y = Abs (x)
        }"""
    )
    assert eliminate(model.graph) == [
        "Add giving 'b'",
        "Neg giving 'a'",
    ]
    assert ops(model.graph) == ["Abs"]
    assert not model.graph.constants
    assert set(model.graph.types) == {"x", "y"}


def test_inputs_stay_even_if_unused(parse):
    model = parse("g (float[2] x, float[2] z) => (float[2] y) { y = Abs (x) }")
    eliminate(model.graph)
    assert model.graph.inputs == ["x", "z"]


def test_what_only_a_body_uses_stays(parse, ops):
    model = parse(
        """g (float[2] x, bool c) => (float[2] y) <float[1] k = {1}> {
            a = Neg (x)
            y = If (c) <
                then_branch = t () => (float[2] p) { p = Add (a, k) },
                else_branch = e () => (float[2] q) { r = Exp (x)  q = Neg (x) }>
        }"""
    )
    assert eliminate(model.graph) == ["Exp giving 'r'"]
    assert ops(model.graph) == ["Neg", "If"]
    assert list(model.graph.constants) == ["k"]
    assert ops(model.graph.nodes[1].subgraphs["else_branch"]) == ["Neg"]


def test_what_only_dead_code_in_a_body_used_goes_too(parse, ops):
    model = parse(
        """g (float[2] x, bool c) => (float[2] y) {
            a = Neg (x)
            y = If (c) <
                then_branch = t () => (float[2] p) { r = Exp (a)  p = Abs (x) },
                else_branch = e () => (float[2] q) { q = Neg (x) }>
        }"""
    )
    eliminate(model.graph)
    assert ops(model.graph) == ["If"]


def test_optional_outputs_that_nobody_wants_become_none(parse):
    model = parse(
        """g (float[1,1,4,4] x, int64[1] n) => (y, k) {
            y, places = MaxPool <kernel_shape = [2, 2]> (x)
            s, k = TopK (x, n)
            a, b = local.Two (x)
            c = Neg (a)
        }"""
    )
    eliminate(model.graph)
    pool, top = model.graph.nodes
    assert pool.outputs == ("y", None)
    assert top.outputs == ("s", "k")  # not optional: its place has to be filled


def test_identities_go_and_outputs_keep_their_names(parse, ops, run):
    model = parse(
        """g (float[2] x) => (float[2] y) {
            a = Identity (x)
            b = Neg (a)
            c = Identity (b)
            d = Identity (c)
            y = Identity (d)
        }"""
    )
    assert len(eliminate(model.graph)) == 4
    assert [(n.op_type, n.inputs, n.outputs) for n in model.graph.nodes] == [
        ("Neg", ("x",), ("y",))
    ]
    assert model.graph.types["y"] == TensorType(DataType.FLOAT32, (2,))
    assert run(model.graph, X)[0].tolist() == [1.0, -2.0]


def test_other_users_read_the_output_that_took_over(parse, run):
    model = parse(
        """g (float[2] x, bool c) => (float[2] y, float[2] z, float[2] w) {
            a = Neg (x)
            b = Identity (a)
            y = Identity (a)
            z = Add (a, b)
            w = If (c) <
                then_branch = t () => (float[2] p) { p = Add (a, b) },
                else_branch = e () => (float[2] q) { q = Neg (b) }>
        }"""
    )
    assert len(eliminate(model.graph)) == 2
    results = run(model.graph, X, np.array(True))
    assert [r.tolist() for r in results] == [[1, -2], [2, -4], [2, -4]]


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("g (float[2] x) => (float[2] y) { y = Identity (x) }", ["Identity"]),
        (
            """g (float[2] x) => (float[2] y, float[2] z)
            { a = Neg (x)  y = Identity (a)  z = Identity (a) }""",
            ["Neg", "Identity"],
        ),
        (
            """g (float[2] x) => (float[2] a, float[2] y)
            { a = Neg (x)  y = Identity (a) }""",
            ["Neg", "Identity"],
        ),
        (
            """g (float[2] x) => (float[2] y) <float[2] x = {1, 2}>
            { y = Identity (x) }""",
            ["Identity"],
        ),
    ],
    ids=["of an input", "twice", "of another output", "of an input with default"],
)
def test_outputs_are_still_made(parse, ops, run, text, kept):
    model = parse(text)
    before = run(model.graph, X)
    eliminate(model.graph)
    assert ops(model.graph) == kept
    after = run(model.graph, X)
    assert [r.tolist() for r in after] == [r.tolist() for r in before]


def test_an_output_that_copies_a_constant_is_one(parse, run):
    model = parse("g () => (float[2] y) <float[2] k = {1, 2}> { y = Identity (k) }")
    eliminate(model.graph)
    assert model.graph.nodes == []
    assert list(model.graph.constants) == ["y"]
    assert run(model.graph)[0].tolist() == [1.0, 2.0]


def test_bodies_still_make_what_they_give_out(parse, ops, run):
    model = parse(
        """g (float[2] x, bool c, int64 n) => (float[2] y, float[2] z) {
            y = If (c) <
                then_branch = t () => (float[2] p) { p = Identity (x) },
                else_branch = e () => (float[2] q) { r = Neg (x)  q = Identity (r) }>
            z = Loop (n, c, x) <body = l (i, go, s) => (go2, s3) {
                go2 = Identity (go)
                s2 = Neg (s)
                s3 = Identity (s2)
            }>
        }"""
    )
    feeds = X, np.array(True), np.array(3)
    before = run(model.graph, *feeds)
    eliminate(model.graph)
    branches, loop = (node.subgraphs for node in model.graph.nodes)
    assert ops(branches["then_branch"]) == ["Identity"]
    assert ops(branches["else_branch"]) == ["Neg"]
    assert ops(loop["body"]) == ["Identity", "Neg"]
    after = run(model.graph, *feeds)
    assert [r.tolist() for r in after] == [r.tolist() for r in before]


def test_a_name_that_a_body_hides_is_not_given_to_what_the_body_captures(parse, run):
    model = parse(
        """g (float[2] x, bool c) => (float[2] y, float[2] z) {
            a = Neg (x)
            b = Identity (a)
            y = If (c) <
                then_branch = t () => (float[2] p) { h = Abs (x)  p = Sub (h, b) },
                else_branch = e () => (float[2] q) { q = Neg (x) }>
            z = Neg (a)
        }"""
    )
    branch = model.graph.nodes[2].subgraphs["then_branch"]
    branch.nodes[0].outputs, branch.nodes[1].inputs = ("a",), ("a", "b")
    before = run(model.graph, X, np.array(True))
    eliminate(model.graph)
    after = run(model.graph, X, np.array(True))
    assert [r.tolist() for r in after] == [r.tolist() for r in before]


@pytest.mark.parametrize(
    ("opset", "node", "goes"),
    [
        (21, "Dropout (x)", True),
        (21, "Dropout (x, ratio)", True),
        (21, "Dropout (x, ratio, off)", True),
        (21, "Dropout (x, ratio, on)", False),
        (21, "Dropout (x, ratio, either)", False),
        (10, "Dropout <ratio = 0.3> (x)", True),
        (6, "Dropout <is_test = 1> (x)", True),
        (6, "Dropout (x)", False),
        (21, "Cast <to = 1> (x)", True),
        (21, "Cast <to = 11> (x)", False),
        (21, "CastLike (x, ratio)", True),
        (21, "CastLike (x, on)", False),
        (21, "Transpose <perm = [0, 1]> (x)", True),
        (21, "Transpose <perm = [1, 0]> (x)", False),
        (21, "Transpose (x)", False),
        (21, "Transpose (flat)", True),
        (21, "Reshape (x, same)", True),
        (21, "Reshape (x, wild)", True),
        (21, "Reshape (x, other)", False),
        (21, "Reshape (x, fed)", False),
        (21, "local.Identity (x)", False),
    ],
)
def test_nodes_that_change_nothing_go(parse, ops, opset, node, goes):
    model = parse(
        f"""g (float[2,3] x, float[4] flat, bool either, int64[2] fed) => (y)
        <float ratio = {{0.5}}, bool off = {{0}}, bool on = {{1}},
         int64[2] same = {{2, 3}}, int64[2] wild = {{0, -1}}, int64[2] other = {{3, 2}}>
        {{ a = {node}  y = Neg (a) }}""",
        opset=opset,
    )
    eliminate(model.graph)
    assert len(ops(model.graph)) == (1 if goes else 2)


def test_a_dropout_whose_mask_is_wanted_stays(parse, ops):
    model = parse("g (float[2] x) => (y, m) { y, m = Dropout (x) }")
    eliminate(model.graph)
    assert ops(model.graph) == ["Dropout"]


@pytest.mark.parametrize(
    ("target", "goes"),
    [
        ("{0, 3}", True),
        ("{-1, 3}", True),
        ("{0, -1}", True),
        ("{3, -1}", False),
        ("{-1, 6}", False),
        ("{0, 0}", True),
        ("{-1, -1}", False),
    ],
)
def test_a_reshape_to_the_same_goes_if_it_says_so_without_sizes(
    parse, ops, target, goes
):
    model = parse(
        f"""g (float[N,3] x) => (y) <int64[2] s = {target}>
        {{ a = Reshape (x, s)  y = Neg (a) }}"""
    )
    eliminate(model.graph)
    assert ops(model.graph) == (["Neg"] if goes else ["Reshape", "Neg"])


def test_a_reshape_to_nothing_copies_no_size(parse, ops):
    model = parse(
        """g (float[N,3] x) => (y) <int64[2] s = {0, 3}>
        { a = Reshape <allowzero = 1> (x, s)  y = Neg (a) }"""
    )
    eliminate(model.graph)
    assert ops(model.graph) == ["Reshape", "Neg"]
