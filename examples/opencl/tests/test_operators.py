"""What the EP computes is what the CPU EP does; what it does not take, it says why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import onnx
import pytest

import onnxplug
from onnxplug.ep import RefusalCode
from onnxplug.errors import EpWarning

Run: TypeAlias = Callable[..., Any]
"""As the fixture is described."""


def drawn(*shape: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def check(outcome: Any) -> None:
    assert not outcome.refused
    assert outcome.partitions == 1
    for result, wanted in zip(outcome.results, outcome.expected, strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "op", ["Abs", "Exp", "Identity", "Neg", "Relu", "Sigmoid", "Sqrt", "Tanh"]
)
def test_functions(run: Run, op: str) -> None:
    x = np.append(drawn(40), [0, -0.0, np.inf, -np.inf, np.nan]).astype(np.float32)
    check(run(f"g (float[n] x) => (float[n] y) {{ y = {op} (x) }}", {"x": x}))


@pytest.mark.parametrize("op", ["Add", "Div", "Mul", "Sub"])
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((), ()),
        ((3, 4), (4,)),
        ((3, 4), (3, 1)),
        ((1, 4), (3, 1)),
        ((2, 1, 3), (4, 1)),
        ((0, 4), (1, 4)),
        ((1, 2, 1, 2, 1, 2, 1, 2), (2, 1, 2, 1, 2, 1, 2, 1)),
    ],
)
def test_what_is_broadcast(
    run: Run, op: str, one: tuple[int, ...], other: tuple[int, ...]
) -> None:
    sizes = [", ".join(map(str, shape)) for shape in (one, other)]
    names = ", ".join("?" for _ in np.broadcast_shapes(one, other))
    text = f"g (float[{sizes[0]}] a, float[{sizes[1]}] b) => (float[{names}] y) "
    feed = {"a": drawn(*one), "b": drawn(*other, seed=2)}
    check(run(f"{text} {{ y = {op} (a, b) }}".replace("[]", ""), feed))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((3, 4), (4, 5)),
        ((1, 7), (7, 1)),
        ((3, 0), (0, 2)),
        ((0, 4), (4, 2)),
        ((2, 3, 4), (4, 2)),
        ((2, 1, 3, 4), (5, 4, 2)),
        ((33, 65), (65, 129)),
    ],
)
def test_products(run: Run, a: tuple[int, ...], b: tuple[int, ...]) -> None:
    shape = (*np.broadcast_shapes(a[:-2], b[:-2]), a[-2], b[-1])
    types = [f"float[{', '.join(map(str, each))}]" for each in (a, b, shape)]
    text = f"g ({types[0]} a, {types[1]} b) => ({types[2]} y) {{ y = MatMul (a, b) }}"
    check(run(text, {"a": drawn(*a), "b": drawn(*b, seed=2)}))


@pytest.mark.parametrize(
    ("node", "a", "b"),
    [
        ("Add (a, b)", (4, 6), (3, 6)),
        ("Add (a, b)", (3, 6), (4, 6)),
        ("Add (a, b)", (0, 6), (4, 6)),
        ("MatMul (a, b)", (3, 4), (3, 4)),
        ("MatMul (a, b)", (2, 3, 4), (5, 4, 3)),
        ("Reshape (a, shape)", (3, 4), (1, 1)),
    ],
)
def test_shapes_that_do_not_go_together(
    node: str, a: tuple[int, ...], b: tuple[int, ...]
) -> None:
    sizes = [
        ", ".join(f"{name}{axis}" for axis in range(len(shape)))
        for name, shape in (("a", a), ("b", b))
    ]
    model = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["": 21]>
        g (float[{sizes[0]}] a, float[{sizes[1]}] b) => (float y)
        <int64[2] shape = {{5, 5}}>
        {{ unused = Neg (b) z = {node} y = Identity (z) }}
    """)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    with onnxplug.InferenceSession(model, providers=["opencl"]) as session:
        assert session.explain().nodes[0].ep == "OpenClExecutionProvider"
        feed = {"a": drawn(*a), "b": drawn(*b)}
        with pytest.raises(onnxplug.errors.OnnxplugError):
            session.run(None, feed)


