"""Types that the model does not state."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest

from onnxplug.ep import DataType, SequenceType, TensorType
from onnxplug.errors import InvalidModel, OptionError
from onnxplug.prepare.infer import fix_free_dimensions, infer_types
from onnxplug.shapes.stated import Contradiction, has_sizes, is_known, merged

F = DataType.FLOAT32


def _tensor(*shape, dtype=F):
    return TensorType(dtype, shape)


def test_types_of_intermediates_and_outputs_are_found(parse):
    model = parse("g (float[N,3] x) => (y) { a = Neg (x)  y = Shape (a) }")
    assert sorted(infer_types(model.graph)) == ["a", "y"]
    assert model.graph.types["a"] == _tensor("N", 3)
    assert model.graph.types["y"] == _tensor(2, dtype=DataType.INT64)


def test_what_was_found_is_told_once(parse):
    model = parse("g (float[N,3] x) => (float[N,3] y) { a = Neg (x)  y = Neg (a) }")
    assert infer_types(model.graph) == ["a"]
    assert infer_types(model.graph) == []


def test_values_are_followed_into_shapes(parse):
    model = parse(
        """g (float[N,128,768] x) => (y) <int64 first = {0}, int64[1] axis = {0},
            int64[3] rest = {-1, 12, 64}> {
            shape = Shape (x)
            n = Gather (shape, first)
            n1 = Unsqueeze (n, axis)
            target = Concat <axis = 0> (n1, rest)
            r = Reshape (x, target)
            y = Transpose <perm = [0, 2, 1, 3]> (r)
        }"""
    )
    infer_types(model.graph)
    assert model.graph.types["r"] == _tensor("N", 128, 12, 64)
    assert model.graph.types["y"] == _tensor("N", 12, 128, 64)


def test_sizes_that_both_sides_of_a_reshape_name_cancel_out(parse):
    model = parse(
        """g (float[N,S,768] x) => (y) <int64[1] axis = {0}, int64 first = {0},
            int64[3] rest = {-1, 12, 64}> {
            shape = Shape (x)
            n = Gather (shape, first)
            n1 = Unsqueeze (n, axis)
            target = Concat <axis = 0> (n1, rest)
            r = Reshape (x, target)
            t = Transpose <perm = [0, 2, 1, 3]> (r)
            y = Neg (t)
        }"""
    )
    infer_types(model.graph)
    assert model.graph.types["r"] == _tensor("N", "S", 12, 64)
    assert model.graph.types["t"] == _tensor("N", 12, "S", 64)


def test_bodies_get_types_too(parse):
    model = parse(
        """g (float[2] x, bool c, int64 n) => (y, z) {
            y = If (c) <
                then_branch = t () => (p) { p1 = Neg (x)  p = Neg (p1) },
                else_branch = e () => (q) { q = Neg (x) }>
            z = Loop (n, c, x) <body = l (i, go, s) => (go2, s2) {
                go2 = Identity (go)
                s1 = Neg (s)
                s2 = Neg (s1)
            }>
        }"""
    )
    infer_types(model.graph)
    branches, loop = (node.subgraphs for node in model.graph.nodes)
    assert branches["then_branch"].types["p1"] == _tensor(2)
    assert branches["else_branch"].types["q"] == _tensor(2)
    assert model.graph.types["y"] == _tensor(2)
    body = loop["body"]
    assert body.value("i").dtype is DataType.INT64
    assert body.value("s").dtype is body.value("s1").dtype is F


def test_sequences_are_typed(parse):
    model = parse("g (float[2] x) => (y) { s = SequenceConstruct (x, x)  y = Neg (x) }")
    infer_types(model.graph)
    assert model.graph.types["s"] == SequenceType(_tensor(2))


def test_unknown_operators_stop_nothing(parse):
    model = parse(
        """g (float[2] x) => (float[3] y, z) {
            a = local.Mystery (x)
            b = Neg (a)
            c = foreign.Mystery (b)
            y = Neg (c)
            z = Exp (x)
        }"""
    )
    infer_types(model.graph)
    assert not is_known(model.graph.types["b"])
    assert model.graph.types["z"] == _tensor(2)
    assert model.graph.types["y"] == _tensor(3)


def test_declared_types_of_unknown_operators_are_believed(parse):
    model = parse(
        "g (float[2] x) => (y) <float[N] a> { a = local.Op (x)  y = Neg (a) }"
    )
    infer_types(model.graph)
    assert model.graph.types["y"] == _tensor("N")


def test_made_up_names_of_sizes_do_not_reach_outputs(parse):
    model = parse("g (float[2] x) => (y) { a = NonZero (x)  y = Neg (a) }")
    infer_types(model.graph)
    assert model.graph.types["a"].shape[1].startswith("unk__")
    assert model.graph.types["y"].shape == (1, None)


@pytest.mark.parametrize("name", ["", "sum"])
def test_a_type_that_an_operator_does_not_take_names_the_node(parse, name):
    model = parse("g (float[2] x, int64[2] i) => (y) { a = Add (x, i)  y = Neg (a) }")
    model.graph.nodes[0].name = name
    with pytest.raises(InvalidModel, match=rf"Add.*{name or 'giving .a.'}.*int64"):
        infer_types(model.graph)


def test_a_node_in_a_body_is_named_too(parse):
    model = parse(
        """g (float[2] x, int64[2] i, bool c) => (y) {
            y = If (c) <
                then_branch = t () => (p) { p = Add (x, i) },
                else_branch = e () => (q) { q = Neg (x) }>
        }"""
    )
    with pytest.raises(InvalidModel, match=r"Add.*giving .p."):
        infer_types(model.graph)


@pytest.mark.parametrize(
    "text",
    [
        "g (float[2] x) => (int64[2] y) { a = Neg (x)  y = Neg (a) }",
        "g (float[2] x) => (y) <int64[2] a> { a = Neg (x)  y = Shape (a) }",
    ],
    ids=["output", "intermediate"],
)
def test_a_declared_element_type_that_is_not_made_is_refused(parse, text):
    model = parse(text)
    with pytest.raises(InvalidModel, match=r"declared as a tensor of int64.*float32"):
        infer_types(model.graph)


def test_declared_sizes_that_are_wrong_are_forgiven(parse, caplog):
    model = parse(
        """g (float[4,3] x) => (float[9,3] y) <float[1,1,3] a>
        { a = Neg (x)  b = Abs (a)  y = Exp (b) }"""
    )
    with caplog.at_level(logging.WARNING, "onnxplug.prepare"):
        infer_types(model.graph)
    assert "a of graph 'g' is declared as" in caplog.text
    assert model.graph.types["a"] == model.graph.types["b"] == _tensor(4, 3)
    assert model.graph.types["y"] == _tensor(None, 3)


def test_onnx_is_not_imported_for_a_model_that_states_everything():
    program = """
