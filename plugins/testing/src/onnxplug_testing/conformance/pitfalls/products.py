"""Pitfalls of products, of what is normalised, and of recurrent networks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from onnxplug_testing.conformance.pitfalls.row import Row, real, row, whole


def rows() -> Iterator[Row]:
    """All of them."""
    yield from _products()
    yield from _general()
    yield from _integers()
    yield from _normalised()
    yield from _recurrent()
    yield from _sums()


def _products() -> Iterator[Row]:
    for first, second in (
        ((3,), (3,)),
        ((3,), (3, 4)),
        ((2, 3), (3,)),
        ((3,), (2, 3, 4)),
        ((2, 4, 3), (3,)),
        ((2, 3), (5, 3, 4)),
        ((5, 2, 3), (3, 4)),
        ((5, 1, 2, 3), (4, 3, 2)),
        ((1, 2, 3), (5, 3, 4)),
        ((5, 2, 3), (1, 3, 4)),
        ((2, 1, 4, 3), (1, 5, 3, 2)),
        ((1, 3), (3, 1)),
        ((3, 1), (1, 4)),
        ((4, 4), (4, 4)),
        ((0, 3), (3, 4)),
        ((2, 0), (0, 4)),
        ((2, 3), (3, 0)),
        ((1, 1, 2, 3), (2, 2, 3, 2)),
        ((2, 1, 2, 2, 3), (3, 1, 3, 2)),
        ((33, 70), (70, 19)),
        ((1, 257), (257, 3)),
    ):
        yield row("MatMul", real(*first), real(*second))
        if max((*first, *second)) < 9:
            yield row("MatMul", whole(*first), whole(*second))
            double = real(*first, dtype=np.float64), real(*second, dtype=np.float64)
            yield row("MatMul", *double)


def _general() -> Iterator[Row]:
    for left, right in ((0, 0), (0, 1), (1, 0), (1, 1)):
        a = real(3, 5) if left else real(5, 3)
        b = real(4, 3) if right else real(3, 4)
        how: dict[str, Any] = {"transA": left, "transB": right}
        yield row("Gemm", a, b, **how)
        for c in ((5, 4), (4,), (1, 4), (5, 1), (1, 1), (1,), ()):
            yield row("Gemm", a, b, real(*c), alpha=0.5, beta=-2.0, **how)
        yield row("Gemm", a, b, real(4), alpha=2.0, **how)
        yield row("Gemm", a, b, real(4), beta=0.5, **how)
        yield row("Gemm", a, b, real(4), beta=0.0, **how)
        yield row("Gemm", a, b, real(4), alpha=0.0, **how)
        yield row("Gemm", a, b, alpha=3.0, beta=5.0, **how)
        yield row("Gemm", a, b, real(5, 1), opset=9, **how)
        yield row("Gemm", real(4, 4), real(4, 4, dtype="f4") * 2, real(4), **how)
    yield row("Gemm", real(0, 3), real(3, 4), real(4))
    yield row("Gemm", real(2, 0), real(0, 4), real(4))
    # of a square the bias may be taken for the other axis
    yield row("Gemm", real(4, 4), real(4, 4), real(4, 1))
    yield row("Gemm", real(4, 3, dtype="f8"), real(3, 4, dtype="f8"), alpha=0.1)


def _integers() -> Iterator[Row]:
    a, b = whole(3, 4, dtype=np.uint8, low=1), whole(4, 2, dtype=np.int8)
    yield row("MatMulInteger", a, b)
    yield row("MatMulInteger", a, b, np.uint8(3))
    yield row("MatMulInteger", a, b, None, np.int8(-5))
    yield row("MatMulInteger", a, b, np.uint8(3), np.array([1, -2], np.int8))
    yield row("MatMulInteger", a, b, np.array([[3], [1], [2]], np.uint8), np.int8(1))
    scale = np.float32(0.1)
    yield row(
        "QLinearMatMul", a, scale, np.uint8(3), b, scale, np.int8(-5),
        np.float32(0.5), np.uint8(100),
    )  # fmt: skip
    x, w = whole(1, 2, 5, 5, dtype=np.uint8, low=1), whole(3, 2, 3, 3, dtype=np.int8)
    yield row("ConvInteger", x, w.astype(np.uint8), np.uint8(7), pads=[1, 0, 0, 1])
    yield row("ConvInteger", x, w.astype(np.uint8), strides=[2, 1])
    yield row(
        "QLinearConv", x, scale, np.uint8(130), w, np.array([0.1, 0.2, 0.3], "f4"),
        np.array([1, -2, 3], np.int8), np.float32(0.5), np.uint8(99),
        pads=[1, 0, 2, 1],
    )  # fmt: skip


def _normalised() -> Iterator[Row]:
    data = real(2, 3, 4)
    for axis in (0, 1, 2, -1, -2, -3):
        shape = data.shape[axis:]
        yield row("LayerNormalization", data, real(*shape), axis=axis)
        yield row(
            "LayerNormalization", data, real(*shape), real(*shape) + 1, axis=axis,
            epsilon=0.1,
        )  # fmt: skip
        yield row("LayerNormalization", data, real(*shape), outputs=3, axis=axis)
    yield row("LayerNormalization", data, real(4), outputs=(True, False, True))
    yield row("LayerNormalization", data, real(3, 1), real(4), axis=1)
    yield row("LayerNormalization", data * 0 + 5, real(4), real(4))
    yield row("LayerNormalization", data + 1000, real(4), real(4))
    yield row("RMSNormalization", data, real(4), opset=23)
    yield row("RMSNormalization", data, real(3, 4), opset=23, axis=1, epsilon=0.1)
    image, scale, bias = real(2, 4, 3, 5), real(4), real(4) + 1
    yield row("InstanceNormalization", image, scale, bias)
    yield row("InstanceNormalization", image, scale, bias, epsilon=0.5)
    yield row("InstanceNormalization", real(2, 4, 3), scale, bias)
    yield row("InstanceNormalization", real(1, 4, 2, 3, 2), scale, bias)
    for groups in (1, 2, 4):
        yield row("GroupNormalization", image, scale, bias, num_groups=groups)
        few = real(groups), real(groups) + 2
        yield row("GroupNormalization", image, *few, num_groups=groups, opset=20)
    yield row("GroupNormalization", image, scale, bias, num_groups=2, epsilon=0.3)
    mean, variance = real(4) / 2, np.abs(real(4)) + 0.1
    for shape in ((2, 4, 3, 5), (2, 4), (2, 4, 3), (1, 4, 2, 2, 2)):
        given = real(*shape), scale, bias, mean, variance
        yield row("BatchNormalization", *given)
        yield row("BatchNormalization", *given, epsilon=0.5)
        yield row("BatchNormalization", *given, epsilon=0.1, opset=9)
        yield row("BatchNormalization", *given, momentum=0.3, opset=14)
        yield row(
            "BatchNormalization", *given, outputs=3, training_mode=1, momentum=0.3
        )
    for p in (1, 2):
        for axis in (0, 1, -1, -2):
            yield row("LpNormalization", data, p=p, axis=axis)
    yield row("MeanVarianceNormalization", image)
    yield row("MeanVarianceNormalization", image, axes=[0, 2])
    yield row("MeanVarianceNormalization", image, axes=[-1])
    for size in (1, 2, 3, 4):
        yield row("LRN", image, size=size, alpha=0.5, beta=0.6, bias=2.0)


def _recurrent() -> Iterator[Row]:
    steps, batch, width, hidden = 3, 2, 4, 5
    lengths = np.array([3, 1], np.int32)
    for operator, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
        outputs = 3 if operator == "LSTM" else 2
        for direction, count in (("forward", 1), ("reverse", 1), ("bidirectional", 2)):
            x = real(steps, batch, width)
            w, r = (
                real(count, gates * hidden, width),
                real(count, gates * hidden, hidden),
            )
            b, state = real(count, 2 * gates * hidden), real(count, batch, hidden)
            states = [state] * (2 if operator == "LSTM" else 1)
            how: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
            yield row(operator, x, w, r, outputs=outputs, **how)
            yield row(operator, x, w, r, b, lengths, outputs=outputs, **how)
            yield row(operator, x, w, r, None, None, *states, outputs=outputs, **how)
            yield row(operator, x, w, r, b, lengths, *states, outputs=outputs, **how)
            yield row(operator, x, w, r, b, outputs=(False, True), **how)
            yield row(operator, x, w, r, b, **how)
            yield row(operator, x, w, r, b, outputs=outputs, clip=0.4, **how)
            batched = x.transpose(1, 0, 2).copy()
            yield row(operator, batched, w, r, b, outputs=outputs, layout=1, **how)
            if operator == "GRU":
                yield row(operator, x, w, r, b, outputs=2, linear_before_reset=1, **how)
            if operator == "RNN":
                of = ["Relu"] * count
                yield row(operator, x, w, r, b, outputs=2, activations=of, **how)
            if operator == "LSTM":
                holes = real(count, 3 * hidden)
                given = x, w, r, b, None, *states, holes
                yield row(operator, *given, outputs=3, **how)
                yield row(operator, x, w, r, b, outputs=3, input_forget=1, **how)


def _sums() -> Iterator[Row]:
    a, b, square = real(2, 3), real(3, 4), real(3, 3)
    yield row("Einsum", a, b, equation="ij,jk->ik")
    yield row("Einsum", a, b, equation="ij,jk->ki")
    yield row("Einsum", a, b, equation="ij,jk")
    yield row("Einsum", a, b, equation="ij, jk -> k")
    yield row("Einsum", a, equation="ij->ji")
    yield row("Einsum", a, equation="ij->")
    yield row("Einsum", a, equation="ij->i")
    yield row("Einsum", square, equation="ii->i")
    yield row("Einsum", square, equation="ii")
    yield row("Einsum", a, a, equation="ij,ij->ij")
    yield row("Einsum", a, real(2), equation="ij,i->ji")
    yield row("Einsum", real(2), real(3), equation="i,j->ij")
    yield row("Einsum", real(5, 2, 3), real(5, 3, 4), equation="...ij,...jk->...ik")
    yield row("Einsum", real(5, 2, 3), b, equation="...ij,jk->...ik")
    yield row("Einsum", real(2, 3, 4, 5), real(2, 6, 4, 5), equation="bqhd,bkhd->bhqk")
    yield row("Einsum", a, b, real(4, 2), equation="ij,jk,kl->il")
    yield row("Det", square)
    yield row("Det", real(2, 3, 3))
    yield row("Det", real(2, 2, 1, 1))
