"""Convolutions, pools and resizing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxplug_coreml.mlprogram.registry import emits

Numbers = Sequence[int]


def _flat(pads: Sequence[tuple[int, int]]) -> list[int]:
    return [each for pair in pads for each in pair]


@emits("conv")
def _conv(
    writer: Any,
    operation: Any,
    x: Any,
    weight: Any,
    bias: Any = None,
    *,
    strides: Numbers,
    dilations: Numbers,
    pads: Sequence[tuple[int, int]],
    groups: int,
) -> Any:
    optional = {} if bias is None else {"bias": bias}
    return writer.mb.conv(
        x=x,
        weight=weight,
        strides=list(strides),
        pad_type="custom",
        pad=_flat(pads),
        dilations=list(dilations),
        groups=groups,
        **optional,
    )


@emits("conv_transpose")
def _conv_transpose(
    writer: Any,
    operation: Any,
    x: Any,
    weight: Any,
    bias: Any = None,
    *,
    strides: Numbers,
    dilations: Numbers,
    pads: Sequence[tuple[int, int]],
    output_pads: Numbers,
    groups: int,
) -> Any:
    """Output pads are what is not cut off; what is left of them are zeros beyond."""
    kept = [
        (before, max(after - extra, 0))
        for (before, after), extra in zip(pads, output_pads, strict=True)
    ]
    beyond = [
        max(extra - after, 0)
        for (_, after), extra in zip(pads, output_pads, strict=True)
    ]
    optional = {} if bias is None or any(beyond) else {"bias": bias}
    result = writer.mb.conv_transpose(
        x=x,
        weight=weight,
        strides=list(strides),
        pad_type="custom",
        pad=_flat(kept),
        dilations=list(dilations),
        groups=groups,
        **optional,
    )
    if any(beyond):
        pad = [0, 0, 0, 0, *_flat([(0, extra) for extra in beyond])]
        result = writer.mb.pad(
            x=result, pad=pad, mode="constant", constant_val=writer.like(x, 0)
        )
        if bias is not None:
            axes = list(range(1, len(strides) + 1))
            spread = writer.mb.expand_dims(x=bias, axes=axes)
            result = writer.mb.add(x=result, y=spread)
    return result


@emits("max_pool")
def _max_pool(
    writer: Any,
    operation: Any,
    x: Any,
    *,
    kernel: Numbers,
    strides: Numbers,
    dilations: Numbers,
    pads: Sequence[tuple[int, int]],
) -> Any:
    if any(each != 1 for each in dilations):
        raise NotImplementedError("windows with gaps")
    return writer.mb.max_pool(
        x=x,
        kernel_sizes=list(kernel),
        strides=list(strides),
        pad_type="custom",
        pad=_flat(pads),
    )


@emits("avg_pool")
def _avg_pool(
    writer: Any,
    operation: Any,
    x: Any,
    *,
    kernel: Numbers,
    strides: Numbers,
    pads: Sequence[tuple[int, int]],
    count_pads: bool,
) -> Any:
    return writer.mb.avg_pool(
        x=x,
        kernel_sizes=list(kernel),
        strides=list(strides),
        pad_type="custom",
        pad=_flat(pads),
        exclude_padding_from_average=not count_pads,
    )


@emits("resize")
def _resize(
    writer: Any,
    operation: Any,
    x: Any,
    *,
    shape: Numbers,
    mode: str,
    coordinates: str,
    rounding: str,
    scales: Sequence[float],
) -> Any:
    """By MIL's own where it samples at the same places, else by indices."""
    before = writer.kind(operation).shape[2:]
    if not all(isinstance(size, int) for size in before):
        raise NotImplementedError("sizes that are known in runs only")
    places = [
        _places(size, wanted, coordinates, scale)
        for size, wanted, scale in zip(before, shape, scales, strict=True)
    ]
    whole = all(
        size * scale == wanted
        for size, wanted, scale in zip(before, shape, scales, strict=True)
    )
    if mode == "nearest":
        chosen = [
            np.clip(_round(each, rounding), 0, size - 1)
            for each, size in zip(places, before, strict=True)
        ]
        if all(
            np.array_equal(each, np.arange(wanted) * size // wanted)
            for each, size, wanted in zip(chosen, before, shape, strict=True)
        ):
            return writer.mb.resize_nearest_neighbor(
                x=x, target_size_height=shape[0], target_size_width=shape[1]
            )
        for axis, indices in enumerate(chosen, 2):
            x = writer.mb.gather(x=x, indices=indices.astype(np.int32), axis=axis)
        return x
    sampling = {
        "half_pixel": "UNALIGN_CORNERS",
        "asymmetric": "DEFAULT",
        "align_corners": "STRICT_ALIGN_CORNERS",
    }[coordinates]
    if (whole or coordinates == "align_corners") and min(shape) > 1:
        return writer.mb.resize_bilinear(
            x=x,
            target_size_height=shape[0],
            target_size_width=shape[1],
            sampling_mode=sampling,
        )
    for axis, (each, size) in enumerate(zip(places, before, strict=True), 2):
        x = _interpolate(writer, x, axis, np.clip(each, 0, size - 1), size)
    return x


def _places(size: int, wanted: int, coordinates: str, scale: float) -> Any:
    at = np.arange(wanted, dtype=np.float64)
    if coordinates == "half_pixel":
        return (at + 0.5) / scale - 0.5
    if coordinates == "asymmetric":
        return at / scale
    return at * ((size - 1) / (wanted - 1) if wanted > 1 else 0.0)


def _round(places: Any, rounding: str) -> Any:
    if rounding == "floor":
        return np.floor(places).astype(np.int64)
    if rounding == "ceil":
        return np.ceil(places).astype(np.int64)
    if rounding == "round_prefer_floor":
        return np.ceil(places - 0.5).astype(np.int64)
    return np.floor(places + 0.5).astype(np.int64)


def _interpolate(writer: Any, x: Any, axis: int, places: Any, size: int) -> Any:
    low = np.floor(places).astype(np.int32)
    high = np.minimum(low + 1, size - 1).astype(np.int32)
    share = (places - low).reshape(-1, *[1] * (3 - axis))
    kind = type(writer.like(x, 0))
    mb = writer.mb
    return mb.add(
        x=mb.mul(x=mb.gather(x=x, indices=low, axis=axis), y=(1 - share).astype(kind)),
        y=mb.mul(x=mb.gather(x=x, indices=high, axis=axis), y=share.astype(kind)),
    )
