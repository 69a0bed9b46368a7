"""``GEMM`` and the matrix products of integers."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import Desc, Rejected, fused, operator
from .agreement import (
    Tensors,
    same,
    same_data_type,
    same_dimension_count,
    same_sizes,
)
from .arithmetic import Array, converted, quiet
from .convolution import one_or_each
from .quantization import dequantized, quantized

MATRICES = "ATensor BTensor OutputTensor"


def multiplied(tensors: Tensors, *, a: bool = False, b: bool = False) -> None:
    """``{M, K} x {K, N} = {M, N}`` for the same batches and channels, or `Rejected`.

    Nothing broadcasts but by strides of 0.

    Args:
        tensors: ``ATensor``, ``BTensor`` and ``OutputTensor``.
        a: whether the first is transposed.
        b: whether the second is.
    """
    left, right, output = (tensors[name].sizes for name in MATRICES.split())
    m, k = left[-2:][::-1] if a else left[-2:]
    inner, n = right[-2:][::-1] if b else right[-2:]
    if k != inner or output != (*left[:-2], m, n) or left[:-2] != right[:-2]:
        raise Rejected(f"matrices of Sizes {left} and {right} make none of {output}")


@operator("GEMM")
class Gemm:
    support = """
        4.0  ATensor       input   2-4  FLOATS
             BTensor       input   2-4  FLOATS
             CTensor       input?  2-4  FLOATS
             OutputTensor  output  2-4  FLOATS
        1.0  ATensor       input   4    FLOATS
             BTensor       input   4    FLOATS
             CTensor       input?  4    FLOATS
             OutputTensor  output  4    FLOATS
    """

    @staticmethod
    def check(desc: Desc, tensors: Tensors) -> None:
        same(tensors, f"{MATRICES} CTensor", sizes=False)
        same_sizes(tensors, "CTensor OutputTensor")
        transposed = {"a": desc.TransA == "TRANSPOSE", "b": desc.TransB == "TRANSPOSE"}
        multiplied(tensors, **transposed)

    @staticmethod
    @quiet
    def evaluate(desc: Desc, inputs: list[Any]) -> list[Array]:
        a, b = (each.astype(np.float64) for each in inputs[:2])
        a = a.swapaxes(-1, -2) if desc.TransA == "TRANSPOSE" else a
        b = b.swapaxes(-1, -2) if desc.TransB == "TRANSPOSE" else b
        result = desc.Alpha * (a @ b)
        if inputs[2] is not None:
            result += desc.Beta * inputs[2].astype(np.float64)
        result = fused(desc.FusedActivation, result)
        return [converted(result, desc.OutputTensor.data_type)]


def along(values: Any, rank: int, dimension: int) -> Any:
    """A tensor of one element or of one for each row or column, for broadcasting."""
    if values is None:
        return None
    shape = [1] * rank
    shape[dimension] = -1
    return values.reshape(shape)


def quantization(tensors: Tensors) -> None:
    """Scales and zero points: one, or one for each row of A or column of B."""
    for each, dimension in (("A", -2), ("B", -1), ("Output", -2)):
        same_data_type(tensors, f"{each}Tensor {each}ZeroPointTensor")
        fields = f"{each}ScaleTensor {each}ZeroPointTensor"
        one_or_each(tensors, fields, dimension, f"{each}Tensor")


INTEGERS = "INT32 INT16 INT8 UINT32 UINT16 UINT8"


@operator("MATRIX_MULTIPLY_INTEGER")
class MatrixMultiplyInteger:
    support = "".join(
        f"""
        {level}  ATensor           input   {counts}   INT8 UINT8
                 AZeroPointTensor  input?  {of_a}     INT8 UINT8
                 BTensor           input   {counts}   INT8 UINT8
                 BZeroPointTensor  input?  {of_b}     INT8 UINT8
                 OutputTensor      output  {counts}   INT32
        """
        for level, counts, of_a, of_b in (
            ("5.2", "2-4", "1-4", "1-4"),
            ("4.0", "2-4", "1-4", "2-4"),
            ("2.1", "4", "4", "4"),
        )
    )

    @staticmethod
    def check(desc: Desc, tensors: Tensors) -> None:
        same_dimension_count(tensors, MATRICES)
        multiplied(tensors)
        quantization(tensors)

    @staticmethod
    def evaluate(desc: Desc, inputs: list[Any]) -> list[Array]:
        a, a_zero, b, b_zero = inputs
        left = dequantized(a, 1.0, along(a_zero, a.ndim, -2))
        right = dequantized(b, 1.0, along(b_zero, b.ndim, -1))
        return [(left @ right).astype(np.int64).astype(np.int32)]


def matrices(inputs: list[Any]) -> Array:
    """The product of A and B, each with its scale and zero point, in float64."""
    a, a_scale, a_zero, b, b_scale, b_zero = inputs
    of_a = (along(each, a.ndim, -2) for each in (a_scale, a_zero))
    of_b = (along(each, b.ndim, -1) for each in (b_scale, b_zero))
    return np.asarray(dequantized(a, *of_a) @ dequantized(b, *of_b))


@operator("QUANTIZED_LINEAR_MATRIX_MULTIPLY")
class QuantizedLinearMatrixMultiply:
    support = "".join(
        f"""
        {level}  ATensor                input   {counts}  INT8 UINT8
                 AScaleTensor           input   {others}  FLOAT32
                 AZeroPointTensor       input?  {others}  INT8 UINT8
                 BTensor                input   {counts}  INT8 UINT8
                 BScaleTensor           input   {others}  FLOAT32
                 BZeroPointTensor       input?  {others}  INT8 UINT8
                 OutputScaleTensor      input   {others}  FLOAT32
                 OutputZeroPointTensor  input?  {others}  INT8 UINT8
                 OutputTensor           output  {counts}  INT8 UINT8
        """
        for level, counts, others in (("4.0", "2-4", "1-4"), ("2.1", "4", "4"))
    )

    @staticmethod
    def check(desc: Desc, tensors: Tensors) -> None:
        same_dimension_count(tensors, MATRICES)
        fields = [
            f"{x}{y}" for x in ("A", "B", "Output") for y in ("Scale", "ZeroPoint")
        ]
        same_dimension_count(tensors, " ".join(f"{each}Tensor" for each in fields))
        multiplied(tensors)
        quantization(tensors)

    @staticmethod
    @quiet
    def evaluate(desc: Desc, inputs: list[Any]) -> list[Array]:
        result = matrices(inputs[:6])
        scale, zero = (along(each, result.ndim, -2) for each in inputs[6:8])
        return [quantized(result, scale, zero, desc.OutputTensor.data_type)]


@operator("MATRIX_MULTIPLY_INTEGER_TO_FLOAT")
class MatrixMultiplyIntegerToFloat:
    support = f"""
        6.2  ATensor           input   2-4  {INTEGERS}
             AScaleTensor      input   1-4  FLOATS
             AZeroPointTensor  input?  1-4  {INTEGERS}
             BTensor           input   2-4  {INTEGERS}
             BScaleTensor      input   1-4  FLOATS
             BZeroPointTensor  input?  1-4  {INTEGERS}
             BiasTensor        input?  2-4  FLOATS
             OutputTensor      output  2-4  FLOATS
    """

    @staticmethod
    def check(desc: Desc, tensors: Tensors) -> None:
        names = " ".join(f"{x}{y}Tensor" for x in "AB" for y in ("Scale", "ZeroPoint"))
        same_dimension_count(tensors, names)
        same_dimension_count(tensors, f"{MATRICES} BiasTensor")
        same_sizes(tensors, "BiasTensor OutputTensor")
        same_data_type(tensors, "ATensor AZeroPointTensor BTensor BZeroPointTensor")
        same_data_type(tensors, "AScaleTensor BScaleTensor BiasTensor OutputTensor")
        multiplied(tensors)
        quantization(tensors)

    @staticmethod
    @quiet
    def evaluate(desc: Desc, inputs: list[Any]) -> list[Array]:
        result = matrices(inputs[:6])
        if inputs[6] is not None:
            result = result + inputs[6].astype(np.float64)
        return [converted(result, desc.OutputTensor.data_type)]
