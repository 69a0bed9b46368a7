"""Operators with a scale for each channel or block."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import Desc, Tensor, operator
from .agreement import Tensors, agree, same, same_sizes
from .arithmetic import Array, converted
from .constraints import each, require
from .quantization import dequantized, quantized


@operator("VALUE_SCALE_2D")
class ValueScale2D:
    support = """
        1.0  InputTensor   input   4  FLOATS
             OutputTensor  output  4  FLOATS
    """

    @staticmethod
    def check(desc: Desc, tensors: Tensors) -> None:
        same(tensors, "InputTensor OutputTensor")
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
        return [converted(scaled, values.dtype)]


def of_elements(
    parameters: list[Array], sizes: tuple[int, ...]
) -> tuple[Array, Array | None]:
    """The scale, and the zero point if there is one, of each element of sizes."""
    expanded = []
    for parameter in parameters:
        for axis, size in enumerate(sizes):
            parameter = np.repeat(parameter, size // parameter.shape[axis], axis)
        expanded.append(parameter)
    return expanded[0], expanded[1] if len(expanded) > 1 else None


def check_quantization(desc: Desc, tensors: Tensors, codes: str, values: str) -> None:
    """What `Quantize` and `Dequantize` demand of their parameters.

    The pages state the data types and the one DimensionCount, and for the rest "TBD".
    That scales are of the values' type, zero points of the codes', and that each size
    of theirs divides the tensor's (a block has one scale) is how ONNX Runtime and
    Chromium use the operators.
    """
    counts = each(tensors, "InputTensor QuantizationTensors OutputTensor")
    agree("DimensionCount", {name: len(tensor.sizes) for name, tensor in counts})
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
    def check(desc: Desc, tensors: Tensors) -> None:
        check_quantization(desc, tensors, codes="OutputTensor", values="InputTensor")

    @staticmethod
    def evaluate(desc: Desc, inputs: list[Any]) -> list[Any]:
        values, *parameters = inputs
        scale, zero = of_elements(parameters, values.shape)
        return [quantized(values, scale, zero, desc.OutputTensor.data_type)]


@operator("DEQUANTIZE")
class Dequantize:
    """The formula is that of ``ELEMENT_WISE_DEQUANTIZE_LINEAR``; see `Quantize`."""

    support = """
        6.3  InputTensor          input   1-8  INT8 UINT8
             QuantizationTensors  input   1-8  FLOATS INT8 UINT8
             OutputTensor         output  1-8  FLOATS
    """

    @staticmethod
    def check(desc: Desc, tensors: Tensors) -> None:
        check_quantization(desc, tensors, codes="InputTensor", values="OutputTensor")

    @staticmethod
    def evaluate(desc: Desc, inputs: list[Any]) -> list[Any]:
        codes, *parameters = inputs
        scale, zero = of_elements(parameters, codes.shape)
        return [converted(dequantized(codes, scale, zero), desc.OutputTensor.data_type)]
