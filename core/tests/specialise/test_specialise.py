"""Partitions whose inputs have shapes in numbers."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from onnxplug.ep import DataType, SequenceType, TensorType
from onnxplug.errors import InvalidModel
from onnxplug.partition import GraphPartition
from onnxplug.prepare.infer import infer_types

F = DataType.FLOAT32

HEADS = """g (float[batch,seq,8] x) => (y)
    <int64[1] first = {0}, int64[1] third = {2}, int64[2] rest = {2, 4}> {
    sizes = Shape (x)
    lead = Slice (sizes, first, third)
    target = Concat <axis = 0> (lead, rest)
    heads = Reshape (x, target)
    turned = Transpose <perm = [0, 2, 1, 3]> (heads)
    y = Softmax (turned)
}"""


@pytest.fixture
def whole(parse):
    def whole(text):
        graph = parse(text).graph
        infer_types(graph)
        return GraphPartition(graph, graph.nodes)

    return whole


def test_types_follow_through_computed_shapes(whole):
    partition = whole(HEADS)
    static = partition.specialise({"x": (2, 7, 8)})
    shapes = {name: static.value(name).shape for name in ("x", "heads", "turned", "y")}
    assert shapes == {
        "x": (2, 7, 8),
        "heads": (2, 7, 2, 4),
        "turned": (2, 2, 7, 4),
        "y": (2, 2, 7, 4),
    }
    assert partition.value("y").shape == ("batch", 2, "seq", 4)


def test_nodes_inputs_and_outputs_are_the_same(whole):
    partition = whole(HEADS)
    static = partition.specialise({"x": (1, 1, 8)})
    assert (static.inputs, static.outputs) == (partition.inputs, partition.outputs)
    assert [(n.op_type, n.inputs, n.outputs) for n in static.nodes] == [
        (n.op_type, n.inputs, n.outputs) for n in partition.nodes
    ]
    assert all(node.graph is static.graph for node in static.nodes)
    assert static.constant("rest") is partition.constant("rest")


def test_a_part_of_a_graph(parse):
    graph = parse(
        """g (float[N,3] x) => (float[M,3] y)
        <float[3] w = {1, 2, 3}, float[3] v = {1, 2, 3}> {
            a = Mul (x, v)  b = Add (a, w)  c = Neg (b)  y = Concat <axis = 0> (b, c)
        }"""
    ).graph
    infer_types(graph)
    part = GraphPartition(graph, graph.nodes[1:3])
    static = part.specialise({"a": (5, 3)})
    assert (static.inputs, static.outputs) == (("a",), ("b", "c"))
    assert static.value("c").shape == (5, 3)
    assert static.constant("w") is graph.constant("w")
    assert static.constant("v") is None
    assert [node.index for node in static.nodes] == [0, 1]


def test_the_model_is_static_and_computes_the_same(whole):
    partition = whole(HEADS)
    static = partition.specialise({"x": (2, 3, 8)}).to_model().model
    onnx.checker.check_model(static, full_check=True)
    sizes = [
        dim.dim_value
        for value in (*static.graph.input, *static.graph.output)
        for dim in value.type.tensor_type.shape.dim
    ]
    assert sizes == [2, 3, 8, 2, 2, 3, 4]
    x = np.random.default_rng(0).standard_normal((2, 3, 8)).astype(np.float32)
    found, expected = (
        ReferenceEvaluator(model).run(None, {"x": x})[0]
        for model in (static, partition.to_model().model)
    )
    np.testing.assert_array_equal(found, expected)


def test_fingerprints_differ_by_shapes(whole):
    partition = whole(HEADS)
    prints = {
        each.fingerprint
        for each in (
            partition,
            partition.specialise({"x": (2, 3, 8)}),
            partition.specialise({"x": (3, 2, 8)}),
        )
    }
    assert len(prints) == 3
    again = whole(HEADS).specialise({"x": (2, 3, 8)})
    assert again.fingerprint in prints


def test_it_is_the_same_object_when_it_is_asked_for_again(whole):
    partition = whole(HEADS)
    static = partition.specialise({"x": (2, 3, 8)})
    assert partition.specialise({"x": [2, 3, 8]}) is static
    for size in range(100):
        partition.specialise({"x": (size, 1, 8)})
    assert partition.specialise({"x": (2, 3, 8)}) is not static


def test_bodies_are_specialised_too(whole):
    partition = whole(
        """g (float[N,3] x, bool c) => (y) {
            y = If (c) <
                then_branch = t () => (a) { a = Concat <axis = 1> (x, x) },
                else_branch = e () => (b) { n = Neg (x)  b = Concat <axis = 1> (n, n) }
            >
        }"""
    )
    static = partition.specialise({"x": (4, 3)})
    assert static.value("y").shape == (4, 6)
    (node,) = static.nodes
    for body in node.subgraphs.values():
        assert body.parent is static.graph
        assert body.value(body.outputs[0]).shape == (4, 6)
    assert partition.nodes[0].subgraphs["then_branch"].value("a").shape == ("N", 6)


def test_what_a_loop_changes_is_not_static(whole):
    partition = whole(
        """g (float[N] x, int64 n) => (y) {
            y = Loop (n, , x) <body = b (int64 i, bool c, float[k] s) => (d, t) {
                d = Identity (c)  t = Concat <axis = 0> (s, x)
            }>
        }"""
    )
    static = partition.specialise({"x": (4,)})
    assert static.value("x").shape == (4,)
    (size,) = static.value("y").shape
    assert not isinstance(size, int)


def test_other_inputs_stay_as_they_are(whole):
    partition = whole(
        "g (float[N,3] x, float[M,3] w) => (y) { y = Concat <axis = 0> (x, w) }"
    )
    static = partition.specialise({"x": (4, 3)})
    assert static.value("w").shape == ("M", 3)
    assert static.value("y").shape == ("M + 4", 3)
    # a name that is known is known everywhere
    partition = whole("g (float[N,3] x, float[N,3] w) => (y) { y = Add (x, w) }")
    assert partition.specialise({"x": (4, 3)}).value("w").shape == (4, 3)


def test_what_no_rule_tells_is_as_the_model_states_it(whole):
    partition = whole(
        """g (float[N,3] x) => (y) <float[K] a, float[N,5] z> {
            z = local.Unknown (x)  y = Neg (z)
        }"""
    )
    assert partition.specialise({"x": (4, 3)}).value("y").shape == (4, 5)


def test_wrong_declarations_of_outputs_are_not_believed(whole):
    partition = whole("g (float[N,3] x) => (float[7,3] y) { y = Neg (x) }")
    assert partition.specialise({"x": (4, 3)}).value("y").shape == (4, 3)


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        ({"z": (1,)}, "there is no input 'z'; the inputs are 'x', 's'"),
        ({"x": (1, 2, 3)}, "of rank 3; it has rank 2"),
        ({"x": (1, 4)}, "with 4 at axis 1; its size there is fixed, 3"),
        ({"x": (-1, 3)}, "expected whole numbers from 0"),
        ({"x": ("N", 3)}, "expected whole numbers from 0"),
        ({"x": (1 << 64, 3)}, "expected whole numbers from 0"),
        ({"s": (1,)}, "which has no shape; leave it out"),
    ],
)
def test_shapes_that_inputs_cannot_have(whole, shapes, words):
    partition = whole(
        "g (float[N,3] x, seq(float[N]) s) => (y, t) {"
        "  y = Neg (x)  t = SequenceLength (s) }"
    )
    assert partition.value("s").type == SequenceType(TensorType(F, ("N",)))
    with pytest.raises(ValueError, match=r".") as caught:
        partition.specialise(shapes)
    assert words in str(caught.value)


def test_shapes_with_which_a_node_cannot_run(whole):
    partition = whole(
        """g (float[N] x) => (y) <int64[1] five = {5}> {
            n = Shape (x)  less = Sub (n, five)  y = ConstantOfShape (less) }"""
    )
    assert partition.specialise({"x": (7,)}).value("y").shape == (2,)
    with pytest.raises(InvalidModel, match="ConstantOfShape"):
        partition.specialise({"x": (4,)})
