"""Operators that change data types and scales of elements, one by one."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import Desc, Tensor, operator
from .constraints import each, require, same_counts, same_sizes, same_types

Array = np.ndarray[Any, Any]


def saturated(values: Array, data_type: np.dtype[Any]) -> Array:
    """Values in a data type, clamped to its range; NaN becomes 0 in integers."""
    if data_type.kind == "f":
        return values.astype(data_type)
    limits = np.iinfo(data_type)
    kept = np.where(np.isnan(values), 0, values)
    low, high = kept <= limits.min, kept >= limits.max
    # int(limits) is not exact in float64 for 64 bits: what lies beyond is set after
    inner = np.where(low | high, 0, kept).astype(data_type)
    return np.where(low, limits.min, np.where(high, limits.max, inner)).astype(
        data_type
    )


@operator("VALUE_SCALE_2D")
class ValueScale2D:
    support = """
        1.0  InputTensor   input   4  FLOATS
             OutputTensor  output  4  FLOATS
    """

    @staticmethod
    def check(desc: Desc, tensors: dict[str, Any]) -> None:
        same_types(tensors, "InputTensor OutputTensor")
        same_sizes(tensors, "InputTensor OutputTensor")
        channels = tensors["InputTensor"].sizes[1]
        require(
            desc.ChannelCount in (1, 3) and desc.ChannelCount == channels,
            f"ChannelCount is {desc.ChannelCount} for {channels} channels; 1 or 3",
        )

    @staticmethod
    def evaluate(desc: Desc, inputs: list[Any]) -> list[Any]:
        (values,) = inputs
        bias = np.array(desc.Bias, np.float64).reshape(1, -1, 1, 1)
        scaled = desc.Scale * values.astype(np.float64) + bias
        return [scaled.astype(values.dtype)]


def expanded(parameter: Array, sizes: tuple[int, ...]) -> Array:
    """Scales or zero points of blocks, one for each element of sizes."""
    for axis, size in enumerate(sizes):
        parameter = np.repeat(parameter, size // parameter.shape[axis], axis)
    return parameter


def check_quantization(
    desc: Desc, tensors: dict[str, Any], codes: str, values: str
) -> None:
    """What `Quantize` and `Dequantize` demand of their parameters.

    The pages state the data types and the one DimensionCount, and for the rest "TBD".
    That scales are of the values' type, zero points of the codes', and that each size
    of theirs divides the tensor's (a block has one scale) is how ONNX Runtime and
    Chromium use the operators.
    """
    same_counts(tensors, "InputTensor QuantizationTensors OutputTensor")
    same_sizes(tensors, "InputTensor OutputTensor")
    count = {"SCALE": 1, "SCALE_ZERO_POINT": 2}.get(desc.QuantizationType)
    parameters: list[Tensor] = [t for _, t in each(tensors, "QuantizationTensors")]
    require(
        len(parameters) == count,
        f"{len(parameters)} QuantizationTensors for {desc.QuantizationType}",
    )
    for parameter, like in zip(parameters, (values, codes), strict=False):
        tensor = tensors[like]
        require(
            parameter.data_type == tensor.data_type,
            f"{parameter.type_name} as quantization parameter beside a {like} of "
            f"{tensor.type_name}",
        )
        require(
            all(not n % m for n, m in zip(tensor.sizes, parameter.sizes, strict=True)),
            f"quantization parameters of {parameter.sizes} for {tensor.sizes}",
        )


@operator("QUANTIZE")
class Quantize:
    """The formula is that of ``ELEMENT_WISE_QUANTIZE_LINEAR``; the page has none.

    INT4 and UINT4, which the page lists, are no data types of the stand-in.
    """

    support = """
        6.3  InputTensor          input   1-8  FLOATS
             QuantizationTensors  input   1-8  FLOATS INT8 UINT8
             OutputTensor         output  1-8  INT8 UINT8
    """

    @staticmethod
    def check(desc: Desc, tensors: dict[str, Any]) -> None:
        check_quantization(desc, tensors, codes="OutputTensor", values="InputTensor")

    @staticmethod
    def evaluate(desc: Desc, inputs: list[Any]) -> list[Any]:
        values, scale, *zero_points = inputs
        with np.errstate(divide="ignore", invalid="ignore"):
            quotients = values / expanded(scale, values.shape)
        codes = np.rint(quotients.astype(np.float64))
        for zero_point in zero_points:
            codes = codes + expanded(zero_point, values.shape)
        return [saturated(codes, desc.OutputTensor.data_type)]


@operator("DEQUANTIZE")
class Dequantize:
    """The formula is that of ``ELEMENT_WISE_DEQUANTIZE_LINEAR``; see `Quantize`."""

    support = """
        6.3  InputTensor          input   1-8  INT8 UINT8
             QuantizationTensors  input   1-8  FLOATS INT8 UINT8
             OutputTensor         output  1-8  FLOATS
    """

    @staticmethod
    def check(desc: Desc, tensors: dict[str, Any]) -> None:
        check_quantization(desc, tensors, codes="InputTensor", values="OutputTensor")

    @staticmethod
    def evaluate(desc: Desc, inputs: list[Any]) -> list[Any]:
        codes, scale, *zero_points = inputs
        values = codes.astype(np.float64)
        for zero_point in zero_points:
            values = values - expanded(zero_point, codes.shape)
        values = values * expanded(scale, codes.shape)
        return [values.astype(desc.OutputTensor.data_type)]
