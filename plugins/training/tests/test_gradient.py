"""What the operator ``Gradient`` means, and how the pass treats it."""

from __future__ import annotations

import numpy as np
import pytest

from onnxplug.errors import InvalidModel, UnsupportedModel
from onnxplug.prepare.budget import Budget, Limits
from onnxplug.prepare.constants import lift_constants
from onnxplug.prepare.rewrite import rewrite

HEADER = (
    '<ir_version: 8, opset_import: ["" : {opset}, "ai.onnx.preview.training" : 1]>\n'
)
GRADIENT = "ai.onnx.preview.training.Gradient"
RNG = np.random.default_rng(5)


@pytest.fixture
def load(parse):
    def load(text, opset=18):
        model = parse(HEADER.format(opset=opset) + text)
        lift_constants(model.graph)
        return model

    return load


def normal(*shape):
    return np.asarray(RNG.normal(size=shape))


@pytest.mark.parametrize(
    "kind", ["test_gradient_of_add", "test_gradient_of_add_and_mul"]
)
def test_the_cases_of_the_onnx_backend_suite(parse, run, kind):
    product = "d = Mul (c, a)" if kind.endswith("mul") else ""
    y = "d" if product else "c"
    model = parse(
        f"""<ir_version: 7, opset_import: ["" : 12, "ai.onnx.preview.training" : 1]>
        g (float a, float b) => ({y}, da, db) {{ c = Add (a, b)  {product}
        da, db = {GRADIENT} <xs = ["a", "b"], y = "{y}"> (a, b) }}"""
    )
    assert rewrite(model.graph) == [f"{GRADIENT} giving 'da'"]
    results = run(model.graph, np.float32(1), np.float32(2))
    assert [float(r) for r in results] == ([3, 4, 1] if product else [3, 1, 1])
    assert all(np.asarray(r).dtype == np.float32 and np.shape(r) == () for r in results)


# the operator's own meaning


def test_a_graph_without_gradients_is_left_alone(load):
    model = load("g (float[2] x) => (y) { y = Neg (x) }")
    nodes, types = list(model.graph.nodes), dict(model.graph.types)
    assert rewrite(model.graph) == []
    assert model.graph.nodes == nodes
    assert model.graph.types == types


def test_the_gradient_is_taken_at_the_values_given(load, run):
    model = load(
        f"""g (double[2] x, double[2] z, double[2] u, double[2] v) => (y, dx)
        {{ a = Mul (x, x)  b = Mul (a, z)  y = Exp (b)
           dx = {GRADIENT} <xs = ["x"], zs = ["z"], y = "y"> (u, v) }}"""
    )
    rewrite(model.graph)
    x, z, u, v = (RNG.normal(size=2) for _ in range(4))
    y, dx = run(model.graph, x, z, u, v)
    assert np.allclose(y, np.exp(x * x * z))
    assert np.allclose(dx, 2 * u * v * np.exp(u * u * v))


def test_values_may_be_of_another_shape_than_those_named(load, run):
    model = load(
        f"""g (double[2,3] x, double[3] w, double[1,3] u) => (dx, dw)
        {{ y = Mul (x, w)  dx, dw = {GRADIENT} <xs = ["x", "w"], y = "y"> (u, w) }}"""
    )
    rewrite(model.graph)
    x, w, u = normal(2, 3), normal(3), normal(1, 3)
    dx, dw = run(model.graph, x, w, u)
    assert np.allclose(dx, w[None])
    assert np.allclose(dw, u[0])


def test_values_may_be_exchanged(load, run):
    model = load(
        f"""g (double[2] a, double[2] b) => (da, db)
        {{ c = Exp (a)  y = Mul (c, b)
           da, db = {GRADIENT} <xs = ["a", "b"], y = "y"> (b, a) }}"""
    )
    rewrite(model.graph)
    a, b = normal(2), normal(2)
    da, db = run(model.graph, a, b)
    assert np.allclose(da, np.exp(b) * a)
    assert np.allclose(db, np.exp(b))


