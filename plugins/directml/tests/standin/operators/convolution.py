"""``CONVOLUTION`` forward and backward, and the convolutions of integers."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import Desc, Rejected, fused, operator
from .agreement import (
    Tensors,
    one_of_each,
    same,
    same_data_type,
    same_dimension_count,
    sized,
)
from .arithmetic import Array, converted, quiet
from .quantization import quantized
from .windows import extents, padded, positions, sliding, spatial


def channels(desc: Desc, tensors: Tensors, *, backward: bool = False) -> None:
    """The channels of input, filter and output fit the groups, or `Rejected`.

    A backward filter is that of the forward convolution of which it is the gradient:
    ``{ InputChannelCount, OutputChannelCount / GroupCount, … }``.
    """
    groups = desc.GroupCount
    names = (
        ("OutputTensor", "InputTensor") if backward else ("InputTensor", "OutputTensor")
    )
    into, out_of = (tensors[name].sizes[1] for name in names)
    filters, per_group = tensors["FilterTensor"].sizes[:2]
    if groups < 1 or into % groups or out_of % groups:
        raise Rejected(f"GroupCount {groups} does not divide {into} and {out_of}")
    if (filters, per_group) != (out_of, into // groups):
        raise Rejected(
            f"FilterTensor has {filters} filters of {per_group} channels, "
            f"not {out_of} of {into // groups}"
        )


def forward_sizes(desc: Desc, tensors: Tensors, extra: tuple[int, ...]) -> None:
    """The output's batch and spatial sizes, with ``extra`` after, or `Rejected`."""
    source, output = tensors["InputTensor"].sizes, tensors["OutputTensor"].sizes
    extent = extents(tensors["FilterTensor"].sizes[2:], desc.Dilations)
    found = positions(desc, source[2:], extent)
    sizes = tuple(n + more for n, more in zip(found, extra, strict=True))
    sized(tensors, "OutputTensor", (source[0], output[1], *sizes))


def backward_sizes(desc: Desc, tensors: Tensors) -> None:
    """The output is one of which the forward convolution has the input's sizes.

    So several are right where strides are above 1.  ONNX Runtime gives the output of a
    ``ConvTranspose`` with ``output_padding`` that way, and zeros for ``OutputPadding``.
    """
    source, output = tensors["InputTensor"].sizes, tensors["OutputTensor"].sizes
    extent = extents(tensors["FilterTensor"].sizes[2:], desc.Dilations)
    pairs = zip(output[2:], desc.OutputPadding, strict=True)
    inner = [size - padding for size, padding in pairs]
    found = positions(desc, inner, extent)
    if source[0] != output[0] or found != source[2:]:
        raise Rejected(
            f"OutputTensor's Sizes {output} are those of an input of {found}, "
            f"not of {source[2:]}"
        )


