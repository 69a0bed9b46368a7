"""Gradients of gradients."""

from __future__ import annotations

import numpy as np
import pytest

from onnxplug.prepare.rewrite import rewrite

GRADIENT = "ai.onnx.preview.training.Gradient"
RNG = np.random.default_rng(6)


def const(name, *values, dtype="int64"):
    size = f"{dtype}[{len(values)}]"
    return f"{name} = Constant <value = {size} {{{', '.join(map(str, values))}}}> ()  "


def scalar(name, value, dtype="double"):
    return f"{name} = Constant <value = {dtype} {{{value}}}> ()  "


SECOND = {
    "Abs": "r = Abs (x)",
    "Clip": scalar("lo", -0.5) + "r = Clip (x, lo)",
    "Div": "m = Exp (x)  r = Div (x, m)",
    "Cos": "r = Cos (x)",
    "Gather": const("i", 0, 0) + "r = Gather (x, i)",
    "Gather axis": const("i", 0, 0) + "r = Gather <axis = 1> (x, i)",
    "GatherElements": "i = ArgMax <axis = 1> (x)  r = GatherElements <axis = 1> (x, i)",
    "LeakyRelu": "r = LeakyRelu (x)",
    "LogSoftmax": "r = LogSoftmax (x)",
    "MatMul": "t = Transpose (x)  r = MatMul (x, t)",
    "Gemm": "r = Gemm <transB = 1> (x, x, x)",
    "Max": "m = Neg (x)  r = Max (x, m)",
    "Pow": scalar("k", 3.0) + "r = Pow (x, k)",
    "Pow both": "m = Exp (x)  r = Pow (m, x)",
    "ReduceMean": const("t", 1) + "r = ReduceMean (x, t)",
    "Relu": "r = Relu (x)",
    "Sigmoid": "r = Sigmoid (x)",
    "Slice": const("f", 1) + const("t", 2) + "r = Slice (x, f, t)",
    "Slice steps": const("f", -1) + const("t", -9) + const("a", 0) + const("h", -1)
    + "r = Slice (x, f, t, a, h)",
    "Softmax": "r = Softmax (x)",
    "Softplus": "r = Softplus (x)",
    "Split": "p, q = Split <num_outputs = 2> (x)  r = Mul (p, q)",
    "Sqrt": "m = Exp (x)  r = Sqrt (m)",
    "Tanh": "r = Tanh (x)",
}  # fmt: skip


@pytest.mark.parametrize("shapes", ["static", "named"])
@pytest.mark.parametrize("case", SECOND)
def test_second_derivatives_agree_with_differences_of_the_first(
    load, declare, run, case, shapes
):
    feeds = {"x": RNG.normal(size=(2, 2)), "v": RNG.normal(size=(2, 2))}
    first = f"""s_ = Sin (r)  y = Mul (s_, r)
        dx = {GRADIENT} <xs = ["x"], y = "y"> (x)  dv = Mul (dx, v)"""
    texts = [
        f"g ({declare(feeds, shapes)}) => ({out}) {{ {SECOND[case]} {first} {more} }}"
        for out, more in (
            ("dv", ""),
            ("ddx", f'ddx = {GRADIENT} <xs = ["x"], y = "dv"> (x)'),
        )
    ]
    once, twice = map(load, texts)
    assert len(rewrite(once.graph)) == 1
    assert len(rewrite(twice.graph)) == 2
    x, v = feeds.values()
    expected = np.zeros((2, 2))
    for position in range(4):
        step = np.zeros(4)
        step[position] = 1e-6
        up, down = (
            np.sum(run(once.graph, x + sign * step.reshape(2, 2), v)[0])
            for sign in (1, -1)
        )
        expected.flat[position] = (up - down) / 2e-6
    result = run(twice.graph, x, v)[0]
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


def test_the_third_derivative_in_any_order_of_nodes(load, run):
    model = load(
        f"""g (double x) => (c)
        {{ c = {GRADIENT} <xs = ["x"], y = "b"> (x)
           b = {GRADIENT} <xs = ["x"], y = "a"> (x)
           a = {GRADIENT} <xs = ["x"], y = "y"> (x)  y = Sin (x) }}"""
    )
    made = [text.rsplit("giving ", 1)[1] for text in rewrite(model.graph)]
    assert made == ["'a'", "'b'", "'c'"]
    assert np.allclose(run(model.graph, np.array(0.3))[0], -np.cos(0.3))
