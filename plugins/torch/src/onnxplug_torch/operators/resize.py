"""Resampling: Resize and GridSample.

An axis is resampled by a matrix, or, where elements are taken as they are or a matrix
would be large, by the indices and weights of its taps.  Both follow from sizes alone,
and are made once by the kernel on numpy's arrays.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from onnxplug import ep
from onnxplug.ep import DataType
from onnxplug_kernels.resize import resized_axes
from onnxplug_torch.dtypes import FLOATS, TENSOR_TYPES
from onnxplug_torch.operators.computing import moved
from onnxplug_torch.operators.registry import operator

_MOST = 1 << 19
"""Elements of the largest matrix that resamples an axis, of 4 MiB; what is larger is
resampled tap by tap."""

Taps: TypeAlias = list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any] | None]]


@functools.lru_cache(maxsize=32)
def _axis(
    length: int, size: int, scale: float | None, attributes: tuple[tuple[str, Any], ...]
) -> np.ndarray[Any, Any] | Taps:
    """How *size* elements are made of *length*: a matrix [length, size], or taps."""
    scales = None if scale is None else np.array([scale], np.float64)
    sizes = np.array([size], np.int64) if scale is None else None
    (axis,) = resized_axes(np, (length,), None, scales, sizes, **dict(attributes))
    if axis.taps[0][1] is None or length * size > _MOST:
        return axis.taps
    matrix = np.zeros((length, size))
    for index, weight in axis.taps:
        assert weight is not None  # as the first has one
        np.add.at(matrix, (index, np.arange(size)), weight)
    return matrix


def _along(torch: Any, x: Any, axis: int, how: np.ndarray[Any, Any] | Taps) -> Any:
    """*x* resampled along *axis* as :func:`_axis` says."""
    if isinstance(how, np.ndarray):
        matrix = torch.from_numpy(how).to(x.device, x.dtype)
        return torch.movedim(torch.movedim(x, axis, -1) @ matrix, -1, axis)
    total = None
    for places, weight in how:
        index = torch.from_numpy(places).to(x.device)
        taken = moved(
            torch, functools.partial(torch.index_select, dim=axis, index=index), x
        )
        if weight is not None:
            column = [-1, *[1] * (x.ndim - 1 - axis)]
            taken = taken * torch.from_numpy(weight).to(x.device, x.dtype).reshape(
                column
            )
        total = taken if total is None else total + taken
    return total


def _plan_refusal(graph: ep.Graph, node: ep.Node) -> ep.Reason | None:
    read = node.attributes.get
    if read("coordinate_transformation_mode") == "tf_crop_and_resize":
        return ep.Reason(ep.RefusalCode.ATTRIBUTE, "tf_crop_and_resize")
    if read("keep_aspect_ratio_policy", "stretch") != "stretch":
        return ep.Reason(ep.RefusalCode.ATTRIBUTE, "keep_aspect_ratio_policy")
    if read("mode", "nearest") != "nearest":
        dtype = graph.value(node.inputs[0] or "").dtype
        if dtype not in FLOATS:
            return ep.Reason(ep.RefusalCode.DTYPE, f"{read('mode')} of {dtype}")
    return None


@operator(
    "Resize",
    since=11,
    types=TENSOR_TYPES,
    host=(1, 2, 3),
    check=_plan_refusal,
)
def resize(
    torch: Any,
    x: Any,
    roi: Any | None = None,
    scales: Any | None = None,
    sizes: Any | None = None,
    *,
    antialias: int = 0,
    axes: Sequence[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Any:
    places = [n % x.ndim for n in (range(x.ndim) if axes is None else axes)]
    if bool(sizes) == bool(scales):
        raise ValueError("Resize has both sizes and scales, or neither")
    wanted = list(sizes or scales or ())
    if len(wanted) != len(places):
        raise ValueError(f"{len(wanted)} sizes or scales for {len(places)} axes")
    steps = [
        (axis, int(each), None)
        if sizes
        else (
            axis,
            math.floor(np.float32(x.shape[axis]) * np.float32(each)),
            float(each),
        )
        for axis, each in zip(places, wanted, strict=True)
    ]
    steps = [
        step
        for step in steps
        if step[1] != x.shape[step[0]] or step[2] not in (None, 1.0)
    ]
    if mode == "linear" and not antialias and not exclude_outside:
        found = _interpolated(torch, x, steps, coordinate_transformation_mode)
        if found is not None:
            return found
    attributes = (
        ("antialias", antialias),
        ("coordinate_transformation_mode", coordinate_transformation_mode),
        ("cubic_coeff_a", cubic_coeff_a),
        ("exclude_outside", exclude_outside),
        ("mode", mode),
        ("nearest_mode", nearest_mode),
    )
    # what shrinks first leaves less to do for the others
    steps.sort(key=lambda step: step[1] / max(x.shape[step[0]], 1))
    y = x.float() if mode != "nearest" and x.element_size() == 2 else x
    for axis, size, scale in steps:
        if not size:
            y = y.narrow(axis, 0, 0)
            continue
        y = _along(torch, y, axis, _axis(x.shape[axis], size, scale, attributes))
    return y if y.dtype == x.dtype else y.to(x.dtype)


def _interpolated(
    torch: Any,
    x: Any,
    steps: Sequence[tuple[int, int, float | None]],
    transformation: str,
) -> Any:
    """By torch's own function, where that is the same; else ``None``."""
    spatial = {axis: (size, scale) for axis, size, scale in steps}
    if x.ndim not in (3, 4, 5) or not x.numel() or {0, 1} & spatial.keys():
        return None
    if not all(size for size, _ in spatial.values()):
        return None
    corners = transformation == "align_corners"
    if not corners and transformation not in ("half_pixel", "pytorch_half_pixel"):
        return None
    sizes = []
    for axis in range(2, x.ndim):
        size, scale = spatial.get(axis, (x.shape[axis], None))
        # torch goes by sizes; a scale that is rounded to one is another
        if scale is not None and size != x.shape[axis] * scale:
            return None
        if size == 1 and transformation == "pytorch_half_pixel":
            return None
        sizes.append(size)
    mode = {3: "linear", 4: "bilinear", 5: "trilinear"}[x.ndim]
    return torch.nn.functional.interpolate(
        x, size=sizes, mode=mode, align_corners=corners
    )