def test_a_value_given_that_is_used_elsewhere_is_not_taken_for_the_variable(load, run):
    # y = h k at h = k has the derivative k by h, not 2 k
    model = load(
        f"""g (double[2] x, double[2] k) => (y, dh)
        {{ h = Exp (x)  y = Mul (h, k)  dh = {GRADIENT} <xs = ["h"], y = "y"> (k) }}"""
    )
    rewrite(model.graph)
    x, k = normal(2), normal(2)
    assert np.allclose(run(model.graph, x, k)[1], k)


def test_one_value_for_two_variables(load, run):
    model = load(
        f"""g (double[2] a, double[2] b) => (da, db)
        {{ y = Mul (a, b)  da, db = {GRADIENT} <xs = ["a", "b"], y = "y"> (a, a) }}"""
    )
    rewrite(model.graph)
    a, b = normal(2), normal(2)
    assert all(np.allclose(r, a) for r in run(model.graph, a, b))


def test_an_intermediate_value_is_independent_when_it_is_named(load, run):
    model = load(
        f"""g (double[2] x) => (dx, dh)
        {{ h = Mul (x, x)  y = Mul (h, x)
           dx, dh = {GRADIENT} <xs = ["x", "h"], y = "y"> (x, h) }}"""
    )
    rewrite(model.graph)
    x = normal(2)
    dx, dh = run(model.graph, x)
    assert np.allclose(dx, x * x)
    assert np.allclose(dh, x)


def test_what_is_named_in_zs_is_constant(load, run):
    model = load(
        f"""g (double[2] x) => (dx)
        {{ h = Mul (x, x)  y = Mul (h, x)
           dx = {GRADIENT} <xs = ["x"], zs = ["h"], y = "y"> (x, h) }}"""
    )
    rewrite(model.graph)
    x = normal(2)
    assert np.allclose(run(model.graph, x)[0], x * x)


def test_one_of_several_outputs_may_be_the_variable(load, run):
    model = load(
        f"""g (double[4] x, double[2] u) => (dp)
        {{ p, q = Split <num_outputs = 2> (x)  m = Mul (p, q)  y = Mul (m, p)
           dp = {GRADIENT} <xs = ["p", "x"], y = "y"> (u, x) }}"""
    )
    rewrite(model.graph)
    x, u = normal(4), normal(2)
    assert np.allclose(run(model.graph, x, u)[0], 2 * u * x[2:])


def test_outputs_may_be_left_out(load, run):
    model = load(
        f"""g (double[2] a, double[2] b) => (db)
        {{ y = Mul (a, b)  , db = {GRADIENT} <xs = ["a", "b"], y = "y"> (a, b) }}"""
    )
    rewrite(model.graph)
    a = normal(2)
    assert np.allclose(run(model.graph, a, normal(2))[0], a)


@pytest.mark.parametrize("y", ["Neg (b)", "Shape (a)  y = Cast <to = 11> (i)"])
def test_a_variable_without_influence_has_gradient_zero(load, run, y):
    y = f"i = {y}" if "Cast" in y else f"y = {y}"
    model = load(
        f"""g (double[2,N] a, double[3] b) => (da)
        {{ {y}  da = {GRADIENT} <xs = ["a"], y = "y"> (a) }}"""
    )
    rewrite(model.graph)
    da = run(model.graph, normal(2, 5), normal(3))[0]
    assert da.dtype == np.float64
    assert np.array_equal(da, np.zeros((2, 5)))


def test_the_target_may_be_a_variable(load, run):
    model = load(
        f"""g (double[2] a, double[2] b) => (da, db)
        {{ da, db = {GRADIENT} <xs = ["a", "b"], y = "a"> (a, b) }}"""
    )
    rewrite(model.graph)
    da, db = run(model.graph, normal(2), normal(2))
    assert np.array_equal(da, [1, 1])
    assert np.array_equal(db, [0, 0])


def test_the_node_may_come_before_its_target(load, run):
    model = load(
        f"""g (double[2] x) => (dx, y)
        {{ dx = {GRADIENT} <xs = ["x"], y = "y"> (x)  y = Mul (x, x) }}"""
    )
    rewrite(model.graph)
    x = normal(2)
    assert np.allclose(run(model.graph, x)[0], 2 * x)


