"""Model-local functions."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest

from onnxplug.ep import DataType, TensorType
from onnxplug.errors import InvalidModel, UnsupportedModel
from onnxplug.graph import Attribute, AttributeType, Graph, Node
from onnxplug.graph.load import load_model
from onnxplug.graph.scopes import all_graphs
from onnxplug.prepare.inline import inline_functions

X = np.array([-1.0, 2.0], np.float32)

TWICE = """
<domain: "local", opset_import: ["" : 21]>
twice (a) => (b) { half = Add (a, a)  b = Identity (half) }
"""


def test_a_call_becomes_the_functions_nodes(parse, run, ops):
    model = parse("g (float[2] x) => (float[2] y) { y = local.twice (x) }" + TWICE)
    assert inline_functions(model) == ["local.twice giving 'y'"]
    assert ops(model.graph) == ["Add", "Identity"]
    assert not model.functions
    assert run(model.graph, X)[0].tolist() == [-2.0, 4.0]


def test_names_say_which_call_they_stem_from(parse):
    model = parse(
        """g (float[2] x) => (float[2] y)
        { t = local.twice (x)  u = local.twice (t)  y = local.twice (u) }"""
        + TWICE
    )
    model.graph.nodes[1].name = "middle"
    inline_functions(model)
    made = [node.outputs[0] for node in model.graph.nodes]
    assert made == ["twice/half", "t", "middle/half", "u", "twice_2/half", "y"]
    names = [node.name for node in model.graph.nodes]
    assert names[:3] == ["twice/Add", "twice/Identity", "middle/Add"]


def test_new_names_avoid_those_of_the_model_and_its_bodies(parse):
    model = parse(
        """g (float[2] x, bool c) => (float[2] y) {
            y = If (c) <
                then_branch = t () => (float[2] p) { p = local.twice (x) },
                else_branch = e () => (float[2] q) { q = Neg (x) }>
        }"""
        + TWICE
    )
    branch = model.graph.nodes[0].subgraphs["else_branch"]
    branch.nodes[0].outputs = ("twice/half",)
    branch.outputs = ["twice/half"]
    inline_functions(model)
    branch = model.graph.nodes[0].subgraphs["then_branch"]
    assert branch.nodes[0].outputs == ("twice/half_2",)


def test_calls_within_functions_are_inlined(parse, run, ops):
    model = parse(
        "g (float[2] x) => (float[2] y) { y = local.four (x) }"
        + TWICE
        + """
        <domain: "local", opset_import: ["" : 21, "local" : 1]>
        four (a) => (b) { c = local.twice (a)  b = local.twice (c) }"""
    )
    inline_functions(model)
    assert ops(model.graph) == ["Add", "Identity", "Add", "Identity"]
    assert model.graph.nodes[0].outputs == ("four/twice/half",)
    assert run(model.graph, X)[0].tolist() == [-4.0, 8.0]


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("local.leak <alpha = 0.5> (x)", [-0.5, 2.0]),
        ("local.leak (x)", [-0.25, 2.0]),
    ],
)
def test_attributes_come_from_the_call_or_the_default(parse, run, call, expected):
    model = parse(
        f"g (float[2] x) => (float[2] y) {{ y = {call} }}"
        """
        <domain: "local", opset_import: ["" : 21]>
        leak <alpha: float = 0.25> (a) => (b)
        { b = LeakyRelu <alpha: float = @alpha> (a) }"""
    )
    inline_functions(model)
    assert run(model.graph, X)[0].tolist() == expected


def test_an_attribute_that_is_not_set_is_left_out(parse):
    model = parse(
        """g (float[2] x) => (float[2] y) { y = local.leak (x) }
        <domain: "local", opset_import: ["" : 21]>
        leak <alpha> (a) => (b) { b = LeakyRelu <alpha: float = @alpha> (a) }"""
    )
    inline_functions(model)
    assert model.graph.nodes[0].attributes == {}


def test_attributes_reach_through_nested_calls_and_bodies(parse, run):
    model = parse(
        """g (float[2] x, bool c) => (float[2] y) { y = local.outer <a = 3.0> (x, c) }
        <domain: "local", opset_import: ["" : 21, "local" : 1]>
        outer <a> (x, c) => (y) { y = local.inner <b: float = @a> (x, c) }
        <domain: "local", opset_import: ["" : 21]>
        inner <b> (x, c) => (y) {
            y = If (c) <
                then_branch = t () => (p) {
                    k = Constant <value_float: float = @b> ()
                    p = Mul (x, k)
                },
                else_branch = e () => (q) { q = Neg (x) }>
        }"""
    )
    inline_functions(model)
    assert run(model.graph, X, np.array(True))[0].tolist() == [-3.0, 6.0]
    assert run(model.graph, X, np.array(False))[0].tolist() == [1.0, -2.0]


def test_captured_names_in_bodies_follow_each_call(parse, run):
    model = parse(
        """g (float[2] x, bool c) => (float[2] y, float[2] z) {
            y = local.pick (x, c)
            z = local.pick (y, c)
        }
        <domain: "local", opset_import: ["" : 21]>
        pick (a, c) => (b) {
            d = Add (a, a)
            b = If (c) <
                then_branch = t () => (p) { p = Add (d, a) },
                else_branch = e () => (q) { r = Neg (d)  q = Identity (r) }>
        }"""
    )
    inline_functions(model)
    names = [
        name
        for graph in all_graphs(model.graph)
        for node in graph.nodes
        for name in node.outputs
    ]
    assert len(names) == len(set(names))
    y, z = run(model.graph, X, np.array(True))
    assert (y.tolist(), z.tolist()) == ([-3.0, 6.0], [-9.0, 18.0])
    y, z = run(model.graph, X, np.array(False))
    assert (y.tolist(), z.tolist()) == ([2.0, -4.0], [-4.0, 8.0])


def test_loop_bodies_have_their_inputs_renamed(parse, run):
    model = parse(
        """g (float[2] x, int64 n, bool c) => (float[2] y)
        { y = local.times (x, n, c) }
        <domain: "local", opset_import: ["" : 21]>
        times (a, n, c) => (b) {
            b = Loop (n, c, a) <body = l (i, keep, state) => (go, next) {
                go = Identity (keep)
                next = Add (state, a)
            }>
        }"""
    )
    inline_functions(model)
    body = model.graph.nodes[0].subgraphs["body"]
    assert body.inputs == ["times/i", "times/keep", "times/state"]
    assert body.parent is model.graph
    assert run(model.graph, X, np.array(3), np.array(True))[0].tolist() == [-4.0, 8.0]


def test_calls_within_bodies_see_the_values_around(parse, run):
    model = parse(
        """g (float[2] x, bool c) => (float[2] y) {
            w = Neg (x)
            y = If (c) <
                then_branch = t () => (float[2] p) { p = local.twice (w) },
                else_branch = e () => (float[2] q) { q = local.twice (x) }>
        }"""
        + TWICE
    )
    assert len(inline_functions(model)) == 2
    assert run(model.graph, X, np.array(True))[0].tolist() == [2.0, -4.0]


def test_omitted_inputs_are_omitted_inside(parse):
    model = parse(
        """g (float[2] x, float m) => (float[2] y, float[2] z)
        { y = local.cut (x, , m)  z = local.cut (x) }
        <domain: "local", opset_import: ["" : 21]>
        cut (a, low, high) => (b) { b = Clip (a, low, high) }"""
    )
    inline_functions(model)
    assert [node.inputs for node in model.graph.nodes] == [
        ("x", None, "m"),
        ("x", None, None),
    ]


def test_an_output_that_nobody_wants_gets_a_name_of_its_own(parse, run):
    model = parse(
        """g (float[2] x) => (float[2] y) { , y = local.both (x) }
        <domain: "local", opset_import: ["" : 21]>
        both (a) => (b, c) { b = Neg (a)  c = Abs (b) }"""
    )
    inline_functions(model)
    assert model.graph.nodes[0].outputs == ("both/b",)
    assert run(model.graph, X)[0].tolist() == [1.0, 2.0]


def test_an_input_handed_through_is_copied(parse, run):
    model = parse(
        """g (float[2] x) => (float[2] y, float[2] z, float[2] w)
        { y, z, w = local.same (x) }
        <domain: "local", opset_import: ["" : 21]>
        same (a) => (a, b, b) { b = Neg (a) }"""
    )
    inline_functions(model)
    assert [r.tolist() for r in run(model.graph, X)] == [[-1, 2], [1, -2], [1, -2]]


def test_a_body_given_as_an_attribute_keeps_the_callers_names(parse, run):
    model = parse(
        """g (float[2] x, bool c) => (float[2] y, float[2] z) {
            y = local.choose (x, c)
            z = local.choose (x, c)
        }
        <domain: "local", opset_import: ["" : 21]>
        choose <then> (a, c) => (b) {
            b = If (c) <then_branch: graph = @then,
                        else_branch = e () => (q) { q = Neg (a) }>
        }"""
    )
    given = Graph("t", inputs=[], outputs=["a"], nodes=[Node("Abs", ("x",), ("a",))])
    for call in model.graph.nodes:
        call.typed_attributes["then"] = Attribute(AttributeType.GRAPH, given)
    inline_functions(model)
    y, z = run(model.graph, X, np.array(True))
    assert (y.tolist(), z.tolist()) == ([1.0, 2.0], [1.0, 2.0])


def test_recursion_is_refused(parse):
    model = parse(
        """g (float[2] x) => (float[2] y) { y = local.a (x) }
        <domain: "local", opset_import: ["" : 21, "local" : 1]>
        a (x) => (y) { y = local.b (x) }
        <domain: "local", opset_import: ["" : 21, "local" : 1]>
        b (x) => (y) { y = local.a (x) }"""
    )
    with pytest.raises(InvalidModel, match=r"calls itself \(a -> b -> a\)"):
        inline_functions(model)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("y = local.twice (x, x)", "has 2 inputs; the function 'twice' has 1"),
        ("y, z = local.twice (x)", "has 2 outputs; the function 'twice' has 1"),
    ],
)
def test_a_call_that_does_not_fit_is_refused(parse, call, message):
    model = parse(f"g (float[2] x) => (float[2] y) {{ {call} }}" + TWICE)
    with pytest.raises(InvalidModel, match=message):
        inline_functions(model)


def test_overloads_are_told_apart(run):
    proto = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21, "local" : 1]>
        g (float[2] x) => (float[2] y, float[2] z) { y = local.f (x)  z = local.f (x) }
        <domain: "local", opset_import: ["" : 21]> f (a) => (b) { b = Neg (a) }
        <domain: "local", opset_import: ["" : 21]> f (a) => (b) { b = Abs (a) }"""
    )
    proto.functions[1].overload = proto.graph.node[1].overload = "other"
    model = load_model(proto)
    inline_functions(model)
    y, z = run(model.graph, X)
    assert (y.tolist(), z.tolist()) == ([1.0, -2.0], [1.0, 2.0])


