"""Operators that models seldom have, compiled, against their definitions."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import onnxplug
from onnxplug_cpu.compiler.kernels.attention import linear
from onnxplug_testing.random_samples import SAMPLES

RNG = np.random.default_rng(3)
OTHERS = {
    "AffineGrid": [np.float64, np.float16, ml_dtypes.bfloat16],
    "CenterCropPad": [np.int8, np.bool_, np.float64, np.int64],
    "MeanVarianceNormalization": [np.float64],
}
"""Elements that are compiled beside float32."""


@pytest.mark.parametrize("operator", SAMPLES)
def test_operators_are_compiled(operator: str) -> None:
    seeds = [(np.float32, seed) for seed in range(5)]
    seeds += [(dtype, 1) for dtype in OTHERS.get(operator, ())]
    for dtype, seed in seeds:
        sample = SAMPLES[operator](np.random.default_rng(seed), np.dtype(dtype))
        session = onnxplug.InferenceSession(sample.model)
        (node,) = session.explain().nodes
        assert (node.tier, node.note) == ("compiled", ""), (dtype, seed)
        assert sample.error(session.run(None, sample.feeds)) < 16, (dtype, seed)


def floats(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.standard_normal(shape).astype(np.float32)


CHANGING: dict[str, tuple[str, str, str, Any]] = {
    "causal convolution": (
        "float[b, c, t] x, float[c, 1, k] w, float[b, c, m] p",
        "float[b, c, t] y, float[b, c, m] s",
        "y, s = CausalConvWithState (x, w, , p)",
        lambda n: {"x": floats(2, 9, n), "w": floats(9, 1, 4), "p": floats(2, 9, 3)},
    ),
    "a causal convolution from zeros on": (
        "float[b, c, t] x, float[c, 1, k] w",
        "float[b, c, t] y, float[b, c, m] s",
        'y, s = CausalConvWithState <activation = "silu"> (x, w)',
        lambda n: {"x": floats(2, 9, n), "w": floats(9, 1, 4)},
    ),
    "linear attention": (
        "float[b, t, c] q, float[b, t, d] k, float[b, t, e] v, float[b, t, f] g, "
        "float[b, t, r] z",
        "float[b, t, o] y, float[b, h, i, j] s",
        "y, s = LinearAttention <q_num_heads = 4, kv_num_heads = 2> (q, k, v, , g, z)",
        lambda n: {
            "q": floats(2, n, 32),
            "k": floats(2, n, 16) / 4,
            "v": floats(2, n, 40),
            "g": -np.abs(floats(2, n, 16)),
            "z": RNG.random((2, n, 1)).astype(np.float32),
        },
    ),
    "a middle": (
        "float[b, h, w] x",
        "float[b, i, j] y",
        "s = Constant <value_ints = [7, 5]> () "
        "y = CenterCropPad <axes = [1, 2]> (x, s)",
        lambda n: {"x": floats(2, n, n + 1)},
    ),
    "a grid": (
        "float[n, 2, 3] t, float[n, c, h, w] x",
        "float[n, h, w, 2] y",
        "s = Shape (x) y = AffineGrid (t, s)",
        lambda n: {"t": floats(2, 2, 3), "x": floats(2, 1, n + 1, n + 3)},
    ),
}


@pytest.mark.parametrize("name", CHANGING)
def test_sizes_that_change(name: str) -> None:
    """So often that plans are traced."""
    inputs, outputs, body, make = CHANGING[name]
    session = parsed(body, inputs, outputs, 27)
    definition = ReferenceEvaluator(model_of(body, inputs, outputs, 27))
    for n in (1, 2, 3, 5, 8, 13, 40, 0, 6):
        feeds = make(n)
        found, wanted = session.run(None, feeds), definition.run(None, feeds)
        for array, expected in zip(found, wanted, strict=True):
            np.testing.assert_allclose(array, expected, rtol=1e-4, atol=1e-5)
    assert {node.tier for node in session.explain().nodes} == {"compiled"}


def test_linear_attention_in_parts_of_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As where all times would take too long, and by several threads."""
    monkeypatch.setattr(linear, "fewest_chunks", lambda seconds: 3)
    options = onnxplug.SessionOptions()
    options.intra_op_num_threads = 2
    for seed in range(20, 26):
        sample = SAMPLES["LinearAttention"](np.random.default_rng(seed), np.float32)
        session = onnxplug.InferenceSession(sample.model, options)
        assert sample.error(session.run(None, sample.feeds)) < 16, seed
        assert {node.tier for node in session.explain().nodes} == {"compiled"}


