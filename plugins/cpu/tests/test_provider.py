"""The CPU EP: tiers, refusals, threads."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import onnx
import pytest
import threadpoolctl

import onnxplug
from onnxplug.errors import UnassignedNode
from onnxplug_cpu import capability


def parse(body: str, inputs: str = "float[2, 2] x") -> onnx.ModelProto:
    return onnx.parser.parse_model(
        f"""
        < ir_version: 10, opset_import: ["" : 21] >
        agraph ({inputs}) => (float[2, 2] y) {{ {body} }}
        """
    )


ON_ARRAYS = [("CPUExecutionProvider", {"compile": False})]

X = np.array([[1, -2], [3, -4]], np.float32)


def test_nodes_are_compiled() -> None:
    session = onnxplug.InferenceSession(parse("y = Relu (x)"))
    assert session.explain().partitions[0].tiers == {"compiled": 1}


def test_the_array_tier_runs_what_has_no_compiled_kernel() -> None:
    body = "a = Relu (x) b = Det (a) y = Add (b, x)"
    session = onnxplug.InferenceSession(parse(body))
    assert session.explain().partitions[0].tiers == {"compiled": 2, "array": 1}
    (y,) = session.run(None, {"x": X})
    np.testing.assert_allclose(y, X + np.linalg.det(np.maximum(X, 0)), rtol=1e-6)


def test_an_option_turns_compiling_off() -> None:
    session = onnxplug.InferenceSession(parse("y = Relu (x)"), providers=ON_ARRAYS)
    assert session.explain().partitions[0].tiers == {"array": 1}


def test_the_reference_tier_runs_the_rest_and_says_so() -> None:
    with mock.patch.object(capability, "find_kernel", lambda *_: None):
        session = onnxplug.InferenceSession(
            parse("y = Transpose <perm = [1, 0]> (x)"), providers=ON_ARRAYS
        )
    assert session.explain().partitions[0].tiers == {"reference": 1}
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], X.T)


def test_a_function_without_a_kernel_is_expanded_rather_than_referred() -> None:
    def without_gelu(domain: str, op_type: str, version: int) -> Any:
        return None if op_type == "Gelu" else find(domain, op_type, version)

    find = capability.find_kernel
    with mock.patch.object(capability, "find_kernel", without_gelu):
        explanation = onnxplug.InferenceSession(
            parse("y = Gelu (x)"), providers=ON_ARRAYS
        ).explain()
    assert [expanded.node for expanded in explanation.expanded] == ["Gelu giving 'y'"]
    assert set(explanation.partitions[0].tiers) == {"array"}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("y = Concat (x, x)", "lacks the attribute 'axis'"),
        ("y = Relu (x, x)", "has 2 inputs; the function 'Relu' has 1"),
        ("y = Relu <steepness = 2> (x)", "has no attribute 'steepness'"),
        ("y = NoSuchOperator (x)", "21 has no operator NoSuchOperator"),
    ],
)
def test_nodes_that_cannot_run_are_refused_before_they_do(
    body: str, reason: str
) -> None:
    with pytest.raises((UnassignedNode, onnxplug.errors.InvalidModel), match=reason):
        onnxplug.InferenceSession(parse(body))


def test_nothing_warns_of_ordinary_results() -> None:
    session = onnxplug.InferenceSession(parse("y = Log (x)"), providers=ON_ARRAYS)
    with np.errstate(all="raise"):
        (y,) = session.run(None, {"x": X})
    assert np.isnan(y[0, 1])


def test_threads_are_limited_while_a_session_runs() -> None:
    seen: list[int] = []

    def threads(*_: Any) -> np.ndarray[Any, Any]:
        # other tests load libraries with thread pools of their own
        seen.extend(
            pool["num_threads"]
            for pool in threadpoolctl.threadpool_info()
            if pool["user_api"] == "blas" and "numpy" in pool["filepath"]
        )
        return X

    options = onnxplug.SessionOptions()
    options.intra_op_num_threads = 1
    found = capability.Found(capability.Tier.ARRAY, threads)
    with (
        mock.patch.object(capability, "find", lambda *_: found),
        mock.patch("onnxplug_cpu.provider.find", lambda *_, **__: found),
    ):
        session = onnxplug.InferenceSession(
            parse("y = MatMul (x, x)"), options, providers=ON_ARRAYS
        )
    session.run(None, {"x": X})
    assert set(seen) == {1}


ROTATED = "y = RotaryEmbedding (x, cosines, sines)"
ANGLES = "T[1, 2, 3, 4] x, T[1, 3, 2] cosines, T[1, 3, 2] sines"


def rotary(dtype: str) -> onnx.ModelProto:
    inputs = ANGLES.replace("T", dtype)
    return onnx.parser.parse_model(
        f"""
        < ir_version: 11, opset_import: ["" : 23] >
        agraph ({inputs}) => ({dtype}[1, 2, 3, 4] y) {{ {ROTATED} }}
        """
    )


@pytest.mark.parametrize("providers", [None, ON_ARRAYS])
@pytest.mark.parametrize("dtype", ["float", "float16"])
def test_rotary_positions_are_compiled_as_their_body(
    dtype: str, providers: Any
) -> None:
    session = onnxplug.InferenceSession(rotary(dtype), providers=providers)
    tiers = session.explain().partitions[0].tiers
    expanded = [each.node for each in session.explain().expanded]
    if providers is None:
        assert tiers.keys() == {"compiled"}
        assert expanded
    else:
        assert tiers == {"array": 1}
        assert not expanded
    random = np.random.default_rng(5)
    kind = np.float32 if dtype == "float" else np.float16
    x = random.standard_normal((1, 2, 3, 4)).astype(kind)
    angles = random.standard_normal((1, 3, 2))
    cosines, sines = np.cos(angles).astype(kind), np.sin(angles).astype(kind)
    (y,) = session.run(None, {"x": x, "cosines": cosines, "sines": sines})
    z = (x[..., :2] + 1j * x[..., 2:]) * (cosines + 1j * sines)[:, None]
    expected = np.concatenate([z.real, z.imag], axis=-1)
    np.testing.assert_allclose(y, expected, atol=1e-6 if dtype == "float" else 2e-3)
