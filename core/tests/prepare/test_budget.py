"""Small models that ask for much: nodes, bytes and time have limits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from onnxplug.errors import InvalidModel, UnsupportedModel
from onnxplug.graph import Weight
from onnxplug.graph.load import load_model
from onnxplug.graph.scopes import all_graphs
from onnxplug.prepare import Budget, Limits, prepare
from onnxplug.prepare.fold import LARGE, NotFolded, fold
from onnxplug.prepare.inline import inline_functions


def functions(bodies: dict[str, list[Any]], first: str, *calls: Any) -> Any:
    """A model that calls *first* of functions of one input and one output."""
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("local", 1)]
    made = [
        helper.make_function("local", name, ["a"], ["b"], nodes, imports)
        for name, nodes in bodies.items()
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])
    nodes = list(calls) or [helper.make_node(first, ["x"], ["y"], domain="local")]
    graph = helper.make_graph(nodes, "g", [x], [y])
    return load_model(
        helper.make_model(
            graph, opset_imports=imports, functions=made, ir_version=10
        ).SerializeToString()
    )


def call(name: str, source: str, target: str) -> Any:
    return helper.make_node(name, [source], [target], domain="local")


def neg() -> Any:
    return helper.make_node("Neg", ["a"], ["b"])


# functions


def test_functions_that_call_each_other_twice_are_refused_before_they_are_inlined():
    levels = 200
    model = functions(
        {
            "f0": [neg()],
            **{
                f"f{i}": [call(f"f{i - 1}", "a", "t"), call(f"f{i - 1}", "t", "b")]
                for i in range(1, levels)
            },
        },
        f"f{levels - 1}",
    )
    with pytest.raises(UnsupportedModel, match=r"10\^60 or more nodes.*'f199'"):
        inline_functions(model)


def test_the_limit_of_nodes_is_that_of_the_budget():
    bodies = {"f0": [neg()], "f1": [call("f0", "a", "t"), call("f0", "t", "b")]}
    with pytest.raises(UnsupportedModel, match=r"makes 4 nodes.*at most 3"):
        inline_functions(functions(bodies, "f1"), Budget(Limits(nodes=3)))
    model = functions(bodies, "f1")
    inline_functions(model, Budget(Limits(nodes=4)))
    assert [node.op_type for node in model.graph.nodes] == ["Neg", "Neg"]


def test_a_body_given_as_an_attribute_does_not_multiply_without_end():
    """Each function refers twice to a body that refers twice to the one it is given."""
    bodies: dict[str, list[Any]] = {}
    for level in range(40):
        branches = {}
        for branch in ("then_branch", "else_branch"):
            if level == 0:
                node = helper.make_node("If", ["a"], ["b"])
                for name in ("then_branch", "else_branch"):
                    node.attribute.add(name=name, ref_attr_name="g", type=5)
                bodies["f0"] = [node]
                break
            inner = helper.make_node("If", ["a"], [f"{branch}{level}"])
            for name in ("then_branch", "else_branch"):
                inner.attribute.add(name=name, ref_attr_name="g", type=5)
            out = helper.make_tensor_value_info(
                f"{branch}{level}", TensorProto.FLOAT, None
            )
            branches[branch] = helper.make_graph([inner], branch, [], [out])
        if level:
            node = helper.make_node(f"f{level - 1}", ["a"], ["b"], domain="local")
            node.attribute.add(name="g", type=5).g.CopyFrom(branches["then_branch"])
            bodies[f"f{level}"] = [node]
    out = helper.make_tensor_value_info("o", TensorProto.FLOAT, None)
    leaf = helper.make_graph([helper.make_node("Neg", ["x"], ["o"])], "leaf", [], [out])
    top = helper.make_node("f39", ["x"], ["y"], domain="local", g=leaf)
    model = functions(bodies, "f39", top)
    for key, function in model.functions.items():
        model.functions[key] = function._replace(attributes=("g",))
    with pytest.raises(UnsupportedModel, match="makes more nodes"):
        inline_functions(model, Budget(Limits(nodes=1000)))


def test_a_long_chain_of_calls_is_inlined():
    levels = 3000
    bodies = {"f0": [neg()]}
    bodies |= {f"f{i}": [call(f"f{i - 1}", "a", "b")] for i in range(1, levels)}
    model = functions(bodies, f"f{levels - 1}")
    assert len(inline_functions(model)) == levels
    assert [node.op_type for node in model.graph.nodes] == ["Neg"]
    assert len(model.graph.nodes[0].name) < 2000


def test_a_long_chain_that_ends_in_itself_is_told_in_short():
    levels = 3000
    bodies = {f"f{i}": [call(f"f{i + 1}", "a", "b")] for i in range(levels)}
    bodies[f"f{levels}"] = [call("f0", "a", "b")]
    with pytest.raises(InvalidModel, match="calls itself") as caught:
        inline_functions(functions(bodies, "f0"))
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(("levels", "limit"), [(20, 20), (21, 20), (500, 64)])
def test_calls_within_bodies_do_not_nest_without_end(levels, limit):
    bodies: dict[str, list[Any]] = {"f0": [neg()]}
    for level in range(1, levels + 1):
        node = helper.make_node("If", ["a"], ["b"])
        for branch in ("then_branch", "else_branch"):
            inner = call(f"f{level - 1}", "a", "t")
            if branch == "else_branch":
                inner = helper.make_node("Neg", ["a"], ["t"])
            out = helper.make_tensor_value_info("t", TensorProto.FLOAT, None)
            body = helper.make_graph([inner], branch, [], [out])
            node.attribute.append(helper.make_attribute(branch, body))
        bodies[f"f{level}"] = [node]
    model = functions(bodies, f"f{levels}")
    budget = Budget(Limits(depth=limit))
    if levels > limit:
        with pytest.raises(UnsupportedModel, match=f"more than {limit} deep"):
            inline_functions(model, budget)
    else:
        inline_functions(model, budget)
        assert sum(1 for _ in all_graphs(model.graph)) == 2 * levels + 1


def test_bodies_given_on_from_call_to_call_do_not_nest_without_end():
    levels = 300
    bodies: dict[str, list[Any]] = {}
    for level in range(levels):
        inner = helper.make_node("If", ["a"], ["t"])
        for name in ("then_branch", "else_branch"):
            inner.attribute.add(name=name, ref_attr_name="g", type=5)
        out = helper.make_tensor_value_info("t", TensorProto.FLOAT, None)
        if level == 0:
            inner.output[0] = "b"
            bodies["f0"] = [inner]
            continue
        # one branch only, so that it does not double
        del inner.attribute[1]
        quiet = helper.make_graph(
            [helper.make_node("Neg", ["a"], ["t"])], "quiet", [], [out]
        )
        inner.attribute.append(helper.make_attribute("else_branch", quiet))
        wrapped = helper.make_graph([inner], "wrapped", [], [out])
        node = helper.make_node(f"f{level - 1}", ["a"], ["b"], domain="local")
        node.attribute.append(helper.make_attribute("g", wrapped))
        bodies[f"f{level}"] = [node]
    out = helper.make_tensor_value_info("o", TensorProto.FLOAT, None)
    leaf = helper.make_graph([helper.make_node("Neg", ["x"], ["o"])], "leaf", [], [out])
    last = f"f{levels - 1}"
    top = helper.make_node(last, ["x"], ["y"], domain="local", g=leaf)
    model = functions(bodies, last, top)
    with pytest.raises(UnsupportedModel, match="more than 64 deep"):
        inline_functions(model)


def test_inlining_can_be_ended():
    asked = []

    def check() -> None:
        asked.append(None)
        if len(asked) > 10:
            raise KeyboardInterrupt

    bodies = {"f0": [neg()]}
    bodies |= {f"f{i}": [call(f"f{i - 1}", "a", "b")] for i in range(1, 100)}
    with pytest.raises(KeyboardInterrupt):
        inline_functions(functions(bodies, "f99"), Budget(check=check))


# constants


def ones(*shape: int, dtype: Any = np.float32) -> Weight:
    return Weight.from_array(np.ones(shape, dtype))


def reasons(budget: Budget) -> dict[str, str]:
    return {left.node.split(" ")[0]: left.reason for left in budget.skipped}


@pytest.fixture
def counted(evaluate) -> tuple[Callable[..., Any], list[str]]:
    computed: list[str] = []

    def count(graph: Any, node: Any) -> Any:
        computed.append(node.op_type)
        return evaluate(graph, node)

    return count, computed


@pytest.mark.parametrize(
    "nodes",
    [
        # what the size is made of is known in this pass only
        "n = Mul (m, m)  y = Range (zero, n, one)",
        "n = Mul (m, m)  e = Unsqueeze (n, at)  y = Expand (one, e)",
        "n = Mul (m, m)  e = Unsqueeze (n, at)  y = Tile (ones, e)",
        "n = Mul (m, m)  e = Unsqueeze (n, at)  y = ConstantOfShape (e)",
    ],
)
def test_what_would_be_too_large_is_not_begun(parse, counted, nodes):
    compute, computed = counted
    model = parse(
        f"""g () => (y) <int64 m = {{1048576}}, int64 zero = {{0}}, int64 one = {{1}},
        int64[1] ones = {{1}}, int64[1] at = {{0}}> {{ {nodes} }}"""
    )
    budget = Budget()
    fold(model.graph, compute, budget)
    last = model.graph.nodes[-1].op_type
    assert "Mul" in computed
    assert last not in computed
    assert reasons(budget)[last] == (
        "its result has 8,796,093,022,208 bytes, more than what it reads"
        if last != "ConstantOfShape"
        else "its result has 4,398,046,511,104 bytes, more than what it reads"
    )


def test_what_is_kept_has_a_limit_for_all_together(parse, ops, evaluate):
    model = parse(
        """g (float[1] x) => (y) <int64[1] n = {1000}> {
            a = ConstantOfShape <value = float[1] {1}> (n)
            b = ConstantOfShape <value = float[1] {2}> (n)
            c = ConstantOfShape <value = float[1] {3}> (n)
            y = Sum (x, a, b, c)
        }"""
    )
    budget = Budget(Limits(nbytes=8000))
    fold(model.graph, evaluate, budget)
    assert ops(model.graph) == ["ConstantOfShape", "Sum"]
    assert reasons(budget) == {
        "ConstantOfShape": "the memory for computed constants was used up"
    }


def test_what_is_computed_on_the_way_is_not_kept(parse, ops, evaluate):
    chain = "".join(f"v{i + 1} = Neg (v{i}) " for i in range(50))
    model = parse(
        f"g (float[1] x) => (y, v9) <float v0 = {{1}}> {{ {chain} y = Add (x, v50) }}"
    )
    model.graph.add_constant("v0", ones(100))
    fold(model.graph, evaluate, Budget(Limits(nbytes=1300)))
    assert ops(model.graph) == ["Add"]
    assert set(model.graph.constants) == {"v0", "v9", "v50"}


def test_the_models_own_constants_make_room_for_as_much(parse, ops, evaluate):
    model = parse("g () => (y) <float[1] k = {1}> { y = Neg (k) }")
    model.graph.add_constant("k", ones(LARGE))
    fold(model.graph, evaluate, Budget(Limits(nbytes=0)))
    assert ops(model.graph) == []


def test_time_for_all_together_has_a_limit(parse, evaluate):
    model = parse("g () => (y) <float[1] k = {1}> { a = Neg (k)  y = Exp (a) }")
    budget = Budget(Limits(seconds=-1.0))
    assert fold(model.graph, evaluate, budget) == []
    assert reasons(budget) == {
        "Neg": "the time for computing constants was spent",
    }


@pytest.mark.parametrize(
    "node",
    [
        "MatMulInteger (i, i)",
        "Einsum <equation = 'ab,cd,ef->'> (k, k, k)",
        "Det (k)",
        "AveragePool <kernel_shape = [1, 1000000000]> (p)",
        "Conv <pads = [0, 1000000000, 0, 0]> (p, p)",
    ],
)
def test_much_work_of_one_node_is_not_begun(parse, counted, node):
    compute, computed = counted
    model = parse(
        """g () => (y) <float k = {1}, float p = {1}, int8 i = {1}>
        { y = NODE }""".replace("NODE", node.replace("'", '"'))
    )
    model.graph.add_constant("k", ones(100, 100))
    model.graph.add_constant("p", ones(1, 1, 10, 10))
    model.graph.add_constant("i", ones(100, 100, dtype=np.int8))
    budget = Budget(Limits(work=999_999))
    fold(model.graph, compute, budget)
    assert computed == []
    assert budget.skipped


def test_large_products_by_blas_and_large_copies_are_computed(parse, ops, evaluate):
    model = parse(
        "g () => (y, z) <float k = {1}> { y = MatMul (k, k) z = Transpose (k) }"
    )
    model.graph.add_constant("k", ones(1000, 1000))
    fold(model.graph, evaluate)
    assert ops(model.graph) == []


def test_texts_do_not_double_without_end(parse, evaluate):
    chain = "".join(f"v{i + 1} = StringConcat (v{i}, v{i}) " for i in range(40))
    model = parse(
        f"""g () => (y) <string[1] v0 = {{"ab"}}> {{ {chain} y = Identity (v40) }}"""
    )
    budget = Budget(Limits(text=100))
    folded = fold(model.graph, evaluate, budget)
    assert 3 < len(folded) < 8
    assert reasons(budget) == {
        "StringConcat": "it reads texts of more than 100 characters and elements"
    }


def test_what_failed_is_told_and_not_tried_again(parse):
    model = parse("g () => (y) <float[1] k = {1}> { y = Neg (k) }")
    tried = []

    def fail(graph, node):
        tried.append(node.op_type)
        raise NotFolded("ValueError: broken")

    budget = Budget()
    for _ in range(2):
        report = prepare(model, evaluate=fail, budget=budget)
        (left,) = report.skipped("fold")
        assert left == ("Neg giving 'y'", "ValueError: broken")
    assert tried == ["Neg"]


def test_names_in_nested_branches_stay_short(parse, evaluate):
    """Each branch that is taken puts a name before those of the branches within."""
    body = "t0 () => (o0) { o0 = Neg (x) }"
    for level in range(1, 25):
        body = (
            f"t{level} () => (o{level}) {{ o{level} = If (c) <then_branch = {body}, "
            f"else_branch = e{level} () => (q{level}) {{ q{level} = Abs (x) }}> }}"
        )
    model = parse(
        f"""g (float[1] x) => (float[1] y) <bool c = {{1}}> {{
        y = If (c) <then_branch = {body},
            else_branch = e () => (q) {{ q = Abs (x) }}> }}"""
    )
    prepare(model, evaluate=evaluate)
    assert [node.op_type for node in model.graph.nodes] == ["Neg"]
    for each in all_graphs(model.graph):
        assert max(len(node.name) for node in each.nodes) < 2000
