"""What the EP computes is what the CPU EP does; what it does not take, it says why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pytest

from onnxplug.ep import RefusalCode
from onnxplug.errors import EpWarning

Run: TypeAlias = Callable[..., Any]
"""As the fixture is described."""

NETWORK = """
    <ir_version: 8, opset_import: ["": 17]>
    network (float[n, 3] x) => (float[n, 2] y, float[n, 1] largest)
    <float[3, 2] weight = {1, -2, 3, -4, 5, -6}, float[2] bias = {0.5, -0.5}> {
        product = MatMul (x, weight)
        sum = Add (product, bias)
        positive = Relu (sum)
        bent = Tanh (sum)
        difference = Sub (positive, bent)
        y = Mul (difference, difference)
        largest = ReduceMax <axes: ints = [1]> (y)
    }
"""


@pytest.mark.parametrize("rows", [0, 1, 5])
def test_a_network_is_wholly_on_it(run: Run, rows: int) -> None:
    x = np.random.default_rng(rows).normal(size=(rows, 3)).astype(np.float32)
    outcome = run(NETWORK, {"x": x})
    assert not outcome.refused
    assert outcome.partitions == 1
    for result, wanted in zip(outcome.results, outcome.expected, strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-6)


def test_names_of_values_are_no_names_of_python(run: Run) -> None:
    text = """
        <ir_version: 8, opset_import: ["": 17]>
        names (float[2] v1, float[2] np) => (float[2] v0, float[2] class) {
            v0 = Add (v1, np)
            class = Mul (v0, np)
        }
    """
    feed = {"v1": np.ones(2, np.float32), "np": np.full(2, 3, np.float32)}
    outcome = run(text, feed)
    assert not outcome.refused
    np.testing.assert_array_equal(outcome.results[0], [4, 4])
    np.testing.assert_array_equal(outcome.results[1], [12, 12])


def test_numbers_without_axes_and_infinite_ones(run: Run) -> None:
    text = """
        <ir_version: 8, opset_import: ["": 17]>
        numbers (float x, float[3] y) => (float z, float[3] w, float most) {
            z = Mul (x, x)
            difference = Sub (y, y)
            w = Relu (difference)
            most = ReduceMax <keepdims: int = 0> (y)
        }
    """
    y = np.array([np.inf, -np.inf, 1], np.float32)
    outcome = run(text, {"x": np.array(2e30, np.float32), "y": y})
    assert not outcome.refused
    for result, wanted in zip(outcome.results, outcome.expected, strict=True):
        np.testing.assert_array_equal(result, wanted)


@pytest.mark.parametrize(
    ("opset", "type_", "node", "code", "detail"),
    [
        (17, "float", "y = Sqrt (x)", RefusalCode.OP, "Sqrt; takes Add, "),
        (20, "float", "y = ReduceMax (x)", RefusalCode.OPSET, "version 20; takes 1, "),
        (17, "double", "y = Relu (x)", RefusalCode.DTYPE, "'x' is float64; takes "),
    ],
)
def test_what_it_does_not_take(
    run: Run, opset: int, type_: str, node: str, code: RefusalCode, detail: str
) -> None:
    text = f"""
        <ir_version: 8, opset_import: ["": {opset}]>
        refused ({type_}[2, 3] x) => ({type_}[n, m] y) {{ {node} }}
    """
    x = np.ones((2, 3), {"float": np.float32, "double": np.float64}[type_])
    with pytest.warns(EpWarning, match="runs no node of the model"):
        outcome = run(text, {"x": x})
    (reason,) = outcome.refused.values()
    assert reason.code is code
    assert reason.detail.startswith(detail)
    np.testing.assert_array_equal(outcome.results[0], outcome.expected[0])
