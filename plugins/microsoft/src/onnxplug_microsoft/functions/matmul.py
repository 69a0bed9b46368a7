"""Products of matrices with what is fused into them."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from onnxplug.ep import ComputedConstant, DataType, ValueInfo
from onnxplug_microsoft.functions.body import Body, NoFunction
from onnxplug_microsoft.functions.gelu import gelu
from onnxplug_microsoft.functions.makers import operator


@operator("FusedMatMul", "TransposeMatMul")
def _fused_matmul(
    body: Body,
    a: str,
    b: str,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
) -> str:
    left = _transposed(body, a, transA, transBatchA)
    right = _transposed(body, b, transB, transBatchB)
    return _multiplied(body, left, right, alpha, a, b)


@operator("FusedMatMulActivation")
def _fused_matmul_activation(
    body: Body,
    a: str,
    b: str,
    *,
    activation: str,
    activation_alpha: float | None = None,
    activation_beta: float | None = None,
    activation_gamma: float | None = None,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
) -> str:
    left = _transposed(body, a, transA, transBatchA)
    right = _transposed(body, b, transB, transBatchB)
    y = _multiplied(body, left, right, alpha, a, b)
    parameters = (activation_alpha, activation_beta, activation_gamma)
    return activate(body, y, activation, parameters, a, b)


def _multiplied(body: Body, a: str, b: str, alpha: float, *like: str) -> str:
    product = body.op("MatMul", a, b)
    return product if alpha == 1 else body.op("Mul", product, body.number(alpha, *like))


def _transposed(body: Body, x: str, transposed: int, batch: int) -> str:
    """*x* with its last two axes exchanged, or its first one moved before the last."""
    if not transposed and not batch:
        return x
    rank = body.rank(x)
    axes = list(range(rank))
    if batch and rank > 2:
        axes = [*axes[1:-1], 0, axes[-1]]
    if transposed and rank > 1:
        axes[-2:] = axes[-1], axes[-2]
    return body.transpose(x, *axes) if axes != sorted(axes) else x


@operator("FusedGemm")
def _fused_gemm(
    body: Body,
    a: str,
    b: str,
    c: str | None = None,
    *,
    activation: str = "",
    activation_alpha: float | None = None,
    activation_beta: float | None = None,
    activation_gamma: float | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> str:
    if c is None and body.opset < 11:
        raise NoFunction("it has no input 'c', which Gemm needs before opset 11")
    inputs = (a, b) if c is None else (a, b, c)
    y = body.op("Gemm", *inputs, alpha=alpha, beta=beta, transA=transA, transB=transB)
    parameters = (activation_alpha, activation_beta, activation_gamma)
    return activate(body, y, activation, parameters, a, b)


_ACTIVATIONS: Final = {
    "Relu": (),
    "Tanh": (),
    "Sigmoid": (),
    "Softplus": (),
    "Softsign": (),
    "LeakyRelu": ("alpha",),
    "Elu": ("alpha",),
    "ThresholdedRelu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
}
"""Operators that are activations, and the names of their parameters."""


def activate(
    body: Body,
    x: str,
    activation: str,
    parameters: tuple[float | None, ...],
    *like: str | None,
) -> str:
    """*x* through the operator *activation*; an empty name is none.

    Args:
        parameters: in the order of ONNX Runtime; ``None`` is the operator's default.
        like: inputs of the element type of *x*.

    Raises:
        NoFunction: the activation is not known.
    """
    if activation in ("", "Identity"):
        return x
    if activation == "Clip":
        low, high = (*parameters, None, None)[:2]
        if body.opset < 11:
            return body.op("Clip", x, min=low, max=high)
        bounds = [None if p is None else body.number(p, *like) for p in (low, high)]
        return body.op("Clip", x, *bounds)
    if activation == "Gelu":
        return gelu(body, x, *like)
    if activation not in _ACTIVATIONS:
        raise NoFunction(
            f"its attribute 'activation' is {activation!r}; expected "
            f"{', '.join(map(repr, ['Clip', 'Gelu', *_ACTIVATIONS]))}"
        )
    names = _ACTIVATIONS[activation]
    return body.op(activation, x, **dict(zip(names, parameters, strict=False)))


@operator("QLinearMatMul", since=10)
def _qlinear_matmul(
    body: Body,
    a: str,
    a_scale: str,
    a_zero_point: str,
    b: str,
    b_scale: str,
    b_zero_point: str,
    y_scale: str,
    y_zero_point: str,
) -> str:
    """ONNX's operator, as models have it in this domain, too."""
    one, other = (a, a_scale, a_zero_point), (b, b_scale, b_zero_point)
    return body.op("QLinearMatMul", *one, *other, y_scale, y_zero_point)


