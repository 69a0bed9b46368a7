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
    <ir_version: 10, opset_import: ["": 21]>
    network (float[n, 3] x) => (float[n, 2] y)
    <float[3, 2] weight = {1, -2, 3, -4, 5, -6}, float[2] bias = {0.5, -0.5}> {
        product = MatMul (x, weight)
        sum = Add (product, bias)
        positive = Relu (sum)
        difference = Sub (positive, bias)
        y = Mul (difference, sum)
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


def test_values_go_to_the_host_and_back(run: Run) -> None:
    text = """
        <ir_version: 10, opset_import: ["": 21]>
        both (float[n] x) => (float[n] y, float z) {
            square = Mul (x, x)
            root = Sqrt (square)
            y = Sub (root, x)
            one = Constant <value_float = 2e30> ()
            z = Mul (one, one)
        }
    """
    outcome = run(text, {"x": np.array([-3, 4, np.inf], np.float32)})
    assert set(outcome.refused) <= {"Sqrt", "Constant"}
    assert outcome.partitions >= 2
    for result, wanted in zip(outcome.results, outcome.expected, strict=True):
        np.testing.assert_array_equal(result, wanted)


@pytest.mark.parametrize(
    ("opset", "type_", "node", "code", "detail"),
    [
        (21, "float", "Sqrt (x)", RefusalCode.OP, "Sqrt; takes Add, "),
        (21, "float", "MatMul (x, square)", RefusalCode.RANK, "'x' is of rank 1; "),
        (6, "float", "Add (x, x)", RefusalCode.OPSET, "version 6; takes 7, "),
        (21, "double", "Relu (x)", RefusalCode.DTYPE, "'x' is float64; takes "),
    ],
)
def test_what_it_does_not_take(
    run: Run, opset: int, type_: str, node: str, code: RefusalCode, detail: str
) -> None:
    text = f"""
        <ir_version: 8, opset_import: ["": {opset}]>
        refused ({type_}[2] x) => ({type_}[2] y)
        <{type_}[2, 2] square = {{1, 2, 3, 4}}> {{ y = {node} }}
    """
    x = np.ones(2, {"float": np.float32, "double": np.float64}[type_])
    with pytest.warns(EpWarning, match="runs no node of the model"):
        outcome = run(text, {"x": x})
    (reason,) = outcome.refused.values()
    assert reason.code is code
    assert reason.detail.startswith(detail)
    np.testing.assert_array_equal(outcome.results[0], outcome.expected[0])
