"""Products and convolutions of quantised numbers, computed in float64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnxplug.ep import DataType
from onnxplug_torch.dtypes import FLOATS
from onnxplug_torch.operators.convolution import convolve
from onnxplug_torch.operators.quantization import quantize_steps
from onnxplug_torch.operators.registry import operator

_BYTES = frozenset({DataType.INT8, DataType.UINT8})


def _factor(torch: Any, x_scale: Any, w_scale: Any, y_scale: Any) -> Any:
    wide = torch.float64
    return x_scale.to(wide) * w_scale.to(wide) / y_scale.to(wide)


def _per_row(x: Any) -> Any:
    return x.unsqueeze(-1) if x.ndim == 1 and x.numel() > 1 else x


@operator(
    "QLinearMatMul",
    since=10,
    types=_BYTES,
    other=dict.fromkeys((1, 4, 6), FLOATS),
)
def quantized_matmul(
    torch: Any, a: Any, a_scale: Any, a_zero: Any, b: Any, b_scale: Any, b_zero: Any,
    y_scale: Any, y_zero: Any,
) -> Any:  # fmt: skip
    wide = torch.float64
    sums = torch.matmul(
        a.to(wide) - _per_row(a_zero).to(wide), b.to(wide) - b_zero.to(wide)
    )
    factor = _factor(torch, _per_row(a_scale), b_scale, _per_row(y_scale))
    return quantize_steps(torch, sums * factor, _per_row(y_zero), y_zero.dtype)


@operator(
    "QLinearConv",
    since=10,
    types=_BYTES,
    other={**dict.fromkeys((1, 4, 6), FLOATS), 8: frozenset({DataType.INT32})},
)
def quantized_convolution(
    torch: Any, x: Any, x_scale: Any, x_zero: Any, w: Any, w_scale: Any, w_zero: Any,
    y_scale: Any, y_zero: Any, b: Any | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Any:  # fmt: skip
    wide = torch.float64
    filters = [-1, *[1] * (w.ndim - 1)]
    zero = w_zero.to(wide)
    sums = convolve(
        torch,
        x.to(wide) - x_zero.to(wide).reshape(()),
        w.to(wide) - (zero.reshape(filters) if zero.numel() > 1 else zero.reshape(())),
        None if b is None else b.to(wide),
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )
    scale = (
        w_scale.reshape(filters[:-1]) if w_scale.numel() > 1 else w_scale.reshape(())
    )
    factor = _factor(torch, x_scale.reshape(()), scale, y_scale.reshape(()))
    return quantize_steps(torch, sums * factor, y_zero.reshape(()), y_zero.dtype)
