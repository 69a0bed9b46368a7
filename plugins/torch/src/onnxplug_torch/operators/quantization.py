"""Linear quantisation."""

from __future__ import annotations

from typing import Any

from onnxplug import ep
from onnxplug.ep import DataType
from onnxplug_torch.dtypes import FLOAT8, FLOATS, torch_dtype
from onnxplug_torch.operators.cast import convert
from onnxplug_torch.operators.registry import operator

_STEPS = frozenset({DataType.INT8, DataType.UINT8, DataType.INT16, DataType.UINT16}) | (
    FLOAT8 - {DataType.FLOAT8_E8M0FNU}
)


def _to_steps(graph: ep.Graph, node: ep.Node) -> ep.Reason | None:
    target = graph.value(node.outputs[0] or "").dtype
    if target in _STEPS:
        return None
    return ep.Reason(ep.RefusalCode.DTYPE, f"to {target or 'an unknown type'}")


def _from_steps(graph: ep.Graph, node: ep.Node) -> ep.Reason | None:
    target = graph.value(node.outputs[0] or "").dtype
    if target in FLOATS:
        return None
    return ep.Reason(ep.RefusalCode.DTYPE, f"to {target or 'an unknown type'}")


def _align(torch: Any, parameter: Any, x: Any, axis: int, block: int) -> Any:
    """A scale or zero point such that it broadcasts to *x*."""
    if parameter.numel() == 1 and not block:
        return parameter.reshape(())
    axis = 0 if x.ndim == 1 else axis % x.ndim
    if not block:
        if tuple(parameter.shape) != (x.shape[axis],):
            raise ValueError(
                f"a scale or zero point {list(parameter.shape)} for axis {axis} of "
                f"{list(x.shape)}"
            )
        return parameter.reshape([-1, *[1] * (x.ndim - 1 - axis)])
    if block < 0 or parameter.ndim != x.ndim:
        raise ValueError(f"blocks of {block} by a scale {list(parameter.shape)}")
    whole = torch.repeat_interleave(parameter, block, axis)
    return whole.narrow(axis, 0, x.shape[axis])


def quantize_steps(
    torch: Any, quotient: Any, zero: Any | None, dtype: Any, *, saturate: bool = True
) -> Any:
    """*quotient*, numbers in steps of the scale, in *dtype*."""
    if dtype.is_floating_point:
        if zero is not None:
            quotient = quotient + zero.to(quotient.dtype)
        return convert(torch, quotient, dtype, saturate=saturate)
    # rounded before the zero point is added: an odd one would turn ties around
    steps = torch.round(quotient)
    if zero is not None:
        steps = steps + zero.to(steps.dtype)
    limits = torch.iinfo(dtype)
    return torch.clamp(steps, limits.min, limits.max).to(torch.int32).to(dtype)


@operator(
    "QuantizeLinear",
    since=10,
    types=FLOATS | {DataType.INT32},
    other={2: _STEPS},
    check=_to_steps,
)
def quantize(
    torch: Any,
    x: Any,
    scale: Any,
    zero_point: Any | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
) -> Any:
    if zero_point is not None:
        dtype = zero_point.dtype
        zero_point = _align(torch, zero_point.to(torch.float32), x, axis, block_size)
    elif output_dtype:
        dtype = torch_dtype(torch, DataType.from_onnx(output_dtype))
    else:
        dtype = torch.uint8
    narrow = (
        torch_dtype(torch, DataType.from_onnx(precision)) if precision else scale.dtype
    )
    scale = _align(torch, scale, x, axis, block_size)
    if narrow in (torch.float16, torch.bfloat16):
        quotient = x.to(narrow).float() / scale.to(narrow).float()
        quotient = quotient.to(narrow).float()
    else:
        wide = torch.float32 if narrow == torch.float32 else torch.float64
        quotient = x.to(wide) / scale.to(wide)
    return quantize_steps(torch, quotient, zero_point, dtype, saturate=bool(saturate))


@operator(
    "DequantizeLinear",
    since=10,
    types=_STEPS | {DataType.INT32},
    other={1: FLOATS},
    check=_from_steps,
)
def dequantize(
    torch: Any,
    x: Any,
    scale: Any,
    zero_point: Any | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Any:
    dtype = (
        torch_dtype(torch, DataType.from_onnx(output_dtype))
        if output_dtype
        else scale.dtype
    )
    y = x.to(torch.float32)
    if zero_point is not None:
        y = y - _align(torch, zero_point.to(torch.float32), x, axis, block_size)
    return (y * _align(torch, scale.to(torch.float32), x, axis, block_size)).to(dtype)


@operator("DynamicQuantizeLinear", since=11, types=frozenset({DataType.FLOAT32}))
def dynamic_quantize(torch: Any, x: Any) -> Any:
    zero = x.new_zeros(1)
    everything = torch.cat((x.reshape(-1), zero))
    smallest, largest = torch.aminmax(everything)
    span = largest - smallest
    scale = torch.where(span == 0, 1.0, span / 255)
    point = torch.round(torch.clamp(-smallest / scale, 0, 255))
    y = quantize_steps(torch, x / scale, point, torch.uint8)
    return y, scale, point.to(torch.uint8)
