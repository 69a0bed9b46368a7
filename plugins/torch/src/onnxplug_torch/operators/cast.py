"""Casts between the types that torch holds."""

from __future__ import annotations

import math
from typing import Any

from onnxplug import ep
from onnxplug.ep import DataType
from onnxplug_torch.dtypes import BOOL, FLOAT8, NUMBERS, TENSOR_TYPES, torch_dtype
from onnxplug_torch.operators.registry import operator

_SOURCES = NUMBERS | BOOL | FLOAT8 - {DataType.FLOAT8_E8M0FNU}
_ROUNDED_TWICE = frozenset(
    {DataType.FLOAT64, DataType.INT32, DataType.INT64, DataType.UINT32, DataType.UINT64}
)
"""What torch narrows by way of float32, which rounds twice."""


def _refusal(source: DataType | None, target: DataType | None) -> ep.Reason | None:
    """Why torch does not cast so as ONNX does."""
    if target not in TENSOR_TYPES:
        return ep.Reason(ep.RefusalCode.DTYPE, f"to {target or 'an unknown type'}")
    if target is DataType.FLOAT8_E8M0FNU or str(target).startswith("complex"):
        return ep.Reason(ep.RefusalCode.DTYPE, f"to {target}")
    if source in _ROUNDED_TWICE and target in FLOAT8 | {DataType.BFLOAT16}:
        return ep.Reason(
            ep.RefusalCode.DTYPE, f"from {source} to {target}, which torch rounds twice"
        )
    return None


def _cast_refusal(graph: ep.Graph, node: ep.Node) -> ep.Reason | None:
    source = graph.value(node.inputs[0] or "").dtype
    return _refusal(source, DataType.from_onnx(node.attributes["to"]))


def _like_refusal(graph: ep.Graph, node: ep.Node) -> ep.Reason | None:
    source, target = (graph.value(name or "").dtype for name in node.inputs)
    return _refusal(source, target)


def convert(torch: Any, x: Any, dtype: Any, *, saturate: bool = True) -> Any:
    """*x* in *dtype* by ONNX's rules."""
    if x.dtype == dtype:
        return x
    if dtype == torch.bool:
        wide = x.float() if str(x.dtype).startswith("torch.float8") else x
        return wide != 0
    if not str(dtype).startswith("torch.float8"):
        if x.dtype.is_floating_point and not dtype.is_floating_point:
            return (
                x.to(torch.int64).to(dtype)
                if dtype != torch.uint64
                else _to_uint64(torch, x)
            )
        return x.to(dtype)
    return _to_float8(torch, x.to(torch.float32), dtype, saturate)


def _to_float8(torch: Any, x: Any, dtype: Any, saturate: bool) -> Any:
    largest = torch.finfo(dtype).max
    found = torch.clamp(x, -largest, largest).to(dtype)
    if saturate:
        return found
    # half a step beyond the largest number is where rounding ends up at the next one,
    # which is not there; just in between it does if the largest one is odd
    bits = 3 if "e4m3" in str(dtype) else 2
    step = 2.0 ** (math.floor(math.log2(largest)) - bits)
    limit = largest + step / 2
    size = abs(x)
    beyond = size > limit if dtype == torch.float8_e4m3fn else size >= limit
    instead = x * math.inf if dtype == torch.float8_e5m2 else x * math.nan
    return torch.where(beyond, instead.to(dtype), found)


def _to_uint64(torch: Any, x: Any) -> Any:
    half = 2.0**63
    numbers = x.to(torch.float64)
    large = numbers >= half
    low = torch.where(large, numbers - half, numbers).to(torch.int64)
    return torch.where(large, low ^ torch.iinfo(torch.int64).min, low).to(torch.uint64)


@operator("Cast", since=6, types=_SOURCES, check=_cast_refusal)
def cast(
    torch: Any, x: Any, *, to: int, saturate: int = 1, round_mode: str = "up"
) -> Any:
    dtype = torch_dtype(torch, DataType.from_onnx(to))
    return convert(torch, x, dtype, saturate=bool(saturate))


@operator("CastLike", since=15, types=_SOURCES, check=_like_refusal)
def cast_like(
    torch: Any, x: Any, like: Any, *, saturate: int = 1, round_mode: str = "up"
) -> Any:
    return convert(torch, x, like.dtype, saturate=bool(saturate))


def _as_wide(graph: ep.Graph, node: ep.Node) -> ep.Reason | None:
    source = graph.value(node.inputs[0] or "").dtype
    target = DataType.from_onnx(node.attributes["to"])
    if target in TENSOR_TYPES and source is not None and source.bits == target.bits:
        return None
    return ep.Reason(ep.RefusalCode.DTYPE, f"from {source} to {target}")


@operator("BitCast", since=26, types=TENSOR_TYPES, check=_as_wide)
def bit_cast(torch: Any, x: Any, *, to: int) -> Any:
    return x.view(torch_dtype(torch, DataType.from_onnx(to)))