def test_whole_numbers_stop_the_way(load, run):
    # Greater and ArgMax have no rule, and need none
    model = load(
        f"""g (double[3] x, double[3] b) => (dx)
        {{ c = Greater (x, b)  m = Mul (x, x)  n = Neg (x)  w = Where (c, m, n)
           i = ArgMax (x)  e = Gather (x, i)  y = Mul (w, e)
           dx = {GRADIENT} <xs = ["x"], y = "y"> (x) }}"""
    )
    rewrite(model.graph)
    x, b = np.array([1.0, -2, 3]), np.array([0.0, 0, 5])
    expected = np.array([2 * 1 * 3.0, -3, -3]) + np.array([0, 0, 1 + 2 - 3.0])
    assert np.allclose(run(model.graph, x, b)[0], expected)


def test_a_gradient_in_a_body(load, run):
    model = load(
        f"""g (bool c, double[2] x) => (r)
        {{ r = If (c) <then_branch = t () => (dx) {{ y = Mul (x, x)
             dx = {GRADIENT} <xs = ["x"], y = "y"> (x) }},
           else_branch = e () => (n) {{ n = Neg (x) }}> }}"""
    )
    assert len(rewrite(model.graph)) == 1
    x = normal(2)
    assert np.allclose(run(model.graph, np.array(True), x)[0], 2 * x)


def test_the_cross_entropy_of_a_classifier(load, run):
    feeds = {"x": normal(4, 3), "labels": np.array([0, 2, 1, 2])}
    model = load(
        f"""g (double[4,3] x, int64[4] labels) => (dx)
        {{ y = SoftmaxCrossEntropyLoss (x, labels)
           dx = {GRADIENT} <xs = ["x"], zs = ["labels"], y = "y"> (x, labels) }}"""
    )
    rewrite(model.graph)
    exp = np.exp(feeds["x"])
    expected = (exp / exp.sum(1, keepdims=True) - np.eye(3)[feeds["labels"]]) / 4
    assert np.allclose(run(model.graph, *feeds.values())[0], expected)


@pytest.mark.parametrize("batch", ["8", "N"])
def test_a_network_agrees_with_backpropagation_by_hand(load, run, batch):
    model = load(
        f"""g (float[{batch},5] x, float[{batch},2] t, float[5,6] w, float[6] b,
               float[2,6] v, float[2] c) => (loss, dw, db, dv, dc)
        {{ m = MatMul (x, w)  z = Add (m, b)  h = Relu (z)
           o = Gemm <transB = 1> (h, v, c)  e = Sub (o, t)
           two = Constant <value = float {{2}}> ()  q = Pow (e, two)
           loss = ReduceMean <keepdims = 0> (q)
           dw, db, dv, dc = {GRADIENT} <xs = ["w", "b", "v", "c"], zs = ["x", "t"],
                y = "loss"> (w, b, v, c, x, t) }}"""
    )
    rewrite(model.graph)
    shapes = [(8, 5), (8, 2), (5, 6), (6,), (2, 6), (2,)]
    x, t, w, b, v, c = (RNG.normal(size=s).astype(np.float32) for s in shapes)
    z = x @ w + b
    h = np.maximum(z, 0)
    e = h @ v.T + c - t
    do = 2 * e / e.size
    dz = do @ v * (z > 0)
    expected = [(e**2).mean(), x.T @ dz, dz.sum(0), do.T @ h, do.sum(0)]
    results = run(model.graph, x, t, w, b, v, c)
    for result, wanted in zip(results, expected, strict=True):
        assert result.dtype == np.float32
        np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-6)


# what cannot be done


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        (
            "y = Det (x)",
            r"Det giving 'y'.* can be differentiated: Abs, Add",
        ),
        ("[lu] y = Det (x)", r"Det 'lu', which onnxplug does not know"),
        (
            "y = If (c) <then_branch = t () => (n) { n = Neg (x) }, "
            "else_branch = e () => (m) { m = Abs (x) }>",
            "If .*does not know",
        ),
        ("y = CumSum (x, i)", "CumSum"),
        ("f = Cast <to = 17> (x)  y = Cast <to = 11> (f)", "float8_e4m3fn, which has"),
        ("y = Dropout (x, , c)", "inference mode"),
        ('y = ScatterND <reduction = "mul"> (x, j, x)', "'mul' is not differentiable"),
        (
            "p = Constant <value = int64[4] {1, 1, 1, 1}> ()  "
            'y = Pad <mode = "edge"> (x, p)',
            "with a constant",
        ),
    ],
)
def test_operators_that_cannot_be_differentiated(load, nodes, said):
    model = load(
        f"""g (double[2,2] x, bool c, int64 i, int64[2,2,1] j) => (dx)
        {{ {nodes}  [my] dx = {GRADIENT} <xs = ["x"], y = "y"> (x) }}""",
        20,
    )
    with pytest.raises(UnsupportedModel, match=said) as caught:
        rewrite(model.graph)
    assert "Gradient 'my'" in str(caught.value)