def correlated(desc: Desc, x: Array, filters: Array) -> Array:
    """``{ Batch, OutputChannel, … }`` of values that are padded, in their data type."""
    groups, count, window = desc.GroupCount, len(filters), filters.shape[2:]
    views = sliding(desc, x, window, desc.Dilations)
    batch, into = views.shape[:2]
    at = views.shape[2 : 2 + len(window)]
    views = views.reshape(batch, groups, into // groups, *at, *window)
    # { batch, group, positions…, channel, window… } as rows of one matrix a group
    order = (0, 1, *range(3, 3 + len(at)), 2, *range(3 + len(at), views.ndim))
    rows = views.transpose(order).reshape(batch, groups, int(np.prod(at)), -1)
    weights = filters.reshape(groups, count // groups, -1).transpose(0, 2, 1)
    result = (rows @ weights).transpose(0, 1, 3, 2)
    return np.ascontiguousarray(result).reshape(batch, count, *at)


def spread(desc: Desc, x: Array, filters: Array) -> Array:
    """The gradient of `correlated`: each input element times the filter, added up.

    Returns:
        array ``{ Batch, OutputChannel, … }`` before the paddings are cut off.
    """
    groups, window = desc.GroupCount, filters.shape[2:]
    batch, into, *sizes = x.shape
    extent = extents(window, desc.Dilations)
    full = [
        (size - 1) * s + e
        for size, s, e in zip(sizes, desc.Strides, extent, strict=True)
    ]
    per_group = filters.shape[1]
    grouped = x.reshape(batch, groups, into // groups, -1)
    weights = filters.reshape(groups, into // groups, per_group, *window)
    result = np.zeros((batch, groups, per_group, *full))
    whole = (slice(None),) * 3
    for at in np.ndindex(*window):
        matrix = weights[(*whole, *at)]
        part = (matrix.transpose(0, 2, 1) @ grouped).reshape(
            batch, groups, per_group, *sizes
        )
        where = tuple(
            slice(i * d, i * d + (size - 1) * s + 1, s)
            for i, d, size, s in zip(
                at, desc.Dilations, sizes, desc.Strides, strict=True
            )
        )
        result[(*whole, *where)] += part
    return result.reshape(batch, groups * per_group, *full)


def cropped(values: Array, start: Any, output: tuple[int, ...], zeros: Any) -> Array:
    """What of values the output has, and zeros after their end.

    Args:
        values: array ``{ Batch, Channel, … }``.
        start: what is cut off the start of each spatial dimension.
        output: sizes of the output.
        zeros: how many elements at the end of each are zero whatever the values.
    """
    result = np.zeros(output)
    ends = [
        max(min(size - zero, whole - begin), 0)
        for size, zero, whole, begin in zip(
            output[2:], zeros, values.shape[2:], start, strict=True
        )
    ]
    taken = tuple(slice(b, b + end) for b, end in zip(start, ends, strict=True))
    kept = tuple(slice(0, end) for end in ends)
    whole = (slice(None),) * 2
    result[(*whole, *kept)] = values[(*whole, *taken)]
    return result


@operator("CONVOLUTION")
class Convolution:
    support = """
        4.0  InputTensor   input   3-5  FLOATS
             FilterTensor  input   3-5  FLOATS
             BiasTensor    input?  3-5  FLOATS
             OutputTensor  output  3-5  FLOATS
        1.0  InputTensor   input   4-5  FLOATS
             FilterTensor  input   4-5  FLOATS
             BiasTensor    input?  4-5  FLOATS
             OutputTensor  output  4-5  FLOATS
    """

    @staticmethod
    def check(desc: Desc, tensors: Tensors) -> None:
        same(tensors, "InputTensor FilterTensor BiasTensor OutputTensor", sizes=False)
        spatial(desc, tensors, "Strides Dilations")
        backward = desc.Direction == "BACKWARD"
        channels(desc, tensors, backward=backward)
        if backward:
            backward_sizes(desc, tensors)
        else:
            forward_sizes(desc, tensors, desc.OutputPadding)
        count = tensors["OutputTensor"].sizes[1]
        sized(tensors, "BiasTensor", (1, count, *[1] * desc.DimensionCount))

    @staticmethod
    @quiet
    def evaluate(desc: Desc, inputs: list[Any]) -> list[Array]:
        """``OutputPadding``'s zeros are added to the convolution's end, as the page
        says, and the bias after them.
        """
        x, filters = (each.astype(np.float64) for each in inputs[:2])
        if desc.Mode == "CONVOLUTION":  # which the table "Mode interactions" flips
            filters = np.flip(filters, tuple(range(2, filters.ndim)))
        if desc.Direction == "BACKWARD":
            result, start = spread(desc, x, filters), desc.StartPadding
        else:
            result = correlated(desc, padded(desc, x, 0), filters)
            start = (0,) * desc.DimensionCount
        sizes = desc.OutputTensor.sizes
        result = cropped(result, start, sizes, desc.OutputPadding)
        if inputs[2] is not None:
            result += inputs[2].astype(np.float64)
        result = fused(desc.FusedActivation, result)
        return [converted(result, desc.OutputTensor.data_type)]


def per_channel(values: Any, rank: int, field: str = "") -> Any:
    """A tensor of one element, or of one for each output channel, for broadcasting."""
    return None if values is None else values.reshape(1, -1, *[1] * (rank - 2))


def one_or_each(tensors: Tensors, fields: str, dimension: int, full: str) -> None:
    """One element, or as many along a dimension as another tensor has, or `Rejected`.

    Pages leave open which dimensions a tensor of a lower rank has; here it is enough
    that one of them is larger than 1.
    """
    count = tensors[full].sizes[dimension]
    for name in fields.split():
        sizes = tensors[name].sizes if name in tensors else ()
        large = [size for size in sizes if size != 1]
        whole = len(sizes) == len(tensors[full].sizes)
        misplaced = whole and large and sizes[dimension] == 1
        if large not in ([], [count]) or misplaced:
            raise Rejected(f"{name} has Sizes {sizes}; 1 or {count} elements are due")


def products(desc: Desc, x: Array, filters: Array, zeros: tuple[Any, Any]) -> Array:
    """Convolution of integers less their zero points, exact in float64.

    Padding is of the input's zero point, so that it counts for nothing.
    """
    of_input, of_filter = zeros
    x, filters = x.astype(np.float64), filters.astype(np.float64)
    if of_input is not None:
        x = x - of_input.reshape(-1)[0]
    if of_filter is not None:
        filters = filters - of_filter.reshape(-1, *[1] * (filters.ndim - 1))
    return correlated(desc, padded(desc, x, 0), filters)


@operator("CONVOLUTION_INTEGER")
class ConvolutionInteger:
    support = """
        4.0  InputTensor            input   3-4  INT8 UINT8
             InputZeroPointTensor   input?  1-4  INT8 UINT8
             FilterTensor           input   3-4  INT8 UINT8
             FilterZeroPointTensor  input?  1-4  INT8 UINT8
             OutputTensor           output  3-4  INT32
        2.1  InputTensor            input   4    INT8 UINT8
             InputZeroPointTensor   input?  4    INT8 UINT8
             FilterTensor           input   4    INT8 UINT8
             FilterZeroPointTensor  input?  4    INT8 UINT8
             OutputTensor           output  4    INT32
    """

    @staticmethod
    def check(desc: Desc, tensors: Tensors) -> None:
        same_dimension_count(tensors, "InputZeroPointTensor FilterZeroPointTensor")
        same_dimension_count(tensors, "InputTensor FilterTensor OutputTensor")
        for each in ("Input", "Filter"):
            same_data_type(tensors, f"{each}Tensor {each}ZeroPointTensor")
        spatial(desc, tensors, "Strides Dilations")
        channels(desc, tensors)
        forward_sizes(desc, tensors, (0,) * desc.DimensionCount)
        one_of_each(tensors, "InputZeroPointTensor")
        one_or_each(tensors, "FilterZeroPointTensor", 1, "OutputTensor")

    @staticmethod
    def evaluate(desc: Desc, inputs: list[Any]) -> list[Array]:
        x, zero, filters, filter_zero = inputs
        result = products(desc, x, filters, (zero, filter_zero))
        return [result.astype(np.int64).astype(np.int32)]


@operator("QUANTIZED_LINEAR_CONVOLUTION")
class QuantizedLinearConvolution:
    support = "".join(
        f"""
        {level}  InputTensor            input   {counts}  INT8 UINT8
                 InputScaleTensor       input   {others}  FLOAT32
                 InputZeroPointTensor   input?  {others}  INT8 UINT8
                 FilterTensor           input   {counts}  INT8 UINT8
                 FilterScaleTensor      input   {scale}   FLOAT32
                 FilterZeroPointTensor  input?  {others}  INT8 UINT8
                 BiasTensor             input?  {counts}  INT32
                 OutputScaleTensor      input   {others}  FLOAT32
                 OutputZeroPointTensor  input?  {others}  INT8 UINT8
                 OutputTensor           output  {counts}  INT8 UINT8
        """
        for level, counts, others, scale in (
            ("5.2", "3-4", "1-4", "1-4"),
            ("4.0", "3-4", "1-4", "3-4"),
            ("2.1", "4", "4", "4"),
        )
    )

    @staticmethod
    def check(desc: Desc, tensors: Tensors) -> None:
        same_dimension_count(
            tensors, "InputTensor FilterTensor BiasTensor OutputTensor"
        )
        for each in ("Input", "Filter", "Output"):
            same_data_type(tensors, f"{each}Tensor {each}ZeroPointTensor")
        spatial(desc, tensors, "Strides Dilations")
        channels(desc, tensors)
        forward_sizes(desc, tensors, (0,) * desc.DimensionCount)
        one_of_each(tensors, "InputScaleTensor InputZeroPointTensor")
        one_of_each(tensors, "OutputScaleTensor OutputZeroPointTensor")
        of_filter = "FilterScaleTensor FilterZeroPointTensor"
        one_or_each(tensors, of_filter, 1, "OutputTensor")
        count = tensors["OutputTensor"].sizes[1]
        sized(tensors, "BiasTensor", (1, count, *[1] * desc.DimensionCount))

    @staticmethod
    @quiet
    def evaluate(desc: Desc, inputs: list[Any]) -> list[Array]:
        """The bias is of the product of the input's and the filter's scales, as in
        ONNX's ``QLinearConv``; the page does not say of which.
        """
        x, x_scale, x_zero, filters, f_scale, f_zero, bias, scale, zero = inputs
        total = products(desc, x, filters, (x_zero, f_zero))
        if bias is not None:
            total += bias
        factors = x_scale.astype(np.float64).reshape(-1)[0] * f_scale
        values = total * per_channel(factors, total.ndim)
        to = desc.OutputTensor.data_type
        first = None if zero is None else zero.reshape(-1)[0]
        return [quantized(values, scale.reshape(-1)[0], first, to)]
