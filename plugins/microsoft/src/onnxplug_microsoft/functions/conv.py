"""Convolutions and pools with channels last, or with what is fused into them."""

from __future__ import annotations

from typing import Any

from onnxplug_microsoft.functions.body import Body, NoFunction
from onnxplug_microsoft.functions.makers import operator
from onnxplug_microsoft.functions.matmul import activate


@operator("FusedConv")
def _fused_conv(
    body: Body,
    X: str,
    W: str,
    B: str | None = None,
    Z: str | None = None,
    *,
    activation: str = "",
    activation_params: tuple[float, ...] = (),
    auto_pad: str | None = None,
    dilations: tuple[int, ...] | None = None,
    group: int | None = None,
    kernel_shape: tuple[int, ...] | None = None,
    pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
) -> str:
    """The sum with Z comes before the activation."""
    window = _window(auto_pad, dilations, group, kernel_shape, pads, strides)
    y = body.op("Conv", *_given(X, W, B), **window)
    if Z is not None:
        y = body.op("Add", y, Z)
    return activate(body, y, activation, activation_params, X, W)


@operator("NhwcConv")
def _nhwc_conv(
    body: Body,
    X: str,
    W: str,
    B: str | None = None,
    *,
    auto_pad: str | None = None,
    dilations: tuple[int, ...] | None = None,
    group: int | None = None,
    kernel_shape: tuple[int, ...] | None = None,
    pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
) -> str:
    window = _window(auto_pad, dilations, group, kernel_shape, pads, strides)
    return _conv_channels_last(body, X, W, B, window)


@operator("NhwcFusedConv")
def _nhwc_fused_conv(
    body: Body,
    X: str,
    W: str,
    B: str | None = None,
    Z: str | None = None,
    *,
    activation: str = "",
    activation_params: tuple[float, ...] = (),
    auto_pad: str | None = None,
    dilations: tuple[int, ...] | None = None,
    group: int | None = None,
    kernel_shape: tuple[int, ...] | None = None,
    pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
) -> str:
    window = _window(auto_pad, dilations, group, kernel_shape, pads, strides)
    y = _conv_channels_last(body, X, W, B, window)
    if Z is not None:
        y = body.op("Add", y, Z)
    return activate(body, y, activation, activation_params, X, W)


def _conv_channels_last(
    body: Body, x: str, w: str, b: str | None, window: dict[str, Any]
) -> str:
    rank = body.rank(w)
    y = body.op("Conv", *_given(_channels_first(body, x, rank), w, b), **window)
    return _channels_last(body, y, rank)


@operator("NhwcMaxPool", since=12)
def _nhwc_max_pool(
    body: Body,
    x: str,
    *,
    kernel_shape: tuple[int, ...],
    auto_pad: str | None = None,
    ceil_mode: int | None = None,
    dilations: tuple[int, ...] | None = None,
    pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
) -> str:
    rank = len(kernel_shape) + 2
    window = _window(auto_pad, dilations, None, kernel_shape, pads, strides)
    first = _channels_first(body, x, rank)
    y = body.op("MaxPool", first, ceil_mode=ceil_mode, **window)
    return _channels_last(body, y, rank)


@operator("QLinearConv", since=10)
def _qlinear_conv(
    body: Body,
    x: str,
    x_scale: str,
    x_zero_point: str,
    w: str,
    w_scale: str,
    w_zero_point: str,
    y_scale: str,
    y_zero_point: str,
    B: str | None = None,
    *,
    auto_pad: str | None = None,
    channels_last: int = 0,
    dilations: tuple[int, ...] | None = None,
    group: int | None = None,
    kernel_shape: tuple[int, ...] | None = None,
    pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
) -> str:
    """ONNX's operator, which has channels first only."""
    window = _window(auto_pad, dilations, group, kernel_shape, pads, strides)
    rank = body.rank(w) if channels_last else 0
    first = _channels_first(body, x, rank) if channels_last else x
    scales = (x_scale, x_zero_point, w, w_scale, w_zero_point, y_scale, y_zero_point)
    y = body.op("QLinearConv", *_given(first, *scales, B), **window)
    return _channels_last(body, y, rank) if channels_last else y


@operator("ConvTransposeWithDynamicPads")
def _conv_transpose(
    body: Body,
    X: str,
    W: str,
    Pads: str | None = None,
    B: str | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: tuple[int, ...] | None = None,
    group: int | None = None,
    kernel_shape: tuple[int, ...] | None = None,
    output_padding: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
) -> str:
    """Pads of a transposed convolution are what is cut off its result."""
    if auto_pad != "NOTSET":
        raise NoFunction(
            f"its attribute 'auto_pad' is {auto_pad!r}; its function is for 'NOTSET'"
        )
    fixed = body.content(Pads)
    pads = None if fixed is None else tuple(int(pad) for pad in fixed)
    window = _window(None, dilations, group, kernel_shape, pads, strides)
    inputs = _given(X, W, B)
    y = body.op("ConvTranspose", *inputs, output_padding=output_padding, **window)
    if Pads is None or pads is not None:
        return y
    if body.opset < 10:
        raise NoFunction(f"its input 'Pads' is not a constant, in opset {body.opset}")
    spatial = body.rank(W) - 2
    begin, end = body.split(Pads, 2, 0)
    axes = body.ints(*range(2, spatial + 2))
    sizes = body.op("Gather", body.op("Shape", y), axes, axis=0)
    return body.op("Slice", y, begin, body.op("Sub", sizes, end), axes)


def _window(
    auto_pad: str | None,
    dilations: tuple[int, ...] | None,
    group: int | None,
    kernel_shape: tuple[int, ...] | None,
    pads: tuple[int, ...] | None,
    strides: tuple[int, ...] | None,
) -> dict[str, Any]:
    """Attributes of a convolution or a pool; ``None`` leaves one out."""
    return {
        "auto_pad": auto_pad,
        "dilations": dilations,
        "group": group,
        "kernel_shape": kernel_shape,
        "pads": pads,
        "strides": strides,
    }


def _given(*inputs: str | None) -> tuple[str | None, ...]:
    """*inputs* without a last one that is left out."""
    return inputs if inputs[-1] is not None else inputs[:-1]


def _channels_first(body: Body, x: str, rank: int) -> str:
    return body.transpose(x, 0, rank - 1, *range(1, rank - 1))


def _channels_last(body: Body, x: str, rank: int) -> str:
    return body.transpose(x, 0, *range(2, rank), 1)
