"""Convolutions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from onnxplug import ep
from onnxplug_directml.abi.directml import (
    DML_CONVOLUTION_DIRECTION,
    DML_CONVOLUTION_MODE,
)
from onnxplug_directml.lowering.builder import Refused, Result, Shape, Value
from onnxplug_directml.lowering.call import MICROSOFT, Call, lowers
from onnxplug_directml.lowering.operators.activation import activated
from onnxplug_directml.lowering.operators.arithmetic import clipped
from onnxplug_directml.lowering.windows import (
    Windows,
    free_windows,
    lifted,
    lifted_shape,
    windows_of,
)


@lowers("Conv")
def _conv(call: Call) -> Value:
    return _convolved(call, _forward(call, 0, 1), DML_CONVOLUTION_DIRECTION.FORWARD)


def _forward(call: Call, x: int, w: int) -> Windows:
    """The windows of a convolution of the inputs at two positions.

    Raises:
        Refused: input and filter do not go together.
    """
    given, filters = call.shape(x), call.shape(w)
    groups = _groups(call, given, filters)
    if given[1] != filters[1] * groups or filters[0] % groups:
        raise _apart(given, filters, groups)
    return windows_of(call, filters[2:], given[2:])


def _groups(call: Call, given: Shape, filters: Shape) -> int:
    """How many groups of channels there are.

    Raises:
        Refused: these are no input and filters, or ``kernel_shape`` says otherwise.
    """
    groups = int(call.attribute("group", 1))
    if len(given) < 3 or len(given) != len(filters) or groups < 1:
        raise _apart(given, filters, groups)
    sizes = call.attribute("kernel_shape", filters[2:])
    if tuple(sizes) != filters[2:]:
        raise call.refuse_attribute("kernel_shape", f"{list(filters[2:])}")
    return groups


def _apart(given: Shape, filters: Shape, groups: int) -> Refused:
    return Refused(
        ep.RefusalCode.OTHER,
        f"an input of {list(given)}, filters of {list(filters)}, {groups} groups",
    )


def _convolved(
    call: Call,
    windows: Windows,
    direction: DML_CONVOLUTION_DIRECTION,
    padding: tuple[int, ...] = (),
) -> Value:
    build = call.build
    x, w, bias = call.operand(0), call.operand(1), call.optional(2)
    shape = call.output_shape()
    count = max(x.rank - 2, 2)
    extra = (0,) * (count - len(padding)) + padding
    made = build(
        "CONVOLUTION", InputTensor=lifted(build, x), FilterTensor=lifted(build, w),
        BiasTensor=None if bias is None
        else build.reshape(bias, (1, bias.size, *(1,) * count)),
        OutputTensor=Result(x.dtype, lifted_shape(shape)),
        Mode=DML_CONVOLUTION_MODE.CROSS_CORRELATION, Direction=direction,
        OutputPadding=extra, GroupCount=call.attribute("group", 1),
        **_fields(windows),
    )  # fmt: skip
    return build.reshape(made, shape)


def _fields(windows: Windows) -> dict[str, Any]:
    there = windows.lifted()
    return {
        "Strides": there.strides,
        "Dilations": there.dilations,
        "StartPadding": there.starts,
        "EndPadding": there.ends,
    }


@lowers("ConvTranspose")
def _conv_transpose(call: Call) -> Value:
    given, filters = call.shape(0), call.shape(1)
    groups = _groups(call, given, filters)
    if given[1] != filters[0] or given[1] % groups:
        raise _apart(given, filters, groups)
    count = len(given) - 2
    extra = tuple(call.attribute("output_padding") or (0,) * count)
    if len(extra) != count:
        raise call.refuse_attribute("output_padding", f"{count} numbers")
    windows, extra = _transposed(call, given[2:], filters[2:], extra)
    return _convolved(call, windows, DML_CONVOLUTION_DIRECTION.BACKWARD, extra)


def _transposed(
    call: Call,
    given: tuple[int, ...],
    sizes: tuple[int, ...],
    extra: tuple[int, ...],
) -> tuple[Windows, tuple[int, ...]]:
    """Windows of a transposed convolution, whose padding is cut off, and the sizes of
    what is added behind.

    Where the output's sizes are stated or follow from ``auto_pad``, paddings follow
    from them, as ONNX has it.  ONNX's ``output_padding`` has less cut off in the end;
    DirectML's adds zeros, which is the same only beyond what the convolution gives.
    """
    automatic = call.attribute("auto_pad", "NOTSET")
    wanted = call.output_shape()[2:]
    if automatic in ("NOTSET", "VALID") and not call.attribute("output_shape"):
        windows = windows_of(call, sizes, given)
        starts = windows.starts
    else:
        call.ignore("pads")
        windows = free_windows(call, sizes)
        pairs = zip(_full(windows, given), wanted, strict=True)
        totals = [
            max(full + more - size, 0)
            for (full, size), more in zip(pairs, extra, strict=True)
        ]
        less = tuple(total // 2 for total in totals)
        rest = tuple(total - half for total, half in zip(totals, less, strict=True))
        starts = less if automatic == "SAME_UPPER" else rest
    behind = [
        size + start - full
        for size, start, full in zip(wanted, starts, _full(windows, given), strict=True)
    ]
    windows = replace(windows, starts=starts, ends=tuple(max(-b, 0) for b in behind))
    return windows, tuple(max(each, 0) for each in behind)


def _full(windows: Windows, given: tuple[int, ...]) -> list[int]:
    """The sizes that a transposed convolution gives before anything is cut off."""
    return [
        (size - 1) * stride + reach
        for size, stride, reach in zip(
            given, windows.strides, windows.reaches, strict=True
        )
    ]


_MOST_INTEGER: Final = 2
"""Spatial dimensions of convolutions of integers."""


def _integer_windows(call: Call, x: int, w: int) -> Windows:
    windows = _forward(call, x, w)
    if len(windows.sizes) > _MOST_INTEGER:
        raise Refused(
            ep.RefusalCode.RANK,
            f"{len(windows.sizes)} spatial dimensions; of integers 1 or 2 are taken",
        )
    return windows


def _of_channels(call: Call, position: int, channels: int) -> Value:
    """Scales or zero points: one, or one for each channel that comes out."""
    x = call.operand(position)
    if x.size not in (1, channels):
        raise Refused(
            ep.RefusalCode.OTHER,
            f"input {position} ({call.input_name(position)!r}) is of {list(x.shape)}; "
            "takes one number, or one for each channel",
        )
    return call.build.reshape(x, (1, x.size, 1, 1))


@lowers("ConvInteger")
def _conv_integer(call: Call) -> Value:
    build = call.build
    windows = _integer_windows(call, 0, 1)
    shape, fields = call.output_shape(), _fields(windows)
    if call.has(2):
        fields["InputZeroPointTensor"] = _of_channels(call, 2, 1)
    if call.has(3):
        fields["FilterZeroPointTensor"] = _of_channels(call, 3, call.shape(1)[0])
    made = build(
        "CONVOLUTION_INTEGER", InputTensor=lifted(build, call.operand(0)),
        FilterTensor=lifted(build, call.operand(1)),
        OutputTensor=Result(ep.DataType.INT32, lifted_shape(shape)),
        GroupCount=call.attribute("group", 1), **fields,
    )  # fmt: skip
    return build.reshape(made, shape)


@lowers("QLinearConv")
def _q_linear_conv(call: Call) -> Value:
    build = call.build
    windows = _integer_windows(call, 0, 3)
    shape, channels = call.output_shape(), call.shape(3)[0]
    bias = call.optional(8)
    made = build(
        "QUANTIZED_LINEAR_CONVOLUTION",
        InputTensor=lifted(build, call.operand(0)),
        InputScaleTensor=_of_channels(call, 1, 1),
        InputZeroPointTensor=_of_channels(call, 2, 1),
        FilterTensor=lifted(build, call.operand(3)),
        FilterScaleTensor=_of_channels(call, 4, channels),
        FilterZeroPointTensor=_of_channels(call, 5, channels),
        BiasTensor=None if bias is None else build.reshape(bias, (1, channels, 1, 1)),
        OutputScaleTensor=_of_channels(call, 6, 1),
        OutputZeroPointTensor=_of_channels(call, 7, 1),
        OutputTensor=Result(call.output_dtype(), lifted_shape(shape)),
        GroupCount=call.attribute("group", 1), **_fields(windows),
    )  # fmt: skip
    return build.reshape(made, shape)


@lowers("FusedConv", domain=MICROSOFT)
def _fused_conv(call: Call) -> Value:
    build = call.build
    made = _conv(call)
    if call.has(3):
        made = build.binary("ELEMENT_WISE_ADD", made, call.operand(3))
    name = call.attribute("activation", "")
    parameters = list(call.attribute("activation_params", ()))
    if len(parameters) < {"LeakyRelu": 1, "HardSigmoid": 2, "Clip": 2}.get(name, 0):
        raise call.refuse_attribute("activation_params", f"those of {name}")
    match name:
        case "":
            return made
        case "Relu" | "Sigmoid" | "Tanh":
            return activated(build, name.upper(), made)
        case "LeakyRelu":
            return activated(build, "LEAKY_RELU", made, Alpha=parameters[0])
        case "HardSigmoid":
            alpha, beta = parameters[:2]
            return activated(build, "HARD_SIGMOID", made, Alpha=alpha, Beta=beta)
        case "Clip":
            return clipped(build, made, *parameters[:2])
    raise call.refuse_attribute(
        "activation", "Relu, Sigmoid, Tanh, LeakyRelu, HardSigmoid and Clip"
    )