def test_a_domain_that_only_the_function_imports_is_added_everywhere(parse):
    model = parse(
        """g (float[2,3] x, bool c) => (y) {
            y = If (c) <
                then_branch = t () => (p) { p = local.norm (x) },
                else_branch = e () => (q) { q = Neg (x) }>
        }
        <domain: "local", opset_import: ["" : 21, "ai.onnx.ml" : 3]>
        norm (a) => (b) { b = ai.onnx.ml.Normalizer (a) }"""
    )
    inline_functions(model)
    for graph in all_graphs(model.graph):
        assert graph.opset("ai.onnx.ml") == 3


def test_a_function_of_another_opset_is_inlined_if_it_means_the_same(parse, run):
    model = parse(
        """g (float[2] x) => (float[2] y) { y = local.twice (x) }
        <domain: "local", opset_import: ["" : 13]>
        twice (a) => (b) { c = Add (a, a)  b = Relu (c) }"""
    )
    inline_functions(model)
    assert run(model.graph, X)[0].tolist() == [0.0, 4.0]


@pytest.mark.parametrize(
    ("opset", "node"),
    [
        (11, "Softmax <axis = 1> (a)"),  # flattens what follows the axis, up to 12
        (11, "Unsqueeze <axes = [0]> (a)"),  # axes are an input since 13
        (13, "ReduceMean <axes = [0]> (a)"),  # axes are an input since 18
    ],
)
def test_a_function_of_another_opset_is_refused_if_it_means_something_else(
    parse, opset, node
):
    model = parse(
        f"""g (float[2,2] x) => (y) {{ y = local.f (x) }}
        <domain: "local", opset_import: ["" : {opset}]> f (a) => (b) {{ b = {node} }}"""
    )
    with pytest.raises(UnsupportedModel, match=rf"opset {opset}.*imports 21.*convert"):
        inline_functions(model)


