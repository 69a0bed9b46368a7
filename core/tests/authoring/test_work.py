"""How much work nodes are, and how long it takes at given rates."""

from __future__ import annotations

import onnx
import pytest

from onnxplug.authoring.rates import Rates
from onnxplug.authoring.work import Work, work_of
from onnxplug.graph import Graph
from onnxplug.graph.load import load_model


def loaded(text: str, ends: str) -> Graph:
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 21]>\ng {ends} {{ {text} }}'
    )
    return load_model(memoryview(model.SerializeToString())).graph


CONV = "(float[1,{i},8,8] x, float[{o},{g},3,3] w) => (float[1,{o},6,6] y)"


@pytest.mark.parametrize(
    ("text", "ends", "work"),
    [
        (
            "y = MatMul (a, b)",
            "(float[2,3,4] a, float[4,5] b) => (float[2,3,5] y)",
            {"product": 2 * 2 * 3 * 5 * 4},
        ),
        (
            "y = Gemm <transA = 1> (a, b)",
            "(float[4,3] a, float[4,5] b) => (float[3,5] y)",
            {"product": 2 * 3 * 5 * 4},
        ),
        (
            "y = Conv (x, w)",
            CONV.format(i=32, o=64, g=32),
            {"conv": 2 * 64 * 36 * 32 * 9},
        ),
        (
            "y = Conv (x, w)",
            CONV.format(i=3, o=64, g=3),
            {"narrow": 2 * 64 * 36 * 3 * 9},
        ),
        (
            "y = Conv <group = 8> (x, w)",
            CONV.format(i=32, o=32, g=4),
            {"grouped": 2 * 32 * 36 * 4 * 9},
        ),
        (
            "y = Conv <group = 32> (x, w)",
            CONV.format(i=32, o=32, g=1),
            {"depthwise": 2 * 32 * 36 * 9},
        ),
        (
            "y = MaxPool <kernel_shape = [3, 3]> (x)",
            "(float[1,2,8,8] x) => (float[1,2,6,6] y)",
            {"window": 72 * 9},
        ),
        (
            "y = Exp (x)",
            "(float[10] x) => (float[10] y)",
            {"curve": 10, "nbytes": 80},
        ),
        ("y = Neg (x)", "(float16[10] x) => (float16[10] y)", {"nbytes": 40}),
        (
            "y = Gather (x, i)",
            "(float[100] x, int64[7] i) => (float[7] y)",
            {"indexed": 7},
        ),
        ("y = Flatten (x)", "(float[2,5] x) => (float[2,5] y)", {}),
    ],
)
def test_work_is_told_by_shapes(text: str, ends: str, work: dict[str, float]) -> None:
    graph = loaded(text, ends)
    assert work_of(graph, graph.nodes[0]) == Work(**work, nodes=1)


def test_of_unknown_shapes_nothing_is_said() -> None:
    graph = loaded("y = Neg (x)", "(float[N] x) => (float[N] y)")
    assert work_of(graph, graph.nodes[0]) is None
    assert (
        Rates({"nbytes": 1.0, "nodes": 1.0}, 0, 1).estimate(graph, graph.nodes) is None
    )


def test_time_is_work_at_rates() -> None:
    graph = loaded("a = Neg (x)  y = Exp (a)", "(float[10] x) => (float[10] y)")
    graph.types["a"] = graph.types["x"]
    rates = {"nbytes": 80.0, "curve": 5.0, "nodes": 10.0}
    # 80 bytes each, ten curves, two nodes of 0.1 s, and 3 s to enter
    one = Rates(rates, 3.0, 1).estimate(graph, graph.nodes)
    assert one == pytest.approx(3 + 2 * 1 + 2 + 0.2)
    two = Rates(rates, 3.0, 2).estimate(graph, graph.nodes)
    assert two == pytest.approx(3 + (2 * 1 + 2) / 2 + 0.2)
    del rates["curve"]
    assert Rates(rates, 3.0, 1).estimate(graph, graph.nodes) is None
    every = Rates(rates, 0.0, 0).estimate(graph, graph.nodes[:1])
    assert every is not None and every <= 1.1
