"""Linear quantisation: ``(x - zero point) * scale`` and back.

``round`` of the pages takes halves to the nearest even, as ONNX's ``QuantizeLinear``
does, to which ONNX Runtime gives these operators.  Quotients are of float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from . import Desc, Rejected, operator
from .agreement import (
    Tensors,
    one_of_each,
    same_data_type,
    same_dimension_count,
    same_sizes,
)
from .arithmetic import Array, converted, quiet

ALL = "InputTensor ScaleTensor ZeroPointTensor OutputTensor"
SMALL = "INT32 INT16 INT8 UINT32 UINT16 UINT8"


@quiet
def quantized(x: Array, scale: Array, zero: Array | None, to: np.dtype[Any]) -> Array:
    """``clamp(round(x / scale) + zero point, Min, Max)``, in a data type of 8 bits."""
    steps = np.rint(x / scale).astype(np.float64)
    limits = np.iinfo(to)
    codes = steps + (0 if zero is None else zero.astype(np.float64))
    return converted(np.clip(codes, limits.min, limits.max), to)


def dequantized(codes: Array, scale: Array | float, zero: Array | None) -> Array:
    """``(code - zero point) * scale`` in float64."""
    values = codes.astype(np.float64)
    return values * scale if zero is None else (values - zero) * scale


def table(level: str, counts: str, inputs: str, scales: str, codes: str) -> str:
    """A feature level of a table in which zero points and outputs have one type."""
    zero = "input?" if level == "6.2" else "input"
    return f"""
        {level}  InputTensor      input    {counts}  {inputs}
                 ScaleTensor      input    {counts}  {scales}
                 ZeroPointTensor  {zero}   {counts}  {codes}
                 OutputTensor     output   {counts}  """


@operator("ELEMENT_WISE_QUANTIZE_LINEAR")
class QuantizeLinear:
    support = "".join(
        table(level, counts, inputs, scales, codes) + codes
        for level, counts, inputs, scales, codes in (
            ("6.2", "1-8", "FLOATS INT32", "FLOATS", "INT8 UINT8"),
            ("6.0", "1-8", "FLOATS INT32", "FLOATS", "INT8 UINT8"),
            ("3.0", "1-8", "FLOAT32 INT32", "FLOAT32", "INT8 UINT8"),
            ("2.1", "4", "FLOAT32 INT32", "FLOAT32", "INT8 UINT8"),
            ("1.0", "4", "FLOAT32", "FLOAT32", "UINT8"),
        )
    )

    @staticmethod
    def check(desc: Desc, tensors: Tensors) -> None:
        same_sizes(tensors, ALL)
        same_data_type(tensors, "OutputTensor ZeroPointTensor")
        if tensors["InputTensor"].type_name != "INT32":
            same_data_type(tensors, "InputTensor ScaleTensor")
        elif tensors["ScaleTensor"].type_name != "FLOAT32":
            raise Rejected("ScaleTensor of an INT32 InputTensor must be FLOAT32")

    @staticmethod
    def evaluate(desc: Desc, inputs: list[Any]) -> list[Array]:
        x, scale, zero = inputs
        x, scale = x.astype(np.float32), scale.astype(np.float32)
        return [quantized(x, scale, zero, desc.OutputTensor.data_type)]


@operator("ELEMENT_WISE_DEQUANTIZE_LINEAR")
class DequantizeLinear:
    support = "".join(
        table(level, counts, codes, floats, codes) + floats
        for level, counts, codes, floats in (
            ("6.2", "1-8", SMALL, "FLOATS"),
            ("6.0", "1-8", SMALL, "FLOATS"),
            ("3.0", "1-8", SMALL, "FLOAT32"),
            ("2.1", "4", SMALL, "FLOAT32"),
            ("1.0", "4", "UINT8", "FLOAT32"),
        )
    )

    @staticmethod
    def check(desc: Desc, tensors: Tensors) -> None:
        same_sizes(tensors, ALL)
        same_data_type(tensors, "InputTensor ZeroPointTensor")
        same_data_type(tensors, "OutputTensor ScaleTensor")

    @staticmethod
    @quiet
    def evaluate(desc: Desc, inputs: list[Any]) -> list[Array]:
        codes, scale, zero = inputs
        values = dequantized(codes, scale.astype(np.float64), zero)
        return [converted(values, desc.OutputTensor.data_type)]


@operator("ELEMENT_WISE_QUANTIZED_LINEAR_ADD")
class QuantizedLinearAdd:
    support = """
        4.0  ATensor                input   1-8  INT8 UINT8
             AScaleTensor           input   1-8  FLOAT32
             AZeroPointTensor       input?  1-8  INT8 UINT8
             BTensor                input   1-8  INT8 UINT8
             BScaleTensor           input   1-8  FLOAT32
             BZeroPointTensor       input?  1-8  INT8 UINT8
             OutputScaleTensor      input   1-8  FLOAT32
             OutputZeroPointTensor  input?  1-8  INT8 UINT8
             OutputTensor           output  1-8  INT8 UINT8
    """

    @staticmethod
    def check(desc: Desc, tensors: Tensors) -> None:
        same_dimension_count(tensors, " ".join(tensors))
        same_sizes(tensors, "ATensor BTensor OutputTensor")
        for each in ("A", "B", "Output"):
            same_data_type(tensors, f"{each}Tensor {each}ZeroPointTensor")
            one_of_each(tensors, f"{each}ScaleTensor {each}ZeroPointTensor")

    @staticmethod
    @quiet
    def evaluate(desc: Desc, inputs: list[Any]) -> list[Array]:
        total = dequantized(*inputs[0:3]) + dequantized(*inputs[3:6])
        scale, zero = inputs[6:8]
        return [quantized(total, scale, zero, desc.OutputTensor.data_type)]


@operator("DYNAMIC_QUANTIZE_LINEAR")
class DynamicQuantizeLinear:
    support = """
        4.0  InputTensor            input   1-8  FLOATS
             OutputTensor           output  1-8  INT8 UINT8
             OutputScaleTensor      output  1-8  FLOAT32
             OutputZeroPointTensor  output  1-8  INT8 UINT8
    """

    @staticmethod
    def check(desc: Desc, tensors: Tensors) -> None:
        same_dimension_count(tensors, " ".join(tensors))
        same_sizes(tensors, "InputTensor OutputTensor")
        same_data_type(tensors, "OutputTensor OutputZeroPointTensor")
        one_of_each(tensors, "OutputScaleTensor OutputZeroPointTensor")

    @staticmethod
    @quiet
    def evaluate(desc: Desc, inputs: list[Array]) -> list[Array]:
        """The range includes 0, which the page leaves out, so that the zero point is a
        code: as ONNX's operator has it, to which ONNX Runtime gives this one.
        """
        x = inputs[0].astype(np.float32)
        to = desc.OutputTensor.data_type
        limits = np.iinfo(to)
        low, high = np.minimum(x.min(), 0), np.maximum(x.max(), 0)
        scale = np.float32((high - low) / np.float32(limits.max - limits.min))
        zero = np.clip(np.rint(limits.min - low / scale), limits.min, limits.max)
        if scale == 0:  # of zeros only; the page divides by it
            zero, codes = np.zeros((), to), np.zeros(x.shape, to)
        else:
            zero = converted(np.asarray(zero), to)
            codes = quantized(x, np.asarray(scale), zero, to)
        return [
            codes,
            np.full(desc.OutputScaleTensor.sizes, scale, np.float32),
            np.full(desc.OutputZeroPointTensor.sizes, zero, to),
        ]
