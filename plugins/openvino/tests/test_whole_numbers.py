"""Whole numbers come out whole: OpenVINO computes many operators of them in float32.

Those are refused; what is taken has every digit.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import onnxplug
from onnxplug.ep import RefusalCode
from onnxplug_openvino.capability import load_list
from onnxplug_testing.conformance.cases import load_suite
from onnxplug_testing.measuring.trials import compare, cpu_answer
from onnxplug_testing.measuring.whole_numbers import whole_numbers

EP = "OpenVINOExecutionProvider"
BEYOND = np.array([[2**24 + 1, -(2**24) - 3], [2**24 + 7, 5]], np.int32)
SMALL = np.array([[1, -2], [3, 1]], np.int32)


@pytest.mark.parametrize(
    ("body", "right"),
    [
        ("MatMul (x, z)", lambda x, z: x @ z),
        ("Gemm (x, z)", lambda x, z: x @ z),
        ('Einsum <equation = "ij,jk->ik"> (x, z)', lambda x, z: x @ z),
        ("Div (x, z)", lambda x, z: np.trunc(x / z).astype(np.int32)),
        ("ReduceSum (x)", lambda x, z: x.sum(keepdims=True, dtype=np.int32)),
        ("ReduceL1 (x)", lambda x, z: abs(x).sum(keepdims=True, dtype=np.int32)),
        ("ReduceMax (x)", lambda x, z: x.max(keepdims=True)),
        ("Relu (x)", lambda x, z: np.maximum(x, 0)),
        ("Clip (x, zero)", lambda x, z: np.maximum(x, 0)),
    ],
)
@pytest.mark.filterwarnings("ignore:OpenVINOExecutionProvider")
def test_int32_beyond_float32_is_left_to_the_next_ep(
    parse: Callable[..., Any], body: str, right: Callable[..., Any]
) -> None:
    operator = body.split()[0]
    model = parse(
        f"y = {body}", "int32[2, 2] x, int32[2, 2] z", "int32[a, b] y",
        weights="int32 zero = {0}",
    )  # fmt: skip
    session = onnxplug.InferenceSession(model, providers=[EP, "cpu"])
    found = session.run(None, {"x": BEYOND, "z": SMALL})[0]
    np.testing.assert_array_equal(found, right(BEYOND, SMALL))
    ((node, refusal),) = session.explain().refusals
    assert (node.op_type, refusal.ep) == (operator, EP)
    assert refusal.reason.code in (RefusalCode.DTYPE, RefusalCode.ATTRIBUTE)
    assert refusal.reason.detail


@pytest.mark.filterwarnings("ignore:OpenVINOExecutionProvider")
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_comparing_looks_at_the_last_digit(parse: Callable[..., Any], dtype) -> None:
    inputs = f"{dtype}[2, 2] x, {dtype}[2, 2] z"
    model = parse("y = Equal (x, z)", inputs, "bool[2, 2] y")
    session = onnxplug.InferenceSession(model, providers=[EP, "cpu"])
    feeds = {"x": BEYOND.astype(dtype), "z": BEYOND.astype(dtype) - 1}
    assert not session.run(None, feeds)[0].any()


@pytest.mark.parametrize(
    ("body", "right"),
    [
        ("Add (x, z)", lambda x, z: x + z),
        ("Neg (x)", lambda x, z: -x),
        ("Transpose (x)", lambda x, z: x.T),
        ("Concat <axis = 0> (x, z)", lambda x, z: np.concatenate([x, z])),
        ("Gather (x, first)", lambda x, z: x[[1]]),
    ],
)
def test_what_moves_and_adds_int32_is_taken_and_exact(
    parse: Callable[..., Any],
    alone: Callable[..., Any],
    body: str,
    right: Callable[..., Any],
) -> None:
    model = parse(
        f"y = {body}", "int32[2, 2] x, int32[2, 2] z", "int32[a, b] y",
        weights="int64[1] first = {1}",
    )  # fmt: skip
    found = alone(model).run(None, {"x": BEYOND, "z": SMALL})[0]
    np.testing.assert_array_equal(found, right(BEYOND, SMALL))


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore:OpenVINOExecutionProvider")
@pytest.mark.parametrize("operator", sorted(load_list().operators))
def test_whole_numbers_of_whatever_is_taken(operator: str) -> None:
    """What was measured, with the EP in its place before the CPU EP."""
    for position, case in enumerate(load_suite().get(operator, [])[:2]):
        for tried in whole_numbers(case, position):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    right = cpu_answer(tried)
                except Exception:  # noqa: BLE001 (nothing that ONNX allows)
                    continue
                model = tried.model()
                with onnxplug.InferenceSession(model, providers=[EP, "cpu"]) as session:
                    found = session.run(None, tried.feeds())
            assert compare(right, found, tried) == {"result": "right"}, tried