def test_linear_attention_of_columns_that_are_apart() -> None:
    """Where what it reads and writes is transposed around it."""
    shape = (2, 5, 3 * 24)
    q, k, v = (RNG.standard_normal(shape).astype(np.float32) for _ in range(3))
    session = parsed(
        "q = Transpose <perm = [0, 2, 1]> (a)\n k = Transpose <perm = [0, 2, 1]> (b)\n"
        "v = Transpose <perm = [0, 2, 1]> (c)\n"
        'o, s = LinearAttention <update_rule = "linear", q_num_heads = 3, '
        "kv_num_heads = 3> (q, k, v)\n y = Transpose <perm = [0, 2, 1]> (o)",
        "float[2, 72, 5] a, float[2, 72, 5] b, float[2, 72, 5] c",
        "float[2, 72, 5] y, float[2, 3, 24, 24] s",
        27,
    )
    feeds = {
        name: np.ascontiguousarray(each.swapaxes(1, 2))
        for name, each in zip("abc", (q, k, v), strict=True)
    }
    y, s = session.run(None, feeds)
    heads = [each.reshape(2, 5, 3, 24).astype(np.float64) for each in (q, k, v)]
    scores = np.einsum("bthd,bshd->bhts", *heads[:2]) / 24**0.5
    wanted = np.einsum("bhts,bshd->bthd", np.tril(scores), heads[2])
    np.testing.assert_allclose(y.swapaxes(1, 2).reshape(2, 5, 3, 24), wanted, atol=1e-4)
    np.testing.assert_allclose(s, np.einsum("bshd,bshe->bhde", *heads[1:]), atol=1e-4)
    assert {node.tier for node in session.explain().nodes} == {"compiled"}


@pytest.mark.parametrize(
    ("attributes", "width", "message"),
    [
        ("q_num_heads = 2, kv_num_heads = 2", 5, "multiple"),
        ("q_num_heads = 2, kv_num_heads = 4", 4, "multiple"),
        ("q_num_heads = 2, kv_num_heads = 0", 4, "head"),
        ("q_num_heads = 1, kv_num_heads = 1", 4, "decay"),
    ],
)
def test_linear_attention_that_is_none_is_an_error(
    attributes: str, width: int, message: str
) -> None:
    rule = "" if message == "decay" else ', update_rule = "linear"'
    with pytest.raises(onnxplug.errors.OnnxplugError, match=message):
        session = parsed(
            f"y, s = LinearAttention <{attributes}{rule}> (x, x, x)",
            "float[a, b, c] x",
            "float[d, e, f] y, float[g, h, i, j] s",
            27,
        )
        session.run(None, {"x": np.ones((2, 3, width), np.float32)})


def model_of(body: str, inputs: str, outputs: str, opset: int = 21) -> onnx.ModelProto:
    return onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": {opset}]> g ({inputs}) => ({outputs}) '
        f"{{ {body} }}"
    )


def parsed(
    body: str, inputs: str, outputs: str, opset: int = 21
) -> onnxplug.InferenceSession:
    return onnxplug.InferenceSession(model_of(body, inputs, outputs, opset))


@pytest.mark.parametrize(
    ("size", "periodic"), [(1, 0), (1, 1), (12, 0), (12, 1), ((1 << 20) + 5, 0)]
)
def test_windows_of_sizes_that_follow(size: int, periodic: int) -> None:
    """Also of more numbers than are known when planning."""
    session = parsed(
        "s = Size (x)\n"
        f"a = HannWindow <periodic = {periodic}> (s)\n"
        f"b = HammingWindow <periodic = {periodic}> (s)\n"
        f"c = BlackmanWindow <periodic = {periodic}> (s)\n"
        "y = Mul (x, a)\n z = Mul (x, b)\n w = Mul (x, c)",
        "float[n] x",
        "float[n] y, float[n] z, float[n] w",
    )
    x = RNG.standard_normal(size).astype(np.float32)
    found = session.run(None, {"x": x})
    angles = np.arange(size) * 2 * np.pi / max(1, size if periodic else size - 1)
    for array, (a, b, c) in zip(
        found,
        [(0.5, 0.5, 0), (25 / 46, 21 / 46, 0), (0.42, 0.5, 0.08)],
        strict=True,
    ):
        window = a - b * np.cos(angles) + c * np.cos(2 * angles)
        if size == 1 and not periodic:
            window = np.ones(1)
        np.testing.assert_allclose(array, x * window, rtol=1e-6, atol=1e-6)
    assert {node.tier for node in session.explain().nodes} == {"compiled"}


@pytest.mark.exhaustive
def test_a_window_of_more_numbers_than_are_planned_for() -> None:
    session = parsed("s = Size (x)\n y = HannWindow (s)", "bool[n, m] x", "float[k] y")
    (y,) = session.run(None, {"x": np.zeros((1 << 13, (1 << 12) + 1), np.bool_)})
    assert y.shape == ((1 << 25) + (1 << 13),)
    np.testing.assert_allclose(y[:: 1 << 20][:3], 0, atol=0.1)
    assert abs(y[y.size // 2] - 1) < 1e-6


@pytest.mark.parametrize(
    ("operator", "feeds", "message"),
    [
        ("y = CenterCropPad <axes = [0, 0]> (x, s)", {}, "twice"),
        ("y = CenterCropPad <axes = [0]> (x, s)", {}, "shape"),
        ("y = MeanVarianceNormalization (x)", {}, "axes"),
    ],
)
def test_what_is_none_is_an_error(operator: str, feeds: Any, message: str) -> None:
    with pytest.raises(onnxplug.errors.OnnxplugError, match=message):
        session = parsed(operator, "float[a, b] x, int64[2] s", "float[c, d] y")
        given = {"x": np.ones((2, 3), np.float32), "s": np.array([1, 2])}
        session.run(None, given | feeds)
