"""Pitfalls of what is computed one element by one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from onnx import TensorProto

from onnxplug_testing.conformance.pitfalls.row import Row, ints, real, row, whole

_HALVES: Final = np.array(
    [-100, -3.5, -2.5, -1.5, -0.5, -0.25, 0, 0.25, 0.5, 1.5, 2.5, 3.5, 20, 100],
    np.float32,
)

_UNARY: Final = (
    "Abs", "Atan", "Celu", "Ceil", "Cosh", "Elu", "Erf", "Exp", "Floor", "Gelu",
    "HardSigmoid", "HardSwish", "LeakyRelu", "Mish", "Neg", "Reciprocal", "Relu",
    "Round", "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus",
    "Softsign", "Tan", "Tanh", "ThresholdedRelu",
)  # fmt: skip

_OF_FLOAT32: Final = frozenset({"HardSigmoid", "HardSwish", "LeakyRelu"})
"""Operators of a number that float32 has not, as which ONNX has their attributes."""

_BINARY: Final = (
    "Add", "Div", "Max", "Mean", "Min", "Mul", "Pow", "Sub", "Sum", "Mod",
    "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual",
)  # fmt: skip

_SHAPES: Final = (
    ((2, 3, 4), (4,)),
    ((4,), (2, 3, 4)),
    ((), (2, 3)),
    ((2, 3), ()),
    ((2, 3, 4), (3, 1)),
    ((2, 1, 4), (3, 1)),
    ((3, 1), (1, 4)),
    ((2, 1, 3, 1), (4, 1, 5)),
    ((1,), (0, 3)),
    ((0, 3), (1, 3)),
    ((), ()),
    ((2, 1, 2, 3, 1, 2), (2, 1, 1, 2, 1)),
    ((1, 1, 1), (3,)),
)
"""Two that are broadcast, from either side, and between ranks."""


def rows() -> Iterator[Row]:
    """All of them."""
    yield from _of_one()
    yield from _of_two()
    yield from _quotients()
    yield from _powers()
    yield from _choices()
    yield from _bits()
    yield from _casts()
    yield from _clips()
    yield from _scales()
    yield from _many_types()


def _of_one() -> Iterator[Row]:
    for operator in _UNARY:
        opset = 21 if operator in ("Gelu", "Mish") else 20
        yield row(operator, _HALVES.reshape(2, 7), opset=opset)
        yield row(operator, real(2, 1, 2, 1, 3, 2), opset=opset)
        yield row(operator, np.float32(-2.5), opset=opset)
        yield row(operator, np.zeros((2, 0), np.float32), opset=opset)
        if operator not in _OF_FLOAT32:
            yield row(operator, _HALVES.astype(np.float64), opset=opset)
        yield row(operator, _HALVES.astype(np.float16), opset=opset)
    positive = np.array([1e-7, 0.5, 1, 2, 1e4, 1e10], np.float32)
    for operator in ("Log", "Sqrt", "Reciprocal"):
        yield row(operator, positive)
    yield row("Reciprocal", np.array([-0.0, 0.0, 2], np.float32))
    yield row("Sqrt", np.array([-1.0, 0.0, 2], np.float32))
    for alpha in (0.0, 0.3, 1.7, -0.5):
        yield row("LeakyRelu", _HALVES, alpha=alpha)
        yield row("Elu", _HALVES, alpha=alpha)
        yield row("ThresholdedRelu", _HALVES, alpha=alpha)
    yield row("Celu", _HALVES, alpha=0.3)
    yield row("Selu", _HALVES, alpha=0.3, gamma=2.0)
    yield row("HardSigmoid", _HALVES, alpha=0.5, beta=0.25)
    yield row("Shrink", _HALVES, lambd=1.5, bias=0.5)
    yield row("Shrink", _HALVES, lambd=2.0)
    yield row("Gelu", _HALVES, approximate="tanh")
    for operator in ("Abs", "Neg", "Sign", "Relu"):
        for dtype in (np.int8, np.int32, np.int64):
            yield row(operator, whole(3, 4, dtype=dtype))
    for unsigned in (np.uint8, np.uint64):
        yield row("Abs", whole(3, 4, dtype=unsigned, low=1))
        yield row("Sign", np.array([0, 1, 200], unsigned))
    yield row("Not", np.array([[True, False]]))
    # what an exponential of it has no number for
    for slope in (-1, 1):
        for operator in ("Sigmoid", "Tanh", "Softplus", "Softsign", "Mish", "Elu"):
            yield row(operator, (np.arange(8) * 50 * slope).astype(np.float32))
    yield row("IsNaN", np.array([np.nan, 1, np.inf, -np.inf], np.float32))
    infinite = np.array([np.nan, 1, np.inf, -np.inf], np.float32)
    yield row("IsInf", infinite)
    yield row("IsInf", infinite, detect_negative=0)
    yield row("IsInf", infinite, detect_positive=0)
    yield row("IsInf", infinite, detect_positive=0, detect_negative=0)


def _of_two() -> Iterator[Row]:
    for operator in _BINARY:
        extra = {"fmod": 1} if operator == "Mod" else {}
        for first, second in _SHAPES:
            base = np.abs(real(*first)) + 0.5 if operator == "Pow" else real(*first)
            other = real(*second) + np.float32(0.0005)
            yield row(operator, base, other, **extra)
            if operator in ("Add", "Sub", "Mul", "Max", "Min", "Equal", "Less"):
                yield row(operator, whole(*first), whole(*second))
    for operator in ("And", "Or", "Xor"):
        for first, second in _SHAPES:
            yield row(operator, real(*first) > 0, real(*second) > 0)
    for operator in ("Max", "Min", "Sum", "Mean"):
        yield row(operator, real(2, 3))
        yield row(operator, real(3, 1), real(1, 4), real(4))
        yield row(operator, real(1), real(2, 3), real(), real(3))
    for operator in ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"):
        yield row(operator, _HALVES, _HALVES[::-1].copy())
        yield row(operator, np.array([0.0, -0.0, 1]), np.array([-0.0, 0.0, 1]))
        far = np.array([2**53, 2**53 + 1, -(2**53) - 1, 2**62 + 1])
        yield row(operator, far, np.array([2**53 + 1, 2**53, -(2**53), 2**62]))
        near = np.array([1, 1 + 2.0**-40, 1 - 2.0**-40])
        yield row(operator, near, np.array([1.0, 1.0, 1.0]))
        infinite = np.array([np.inf, -np.inf, np.inf, 1], np.float32)
        yield row(operator, infinite, np.array([np.inf, -np.inf, 1, -np.inf], "f4"))
    # what subtracting and taking the first for the larger would confuse
    for operator in ("Less", "Greater", "LessOrEqual", "GreaterOrEqual"):
        unsigned = np.array([0, 1, 2**32 - 1, 2**31], np.uint32)
        yield row(operator, unsigned, unsigned[::-1].copy())
    yield row("Equal", np.array([True, False, True]), np.array([True, True, False]))
    infinite = np.array([np.inf, -np.inf, np.inf], np.float32)
    yield row("Sub", infinite, infinite)
    yield row("Add", infinite, infinite)
    yield row("Mul", infinite, np.array([0, -1, 2], np.float32))


def _quotients() -> Iterator[Row]:
    tops = np.array([7, -7, 7, -7, 1, -1, 0, 100])
    bottoms = np.array([2, 2, -2, -2, 3, 3, -5, -7])
    for dtype in (np.int32, np.int64, np.int8):
        yield row("Div", tops.astype(dtype), bottoms.astype(dtype))
        yield row("Mod", tops.astype(dtype), bottoms.astype(dtype))
        yield row("Mod", tops.astype(dtype), bottoms.astype(dtype), fmod=1)
        yield row("Div", tops.astype(dtype)[:, None], bottoms.astype(dtype))
        yield row("Div", dtype(-7), bottoms.astype(dtype))
        yield row("Div", tops.astype(dtype), dtype(-2))
    yield row("Mod", tops.astype(np.float32), bottoms.astype(np.float32), fmod=1)
    for unsigned in (np.uint8, np.uint32, np.uint64):
        yield row(
            "Div", np.array([200, 7, 1], unsigned), np.array([7, 200, 3], unsigned)
        )
        yield row(
            "Mod", np.array([200, 7, 1], unsigned), np.array([7, 200, 3], unsigned)
        )
    big = np.array([2**62 + 1, -(2**62) - 1, 2**53 + 1])
    yield row("Div", big, np.array([3, 3, -1]))
    yield row("Mod", big, np.array([3, 3, 2]))
    zeros = np.array([0.0, -0.0, 0.0, -0.0], np.float32)
    yield row("Div", np.array([1, 1, -1, 0], np.float32), zeros)
    yield row("Div", np.float32(1), np.array([1e-3, 3, -1e4], np.float32))


def _powers() -> Iterator[Row]:
    base = np.array([-2, -1.5, 0, 0.5, 1, 2.5], np.float32)
    yield row("Pow", base, np.float32(2))
    yield row("Pow", base, np.float32(3))
    yield row("Pow", base, np.float32(0))
    yield row("Pow", base, np.float32(1))
    yield row("Pow", base, np.int64(3))
    yield row("Pow", base, np.array([2, 3, 4, 1, 0, 2], np.int32))
    yield row("Pow", np.abs(base), np.float32(0.5))
    yield row("Pow", np.abs(base) + 1, np.float32(-0.5))
    yield row("Pow", np.abs(base) + 1, np.float32(-1))
    yield row("Pow", np.abs(base) + 1, np.float64(0.5))
    yield row("Pow", np.array([1, 2, 3, -3], np.int32), np.array([3, 2, 4, 3], "i4"))
    yield row("Pow", np.array([2, 3, -3], np.int64), np.array([2, 3, 1], "i8"))
    yield row("Pow", np.array([4, 9, 2], np.int32), np.array([0.5, 1.5, 2], "f4"))
    yield row("Pow", np.array([3, 7], np.int64), np.float32(2))
    yield row("Pow", np.float32(2), np.array([[1, 2], [-1, 0.5]], np.float32))


def _choices() -> Iterator[Row]:
    condition = np.array([[True, False, True], [False, True, False]])
    yield row("Where", condition, real(2, 3), real(3))
    yield row("Where", condition, np.float32(1), real(2, 3))
    yield row("Where", condition, real(2, 1), np.float32(-1))
    yield row("Where", condition[:, :1], real(3), real(2, 3))
    yield row("Where", condition[0], real(2, 3), real(4, 1, 1))
    yield row("Where", np.bool_(True), real(2, 3), real(1, 3))
    yield row("Where", condition, whole(2, 3), np.int64(2**53 + 1))
    yield row("Where", condition, np.float32(np.nan), real(2, 3))
    yield row("Where", condition, real(2, 3), np.float32(-np.inf))
    yield row("Where", condition, condition, ~condition)
    yield row("PRelu", real(2, 3, 4), real(4))
    yield row("PRelu", real(2, 3, 4), real(3, 1))
    yield row("PRelu", real(2, 3, 4), real(1))
    yield row("PRelu", real(2, 3, 4), real())
    yield row("PRelu", real(2, 3, 4, 5), real(3, 1, 1))


def _bits() -> Iterator[Row]:
    numbers = np.array([1, 3, 128, 255], np.uint8)
    shifts = np.array([0, 1, 3, 7], np.uint8)
    for direction in ("LEFT", "RIGHT"):
        yield row("BitShift", numbers, shifts, direction=direction)
        yield row("BitShift", numbers[:, None], shifts, direction=direction)
        yield row(
            "BitShift",
            np.array([1, 2**63, 2**40], np.uint64),
            np.array([40, 40, 3], np.uint64),
            direction=direction,
        )
    for operator in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
        yield row(operator, whole(3, 4, dtype=np.int32), whole(4, dtype=np.int32))
        yield row(operator, whole(4), whole(3, 1))
        yield row(operator, numbers, numbers[::-1].copy())
    yield row("BitwiseNot", whole(3, 4, dtype=np.int32))
    yield row("BitwiseNot", numbers)


def _casts() -> Iterator[Row]:
    fractions = np.array([-2.9, -1.5, -0.9, -0.1, 0.1, 0.5, 0.9, 1.5, 2.9], np.float32)
    for to in (TensorProto.INT32, TensorProto.INT64, TensorProto.INT8):
        for dtype in (np.float32, np.float64, np.float16):
            yield row("Cast", fractions.astype(dtype), to=to)
    for dtype in (np.float32, np.float64):
        yield row("Cast", np.abs(fractions).astype(dtype), to=TensorProto.UINT8)
        yield row("Cast", fractions.astype(dtype), to=TensorProto.BOOL)
    odd = np.array([np.nan, np.inf, -0.0, 0.0, 1e-40, -1], np.float32)
    yield row("Cast", odd, to=TensorProto.BOOL)
    yield row("Cast", odd, to=TensorProto.DOUBLE)
    wide = np.array([2**24 + 1, 2**53 + 1, -(2**53) - 1, 2**31, -1, 255, 256])
    for to in (TensorProto.INT32, TensorProto.UINT8, TensorProto.INT8):
        yield row("Cast", wide, to=to)
    for to in (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.BOOL):
        yield row("Cast", wide, to=to)
    yield row("Cast", np.array([-1, 300, 5], np.int32), to=TensorProto.INT64)
    yield row("Cast", np.array([-1, -300, 5], np.int32), to=TensorProto.UINT32)
    yield row("Cast", np.array([2**32 - 1, 7], np.uint32), to=TensorProto.INT64)
    yield row("Cast", np.array([2**32 - 1, 7], np.uint32), to=TensorProto.FLOAT)
    yield row("Cast", np.array([True, False]), to=TensorProto.INT64)
    yield row("Cast", np.array([True, False]), to=TensorProto.FLOAT)
    near = np.array([1 + 2.0**-11, 1 + 3 * 2.0**-11, 65504, 1e6, -1e6], np.float32)
    yield row("Cast", near, to=TensorProto.FLOAT16)
    yield row("Cast", 1 + np.array([1, 3, 5]) * 2.0**-24, to=TensorProto.FLOAT)
    ties = (1 + np.array([1, 3, 5], np.float32) * np.float32(2.0**-8)).astype("f4")
    yield row("Cast", ties, to=TensorProto.BFLOAT16)
    texts = np.array(["1", "-2.5", "1e3", "0"], object)
    yield row("Cast", texts, to=TensorProto.FLOAT)
    yield row("Cast", np.array(["7", "-9"], object), to=TensorProto.INT64)
    for saturate in (0, 1):
        large = np.array([1e6, -1e6, 448, 500, 0.3, np.inf], np.float32)
        for to in (TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E5M2):
            yield row("Cast", large, to=to, saturate=saturate)
    yield row("CastLike", fractions, np.array([1], np.int32))
    yield row("CastLike", fractions, np.array([True]))
    yield row("CastLike", whole(3), np.zeros((2, 2), np.float32))


def _clips() -> Iterator[Row]:
    low, high = np.float32(-0.5), np.float32(0.75)
    for x in (_HALVES, _HALVES.reshape(2, 7), np.zeros((0, 3), np.float32)):
        yield row("Clip", x, low, high)
        yield row("Clip", x, None, high)
        yield row("Clip", x, low)
        yield row("Clip", x)
        yield row("Clip", x, np.float32(0), np.float32(0))
    yield row("Clip", _HALVES, high, low)
    yield row("Clip", _HALVES, np.float32(0), np.float32(6))
    yield row("Clip", _HALVES, np.float32(-np.inf), np.float32(np.inf))
    yield row("Clip", whole(3, 4, dtype=np.int32), np.int32(-2), np.int32(3))
    yield row("Clip", whole(3, 4), np.int64(2**53 + 1), np.int64(2**53 + 3))
    yield row("Clip", np.array([0, 7, 255], np.uint8), np.uint8(3), np.uint8(200))
    yield row("Clip", _HALVES.astype(np.float64), np.float64(-0.1), np.float64(0.1))
    yield row("Clip", _HALVES, opset=10, min=-0.5, max=0.75)
    yield row("Clip", _HALVES, opset=10, max=0.75)
    yield row("Clip", _HALVES, opset=10, min=0.25)
    yield row("Clip", _HALVES, opset=10)


def _scales() -> Iterator[Row]:
    ties = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 300, -300], np.float32)
    yield row("QuantizeLinear", ties, np.float32(1), np.uint8(3))
    yield row("QuantizeLinear", ties, np.float32(1), np.int8(-3))
    yield row("QuantizeLinear", ties, np.float32(0.5))
    scales = np.array([0.5, 0.25, 2], np.float32)
    points = np.array([1, 128, 200], np.uint8)
    yield row("QuantizeLinear", real(2, 3, 4) * 9, scales, points)
    yield row("QuantizeLinear", real(3, 2, 4) * 9, scales, points, axis=0)
    yield row("QuantizeLinear", real(2, 4, 3) * 9, scales, points, axis=-1)
    counts = np.arange(24, dtype=np.uint8).reshape(2, 3, 4) * 10
    yield row("DequantizeLinear", counts, scales, points)
    yield row("DequantizeLinear", counts.reshape(3, 2, 4), scales, points, axis=0)
    yield row("DequantizeLinear", counts.reshape(2, 4, 3), scales, points, axis=-1)
    yield row("DequantizeLinear", counts, np.float32(0.5))
    yield row("DequantizeLinear", counts, np.float32(0.5), np.uint8(250))
    signed = whole(3, 4, dtype=np.int8)
    yield row("DequantizeLinear", signed, scales, axis=0)
    yield row("DequantizeLinear", whole(4, dtype=np.int32), np.float32(0.01))
    blocks = np.array([[0.5, 0.25], [2, 1], [0.125, 4]], np.float32)
    yield row("DequantizeLinear", signed, blocks, axis=1, block_size=2)
    yield row(
        "DequantizeLinear", signed.T.copy(), blocks.T.copy(), axis=0, block_size=2
    )
    yield row(
        "QuantizeLinear", real(3, 4), blocks, np.zeros((3, 2), np.int8), axis=1,
        block_size=2,
    )  # fmt: skip
    yield row("DynamicQuantizeLinear", real(3, 4), outputs=3)
    yield row("DynamicQuantizeLinear", np.abs(real(3, 4)), outputs=3)
    yield row("DynamicQuantizeLinear", -np.abs(real(3, 4)), outputs=3)


def _many_types() -> Iterator[Row]:
    for dtype in (np.int8, np.uint8, np.int16, np.uint16, np.uint32, np.uint64):
        a, b = np.array([3, 9, 1], dtype), np.array([2, 4, 7], dtype)
        for operator in ("Add", "Mul", "Max", "Min"):
            yield row(operator, a, b)
        yield row("Sub", np.maximum(a, b), np.minimum(a, b))
    for operator in ("Max", "Min"):
        far = np.array([2**53, 2**53 + 1, -(2**53) - 1])
        yield row(operator, far, far[::-1].copy())
        unsigned = np.array([0, 2**63, 2**64 - 1], np.uint64)
        yield row(operator, unsigned, unsigned[::-1].copy())
        infinite = np.array([np.inf, -np.inf, 1], np.float32)
        yield row(operator, infinite, infinite[::-1].copy())
    for operator in ("Add", "Sub", "Mul"):
        far = np.array([2**53 + 1, -(2**53) - 1, 2**61 + 3])
        yield row(operator, far, ints(1, 1, 1))
