"""Products of matrices."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Final

import numpy as np

from onnxplug import ep
from onnxplug_directml.abi.directml import DML_MATRIX_TRANSFORM
from onnxplug_directml.lowering.builder import (
    Builder,
    Refused,
    Result,
    Value,
    packed_strides,
)
from onnxplug_directml.lowering.call import MICROSOFT, Call, lowers
from onnxplug_directml.lowering.operators.activation import activated
from onnxplug_directml.lowering.operators.reduction import reduced

_MOST_BATCHES: Final = 2
"""Dimensions in front of matrices that DirectML's products take."""


@lowers("Gemm")
def _gemm(call: Call) -> Value:
    call.require_rank(0, 2)
    call.require_rank(1, 2)
    build, a, b = call.build, call.operand(0), call.operand(1)
    shape = call.output_shape()
    inner = [
        x.shape[axis if call.attribute(name, 0) else 1 - axis]
        for x, name, axis in ((a, "transA", 0), (b, "transB", 1))
    ]
    if inner[0] != inner[1]:
        raise Refused(ep.RefusalCode.OTHER, f"{list(a.shape)} times {list(b.shape)}")
    c = call.optional(2)
    if call.since < 7:
        call.ignore("broadcast")
    return build(
        "GEMM", ATensor=a, BTensor=b,
        CTensor=None if c is None else build.broadcast_to(c, shape),
        OutputTensor=call.result(), TransA=_transform(call, "transA"),
        TransB=_transform(call, "transB"), Alpha=float(call.attribute("alpha", 1.0)),
        Beta=float(call.attribute("beta", 1.0)),
    )  # fmt: skip


def _transform(call: Call, name: str) -> DML_MATRIX_TRANSFORM:
    found = call.attribute(name, 0)
    return DML_MATRIX_TRANSFORM.TRANSPOSE if found else DML_MATRIX_TRANSFORM.NONE


@lowers("MatMul")
def _mat_mul(call: Call) -> Value:
    return matmul(call.build, call.operand(0), call.operand(1))


@lowers("FusedMatMul", "TransposeMatMul", domain=MICROSOFT)
def _fused_mat_mul(call: Call) -> Value:
    build, a, b = call.build, call.operand(0), call.operand(1)
    for name in ("transBatchA", "transBatchB"):
        if call.attribute(name, 0):
            raise call.refuse_attribute(name, "0")
    if min(a.rank, b.rank) > 1:
        a = _turned(build, a) if call.attribute("transA", 0) else a
        b = _turned(build, b) if call.attribute("transB", 0) else b
    call.ignore("transA", "transB")  # of vectors they change nothing
    return matmul(build, a, b, call.attribute("alpha", 1.0))


def _turned(build: Builder, x: Value) -> Value:
    last = (x.rank - 1, x.rank - 2)
    return build.transpose(x, (*range(x.rank - 2), *last))


def matmul(build: Builder, a: Value, b: Value, alpha: float = 1.0) -> Value:
    """numpy's ``matmul``, times a number.

    Operands may have strides: a transposed one needs no copy.
    """
    a, b, shape = _as_matrices(build, a, b)
    result = Result(a.dtype, (*a.shape[:-1], b.shape[-1]))
    made = build("GEMM", ATensor=a, BTensor=b, OutputTensor=result, Alpha=float(alpha))
    return build.reshape(made, shape)


