"""Nodes and constants that are equal."""

from __future__ import annotations

import numpy as np
import pytest

from onnxplug.prepare.duplicates import merge_duplicates

X = np.array([-1.0, 2.0], np.float32)


def test_nodes_that_compute_the_same_become_one(parse, ops, run):
    model = parse(
        """g (float[2] x) => (y) {
            a = Neg (x)  b = Neg (x)
            c = Abs (a)  d = Abs (b)
            y = Add (c, d)
        }"""
    )
    assert merge_duplicates(model.graph) == [
        "Neg giving 'b'",
        "Abs giving 'd'",
    ]
    assert ops(model.graph) == ["Neg", "Abs", "Add"]
    assert run(model.graph, X)[0].tolist() == [2.0, 4.0]


def test_equal_small_constants_become_one(parse):
    model = parse(
        """g (float[2] x) => (y) <float[1] k = {1}, float[1] l = {1}, float[1] m = {2},
        int32[1] n = {1}> { a = Add (x, k)  b = Add (x, l)  y = Add (a, b) }"""
    )
    assert merge_duplicates(model.graph) == [
        "constant 'l'",
        "Add giving 'b'",
    ]
    assert list(model.graph.constants) == ["k", "m", "n"]
    assert model.graph.nodes[1].inputs == ("a", "a")


def test_constants_that_only_compare_equal_are_kept_apart(parse):
    model = parse(
        """g (float[2] x) => (y) <float[1] k = {0.0}, float[1] l = {-0.0},
        float k2 = {0.0}, string[1] s = {"a"}, string[1] t = {"b"}>
        { a = Div (x, k)  b = Div (x, l)  y = Add (a, b) }"""
    )
    assert merge_duplicates(model.graph) == []


def test_strings_are_compared_by_content(parse):
    model = parse(
        """g (string[2] x) => (y) <string[1] s = {"a"}, string[1] t = {"a"}>
        { a = StringConcat (x, s)  y = StringConcat (a, t) }"""
    )
    assert merge_duplicates(model.graph) == ["constant 't'"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Neg (x)", "Neg (z)"),
        ("LeakyRelu <alpha = 0.1> (x)", "LeakyRelu <alpha = 0.2> (x)"),
        ("LeakyRelu <alpha = 0.1> (x)", "LeakyRelu (x)"),
        ("Neg (x)", "local.Neg (x)"),
        ("local.Neg (x)", "local.Neg (x)"),
        ("RandomNormalLike (x)", "RandomNormalLike (x)"),
        ("RandomUniform <shape = [2]> ()", "RandomUniform <shape = [2]> ()"),
        ("Dropout (x, half, on)", "Dropout (x, half, on)"),
        ("Bernoulli (x)", "Bernoulli (x)"),
        (
            "ConstantOfShape <value = int64[1] {1}> (n)",
            "ConstantOfShape <value = int64[1] {2}> (n)",
        ),
    ],
)
def test_nodes_that_differ_stay_two(parse, first, second):
    model = parse(
        f"""g (float[2] x, float[2] z, int64[1] n) => (y)
        <float half = {{0.5}}, bool on = {{1}}>
        {{ a = {first}  b = {second}  y = Add (a, b) }}"""
    )
    assert merge_duplicates(model.graph) == []


def test_attributes_are_compared_by_content(parse):
    model = parse(
        """g (int64[1] n) => (y) {
            a = ConstantOfShape <value = int64[1] {1}> (n)
            b = ConstantOfShape <value = int64[1] {1}> (n)
            y = Add (a, b)
        }"""
    )
    assert len(merge_duplicates(model.graph)) == 1


def test_outputs_keep_their_names(parse, ops, run):
    model = parse(
        """g (float[2] x) => (y, z, k, l) <float[1] k = {1}, float[1] l = {1}>
        { y = Neg (x)  z = Neg (x) }"""
    )
    assert merge_duplicates(model.graph) == []
    assert [r.tolist() for r in run(model.graph, X)][:2] == [[1, -2], [1, -2]]


def test_a_value_that_bodies_capture_is_renamed_there(parse, run):
    model = parse(
        """g (float[2] x, bool c) => (y) {
            a = Neg (x)  b = Neg (x)
            y = If (c) <
                then_branch = t () => (p) { d = Abs (b) e = Abs (b) p = Add (d, e) },
                else_branch = e () => (q) { q = Add (a, b) }>
        }"""
    )
    assert len(merge_duplicates(model.graph)) == 2
    assert run(model.graph, X, np.array(True))[0].tolist() == [2.0, 4.0]
    assert run(model.graph, X, np.array(False))[0].tolist() == [2.0, -4.0]


def test_outputs_that_are_wanted_decide(parse):
    model = parse(
        """g (float[3] x, int64[1] n) => (y, z) {
            v, = TopK (x, n)
            , i = TopK (x, n)
            y = Neg (v)
            z = Neg (i)
        }"""
    )
    assert merge_duplicates(model.graph) == []
