"""Optimizers against the pseudo code of the specification."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import pytest

import onnxplug
from onnxplug.ep import DataType, Reason, TensorType
from onnxplug.graph import Graph, Node
from onnxplug.graph.typed import typed
from onnxplug_training.names import DOMAIN
from onnxplug_training.optimizers import KERNELS, types

RANDOM = np.random.default_rng(7)
RATE = np.array(0.1)
SHAPES: list[tuple[int, ...]] = [(3,), (2, 2), ()]


def tensors(count: int) -> list[list[Any]]:
    """For each kind of tensor one of each shape; all positive, as squares are."""
    return [
        [np.array(RANDOM.random(shape), dtype=np.float32) for shape in SHAPES]
        for _ in range(count)
    ]


def check(results: tuple[Any, ...], expected: list[list[Any]]) -> None:
    flat = [array for group in zip(*expected, strict=True) for array in group]
    assert len(results) == len(flat)
    for result, array in zip(results, flat, strict=True):
        assert isinstance(result, np.ndarray)
        assert result.dtype == np.float32
        np.testing.assert_allclose(result, array, rtol=1e-5)


def step(op_type: str, count: int, groups: list[list[Any]], **attributes: Any) -> Any:
    flat = [array for group in groups for array in group]
    found = found_for(op_type, 2 + len(flat), **attributes)
    assert callable(found)
    return found(RATE, np.array(count), *flat)


def found_for(op_type: str, inputs: int, **attributes: Any) -> Any:
    """What computes a node with so many inputs."""
    names = tuple(f"x{position}" for position in range(inputs))
    typed_attributes = {name: typed(value) for name, value in attributes.items()}
    node = Node(op_type, names, ("y",), typed_attributes, domain=DOMAIN)
    graph = Graph("g", inputs=names, outputs=["y"], nodes=[node])
    return KERNELS.function_of(graph, node, np)


@pytest.mark.parametrize("count", [0, 3])
def test_adagrad(count: int) -> None:
    groups = tensors(3)
    expected = []
    for x, g, h in zip(*groups, strict=True):
        r = 0.1 / (1 + count * 0.2)
        g = 0.3 * x + g
        h = h + g * g
        expected.append([x - r * g / (np.sqrt(h) + 0.01), h])
    results = step(
        "Adagrad", count, groups, norm_coefficient=0.3, decay_factor=0.2, epsilon=0.01
    )
    check(results, expected)


@pytest.mark.parametrize("count", [0, 3])
def test_adam(count: int) -> None:
    groups = tensors(4)
    expected = []
    for x, g, v, h in zip(*groups, strict=True):
        g = 0.3 * x + g
        v = 0.8 * v + 0.2 * g
        h = 0.7 * h + 0.3 * g * g
        r = 0.1 * np.sqrt(1 - 0.7**count) / (1 - 0.8**count) if count else 0.1
        x = x - r * v / (np.sqrt(h) + 0.01)
        expected.append([(1 - 0.4) * x, v, h])
    results = step(
        "Adam",
        count,
        groups,
        alpha=0.8,
        beta=0.7,
        norm_coefficient=0.3,
        norm_coefficient_post=0.4,
        epsilon=0.01,
    )
    check(results, expected)


@pytest.mark.parametrize("count", [0, 3])
@pytest.mark.parametrize("mode", ["standard", "nesterov"])
def test_momentum(mode: str, count: int) -> None:
    groups = tensors(3)
    expected = []
    for x, g, v in zip(*groups, strict=True):
        g = 0.3 * x + g
        v = 0.8 * v + (0.7 if count else 1) * g
        expected.append([x - 0.1 * (g + 0.8 * v if mode == "nesterov" else v), v])
    attributes = {"alpha": 0.8, "beta": 0.7, "norm_coefficient": 0.3}
    check(step("Momentum", count, groups, mode=mode, **attributes), expected)


def test_refusals() -> None:
    attributes = {"alpha": 0.8, "beta": 0.7, "norm_coefficient": 0.3}
    with pytest.raises(ValueError, match="'fast'"):
        step("Momentum", 0, tensors(3), mode="fast", **attributes)
    with pytest.raises(ValueError, match=r"4 inputs per tensor.*got 9"):
        step("Adam", 0, tensors(3))


def test_attributes_that_are_unknown_or_missing() -> None:
    found = found_for("Adam", 6, gamma=0.5)
    assert isinstance(found, Reason)
    assert "no attribute 'gamma'" in found.detail
    found = found_for("Momentum", 5, alpha=0.5)
    assert isinstance(found, Reason)
    assert "needs the attribute 'beta', 'mode'" in found.detail


def test_the_types_are_those_of_all_but_the_gradients() -> None:
    x, g, v, h = (TensorType(DataType.FLOAT32, (name,)) for name in "xgvh")
    node = Node("Adam", ("r", "t", "x", "g", "v", "h"), ("a", "b", "c"), domain=DOMAIN)
    graph = Graph("g", inputs=node.inputs, outputs=node.outputs, nodes=[node])
    assert types(graph, node, [None, None, x, g, v, h]) == [x, v, h]


def test_a_session_on_the_cpu_runs_them_on_arrays() -> None:
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 21, "{DOMAIN}" : 1]>
        g (float r, int64 t, float[N] x, float[N] target, float[N] h) => (new, squares)
        {{ d = Sub (x, target)  s = Mul (d, d)
           loss = ReduceSum <keepdims = 0> (s)
           dx = {DOMAIN}.Gradient <xs = ["x"], zs = ["target"], y = "loss"> (x, target)
           new, squares = {DOMAIN}.Adagrad <epsilon = 0.0> (r, t, x, dx, h) }}"""
    )
    session = onnxplug.InferenceSession(model)
    x, target = np.float32([1, 2]), np.float32([0, 4])
    feeds = {"r": np.float32(0.5), "t": np.int64(0), "x": x, "target": target}
    new, squares = session.run(None, {**feeds, "h": np.float32([0, 0])})
    np.testing.assert_allclose(squares, (2 * (x - target)) ** 2)
    np.testing.assert_allclose(new, x - 0.5 * np.sign(x - target), rtol=1e-6)
    (partition,) = session.explain().partitions
    assert partition.tiers["array"] >= 1
    assert "reference" not in partition.tiers
    assert session.get_outputs()[0].shape == ["N"]