def _as_matrices(
    build: Builder, a: Value, b: Value
) -> tuple[Value, Value, tuple[int, ...]]:
    """Operands with as many matrices each, in few dimensions, and numpy's result shape.

    Where the second one is a single matrix, the rows of the first are those of one
    matrix, too.
    """
    if not (a.rank and b.rank):
        raise Refused(ep.RefusalCode.RANK, "a scalar; takes matrices")
    rows = a.shape[-2:-1] if a.rank > 1 else ()
    columns = b.shape[-1:] if b.rank > 1 else ()
    if a.rank == 1:
        a = build.reshape(a, (1, *a.shape))
    if b.rank == 1:
        b = build.reshape(b, (*b.shape, 1))
    if a.shape[-1] != b.shape[-2]:
        raise Refused(ep.RefusalCode.OTHER, f"{list(a.shape)} times {list(b.shape)}")
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    shape = (*batch, *rows, *columns)
    if math.prod(b.shape[:-2]) == 1 and a.strides is None and a.shape[:-2] == batch:
        b = replace(
            b,
            shape=b.shape[-2:],
            strides=None if b.strides is None else b.strides[-2:],
        )
        return build.reshape(a, (a.size // a.shape[-1], a.shape[-1])), b, shape
    a = build.broadcast_to(a, (*batch, *a.shape[-2:]))
    b = build.broadcast_to(b, (*batch, *b.shape[-2:]))
    if len(batch) <= _MOST_BATCHES:
        return a, b, shape
    return _one_batch(build, a), _one_batch(build, b), shape


def _one_batch(build: Builder, x: Value) -> Value:
    """*x* with all dimensions in front of its matrices in one."""
    merged = _merged(x, x.rank - 2)
    if merged is not None:
        return merged
    return build.reshape(x, (math.prod(x.shape[:-2]), *x.shape[-2:]))


def _merged(x: Value, count: int) -> Value | None:
    """*x* with its first *count* dimensions in one, if strides can tell it."""
    strides = x.strides or packed_strides(x.shape)
    pairs = zip(x.shape[:count], strides, strict=False)
    steps = [(size, stride) for size, stride in pairs if size > 1]
    if any(stride != inner * size for (_, stride), (size, inner) in pairwise(steps)):
        return None
    stride = steps[-1][1] if steps else 0
    shape = (math.prod(x.shape[:count]), *x.shape[count:])
    return replace(x, shape=shape, strides=(stride, *strides[count:]))


@lowers("MatMulInteger")
def _mat_mul_integer(call: Call) -> Value:
    zeros = call.optional(2), call.optional(3)
    return matmul_integer(call, call.operand(0), call.operand(1), *zeros)


def matmul_integer(
    call: Call, a: Value, b: Value, a_zero: Value | None, b_zero: Value | None
) -> Value:
    """A product of codes, less their zero points, in int32."""
    build = call.build
    a, b, shape = _as_matrices(build, a, b)
    made = build(
        "MATRIX_MULTIPLY_INTEGER", ATensor=a, BTensor=b,
        AZeroPointTensor=None if a_zero is None else _of_rows(build, a_zero, a),
        BZeroPointTensor=None if b_zero is None else _of_columns(build, b_zero, b),
        OutputTensor=Result(ep.DataType.INT32, (*a.shape[:-1], b.shape[-1])),
    )  # fmt: skip
    return build.reshape(made, shape)


@lowers("QLinearMatMul")
def _q_linear_mat_mul(call: Call) -> Value:
    build = call.build
    a, b, shape = _as_matrices(build, call.operand(0), call.operand(3))
    a_scale, a_zero, scale, zero = (
        _of_rows(build, call.operand(position), a) for position in (1, 2, 6, 7)
    )
    b_scale, b_zero = (_of_columns(build, call.operand(i), b) for i in (4, 5))
    made = build(
        "QUANTIZED_LINEAR_MATRIX_MULTIPLY",
        ATensor=a, AScaleTensor=a_scale, AZeroPointTensor=a_zero,
        BTensor=b, BScaleTensor=b_scale, BZeroPointTensor=b_zero,
        OutputScaleTensor=scale, OutputZeroPointTensor=zero,
        OutputTensor=Result(call.output_dtype(), (*a.shape[:-1], b.shape[-1])),
    )  # fmt: skip
    return build.reshape(made, shape)


def _of_rows(build: Builder, x: Value, a: Value) -> Value:
    """Scales or zero points: one, or one for each row of *a*."""
    if x.size not in (1, a.shape[-2]) or (x.size > 1 and x.rank > 1):
        raise _several(x, "row")
    return build.reshape(x, (*(1,) * (a.rank - 2), x.size, 1))


def _of_columns(build: Builder, x: Value, b: Value) -> Value:
    """Scales or zero points: one, or one for each column of *b*."""
    if x.size not in (1, b.shape[-1]) or (x.size > 1 and x.rank > 1):
        raise _several(x, "column")
    return build.reshape(x, (*(1,) * (b.rank - 1), x.size))


def _several(x: Value, each: str) -> Refused:
    return Refused(
        ep.RefusalCode.OTHER,
        f"scales or zero points of {list(x.shape)}; takes one, or one for each {each}",
    )


@lowers("FusedGemm", domain=MICROSOFT)
def _fused_gemm(call: Call) -> Value:
    kinds = {
        "": None, "Relu": "RELU", "Sigmoid": "SIGMOID", "Tanh": "TANH",
        "LeakyRelu": "LEAKY_RELU",
    }  # fmt: skip
    name = call.attribute("activation", "")
    if name not in kinds:
        raise call.refuse_attribute("activation", ", ".join(filter(None, kinds)))
    parameters = {}
    if name == "LeakyRelu":
        parameters = {"Alpha": call.attribute("activation_alpha", 0.01)}
    made, kind = _gemm(call), kinds[name]
    if kind is None:
        return made
    return activated(call.build, kind, made, **parameters)


@lowers("Einsum")
def _einsum(call: Call) -> Value:
    operands = call.operands()
    left, output = _equation(call, operands)
    if len(operands) == 1:
        return _summed(call.build, operands[0], left[0], output)
    if len(operands) != 2:
        raise call.refuse_attribute("equation", "one or two operands")
    return _contracted(call.build, operands, left, output)


def _equation(call: Call, operands: list[Value]) -> tuple[list[str], str]:
    equation = str(call.attribute("equation", "")).replace(" ", "")
    inputs, arrow, output = equation.partition("->")
    left = inputs.split(",")
    simple = equation.replace("->", "").replace(",", "").isalpha()
    if not simple or len(left) != len(operands):
        raise call.refuse_attribute("equation", "one letter for each dimension")
    if any(
        len(set(term)) != len(term) or len(term) != x.rank
        for term, x in zip(left, operands, strict=True)
    ):
        raise call.refuse_attribute("equation", "each letter once in an operand")
    if not arrow:
        joined = "".join(left)
        output = "".join(
            sorted(each for each in set(joined) if joined.count(each) == 1)
        )
    if not set(output) <= set("".join(left)) or len(set(output)) != len(output):
        raise call.refuse_attribute(
            "equation", "letters of the operands on the right, each once"
        )
    return left, output


def _summed(build: Builder, x: Value, letters: str, output: str) -> Value:
    """The elements of *x* added up along the letters that *output* lacks, in order."""
    axes = [axis for axis, letter in enumerate(letters) if letter not in output]
    if axes:
        x = reduced(build, "SUM", x, axes, keep=False)
    kept = [letter for letter in letters if letter in output]
    return build.transpose(x, [kept.index(letter) for letter in output])


def _contracted(
    build: Builder, operands: list[Value], left: list[str], output: str
) -> Value:
    """Two operands as one product: batches, what stays, and what is added up."""
    (a, b), (of_a, of_b) = operands, left
    both = [letter for letter in of_a if letter in of_b]
    batch = [letter for letter in both if letter in output]
    inner = [letter for letter in both if letter not in output]
    a_own = [each for each in of_a if each not in of_b and each in output]
    b_own = [each for each in of_b if each not in of_a and each in output]
    sizes = dict(zip(of_a, a.shape, strict=True))
    for letter, size in zip(of_b, b.shape, strict=True):
        if sizes.setdefault(letter, size) != size:
            raise Refused(
                ep.RefusalCode.OTHER, f"{letter} is {sizes[letter]} and {size}"
            )

    def count(letters: list[str]) -> int:
        return math.prod(sizes[letter] for letter in letters)

    a = _summed(build, a, of_a, "".join([*batch, *a_own, *inner]))
    b = _summed(build, b, of_b, "".join([*batch, *inner, *b_own]))
    a = build.reshape(a, (count(batch), count(a_own), count(inner)))
    b = build.reshape(b, (count(batch), count(inner), count(b_own)))
    order = [*batch, *a_own, *b_own]
    made = build.reshape(matmul(build, a, b), [sizes[letter] for letter in order])
    return build.transpose(made, [order.index(letter) for letter in output])
