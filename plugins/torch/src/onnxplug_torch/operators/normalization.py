"""Normalisations."""

from __future__ import annotations

import math
from typing import Any

from onnxplug.ep import DataType
from onnxplug_torch.dtypes import FLOATS, torch_dtype
from onnxplug_torch.operators.computing import in_float32, is_narrow
from onnxplug_torch.operators.registry import operator

_EPSILON = 1e-5


@operator("BatchNormalization", since=7, until=13, types=FLOATS)
def batch_normalize_7(
    torch: Any, x: Any, scale: Any, b: Any, mean: Any, variance: Any,
    *, epsilon: float = _EPSILON, momentum: float = 0.9, spatial: int = 1,
) -> Any:  # fmt: skip
    if not spatial:
        raise ValueError("BatchNormalization with spatial 0")
    return batch_normalize(torch, x, scale, b, mean, variance, epsilon=epsilon)


@operator("BatchNormalization", since=14, types=FLOATS)
def batch_normalize(
    torch: Any, x: Any, scale: Any, b: Any, mean: Any, variance: Any,
    *, epsilon: float = _EPSILON, momentum: float = 0.9, training_mode: int = 0,
    output_count: int = 1,
) -> Any:  # fmt: skip
    if training_mode:
        axes = [n for n in range(x.ndim) if n != 1]
        wide = x.float() if is_narrow(torch, x) else x
        now = torch.mean(wide, axes)
        spread = torch.var(wide, axes, correction=0)
        y = _by_channel(torch, x, scale, b, now, spread, epsilon)
        kept = momentum
        return (
            y,
            (mean * kept + now.to(mean.dtype) * (1 - kept)),
            (variance * kept + spread.to(variance.dtype) * (1 - kept)),
        )
    if x.ndim > 1 and {scale.dtype, mean.dtype} == {x.dtype}:
        return torch.nn.functional.batch_norm(
            x, mean, variance, scale, b, False, 0.0, epsilon
        )
    return _by_channel(torch, x, scale, b, mean, variance, epsilon)


def _by_channel(
    torch: Any, x: Any, scale: Any, b: Any, mean: Any, variance: Any, epsilon: float
) -> Any:
    shape = [-1, *[1] * (x.ndim - 2)] if x.ndim > 1 else [-1]
    wide = torch.promote_types(x.dtype, torch.float32)
    parts = [each.to(wide).reshape(shape) for each in (scale, b, mean, variance)]
    factor = parts[0] * torch.rsqrt(parts[3] + epsilon)
    return ((x.to(wide) - parts[2]) * factor + parts[1]).to(x.dtype)


@operator("InstanceNormalization", since=6, types=FLOATS)
def instance_normalize(
    torch: Any, x: Any, scale: Any, b: Any, *, epsilon: float = _EPSILON
) -> Any:
    if x.numel() and x.ndim > 2 and math.prod(x.shape[2:]) > 1:
        return torch.nn.functional.instance_norm(
            x, weight=scale, bias=b, use_input_stats=True, eps=epsilon
        )
    return in_float32(
        torch,
        lambda x, scale, b: (
            _standardized(torch, x, tuple(range(2, x.ndim)), epsilon)[0]
            * scale.reshape([-1, *[1] * (x.ndim - 2)])
            + b.reshape([-1, *[1] * (x.ndim - 2)])
        ),
        x,
        scale,
        b,
    )


@operator("GroupNormalization", since=21, types=FLOATS)
def group_normalize(
    torch: Any, x: Any, scale: Any, b: Any,
    *, epsilon: float = _EPSILON, num_groups: int, stash_type: int = 1,
) -> Any:  # fmt: skip
    return torch.nn.functional.group_norm(x, num_groups, scale, b, epsilon)


@operator("GroupNormalization", since=18, until=20, types=FLOATS)
def group_normalize_18(
    torch: Any, x: Any, scale: Any, b: Any, *, epsilon: float = _EPSILON,
    num_groups: int,
) -> Any:  # fmt: skip
    size = x.shape[1] // num_groups
    return torch.nn.functional.group_norm(
        x,
        num_groups,
        torch.repeat_interleave(scale, size),
        torch.repeat_interleave(b, size),
        epsilon,
    )


def _standardized(
    torch: Any, x: Any, axes: tuple[int, ...], epsilon: float
) -> tuple[Any, Any, Any]:
    mean = torch.mean(x, axes, keepdim=True) if axes else x
    centered = x - mean
    square = centered * centered
    variance = torch.mean(square, axes, keepdim=True) if axes else square
    inverse = torch.rsqrt(variance + epsilon)
    return centered * inverse, mean, inverse


@operator("LayerNormalization", since=17, types=FLOATS)
def layer_normalize(
    torch: Any,
    x: Any,
    scale: Any,
    b: Any | None = None,
    *,
    axis: int = -1,
    epsilon: float = _EPSILON,
    stash_type: int = 1,
    output_count: int = 1,
) -> Any:
    first = axis % x.ndim
    rest = tuple(x.shape[first:])
    if (
        output_count == 1
        and scale.shape == rest
        and (b is None or b.shape == rest)
        and scale.dtype == x.dtype
        and x.dtype != torch.float64
    ):
        return torch.nn.functional.layer_norm(x, rest, scale, b, epsilon)
    stash = torch_dtype(torch, DataType.from_onnx(stash_type))
    wide = torch.promote_types(
        torch.promote_types(x.dtype, torch.float32),
        torch.promote_types(stash, torch.float32),
    )
    axes = tuple(range(first, x.ndim))
    y, mean, inverse = _standardized(torch, x.to(wide), axes, epsilon)
    y = y * scale.to(wide)
    if b is not None:
        y = y + b.to(wide)
    if output_count == 1:
        return y.to(x.dtype)
    return y.to(x.dtype), mean.to(stash), inverse.to(stash)


@operator("RMSNormalization", since=23, types=FLOATS)
def rms_normalize(
    torch: Any,
    x: Any,
    scale: Any,
    *,
    axis: int = -1,
    epsilon: float = _EPSILON,
    stash_type: int = 1,
) -> Any:
    stash = torch_dtype(torch, DataType.from_onnx(stash_type))
    wide = torch.promote_types(
        torch.promote_types(x.dtype, torch.float32),
        torch.promote_types(stash, torch.float32),
    )
    axes = tuple(range(axis % x.ndim, x.ndim))
    numbers = x.to(wide)
    square = torch.mean(numbers * numbers, axes, keepdim=True)
    y = numbers * torch.rsqrt(square + epsilon)
    return (y * scale.to(wide)).to(scale.dtype)


@operator("LRN", types=FLOATS)
def local_response(
    torch: Any,
    x: Any,
    *,
    alpha: float = 9.999999747378752e-05,
    beta: float = 0.75,
    bias: float = 1.0,
    size: int,
) -> Any:
    channels = x.shape[1]
    before = min((size - 1) // 2, channels)
    after = min(size - 1 - (size - 1) // 2, channels)

    def formula(x: Any) -> Any:
        flat = (x * x).reshape(x.shape[0], channels, -1)
        around = torch.nn.functional.pad(flat, (0, 0, before, after))
        total = around.unfold(1, before + after + 1, 1).sum(-1).reshape(x.shape)
        return x / (bias + alpha / size * total) ** beta

    return in_float32(torch, formula, x)
