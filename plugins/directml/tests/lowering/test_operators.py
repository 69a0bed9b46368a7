"""Numbers that the ONNX backend suite does not ask for, through the whole EP."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import numpy as np
import onnx
import pytest

Array: TypeAlias = np.ndarray[Any, Any]
Case: TypeAlias = tuple[str, str, str, Callable[..., Any]]

RNG: Final = np.random.default_rng(7)


def _erf(x: Array) -> Array:
    return np.vectorize(math.erf, otypes=[np.float64])(x)


def _gelu(x: Array) -> Array:
    return x * 0.5 * (1 + _erf(x / math.sqrt(2)))


def _fast_gelu(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _layer(x: Array, scale: Array, bias: Array | float, epsilon: float) -> Array:
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + epsilon) * scale + bias


def _rms(x: Array, scale: Array, epsilon: float) -> Array:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + epsilon) * scale


def _lrn(x: Array, size: int, alpha: float, beta: float, bias: float) -> Array:
    """Over channels from ⌊(size − 1) / 2⌋ before to ⌈(size − 1) / 2⌉ after."""
    before, total = (size - 1) // 2, np.zeros_like(x)
    for c in range(x.shape[1]):
        low, high = max(0, c - before), min(x.shape[1], c - before + size)
        total[:, c] = (x[:, low:high] ** 2).sum(1)
    return x / (bias + alpha / size * total) ** beta


def _group_norm(x: Array, scale: Array, bias: Array, groups: int) -> Array:
    """Channels last."""
    n, *_, c = x.shape
    rows = x.reshape(n, -1, groups, c // groups)
    mean = rows.mean((1, 3), keepdims=True)
    deviation = np.sqrt(rows.var((1, 3), keepdims=True) + 1e-5)
    made = ((rows - mean) / deviation).reshape(x.shape) * scale + bias
    return made * _sigmoid(made)


def _average(x: Array, window: int, stride: int, pads: tuple[int, int]) -> Array:
    """In one dimension, with the padding counted, and as many windows as begin within
    it."""
    start, end = pads
    length = x.shape[-1] + start + end
    padded = np.pad(x, [(0, 0), (0, 0), (start, end)])
    count = -(-(length - window) // stride) + 1
    pieces = [padded[..., i * stride : i * stride + window] for i in range(count)]
    return np.stack([piece.mean(-1) for piece in pieces], -1)


A: Final = "com.microsoft."
CASES: Final[dict[str, Case]] = {
    # products: batches that are repeated, and in more dimensions than DirectML takes
    "one matrix for all": (
        "y = MatMul (a, b)", "float[2, 3, 2, 4, 5] a, float[5, 6] b",
        "float[2, 3, 2, 4, 6] y", np.matmul,
    ),
    "one matrix, rank 3": (
        "y = MatMul (a, b)", "float[2, 4, 5] a, float[1, 5, 6] b", "float[2, 4, 6] y",
        np.matmul,
    ),
    "matrices for each batch": (
        "y = MatMul (a, b)", "float[2, 3, 2, 4, 5] a, float[2, 3, 2, 5, 6] b",
        "float[2, 3, 2, 4, 6] y", np.matmul,
    ),
    "repeated in between": (
        "y = MatMul (a, b)", "float[2, 1, 2, 4, 5] a, float[3, 1, 5, 6] b",
        "float[2, 3, 2, 4, 6] y", np.matmul,
    ),
    "vector by matrices": (
        "y = MatMul (a, b)", "float[5] a, float[3, 5, 6] b", "float[3, 6] y", np.matmul,
    ),
    "matrices by vector": (
        "y = MatMul (a, b)", "float[3, 4, 5] a, float[5] b", "float[3, 4] y", np.matmul,
    ),
    "turned": (
        f"y = {A}FusedMatMul <transA = 1, transB = 1, alpha = 0.5> (a, b)",
        "float[2, 5, 4] a, float[2, 6, 5] b", "float[2, 4, 6] y",
        lambda a, b: 0.5 * np.matmul(a.swapaxes(1, 2), b.swapaxes(1, 2)),
    ),
    "sum after a product": (
        "p = MatMul (a, b)\n s = Add (p, c)\n y = LeakyRelu <alpha = 0.25> (s)",
        "float[2, 4, 5] a, float[5, 6] b, float[6] c", "float[2, 4, 6] y",
        lambda a, b, c: np.where((a @ b + c) > 0, a @ b + c, 0.25 * (a @ b + c)),
    ),
    "fused gemm": (
        f'y = {A}FusedGemm <activation = "LeakyRelu", activation_alpha = 0.5, '
        "transB = 1, beta = 2.0> (a, b, c)",
        "float[4, 5] a, float[6, 5] b, float[4, 1] c", "float[4, 6] y",
        lambda a, b, c: np.where(a @ b.T + 2 * c > 0, 1, 0.5) * (a @ b.T + 2 * c),
    ),
    "contraction of several": (
        'y = Einsum <equation = "bihd,bjhd->bhij"> (a, b)',
        "float[2, 3, 4, 5] a, float[2, 6, 4, 5] b", "float[2, 4, 3, 6] y",
        lambda a, b: np.einsum("bihd,bjhd->bhij", a, b),
    ),
    "contraction with sums": (
        'y = Einsum <equation = "abc, cd -> db"> (a, b)',
        "float[2, 3, 4] a, float[4, 5] b", "float[5, 3] y",
        lambda a, b: np.einsum("abc,cd->db", a, b),
    ),
    "outer product": (
        'y = Einsum <equation = "a,b->ba"> (a, b)', "float[3] a, float[4] b",
        "float[4, 3] y", lambda a, b: np.einsum("a,b->ba", a, b),
    ),
    "diagonal of none": (
        'y = Einsum <equation = "abc->ca"> (a)', "float[2, 3, 4] a", "float[4, 2] y",
        lambda a: np.einsum("abc->ca", a),
    ),
    # windows
    "padding counts in windows beyond it": (
        "y = AveragePool <kernel_shape = [3], strides = [2], pads = [1, 1], "
        "ceil_mode = 1, count_include_pad = 1> (x)",
        "float[1, 2, 6] x", "float[1, 2, 4] y",
        lambda x: _average(x, 3, 2, (1, 1)),
    ),
    "fused convolution": (
        f'y = {A}FusedConv <activation = "HardSigmoid", '
        "activation_params = [0.2, 0.3], group = 2> (x, w, b, z)",
        "float[1, 4, 1, 1] x, float[6, 2, 1, 1] w, float[6] b, float[1, 6, 1, 1] z",
        "float[1, 6, 1, 1] y",
        lambda x, w, b, z: np.clip(
            0.2 * (np.concatenate([
                w[:3, :, 0, 0] @ x[0, :2, 0, 0], w[3:, :, 0, 0] @ x[0, 2:, 0, 0]
            ]) + b + z.reshape(6)) + 0.3, 0, 1,
        ).reshape(1, 6, 1, 1),
    ),
    "odd order": (
        "y = LpPool <kernel_shape = [2, 2], p = 3> (x)", "float[1, 2, 2, 2] x",
        "float[1, 2, 1, 1] y",
        lambda x: (np.abs(x) ** 3).sum((2, 3), keepdims=True) ** (1 / 3),
    ),
    "high order": (
        "y = GlobalLpPool <p = 4> (x)", "float[1, 2, 3, 2] x", "float[1, 2, 1, 1] y",
        lambda x: (x**4).sum((2, 3), keepdims=True) ** 0.25,
    ),
    # norms
    "even size": (
        "y = LRN <size = 4, alpha = 0.5, beta = 0.6, bias = 1.5> (x)",
        "float[2, 7, 3] x", "float[2, 7, 3] y",
        lambda x: _lrn(x, 4, 0.5, 0.6, 1.5),
    ),
    "norm of nothing": (
        "z = Sub (x, x)\n y = LpNormalization <axis = 1> (z)", "float[2, 3] x",
        "float[2, 3] y", np.zeros_like,
    ),
    "skipped layer": (
        f"y, , , s = {A}SkipLayerNormalization <epsilon = 0.01> (x, k, g, b, c)",
        "float[2, 3, 4] x, float[2, 3, 4] k, float[4] g, float[4] b, float[4] c",
        "float[2, 3, 4] y, float[2, 3, 4] s",
        lambda x, k, g, b, c: (_layer(x + k + c, g, b, 0.01), x + k + c),
    ),
    "skipped layer without bias": (
        f"y = {A}SkipLayerNormalization <epsilon = 0.01> (x, k, g)",
        "float[2, 3, 4] x, float[3, 4] k, float[4] g", "float[2, 3, 4] y",
        lambda x, k, g: _layer(x + k, g, 0, 0.01),
    ),
    "skipped layer, by root mean square": (
        f"y, , , s = {A}SkipSimplifiedLayerNormalization <epsilon = 0.01> (x, k, g, c)",
        "float[2, 3, 4] x, float[2, 3, 4] k, float[4] g, float[4] c",
        "float[2, 3, 4] y, float[2, 3, 4] s",
        lambda x, k, g, c: (_rms(x + k + c, g, 0.01), x + k + c),
    ),
    "groups of channels that are last": (
        f"y = {A}GroupNorm <groups = 2, activation = 1> (x, g, b)",
        "float[2, 3, 2, 4] x, float[4] g, float[4] b", "float[2, 3, 2, 4] y",
        lambda x, g, b: _group_norm(x, g, b, 2),
    ),
    # activations
    "gelu": (f"y = {A}Gelu (x)", "float[3, 5] x", "float[3, 5] y", _gelu),
    "biased gelu": (
        f"y = {A}BiasGelu (x, b)", "float[3, 5] x, float[5] b", "float[3, 5] y",
        lambda x, b: _gelu(x + b),
    ),
    "fast gelu": (
        f"y = {A}FastGelu (x, b)", "float[3, 5] x, float[5] b", "float[3, 5] y",
        lambda x, b: _fast_gelu(x + b),
    ),
    "quick gelu": (
        f"y = {A}QuickGelu <alpha = 1.5> (x)", "float[3, 5] x", "float[3, 5] y",
        lambda x: x * _sigmoid(1.5 * x),
    ),
    # reductions, of numbers whose powers no float32 has
    "large exponents": (
        "h = Mul (x, c)\n y = ReduceLogSumExp <axes = [1], keepdims = 0> (h)",
        "float[3, 5] x", "float[3] y",
        lambda x: np.log(np.exp(100 * x).sum(1)),
    ),
    # more dimensions than most take
    "seven dimensions": (
        "s = Add (x, c)\n y = ReduceSum <axes = [1, 4], keepdims = 0> (s)",
        "float[2, 1, 3, 2, 2, 1, 2] x", "float[2, 3, 2, 1, 2] y",
        lambda x: (x + 100).sum((1, 4)),
    ),
}  # fmt: skip


def _softmax(x: Array, axes: tuple[int, ...]) -> Array:
    powers = np.exp(x - x.max(axes, keepdims=True))
    return powers / powers.sum(axes, keepdims=True)


OLD: Final[dict[str, tuple[int, Case]]] = {
    "sum along an axis": (
        6,
        (
            "y = Add <broadcast = 1, axis = 1> (a, b)", "float[2, 3, 4] a, float[3] b",
            "float[2, 3, 4] y", lambda a, b: a + b[:, None],
        ),
    ),
    "comparison along the last axes": (
        6,
        (
            "g = Greater <broadcast = 1> (a, b)\n y = Cast <to = 1> (g)",
            "float[2, 3, 4] a, float[3, 4] b", "float[2, 3, 4] y",
            lambda a, b: (a > b) * 1.0,
        ),
    ),
    "row added to a product": (
        6,
        (
            "y = Gemm <broadcast = 1, alpha = 0.5> (a, b, c)",
            "float[2, 3] a, float[3, 4] b, float[4] c", "float[2, 4] y",
            lambda a, b, c: 0.5 * a @ b + c,
        ),
    ),
    "slope of each channel": (
        6,
        (
            "y = PRelu (x, s)", "float[2, 3, 4] x, float[3] s", "float[2, 3, 4] y",
            lambda x, s: np.where(x < 0, s[:, None] * x, x),
        ),
    ),
    "limits as attributes": (
        6,
        (
            "y = Clip <min = -0.5, max = 0.25> (x)", "float[3, 5] x", "float[3, 5] y",
            lambda x: np.clip(x, -0.5, 0.25),
        ),
    ),
    "upper limit only": (
        10,
        (
            "y = Clip <max = 0.25> (x)", "float[3, 5] x", "float[3, 5] y",
            lambda x: np.minimum(x, 0.25),
        ),
    ),
    "softmax over several axes": (
        11,
        (
            "y = Softmax (x)", "float[2, 3, 4] x", "float[2, 3, 4] y",
            lambda x: _softmax(x, (1, 2)),
        ),
    ),
    "hardmax over several axes": (
        11,
        (
            "y = Hardmax <axis = 0> (x)", "float[2, 3] x", "float[2, 3] y",
            lambda x: (x == x.max()) * 1.0,
        ),
    ),
    "axes as an attribute": (
        11,
        (
            "y = ReduceMean <axes = [-1, 0], keepdims = 0> (x)", "float[2, 3, 4] x",
            "float[3] y", lambda x: x.mean((0, 2)),
        ),
    ),
    "nothing is dropped": (
        7,
        (
            "y = Dropout <ratio = 0.5> (x)", "float[2, 3] x", "float[2, 3] y",
            lambda x: x,
        ),
    ),
    "scale of each group": (
        18,
        (
            "y = GroupNormalization <num_groups = 2> (x, s, b)",
            "float[1, 4, 3] x, float[2] s, float[2] b", "float[1, 4, 3] y",
            lambda x, s, b: (
                (x.reshape(2, 6) - x.reshape(2, 6).mean(1, keepdims=True))
                / np.sqrt(x.reshape(2, 6).var(1, keepdims=True) + 1e-5)
                * s[:, None] + b[:, None]
            ).reshape(1, 4, 3),
        ),
    ),
}  # fmt: skip
"""As earlier versions of operators have it, by the version of all operators."""


def model(body: str, inputs: str, outputs: str, opset: int) -> onnx.ModelProto:
    """A model with ONNX Runtime's operators, and a constant *c* where none is fed."""
    held = "<float c = {100}>" if ", c)" in body and " c" not in inputs else ""
    return onnx.parser.parse_model(
        f"""
        < ir_version: 8, opset_import: ["" : {opset}, "com.microsoft" : 1] >
        agraph ({inputs}) => ({outputs}) {held} {{ {body} }}
        """
    )


def feeds(made: onnx.ModelProto) -> Mapping[str, Array]:
    """Numbers for the inputs, around 0."""
    found = {}
    for given in made.graph.input:
        sizes = [size.dim_value for size in given.type.tensor_type.shape.dim]
        found[given.name] = RNG.normal(size=sizes).astype(np.float32)
    return found


def check(alone: Callable[..., Any], opset: int, case: Case) -> None:
    """Compare with what numpy makes of the case in float64."""
    body, inputs, outputs, reference = case
    made = model(body, inputs, outputs, opset)
    fed = feeds(made)
    wanted = reference(*(array.astype(np.float64) for array in fed.values()))
    found = alone(made).run(None, fed)
    for one, other in zip(
        found, wanted if isinstance(wanted, tuple) else (wanted,), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("case", CASES)
def test_numbers(alone: Callable[..., Any], case: str) -> None:
    check(alone, 12, CASES[case])


@pytest.mark.parametrize("case", OLD)
def test_numbers_by_earlier_versions(alone: Callable[..., Any], case: str) -> None:
    check(alone, *OLD[case])