import sys
from onnxplug.ep import DataType, TensorType
from onnxplug.graph import Graph, Model, Node
from onnxplug.prepare import prepare
known = TensorType(DataType.FLOAT32, ("N", 2))
nodes = [Node("Neg", ("x",), ("a",)), Node("Identity", ("a",), ("b",)),
         Node("Abs", ("b",), ("y",))]
graph = Graph("g", inputs=["x"], outputs=["y"], nodes=nodes,
              types=dict.fromkeys("xaby", known), opset_imports={"": 21})
report = prepare(Model(graph, 10, {}, None, "", "", "", 0, "", {}, {}), evaluate=None)
assert report.counts["eliminate"] == 1, report
assert "onnx" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_onnx_is_not_asked_even_where_nothing_is_known(parse, monkeypatch):
    import onnx.shape_inference

    monkeypatch.delattr(onnx.shape_inference, "infer_shapes")
    model = parse("g (float[2] x) => (y) { a = foreign.Mystery (x) y = EyeLike (a) }")
    assert infer_types(model.graph) == []


def test_a_body_that_gives_out_an_outer_constant_does_not_hide_it(parse):
    model = parse(
        """g (float[2] x, bool c) => (y) <float[2] k = {1, 2}> {
            y = If (c) <
                then_branch = t () => (k) { unused = Neg (x) },
                else_branch = e () => (q) { q = Neg (x) }>
        }"""
    )
    branch = model.graph.nodes[0].subgraphs["then_branch"]
    infer_types(model.graph)
    assert branch.constant("k") is not None


def test_free_dimensions_become_sizes_everywhere(parse):
    model = parse(
        """g (float[N,M] x, bool c) => (y) {
            y = If (c) <
                then_branch = t () => (float[N,M] p) { p = Neg (x) },
                else_branch = e () => (q) { q = Transpose (x) }>
        }"""
    )
    fix_free_dimensions(model.graph, {"N": 5})
    infer_types(model.graph)
    assert model.graph.types["x"] == _tensor(5, "M")
    bodies = model.graph.nodes[0].subgraphs
    assert bodies["then_branch"].types["p"] == _tensor(5, "M")
    assert bodies["else_branch"].types["q"] == _tensor("M", 5)


def test_a_free_dimension_that_is_not_there_is_an_error(parse):
    model = parse("g (float[batch,M] x) => (float[batch,M] y) { y = Neg (x) }")
    with pytest.raises(
        OptionError, match=r"'Batch'; did you mean 'batch'.*'batch', 'M'"
    ):
        fix_free_dimensions(model.graph, {"Batch": 5})


def test_a_free_dimension_that_no_tensor_can_have_is_an_error(parse):
    model = parse("g (float[batch] x) => (float[batch] y) { y = Neg (x) }")
    with pytest.raises(OptionError, match="'batch' is given size 9223372036854775808"):
        fix_free_dimensions(model.graph, {"batch": 2**63})


@pytest.mark.parametrize(
    ("ours", "theirs", "both"),
    [
        (None, _tensor(2), _tensor(2)),
        (_tensor(2), None, _tensor(2)),
        (_tensor("N", None), _tensor(4, "unk__0"), _tensor(4, "unk__0")),
        (_tensor("N"), _tensor("M"), _tensor("N")),
        (_tensor("unk__3"), _tensor("M"), _tensor("M")),
        (_tensor(2), _tensor(3), _tensor(None)),
        (_tensor(2), _tensor(2, 2), TensorType(F, None)),
        (TensorType(None, (2,)), TensorType(F, None), _tensor(2)),
        (SequenceType(None), SequenceType(_tensor(2)), SequenceType(_tensor(2))),
    ],
)
def test_two_sources_are_put_together(ours, theirs, both):
    assert merged(ours, theirs) == both


def test_kinds_and_element_types_do_not_mix():
    for other in (_tensor(2, dtype=DataType.INT8), SequenceType(_tensor(2))):
        with pytest.raises(Contradiction):
            merged(_tensor(2), other)


def test_a_size_that_only_inference_names_is_not_known():
    assert is_known(_tensor("unk__0")) and not has_sizes(_tensor("unk__0"))
    assert has_sizes(_tensor("N", 2)) and not has_sizes(_tensor(None))
    assert not is_known(TensorType(F, None)) and not is_known(SequenceType(None))
