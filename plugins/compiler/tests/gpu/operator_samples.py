"""Kernels of operators that few models have, each with what numpy has of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from onnxplug_compiler.gpu.families import (
    contractions,
    elementwise,
    indexing,
    reductions,
    trees,
    window_places,
)
from onnxplug_compiler.ir.elements import element_of
from onnxplug_compiler.ir.elementwise import ChainBuilder
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.trees import Scoring
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.ir.windows import Slide
from onnxplug_kernels.ml.tree import forest_of
from onnxplug_kernels.namespaces import namespace_of

from .cuda_on_cpu import Processor

RNG = np.random.default_rng(8)
Making = Callable[[Recorder[Any], Processor], tuple[Sequence[View], Sequence[Any]]]


def minifloats(name: str) -> Making:
    """All codes as float32, and floats around them as codes, both saturated or not."""
    dtype = np.dtype(getattr(ml_dtypes, name))
    count = 16 if name.startswith("float4") else 256

    def make(recorder: Recorder[Any], processor: Processor) -> Any:
        codes = np.arange(count, dtype=np.uint8).view(dtype)
        wide = codes.astype(np.float32)
        x = wide[np.isfinite(wide)]
        x = np.concatenate([x, x * np.float32(1.03), x * np.float32(0.99), x * 3])
        x = x[(np.abs(x) > 1e-30) | (x == 0)].astype(np.float32)
        element = str(element_of(dtype))
        builder = ChainBuilder()
        read = builder.input("f32")
        results = [
            builder.step("Cast", [read], element, {"saturate": n}) for n in (0, 1)
        ]
        found = [recorder.temporary(dtype, x.shape) for _ in results]
        views = [processor.array(x)]
        elementwise.record_chain(recorder, builder.build(results), views, found)
        builder = ChainBuilder()
        back = builder.step("Cast", [builder.input(element)], "f32")
        found.append(recorder.temporary(np.dtype(np.float32), codes.shape))
        elementwise.record_chain(
            recorder, builder.build([back]), [processor.array(codes)], found[2:]
        )
        limits = ml_dtypes.finfo(dtype)
        with np.errstate(all="ignore"):
            clipped = np.clip(x, np.float32(limits.min), np.float32(limits.max))
            wanted = [x.astype(dtype), clipped.astype(dtype)]
            wanted[0][np.isnan(wanted[0])] = np.nan  # whose sign says nothing
        u8 = np.dtype(np.uint8)
        bits = [View(v.buffer, v.offset, u8, v.shape, v.strides) for v in found[:2]]
        return [*bits, found[2]], [*(each.view(np.uint8) for each in wanted), wide]

    return make


def of_two_words(recorder: Recorder[Any], processor: Processor) -> Any:
    a, b = (RNG.integers(-(2**63), 2**63, shape) for shape in ((5, 7), (7, 4)))
    out = recorder.temporary(a.dtype, (5, 4))
    contractions.record_matmul(recorder, processor.array(a), processor.array(b), out)
    x = np.repeat(a.reshape(-1), 6)
    by = np.resize(np.array([0, 1, 31, 32, 63, 64]), x.size)
    builder = ChainBuilder()
    operands = [builder.input("i64") for _ in range(2)]
    results = [
        builder.step("BitShift", operands, "i64", {"direction": way})
        for way in ("LEFT", "RIGHT")
    ]
    found = [recorder.temporary(x.dtype, x.shape) for _ in results]
    views = [processor.array(each) for each in (x, by)]
    elementwise.record_chain(recorder, builder.build(results), views, found)
    with np.errstate(all="ignore"):
        left = np.where(by < 64, x << np.minimum(by, 63), 0)
    return [out, *found], [a @ b, left, x >> np.minimum(by, 63)]


def truths(recorder: Recorder[Any], processor: Processor) -> Any:
    x = RNG.random((9, 70)) < 0.02
    found = [recorder.temporary(x.dtype, (9, 1)) for _ in range(2)]
    for kind, out in zip(("ReduceMax", "ReduceMin"), found, strict=True):
        reductions.record_reduce(recorder, kind, processor.array(x), out, (1,))
    return found, [x.any(1, keepdims=True), x.all(1, keepdims=True)]


def scattered(recorder: Recorder[Any], processor: Processor) -> Any:
    """The last of many updates for a place, by a lane for each."""
    data, updates = np.zeros(40, np.float32), RNG.random(300).astype(np.float32)
    places = RNG.integers(-40, 40, 300)
    out = recorder.temporary(data.dtype, data.shape)
    views = [processor.array(each) for each in (data, places, updates)]
    indexing.record_scatter_elements(recorder, *views, out, 0)
    wanted = data.copy()
    for place, update in zip(places, updates, strict=True):
        wanted[place] = update
    return [out], [wanted]


SLIDES = [Slide(3, 2, 1, 1, 1), Slide(2, 1, 2, 0, 0)]


def taps(shape: tuple[int, int]) -> list[tuple[int, ...]]:
    """Windows, elements of them, and where these lie in an image of 7 by 6."""
    found = []
    for window in np.ndindex(shape):
        for tap in np.ndindex(3, 2):
            place = [
                w * slide.stride + t * slide.dilation - slide.before
                for w, t, slide in zip(window, tap, SLIDES, strict=True)
            ]
            found.append((*window, *tap, *place))
    return found


def largest(recorder: Recorder[Any], processor: Processor) -> Any:
    x = RNG.integers(-4, 4, (2, 3, 7, 6)).astype(np.float32)
    out = recorder.temporary(x.dtype, (2, 3, 4, 4))
    places = recorder.temporary(np.dtype(np.int64), out.shape)
    source = processor.array(x)
    window_places.record_max_places(recorder, source, out, places, SLIDES)
    best = np.full(out.shape, -np.inf)
    where = np.zeros(out.shape, np.int64)
    numbers = np.arange(x.size).reshape(x.shape)
    for i, j, _, _, row, column in taps((4, 4)):
        if 0 <= row < 7 and 0 <= column < 6:
            more = x[:, :, row, column] > best[:, :, i, j]
            best[:, :, i, j][more] = x[:, :, row, column][more]
            where[:, :, i, j][more] = numbers[:, :, row, column][more]
    return [out, places], [best, where]


def folded(recorder: Recorder[Any], processor: Processor) -> Any:
    x = RNG.standard_normal((2, 3, 3, 2, 4, 4)).astype(np.float32)
    out = recorder.temporary(x.dtype, (2, 3, 7, 6))
    window_places.record_fold(recorder, processor.array(x), out, SLIDES)
    wanted = np.zeros(out.shape)
    for i, j, a, b, row, column in taps((4, 4)):
        if 0 <= row < 7 and 0 <= column < 6:
            wanted[:, :, row, column] += x[:, :, a, b, i, j]
    return [out], [wanted]


def moved(recorder: Recorder[Any], processor: Processor) -> Any:
    """By whole numbers, which is where an element is, and far outside."""
    x = RNG.standard_normal((2, 4, 7, 6)).astype(np.float32)
    offsets = RNG.integers(-2, 3, (2, 2, 6, 2, 4, 4)).astype(np.float32)
    offsets[0, 0, 0, 0, 0, :3] = [1e9, -np.inf, np.nan]
    mask = RNG.random((2, 2, 6, 4, 4)).astype(np.float32)
    out = recorder.temporary(x.dtype, (2, 4, 6, 4, 4))
    views = [processor.array(each) for each in (x, offsets, mask)]
    window_places.record_deformed(recorder, *views, out, SLIDES)
    wanted = np.zeros(out.shape)
    for image, channel in np.ndindex(2, 4):
        for i, j, a, b, row, column in taps((4, 4)):
            at = image, channel // 2, a * 2 + b
            y, z = np.array([row, column]) + offsets[(*at, slice(None), i, j)]
            if 0 <= y < 7 and 0 <= z < 6:
                value = x[image, channel, int(y), int(z)] * mask[(*at, i, j)]
                wanted[image, channel, at[2], i, j] = value
    return [out], [wanted]


def walked(recorder: Recorder[Any], processor: Processor) -> Any:
    """Two trees of one branch each, and one that is a leaf."""
    forest = forest_of(
        namespace_of(np),
        "TreeEnsembleRegressor",
        {
            "nodes_treeids": (0, 0, 0, 1, 1, 1, 2),
            "nodes_nodeids": (0, 1, 2, 0, 1, 2, 0),
            "nodes_modes": ("BRANCH_LEQ", "LEAF", "LEAF", "BRANCH_GT", *["LEAF"] * 3),
            "nodes_featureids": (1, 0, 0, 0, 0, 0, 0),
            "nodes_values": (0.5, 0.0, 0.0, -0.5, 0.0, 0.0, 0.0),
            "nodes_truenodeids": (1, 0, 0, 1, 0, 0, 0),
            "nodes_falsenodeids": (2, 0, 0, 2, 0, 0, 0),
            "nodes_missing_value_tracks_true": (1, 0, 0, 0, 0, 0, 0),
            "target_treeids": (0, 0, 1, 1, 2),
            "target_nodeids": (1, 2, 1, 2, 0),
            "target_ids": (0, 1, 0, 1, 0),
            "target_weights": (0.25, -3.0, 7.0, 1e-6, 0.1),
            "n_targets": 2,
            "nodes_values_as_tensor": None,
            "target_weights_as_tensor": None,
        },
    )
    x = RNG.standard_normal((50, 2)).astype(np.float32)
    x[::7, 1] = np.nan
    out = recorder.temporary(x.dtype, (50, 2))
    base = np.array([1.0, -2.0])
    trees.record_trees(
        recorder, processor.array(x), out, Scoring(forest, base=base), ""
    )
    first = (x[:, 1] <= 0.5) | np.isnan(x[:, 1])
    second = x[:, 0] > -0.5
    scores = [
        1 + 0.25 * first + 7 * second + np.float64(np.float32(0.1)),
        -2 - 3 * ~first + 1e-6 * ~second,
    ]
    return [out], [np.stack(scores, 1)]


OPERATOR_SAMPLES: dict[str, Making] = {
    **{
        name: minifloats(name)
        for name in (
            "float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float4_e2m1fn"
        ).split()
    },
    "integers of two words": of_two_words,
    "truths": truths,
    "scattered": scattered,
    "the largest of windows": largest,
    "windows folded": folded,
    "windows moved": moved,
    "trees walked": walked,
}
