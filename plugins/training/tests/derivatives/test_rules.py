"""Each rule against finite differences, whatever is known of the shapes."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from onnxplug.errors import UnsupportedModel
from onnxplug.prepare.rewrite import rewrite
from onnxplug_training.derivatives import RULES

GRADIENT = "ai.onnx.preview.training.Gradient"
RNG = np.random.default_rng(5)


def normal(*shape):
    return np.asarray(RNG.normal(size=shape))


def positive(*shape):
    return np.asarray(RNG.uniform(0.5, 2, size=shape))


def ints(*values):
    return np.array(values, np.int64)


X, P = {"x": normal(2, 3)}, {"x": positive(2, 3)}
AB = {"a": normal(2, 3), "b": normal(3)}
CUBE = {"x": normal(2, 3, 4)}
CONST = "Constant <value = {} {{{}}}> ()"


def const(name, *values, dtype="int64"):
    size = f"{dtype}[{len(values)}]"
    return f"{name} = Constant <value = {size} {{{', '.join(map(str, values))}}}> ()  "


def scalar(name, value, dtype="double"):
    return f"{name} = Constant <value = {dtype} {{{value}}}> ()  "


INDEX = const("i", 2, 0, -1, 0)

CASES = {
    "Abs": ("r = Abs (x)", X),
    "Add": ("r = Add (a, b)", AB),
    "CastLike": ("r = CastLike (x, x)", X),
    "Ceil": ("m = Ceil (x)  r = Add (m, x)", X),
    "Clip": ("r = Clip (x, lo, hi)", X | {"lo": np.array(-0.5), "hi": np.array(0.5)}),
    "Clip below": ("r = Clip (x, lo)", X | {"lo": np.array(0.1)}),
    "Clip above": ("r = Clip (x, , hi)", X | {"hi": np.array(0.1)}),
    "Clip crossed": (
        "r = Clip (x, lo, hi)",
        X | {"lo": np.array(0.5), "hi": np.array(-0.5)},
    ),
    "Concat": ("r = Concat <axis = -1> (x, b)", X | {"b": normal(2, 2)}),
    "Concat of one": ("r = Concat <axis = 0> (x)", X),
    "Cos": ("r = Cos (x)", X),
    "Div": ("r = Div (a, b)", {"a": normal(2, 3), "b": positive(2, 1)}),
    "Dropout": ("r = Dropout (x)", X),
    "Exp": ("r = Exp (x)", X),
    "Expand": (const("s", 4, 2, 3) + "r = Expand (x, s)", {"x": normal(2, 1)}),
    "Flatten": ("r = Flatten <axis = 2> (x)", CUBE),
    "Floor": ("m = Floor (x)  r = Mul (m, x)", X),
    "Gather": (INDEX + "r = Gather (x, i)", {"x": normal(3, 2)}),
    "Gather int32": (const("i", 1, 1, dtype="int32") + "r = Gather (x, i)", X),
    "Gather axis": (INDEX + "r = Gather <axis = 1> (x, i)", CUBE),
    "GatherElements": (
        "r = GatherElements <axis = 1> (x, i)",
        X | {"i": np.array([[0, 0], [2, -1]])},
    ),
    "GatherND": (
        "r = GatherND (x, i)",
        CUBE | {"i": np.array([[0, 1], [0, 1], [1, 2]])},
    ),
    "GatherND batch": (
        "r = GatherND <batch_dims = 1> (x, i)",
        CUBE | {"i": np.array([[1], [2]])},
    ),
    "Gemm": (
        "r = Gemm <alpha = 0.5, beta = 2.0> (a, b, c)",
        {"a": normal(2, 3), "b": normal(3, 4), "c": normal(4)},
    ),
    "Gemm tA": (
        "r = Gemm <transA = 1> (a, b)",
        {"a": normal(3, 2), "b": normal(3, 4)},
    ),
    "Gemm tB": (
        "r = Gemm <transB = 1, alpha = 2.0> (a, b, c)",
        {"a": normal(2, 3), "b": normal(4, 3), "c": normal(2, 1)},
    ),
    "Gemm tAtB": (
        "r = Gemm <transA = 1, transB = 1> (a, b, c)",
        {"a": normal(3, 2), "b": normal(4, 3), "c": normal()},
    ),
    "Identity": ("r = Identity (x)", X),
    "LeakyRelu": ("r = LeakyRelu <alpha = 0.25> (x)", X),
    "Log": ("r = Log (x)", P),
    "LogSoftmax": ("r = LogSoftmax (x)", X),
    "LogSoftmax axis": ("r = LogSoftmax <axis = 1> (x)", CUBE),
    "MatMul": ("r = MatMul (a, b)", {"a": normal(2, 3), "b": normal(3, 4)}),
    "MatMul batch": (
        "r = MatMul (a, b)",
        {"a": normal(2, 1, 2, 3), "b": normal(4, 3, 2)},
    ),
    "MatMul weight": ("r = MatMul (a, b)", {"a": normal(2, 2, 3), "b": normal(3, 2)}),
    "MatMul vectors": ("r = MatMul (a, b)", {"a": normal(3), "b": normal(3)}),
    "MatMul vector": ("r = MatMul (a, b)", {"a": normal(2, 2, 3), "b": normal(3)}),
    "vector MatMul": ("r = MatMul (a, b)", {"a": normal(3), "b": normal(2, 3, 2)}),
    "vector MatMul 2": ("r = MatMul (a, b)", {"a": normal(3), "b": normal(3, 2)}),
    "Max": ("r = Max (a, b)", AB),
    "Max of three": ("r = Max (a, b, c)", AB | {"c": normal()}),
    "Max of one": ("r = Max (x)", X),
    "Mean": ("r = Mean (a, b)", AB),
    "Min": ("r = Min (a, b)", AB),
    "Mul": ("r = Mul (a, b)", AB),
    "Mul by itself": ("r = Mul (x, x)", X),
    "Neg": ("r = Neg (x)", X),
    "Pad": (const("p", 1, 0, 0, 2) + "r = Pad (x, p)", X),
    "Pad axes": (const("p", 1, 2) + const("t", -1) + "r = Pad (x, p, , t)", X),
    "Pow": ("r = Pow (a, b)", {"a": positive(2, 3), "b": normal(3)}),
    "Pow square": (scalar("two", 2.0) + "r = Pow (x, two)", X),
    "Pow cube": (scalar("three", 3.0) + "r = Pow (x, three)", X),
    "Pow one": (scalar("one", 1.0) + "r = Pow (x, one)", X),
    "Pow zero": (scalar("zero", 0.0) + "m = Pow (x, zero)  r = Add (m, x)", X),
    "Pow mixed": (const("k", 0.0, 1.0, 2.0, dtype="double") + "r = Pow (x, k)", X),
    "Pow int": (const("k", 3, dtype="int64") + "r = Pow (x, k)", X),
    "Reciprocal": ("r = Reciprocal (x)", P),
    "ReduceMean": (const("t", 0, -1) + "r = ReduceMean (x, t)", CUBE),
    "ReduceMean flat": (const("t", 1) + "r = ReduceMean <keepdims = 0> (x, t)", CUBE),
    "ReduceMean all": ("r = ReduceMean <keepdims = 0> (x)", CUBE),
    "ReduceSum": (const("t", 1) + "r = ReduceSum (x, t)", CUBE),
    "ReduceSum flat": (const("t", 0, -1) + "r = ReduceSum <keepdims = 0> (x, t)", CUBE),
    "ReduceSum all": ("r = ReduceSum <keepdims = 0> (x)", CUBE),
    "ReduceSum none": ("r = ReduceSum <noop_with_empty_axes = 1> (x)", CUBE),
    "ReduceSum computed": (
        "r = ReduceSum <keepdims = 0> (x, t)",
        CUBE | {"t": ints(1)},
    ),
    "Relu": ("r = Relu (x)", X),
    "Reshape": (const("s", 3, -1) + "r = Reshape (x, s)", CUBE),
    "Round": ("m = Round (x)  r = Mul (m, x)", X),
    "ScatterElements": (
        "r = ScatterElements <axis = 1> (x, i, u)",
        X | {"i": np.array([[1], [2]]), "u": normal(2, 1)},
    ),
    "ScatterElements add": (
        'r = ScatterElements <axis = 1, reduction = "add"> (x, i, u)',
        X | {"i": np.array([[1, 1], [2, 0]]), "u": normal(2, 2)},
    ),
    "ScatterND": (
        "r = ScatterND (x, i, u)",
        CUBE | {"i": np.array([[1, 0], [0, 2]]), "u": normal(2, 4)},
    ),
    "ScatterND add": (
        'r = ScatterND <reduction = "add"> (x, i, u)',
        CUBE | {"i": np.array([[1], [1]]), "u": normal(2, 3, 4)},
    ),
    "Sigmoid": ("r = Sigmoid (x)", X),
    "Sign": ("m = Sign (x)  r = Mul (m, x)", X),
    "Sin": ("r = Sin (x)", X),
    "Slice": (
        const("f", 1) + const("t", 3) + const("k", 2) + "r = Slice (x, f, t, k)",
        CUBE,
    ),
    "Slice negative": (
        const("f", -2, 0) + const("t", 100, -1) + "r = Slice (x, f, t)",
        CUBE,
    ),
    "Slice steps": (
        const("f", -1) + const("t", -100) + const("k", 2) + const("h", -2)
        + "r = Slice (x, f, t, k, h)",
        CUBE,
    ),
    "Slice computed": (
        "r = Slice (x, f, t)",
        CUBE | {"f": ints(1, 1), "t": ints(2, 3)},
    ),
    "Slice empty": (
        const("f", 2) + const("t", 1) + const("k", 1)
        + "m = Slice (x, f, t, k)  r = Concat <axis = 1> (m, x)",
        CUBE,
    ),
    "Softmax": ("r = Softmax (x)", X),
    "Softmax axis": ("r = Softmax <axis = 1> (x)", CUBE),
    "Softplus": ("r = Softplus (x)", X),
    "Split": (
        const("s", 1, 2) + "p, q = Split <axis = 1> (x, s)  r = Mul (p, q)",
        X,
    ),
    "Split, one used": (const("s", 1, 2) + "p, r = Split <axis = 1> (x, s)", X),
    "Sqrt": ("r = Sqrt (x)", P),
    "Squeeze": (const("t", 1) + "r = Squeeze (x, t)", {"x": normal(2, 1, 1)}),
    "Squeeze all": ("r = Squeeze (x)", {"x": normal(2, 1, 3, 1)}),
    "Sub": ("r = Sub (b, a)", AB),
    "Sum": ("r = Sum (a, b, c)", AB | {"c": normal(1, 1)}),
    "Tanh": ("r = Tanh (x)", X),
    "Transpose": ("r = Transpose <perm = [2, 0, 1]> (x)", CUBE),
    "Transpose all": ("r = Transpose (x)", CUBE),
    "Unsqueeze": (const("t", 0, -1) + "r = Unsqueeze (x, t)", X),
    "Where": (
        "r = Where (c, a, b)",
        AB | {"c": np.array([[True], [False]])},
    ),
}  # fmt: skip
NEED_RANK = ("MatMul", "vector")
BY_FORMULA = {"Cast", "Erf"}
"""The reference evaluator computes them in single precision."""


@pytest.mark.parametrize("shapes", ["static", "named", "unknown"])
@pytest.mark.parametrize("case", CASES)
def test_a_rule_agrees_with_finite_differences(check, case, shapes):
    nodes, feeds = CASES[case]
    if shapes == "unknown" and case.startswith(NEED_RANK):
        pytest.skip("MatMul needs ranks")
    check(nodes, feeds, shapes=shapes)


@pytest.mark.parametrize("size", ["3", "N"])
def test_rules_whose_operators_are_imprecise_in_the_reference(load, run, size):
    model = load(
        f"""g (double[{size}] x) => (dx, dz)
        {{ y = Erf (x)  f = Cast <to = 1> (x)  m = Mul (f, f)  z = Cast <to = 11> (m)
           dx = {GRADIENT} <xs = ["x"], y = "y"> (x)
           dz = {GRADIENT} <xs = ["x"], y = "z"> (x) }}"""
    )
    rewrite(model.graph)
    x = normal(3)
    dx, dz = run(model.graph, x)
    slopes = [(math.erf(v + 1e-6) - math.erf(v - 1e-6)) / 2e-6 for v in x]
    np.testing.assert_allclose(dx, slopes, rtol=1e-6)
    assert dz.dtype == np.float64
    np.testing.assert_allclose(dz, 2 * x.astype(np.float32))


def test_every_rule_is_tried():
    tried = {
        op for nodes, _ in CASES.values() for op in re.findall(r"(\w+) [<(]", nodes)
    }
    assert set(RULES) - BY_FORMULA <= tried


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((2, 3), (2, 3)),
        ((2, 3), ()),
        ((3,), (2, 1)),
        ((1, 3), (2, 1)),
        ((1, 1), (4, 2, 3)),
    ],
)
@pytest.mark.parametrize("shapes", ["static", "named", "unknown"])
@pytest.mark.parametrize("op", ["Add", "Mul", "Div", "Pow"])
def test_broadcasting_is_undone(check, a, b, shapes, op):
    feeds = {"a": positive(*a), "b": positive(*b)}
    check(f"r = {op} (a, b)", feeds, shapes=shapes)


def test_equal_shapes_need_no_nodes(load, ops):
    for size in ("2,3", "N,3"):
        model = load(
            f"""g (double[{size}] a, double[{size}] b) => (da, db)
            {{ y = Mul (a, b)
               da, db = {GRADIENT} <xs = ["a", "b"], y = "y"> (a, b) }}"""
        )
        rewrite(model.graph)
        emitted = ["Shape", "ConstantOfShape", "Mul", "Mul", "Identity", "Identity"]
        assert sorted(ops(model.graph)) == sorted(["Mul", *emitted])


def test_broadcasting_empty_tensors(load, declare, run):
    for shapes in ("static", "named"):
        feeds = {"a": normal(0, 3), "b": normal(1, 3)}
        model = load(
            f"""g ({declare(feeds, shapes)}) => (da, db)
            {{ y = Mul (a, b)
               da, db = {GRADIENT} <xs = ["a", "b"], y = "y"> (a, b) }}"""
        )
        rewrite(model.graph)
        da, db = run(model.graph, *feeds.values())
        assert da.shape == (0, 3)
        assert np.array_equal(db, np.zeros((1, 3)))


# points without a derivative


@pytest.mark.parametrize(
    ("nodes", "at", "expected"),
    [
        ("y = Relu (x)", 0.0, 0.0),
        ("y = Abs (x)", 0.0, 0.0),
        ("y = Max (x, zero)", 0.0, 0.5),
        ("y = Clip (x, zero)", 0.0, 1.0),
        ("y = Pow (x, zero)", 0.0, 0.0),
        ("y = Pow (x, two)", 0.0, 0.0),
        ("y = Pow (x, two)", -3.0, -6.0),
        ("y = Pow (two, x)", 0.0, np.log(2)),
        ("y = Pow (zero, x)", 2.0, 0.0),
    ],
)
def test_where_formulas_would_break_down(load, run, nodes, at, expected):
    model = load(
        f"""g (double x, double zero, double two) => (dx)
        {{ {nodes}  dx = {GRADIENT} <xs = ["x"], y = "y"> (x) }}"""
    )
    rewrite(model.graph)
    values = (np.array(v) for v in (at, 0.0, 2.0))
    assert np.allclose(run(model.graph, *values)[0], expected)


# operators defined by others


@pytest.mark.parametrize(
    "nodes",
    [
        "r = Elu (x)",
        'r = Gelu <approximate = "tanh"> (x)',
        "r = HardSigmoid (x)",
        "t = Constant <value = int64[1] {1}> ()  r = ReduceSumSquare (x, t)",
        "r = Mish (x)",
        "r = Selu (x)",
    ],
)
def test_an_operator_without_a_rule_is_expanded(check, nodes):
    check(nodes, X, opset=20)


def test_a_normalisation_is_expanded(check):
    nodes = "r = LayerNormalization (x, scale, bias)"
    feeds = X | {"scale": positive(3), "bias": normal(3)}
    check(nodes, feeds, rtol=1e-3)  # the function body is in single precision


# opsets


@pytest.mark.parametrize("opset", [11, 12])
@pytest.mark.parametrize(
    "nodes",
    [
        "r = Mul (a, b)",
        "r = ReduceSum <axes = [1], keepdims = 0> (a)",
        "m = ReduceMean <axes = [0]> (a)  r = Squeeze <axes = [0]> (m)",
        "r = Unsqueeze <axes = [0]> (a)",
        "p, q = Split <axis = 1, split = [1, 2]> (a)  r = Mul (p, q)",
        "r = Concat <axis = 0> (a, a)",
        const("f", 1) + const("t", 3) + const("k", 1) + "r = Slice (a, f, t, k)",
    ],
)
def test_older_opsets(check, nodes, opset):
    feeds = AB if "b)" in nodes else {"a": AB["a"]}
    check(nodes, feeds, opset=opset)


@pytest.mark.parametrize("opset", [13, 21, 23])
def test_newer_opsets(check, opset):
    nodes = const("t", 0) + "m = ReduceSum (a, t)  r = Mul (m, b)"
    for shapes in ("static", "named"):
        check(nodes, AB, opset=opset, shapes=shapes)


@pytest.mark.parametrize(
    ("opset", "nodes", "said"),
    [
        (12, "y = Mul (x, b)", "ReduceSum over axes known only at run time"),
        (12, "y = Softmax (x)", "Softmax"),
        (15, "i = Constant <value = int64 {0}> ()  y = Gather (x, i)", "ScatterND"),
    ],
)
def test_an_opset_that_is_too_old(load, opset, nodes, said):
    model = load(
        f"""g (double[N,M] x, double[K,L] b) => (dx)
        {{ {nodes}  dx = {GRADIENT} <xs = ["x"], y = "y"> (x) }}""",
        opset,
    )
    with pytest.raises(UnsupportedModel, match=rf"{said}.*opset {opset}"):
        rewrite(model.graph)