# weights of few bits


@operator("MatMulNBits")
def _matmul_n_bits(
    body: Body,
    A: str,
    B: str,
    scales: str,
    zero_points: str | None = None,
    g_idx: str | None = None,
    bias: str | None = None,
    *,
    K: int,
    N: int,
    block_size: int,
    bits: int = 4,
    accuracy_level: int = 0,
    weight_prepacked: int = 0,
) -> str:
    """A product with the weights in full, which are computed when an EP asks for them.

    Where *g_idx* is given, it tells the block of each row of weights.

    That an EP has the weights once, and not computes them in each run, is worth their
    memory; an EP that multiplies by small integers takes the node itself.
    """
    if weight_prepacked:
        raise NoFunction(
            f"its attribute 'weight_prepacked' is {weight_prepacked}; its function is "
            "for 0, the layout that the operator documents"
        )
    if bits not in (2, 4, 8):
        raise NoFunction(f"its attribute 'bits' is {bits}; expected 2, 4 or 8")
    _constant(body, B, "B")
    dtype = _constant(body, scales, "scales").dtype
    assert dtype is not None  # of a constant
    narrow = False
    if zero_points is not None:
        found = _constant(body, zero_points, "zero_points")
        narrow = found.dtype is DataType.UINT8
    given = {"zeros": zero_points, "order": g_idx}
    if g_idx is not None:
        _constant(body, g_idx, "g_idx")
    blocks = -(-K // block_size)

    def compute(
        packed: Any, factors: Any, *others: np.ndarray[Any, Any]
    ) -> np.ndarray[Any, Any]:
        found = dict(zip([n for n, each in given.items() if each], others, strict=True))
        block_of = _blocks_of_rows(found.get("order"), K, block_size)
        levels = _unpacked(packed.reshape(N, -1), bits)[:, :K]
        middle: Any = np.float32(1 << (bits - 1))
        if "zeros" in found:
            rows = found["zeros"].reshape(N, -1)
            if narrow:
                rows = _unpacked(rows, bits)[:, :blocks]
            middle = rows.astype(np.float32)[:, block_of]
        scale = factors.reshape(N, blocks).astype(np.float32)[:, block_of]
        return np.array(((levels - middle) * scale).T, dtype.numpy, order="C")

    weights = ComputedConstant(
        dtype=dtype,
        shape=(K, N),
        of=[B, scales, *[each for each in given.values() if each is not None]],
        compute=compute,
        key=("MatMulNBits", block_size, bits, g_idx is not None),
    )
    y = body.op("MatMul", A, body.computed(weights))
    return y if bias is None else body.op("Add", y, bias)


def _blocks_of_rows(
    order: np.ndarray[Any, Any] | None, inner: int, block_size: int
) -> np.ndarray[Any, Any]:
    """The block of each row of weights, which *order* tells if it is given.

    Raises:
        ValueError: it tells none.
    """
    plain = np.arange(inner) // block_size
    if order is None:
        return plain
    if order.shape != plain.shape or ((order < 0) | (order > plain[-1])).any():
        raise ValueError(
            f"g_idx of MatMulNBits has shape {order.shape} or numbers of no block; "
            f"expected {plain.shape}, and 0 to {plain[-1]}"
        )
    return order


def _constant(body: Body, name: str, formal: str) -> ValueInfo:
    found = body.known_constant(name)
    if found is None:
        raise NoFunction(f"its input {formal!r} is not a constant")
    return found


def _unpacked(packed: np.ndarray[Any, Any], bits: int) -> np.ndarray[Any, Any]:
    """Rows of bytes as rows of integers, the lowest bits first."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    parts = (packed[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return np.asarray(parts.reshape(packed.shape[0], -1), np.uint8)


@operator("CDist")
def _cdist(body: Body, A: str, B: str, *, metric: str = "sqeuclidean") -> str:
    """Distances [M, K] between the rows of *A* [M, N] and of *B* [K, N]."""
    if metric not in ("euclidean", "sqeuclidean"):
        raise NoFunction(f"'metric' is {metric!r}, not 'euclidean' or 'sqeuclidean'")
    a, b = (body.reduce("ReduceSum", body.op("Mul", x, x), 1) for x in (A, B))
    product = body.op("MatMul", A, body.transpose(B, 1, 0))
    squares = body.op("Sub", a, body.op("Add", product, product))
    # the difference of nearly equal numbers may come out below zero
    squares = body.op("Abs", body.op("Add", squares, body.transpose(b, 1, 0)))
    return squares if metric == "sqeuclidean" else body.op("Sqrt", squares)