def _by_scales(torch: Any, x: Any, scales: Sequence[float], mode: str) -> Any:
    """As before opset 11: asymmetric."""
    if len(scales) != x.ndim:
        raise ValueError(f"{len(scales)} scales for an input {list(x.shape)}")
    linear = mode in ("linear", "bilinear", "trilinear")
    for axis, scale in enumerate(scales):
        if scale != 1:
            x = resize(
                torch,
                x,
                None,
                [scale],
                axes=(axis,),
                coordinate_transformation_mode="asymmetric",
                mode="linear" if linear else mode,
                nearest_mode="floor" if scale > 1 else "ceil",
            )
    return x


@operator("Resize", since=10, until=10, types=FLOATS, host=(1,))
@operator("Upsample", since=9, types=FLOATS, host=(1,))
def resize_10(torch: Any, x: Any, scales: Any, *, mode: str = "nearest") -> Any:
    return _by_scales(torch, x, scales, mode)


@operator("Upsample", since=7, until=8, types=FLOATS)
def upsample_7(
    torch: Any, x: Any, *, mode: str = "nearest", scales: Sequence[float]
) -> Any:
    return _by_scales(torch, x, scales, mode)


def _sample_refusal(graph: ep.Graph, node: ep.Node) -> ep.Reason | None:
    shape = graph.value(node.inputs[0] or "").shape
    if shape is None or len(shape) not in (4, 5):
        return ep.Reason(ep.RefusalCode.RANK, f"{shape}; takes ranks 4 and 5")
    mode = node.attributes.get("mode", "linear")
    if len(shape) == 5 and mode in ("cubic", "bicubic"):
        return ep.Reason(ep.RefusalCode.ATTRIBUTE, "cubic of three axes")
    return None


@operator(
    "GridSample",
    since=16,
    types=frozenset({DataType.FLOAT32, DataType.FLOAT64}),
    check=_sample_refusal,
)
def grid_sample(
    torch: Any,
    x: Any,
    grid: Any,
    *,
    align_corners: int = 0,
    mode: str = "linear",
    padding_mode: str = "zeros",
) -> Any:
    names = {"linear": "bilinear", "cubic": "bicubic"}
    return torch.nn.functional.grid_sample(
        x,
        grid.to(x.dtype),
        mode=names.get(mode, mode),
        padding_mode=padding_mode,
        align_corners=bool(align_corners),
    )