def test_such_operators_elsewhere_do_no_harm(load, run):
    model = load(
        f"""g (double[2,2] x, double[2,2] b) => (dx, other)
        {{ d = Det (b)  y = Mul (x, d)  other = Det (y)
           dx = {GRADIENT} <xs = ["x"], y = "y"> (x) }}"""
    )
    rewrite(model.graph)
    b = normal(2, 2)
    assert np.allclose(run(model.graph, normal(2, 2), b)[0], np.linalg.det(b))


@pytest.mark.parametrize(
    ("gradient", "said"),
    [
        ('<xs = ["x"], y = "absent"> (x)', "'absent', which is no value"),
        ('<xs = ["absent"], y = "y"> (x)', "'absent', which is no value"),
        ('<xs = ["x"], y = "y"> (x, x)', "2 inputs, and names 1 values"),
        ('<xs = ["x", "x"], y = "y"> (x, x)', "twice"),
        ('<y = "y"> (x)', "must set the attributes"),
        ('<xs = ["x"]> (x)', "must set the attributes"),
        ('<xs = ["i"], y = "y"> (i)', "'i' is int64"),
        ('<xs = ["x"], y = "i"> (x)', "'i' is int64"),
        ('<xs = ["x"], y = "after"> (x)', "depends on its own result"),
    ],
)
def test_nodes_that_make_no_sense(load, gradient, said):
    model = load(
        f"""g (double[2] x, int64[2] i) => (dx)
        {{ y = Neg (x)  dx = {GRADIENT} {gradient}  after = Neg (dx) }}"""
    )
    with pytest.raises(InvalidModel, match=said):
        rewrite(model.graph)


def test_more_outputs_than_variables(load):
    model = load(
        f"""g (double[2] x) => (a)
        {{ y = Neg (x)  a, b = {GRADIENT} <xs = ["x"], y = "y"> (x) }}"""
    )
    with pytest.raises(InvalidModel, match="2 outputs for 1"):
        rewrite(model.graph)


def test_a_target_around_the_body_is_refused(load):
    model = load(
        f"""g (bool c, double[2] x) => (r)
        {{ y = Mul (x, x)
           r = If (c) <then_branch = t () => (dx) {{
             dx = {GRADIENT} <xs = ["x"], y = "y"> (x) }},
           else_branch = e () => (n) {{ n = Neg (x) }}> }}"""
    )
    with pytest.raises(UnsupportedModel, match="move it to where its target is made"):
        rewrite(model.graph)


def test_a_matrix_product_of_unknown_rank_is_refused(load):
    model = load(
        f"""g (double[] x) => (dx)
        {{ y = MatMul (x, x)  dx = {GRADIENT} <xs = ["x"], y = "y"> (x) }}"""
    )
    with pytest.raises(UnsupportedModel, match="rank of its inputs must be known"):
        rewrite(model.graph)


def test_gradients_of_gradients_do_not_grow_without_end(parse):
    nested = " ".join(
        f'v{i + 1} = ai.onnx.preview.training.Gradient <xs = ["x"], y = "v{i}"> (x)'
        for i in range(40)
    )
    model = parse(
        f"""<ir_version: 10, opset_import: ["" : 21, "ai.onnx.preview.training" : 1]>
        g (float[1] x) => (v40)
        {{ a = Sin (x) b = Exp (x) v0 = Mul (a, b) {nested} }}"""
    )
    with pytest.raises(UnsupportedModel, match="more nodes than onnxplug allows"):
        rewrite(model.graph, Budget(Limits(nodes=500)))
