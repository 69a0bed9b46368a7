"""Products of quantized matrices that give floats, or are quantized again."""

from __future__ import annotations

from typing import Any

from onnxplug_kernels.arrays import require_extent
from onnxplug_kernels.quantize import (
    dynamic_quantize_linear,
    matmul_integer,
    quantize_steps,
)
from onnxplug_microsoft.kernels import KERNELS
from onnxplug_microsoft.kernels.linear import scalar


@KERNELS.operator("MatMulIntegerToFloat", since=1)
def matmul_integer_to_float(
    xp: Any,
    a: Any,
    b: Any,
    a_scale: Any,
    b_scale: Any,
    a_zero_point: Any | None = None,
    b_zero_point: Any | None = None,
    bias: Any | None = None,
) -> Any:
    """The product of the integers, scaled; *b* may have a scale for each column."""
    if a_zero_point is not None:
        a_zero_point = scalar(xp, a_zero_point, "the zero point of a")
    product = matmul_integer(xp, a, b, a_zero_point, b_zero_point)
    require_extent(product.shape, b_scale, what="the scale of b")
    if bias is not None and bias.shape != product.shape[-1:]:
        raise ValueError(
            f"the bias has shape {bias.shape}, expected {product.shape[-1:]}"
        )
    scale = xp.astype(scalar(xp, a_scale, "the scale of a"), xp.float32) * xp.astype(
        b_scale, xp.float32
    )
    y = xp.astype(product, xp.float32) * scale
    if bias is not None:
        y = y + xp.astype(bias, xp.float32)
    return xp.astype(xp.asarray(y), b_scale.dtype, copy=False)


@KERNELS.operator("DynamicQuantizeMatMul", since=1)
def dynamic_quantize_matmul(
    xp: Any,
    a: Any,
    b: Any,
    b_scale: Any,
    b_zero_point: Any | None = None,
    bias: Any | None = None,
) -> Any:
    """As MatMulIntegerToFloat, of *a* quantized to uint8 as its range needs it."""
    quantized, a_scale, a_zero_point = dynamic_quantize_linear(xp, a)
    return matmul_integer_to_float(
        xp, quantized, b, a_scale, b_scale, a_zero_point, b_zero_point, bias
    )


@KERNELS.operator("QGemm", since=1)
def q_gemm(
    xp: Any,
    a: Any,
    a_scale: Any,
    a_zero_point: Any,
    b: Any,
    b_scale: Any,
    b_zero_point: Any,
    c: Any | None = None,
    y_scale: Any | None = None,
    y_zero_point: Any | None = None,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Any:
    """alpha · a · b + c, quantized; in float32 when the output has no zero point.

    *c* counts in steps of alpha · a_scale · b_scale.
    """
    if (y_scale is None) != (y_zero_point is None):
        raise ValueError(
            "QGemm has only one of y_scale and y_zero_point; expected both for a "
            "quantized output, or none for one of float32"
        )
    a = a.T if transA else a
    b = b.T if transB else b
    zero_point = scalar(xp, a_zero_point, "the zero point of a")
    total = matmul_integer(xp, a, b, zero_point, b_zero_point)
    require_extent(total.shape, b_scale, what="the scale of b")
    if c is not None:
        require_extent(total.shape, c, what="c")
        total = total + c
    scale = alpha * scalar(xp, a_scale, "the scale of a") * b_scale
    if y_scale is None:
        return xp.astype(total, xp.float32) * scale
    steps = xp.astype(total, xp.float32) * (
        scale / scalar(xp, y_scale, "the scale of y")
    )
    zero_point = scalar(xp, y_zero_point, "the zero point of y")
    return quantize_steps(xp, xp.asarray(steps), zero_point, zero_point.dtype)


@KERNELS.operator("MatMulInteger16", since=1)
def matmul_integer_16(xp: Any, a: Any, b: Any) -> Any:
    """Products of 16-bit integers, added up in 32 bits, which may wrap around."""
    signed = "i" in (xp.kind(a.dtype), xp.kind(b.dtype))
    wide = xp.int32 if signed else xp.uint32
    return xp.matmul(xp.astype(a, wide), xp.astype(b, wide))