def test_types_come_along_without_the_functions_names_of_sizes():
    proto = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21, "local" : 1]>
        g (float[2] x) => (y) { y = local.f (x) }
        <domain: "local", opset_import: ["" : 21, "other" : 1]>
        f (a) => (b) { c = other.Op (a)  b = Neg (c) }"""
    )
    proto.functions[0].value_info.append(
        onnx.helper.make_tensor_value_info("c", onnx.TensorProto.FLOAT, ["N", 2])
    )
    model = load_model(proto)
    inline_functions(model)
    assert model.graph.types["f/c"] == TensorType(DataType.FLOAT32, (None, 2))


def test_a_call_in_a_body_does_not_hide_the_constants_around(parse):
    model = parse(
        """g (bool c) => (y) <float[2] k = {1, 2}> {
            y = If (c) <
                then_branch = t () => (p) { p = local.twice (k) },
                else_branch = e () => (q) { q = Neg (k) }>
        }"""
        + TWICE
    )
    (function,) = model.functions.values()
    function.body.types["a"] = TensorType(DataType.FLOAT32, ("N",))
    inline_functions(model)
    branch = model.graph.nodes[0].subgraphs["then_branch"]
    assert branch.constant("k").tolist() == [1.0, 2.0]


def test_the_result_is_that_of_onnx_runtime(run):
    # the reference evaluator cannot run such functions itself
    ort = pytest.importorskip("onnxruntime")
    proto = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21, "local" : 1]>
        g (float[2] x, bool c) => (float[2] y) {
            t = local.scale <by = 2.0> (x)
            y = local.pick (t, c)
        }
        <domain: "local", opset_import: ["" : 21]>
        scale <by: float = 1.5> (a) => (b) {
            k = Constant <value_float: float = @by> ()
            b = Mul (a, k)
        }
        <domain: "local", opset_import: ["" : 21, "local" : 1]>
        pick (a, c) => (b) {
            b = If (c) <
                then_branch = t () => (p) { p = local.scale (a) },
                else_branch = e () => (q) { q = Neg (a) }>
        }"""
    )
    model = load_model(proto)
    inline_functions(model)
    session = ort.InferenceSession(proto.SerializeToString())
    for condition in (np.array(True), np.array(False)):
        (expected,) = session.run(None, {"x": X, "c": condition})
        assert run(model.graph, X, condition)[0].tolist() == expected.tolist()


def test_a_reference_without_a_type_takes_that_of_the_call() -> None:
    proto = onnx.parser.parse_model(
        """
        < ir_version: 10, opset_import: ["" : 21, "local" : 1] >
        agraph (float[2] x) => (float[2] y) { y = local.Steep <slope = 0.5> (x) }
        < opset_import: ["" : 21], domain: "local" >
        Steep <slope> (a) => (b) { b = LeakyRelu <alpha = @slope> (a) }
        """
    )
    (reference,) = proto.functions[0].node[0].attribute
    reference.ClearField("type")
    model = load_model(proto)
    inline_functions(model)
    (node,) = model.graph.nodes
    assert node.attributes == {"alpha": 0.5}
