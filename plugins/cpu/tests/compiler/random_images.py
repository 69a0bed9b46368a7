"""Nodes of random graphs that resample images, or normalise them."""

from __future__ import annotations

import math

import numpy as np

from .random_graphs import F32, RandomGraph, Value, inexact


def _image(g: RandomGraph, *ranks: int) -> Value | None:
    return g.pick(
        lambda v: v.dtype == F32 and len(v.shape) in ranks and 0 not in v.shape
    )


def resize(g: RandomGraph) -> None:
    x = g.pick(lambda v: 0 < len(v.shape) < 6 and 0 not in v.shape)
    if x is None or (x.error and not x.is_float):
        return
    rank = len(x.shape)
    chosen = g.choose.sample(range(rank), g.choose.randint(1, min(3, rank)))
    axes = sorted(chosen)
    factors = [g.choose.choice([0.25, 0.4, 0.75, 1.0, 1.5, 2.0, 3.0]) for _ in axes]
    shape = list(x.shape)
    for axis, factor in zip(axes, factors, strict=True):
        shape[axis] = math.floor(np.float32(shape[axis]) * np.float32(factor))
    if 0 in shape or math.prod(shape) > g.max_size:
        return
    mode = g.choose.choice(["nearest", "nearest", "linear", "linear", "cubic"])
    transforms = ["half_pixel", "half_pixel_symmetric", "align_corners", "asymmetric"]
    attributes = {
        "mode": mode,
        "coordinate_transformation_mode": g.choose.choice(transforms),
    }
    if mode == "nearest":
        attributes["nearest_mode"] = g.choose.choice(
            ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]
        )
    elif g.choose.random() < 0.3:
        attributes["antialias"] = 1
    elif g.choose.random() < 0.3:
        attributes["exclude_outside"] = 1
    how: list[Value | str | None] = [x, None]
    if g.choose.random() < 0.5:
        attributes["axes"] = axes
        if g.choose.random() < 0.5:
            how += [None, g.integers([shape[axis] for axis in axes])]
        else:
            how.append(g.literal(np.array(factors, np.float32)))
    else:
        scales = np.ones(rank, np.float32)
        scales[axes] = factors
        how.append(g.literal(scales))
    gain = 4.0 ** len(axes) if mode == "cubic" else 1.0
    error = x.error * gain
    if mode != "nearest" and x.is_float:
        error = inexact(error, x, gain * x.magnitude, 16)
    g.add("Resize", how, shape, x.dtype, gain * x.magnitude, error, **attributes)


def grid_sample(g: RandomGraph) -> None:
    x = _image(g, 3, 4, 5)
    if x is None:
        return
    rank = len(x.shape) - 2
    output = [g.choose.choice(g.sizes) for _ in range(rank)]
    shape = (*x.shape[:2], *output)
    if math.prod(shape) > g.max_size:
        return
    make = g.constant if g.choose.random() < 0.5 else g.input
    mode = g.choose.choice(["nearest", "linear", "linear", "cubic"])
    gain = 2.0**rank if mode == "cubic" else 1.0
    error = x.error * gain
    if mode != "nearest":
        error = inexact(error, x, gain * x.magnitude, 32)
    g.add(
        "GridSample",
        [x, make((x.shape[0], *output, rank), F32)],
        shape,
        F32,
        gain * x.magnitude,
        error,
        mode=mode,
        padding_mode=g.choose.choice(["zeros", "border", "reflection"]),
        align_corners=g.choose.randint(0, 1),
    )


def roi_align(g: RandomGraph) -> None:
    x = _image(g, 4)
    if x is None:
        return
    count = g.choose.choice([1, 3, 5])
    size = [g.choose.randint(1, 4) for _ in range(2)]
    if count * x.shape[1] * math.prod(size) > g.max_size:
        return
    corners = g.numbers.uniform(-3, 12, (count, 4)).astype(np.float32)
    corners[:, 2:] = corners[:, :2] + abs(corners[:, 2:]) + 1
    images = g.numbers.integers(0, x.shape[0], count)
    mode = g.choose.choice(["avg", "max"])
    g.add(
        "RoiAlign",
        [x, g.literal(corners), g.literal(images)],
        (count, x.shape[1], *size),
        F32,
        x.magnitude,
        inexact(x.error, x, x.magnitude, 64),
        mode=mode,
        output_height=size[0],
        output_width=size[1],
        sampling_ratio=g.choose.choice([0, 1, 2]),
        spatial_scale=g.choose.choice([0.5, 1.0]),
        coordinate_transformation_mode=g.choose.choice(
            ["half_pixel", "output_half_pixel"]
        ),
    )


def _positive(g: RandomGraph, count: int) -> Value:
    return g.literal(g.numbers.uniform(0.5, 2, count).astype(np.float32))


def batch_norm(g: RandomGraph) -> None:
    x = _image(g, 2, 3, 4, 5)
    if x is None:
        return
    channels = x.shape[1]
    make = g.constant if g.choose.random() < 0.5 else g.input
    scale, shift, mean = (make((channels,), F32) for _ in range(3))
    bound = 3 * (x.magnitude + 2) + 2
    error = inexact(3 * x.error, x, bound, 16)
    inputs = [x, scale, shift, mean, _positive(g, channels)]
    g.add("BatchNormalization", inputs, x.shape, F32, bound, error)


def own_norm(g: RandomGraph) -> None:
    """InstanceNormalization and GroupNormalization."""
    x = _image(g, 3, 4, 5)
    if x is None:
        return
    channels, rest = x.shape[1], math.prod(x.shape[2:])
    attributes = {"epsilon": 0.25}
    groups, parameters = channels, channels
    operator = "InstanceNormalization"
    if g.choose.random() < 0.5:
        operator = "GroupNormalization"
        dividers = [n for n in range(1, channels + 1) if channels % n == 0]
        groups = attributes["num_groups"] = g.choose.choice(dividers)
        parameters = channels if g.opset > 20 else groups
    make = g.constant if g.choose.random() < 0.5 else g.input
    scale, shift = (make((parameters,), F32) for _ in range(2))
    bound = 2 * math.sqrt(rest * channels // groups) + 2
    error = 2 * inexact(8 * x.error, x, 8 * x.magnitude**2, 16)
    g.add(operator, [x, scale, shift], x.shape, F32, bound, error, **attributes)


def local_norm(g: RandomGraph) -> None:
    """LRN and LpNormalization."""
    x = _image(g, 2, 3, 4)
    if x is None or x.error > 1e-4:
        return
    if g.choose.random() < 0.5:
        size = g.choose.choice([1, 2, 3, 5, 8, 40])
        beta = g.choose.choice([0.75, 0.75, 0.5])
        error = inexact(4 * x.error * (1 + x.magnitude), x, x.magnitude, 32)
        options = {"size": size, "alpha": 0.5, "beta": beta, "bias": 1.0}
        g.add("LRN", [x], x.shape, F32, x.magnitude, error, **options)
        return
    if x.error:
        return  # of a norm near 0 the quotient is anything
    axis, p = g.choose.randrange(-len(x.shape), len(x.shape)), g.choose.choice([1, 2])
    error = inexact(0, x, 1, 16)
    g.add("LpNormalization", [x], x.shape, F32, 1, error, axis=axis, p=p)