@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 5), (7,), (4, 1), (0, 3)])
def test_softmax(run: Run, shape: tuple[int, ...]) -> None:
    sizes = ", ".join(map(str, shape))
    text = f"g (float[{sizes}] x) => (float[{sizes}] y) {{ y = Softmax (x) }}"
    x = drawn(*shape) * 50
    check(run(text, {"x": x}))


def test_softmax_of_infinities_and_nans(run: Run) -> None:
    x = np.full((4, 3), 1, np.float32)
    x[0, 1], x[1, 2], x[2] = np.nan, np.inf, -np.inf
    check(run("g (float[4, 3] x) => (float[4, 3] y) { y = Softmax (x) }", {"x": x}))


@pytest.mark.parametrize(
    ("type_", "node"),
    [
        ("float[4, 3, 2]", "y = Transpose (x)"),
        ("float[3, 2, 4]", "y = Transpose <perm = [1, 0, 2]> (x)"),
        ("float[6, 4]", "y = Reshape (x, six)"),
        ("float[2, 3, 4]", "y = Reshape (x, same)"),
    ],
)
def test_what_is_moved(run: Run, type_: str, node: str) -> None:
    text = f"""g (float[2, 3, 4] x) => ({type_} y)
        <int64[2] six = {{-1, 4}}, int64[3] same = {{0, 3, -1}}> {{ {node} }}"""
    check(run(text, {"x": drawn(2, 3, 4)}))


@pytest.mark.parametrize("rows", [0, 1, 5])
def test_a_network_goes_to_the_device_once(run: Run, rows: int) -> None:
    text = """g (float[n, 3] x) => (float[n, 2] y, float[n, 2] z)
        <float[3, 2] weight = {1, -2, 3, -4, 5, -6}, float[2] bias = {0.5, -0.5}> {
            product = MatMul (x, weight)
            sum = Add (product, bias)
            positive = Relu (sum)
            y = Softmax (positive)
            z = Mul (sum, positive)
        }"""
    check(run(text, {"x": drawn(rows, 3)}))


@pytest.mark.parametrize(
    ("opset", "type_", "node", "code", "detail"),
    [
        (21, "float[2]", "Cos (x)", RefusalCode.OP, "Cos; takes Abs, "),
        (21, "float[2]", "MatMul (x, x)", RefusalCode.RANK, "'x' is of rank 1; "),
        (6, "float[2]", "Add (x, x)", RefusalCode.OPSET, "version 6; takes 7 to 14"),
        (21, "double[2]", "Relu (x)", RefusalCode.DTYPE, "'x' is float64; takes "),
        (
            21,
            "float[2, 2]",
            "Softmax <axis = 0> (x)",
            RefusalCode.ATTRIBUTE,
            "axis is 0; takes the last one",
        ),
    ],
)
def test_what_it_does_not_take(
    run: Run, opset: int, type_: str, node: str, code: RefusalCode, detail: str
) -> None:
    text = f"g ({type_} x) => ({type_.split('[')[0]}[?] y) {{ y = {node} }}"
    if "MatMul" in node:
        text = text.replace("[?]", "")
    if "axis" in node:
        text = text.replace("[?]", "[2, 2]")
    shape = [2] * type_.count("2")
    x = np.ones(shape, {"float": np.float32, "double": np.float64}[type_.split("[")[0]])
    with pytest.warns(EpWarning, match="runs no node of the model"):
        outcome = run(text, {"x": x}, opset)
    (reason,) = outcome.refused.values()
    assert reason.code is code
    assert reason.detail.startswith(detail)
    np.testing.assert_array_equal(outcome.results[0], outcome.expected[0])
