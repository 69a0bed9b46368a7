"""Normalisations of images against their formulas in float64."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime
import pytest

from ..lowered import Array, lowered, random
from ..rarely import crossed
from .test_spatial import compiled, model_of

SHAPES = [(2, 6, 5, 7), (1, 64, 12, 12), (3, 32, 50), (1, 4, 3, 4, 5), (2, 12, 1, 1)]
LAST = pytest.mark.parametrize("last", [False, True])


def along_channels(parameter: Array, rank: int) -> Any:
    return parameter.astype(np.float64).reshape(-1, *[1] * (rank - 2))


def standardised(x: Any, axes: Sequence[int], epsilon: float) -> Any:
    x = x.astype(np.float64)
    mean = x.mean(tuple(axes), keepdims=True)
    variance = ((x - mean) ** 2).mean(tuple(axes), keepdims=True)
    return (x - mean) / np.sqrt(variance + epsilon)


def check(found: Array, expected: Any, *, last: bool, tolerance: float = 4e-6) -> None:
    if last:
        expected = np.moveaxis(expected, 1, -1)
    np.testing.assert_allclose(found, expected, tolerance, tolerance)


@LAST
@pytest.mark.parametrize("shape", [*SHAPES, (5, 7)])
@pytest.mark.parametrize("constant", [True, False])
def test_batch_normalization(
    shape: tuple[int, ...], constant: bool, last: bool
) -> None:
    if last and len(shape) < 3:
        return
    x, *parameters = random(shape, *[shape[1:2]] * 4)
    parameters[3] = abs(parameters[3]) + np.float32(0.1)
    feeds = {"x": x}
    inputs: list[Any] = ["x", *parameters]
    if not constant:
        names = ("scale", "shift", "mean", "variance")
        feeds |= dict(zip(names, parameters, strict=True))
        inputs = ["x", *names]
    model = model_of(
        "BatchNormalization", feeds, inputs, channels_last=last, epsilon=1e-3
    )
    scale, shift, mean, variance = (
        along_channels(array, len(shape)) for array in parameters
    )
    expected = (x - mean) / np.sqrt(variance + 1e-3) * scale + shift
    check(compiled(model, feeds), expected, last=last)


@LAST
@pytest.mark.parametrize("shape", SHAPES)
def test_instance_normalization(shape: tuple[int, ...], last: bool) -> None:
    x, scale, shift = random(shape, *[shape[1:2]] * 2)
    feeds = {"x": x}
    model = model_of(
        "InstanceNormalization",
        feeds,
        ["x", scale, shift],
        channels_last=last,
        epsilon=1e-3,
    )
    rank = len(shape)
    expected = standardised(x, range(2, rank), 1e-3) * along_channels(scale, rank)
    expected += along_channels(shift, rank)
    check(compiled(model, feeds), expected, last=last)


@LAST
@pytest.mark.parametrize("opset", [18, 21])
@pytest.mark.parametrize("shape", SHAPES)
def test_group_normalization(shape: tuple[int, ...], opset: int, last: bool) -> None:
    rank, channels = len(shape), shape[1]
    for groups in (1, 2, channels // 2, channels):
        count = groups if opset < 21 else channels
        x, scale, shift = random(shape, (count,), (count,))
        feeds = {"x": x}
        model = model_of(
            "GroupNormalization",
            feeds,
            ["x", scale, shift],
            opset=opset,
            channels_last=last,
            num_groups=groups,
            epsilon=1e-3,
        )
        parts = x.reshape(shape[0], groups, -1)
        expected = standardised(parts, (2,), 1e-3).reshape(shape)
        factor, offset = (
            along_channels(np.repeat(array, channels // count), rank)
            for array in (scale, shift)
        )
        check(compiled(model, feeds), expected * factor + offset, last=last)


@LAST
@pytest.mark.parametrize("operator", ["InstanceNormalization", "GroupNormalization"])
def test_no_digits_cancel(operator: str, last: bool) -> None:
    """Means far from 0, and many elements."""
    shape = (1, 16, 120, 130)
    x = random(shape)[0] + np.float32(300)
    feeds = {"x": x}
    options: dict[str, Any] = {"num_groups": 4} if operator[0] == "G" else {}
    ones, none = np.ones(16, np.float32), np.zeros(16, np.float32)
    model = model_of(
        operator,
        feeds,
        ["x", ones, none],
        opset=21,
        channels_last=last,
        epsilon=1e-5,
        **options,
    )
    parts = x.reshape(1, options.get("num_groups", 16), -1)
    expected = standardised(parts, (2,), 1e-5).reshape(shape)
    # the last bit of the mean, and the rounding of what differs from it
    check(compiled(model, feeds), expected, last=last, tolerance=300 * 2.0**-22)


@pytest.mark.parametrize(
    ("channels", "size", "last"),
    crossed([1, 2, 7, 40], [1, 2, 3, 5, 8, 13, 1000, 2**40], [False, True]),
)
def test_lrn(size: int, channels: int, last: bool) -> None:
    x = random((2, channels, 3, 5))[0]
    for alpha, beta, bias in [(0.5, 0.75, 1.0), (3.0, 0.6, 0.25)]:
        feeds = {"x": x}
        model = model_of(
            "LRN",
            feeds,
            ["x"],
            channels_last=last,
            size=size,
            alpha=alpha,
            beta=beta,
            bias=bias,
        )
        total = np.zeros(x.shape)
        for channel in range(channels):
            first = max(channel - (size - 1) // 2, 0)
            stop = channel + size // 2 + 1
            squares = x[:, first:stop].astype(np.float64) ** 2
            total[:, channel] = squares.sum(1)
        expected = x / (bias + alpha / size * total) ** beta
        check(compiled(model, feeds), expected, last=last)


@LAST
@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("axis", [-1, 0, 1, 2])
def test_lp_normalization(axis: int, p: int, last: bool) -> None:
    x = random((3, 20, 5, 6))[0]
    x[:, :, 2, 3] = 0
    x[1, :, :, :] = 0
    feeds = {"x": x.copy()}
    model = model_of(
        "LpNormalization", feeds, ["x"], channels_last=last, axis=axis, p=p
    )
    norm = np.linalg.norm(x.astype(np.float64), p, axis, keepdims=True)
    expected = x / np.where(norm == 0, 1, norm)
    check(compiled(model, feeds), expected, last=last)


@pytest.mark.parametrize(
    ("operator", "parameters", "options"),
    [
        ("BatchNormalization", 4, {}),
        ("InstanceNormalization", 2, {}),
        ("GroupNormalization", 2, {"num_groups": 2}),
        ("LRN", 0, {"size": 3}),
        ("LpNormalization", 0, {"axis": 1}),
    ],
)
@LAST
def test_special_values_and_no_images(
    operator: str, parameters: int, options: dict[str, Any], last: bool
) -> None:
    ones = [np.ones(4, np.float32)] * parameters
    feeds = {"x": random((4, 4, 6, 6))[0]}
    feeds["x"][0, 0, 0, 0], feeds["x"][1, 1, 2, 3] = math.nan, math.inf
    feeds["x"][2] = 1e-42
    model = model_of(
        operator, feeds, ["x", *ones], opset=21, channels_last=last, **options
    )
    lowered(model).check(feeds["x"])
    runner = onnxruntime.InferenceSession(model.SerializeToString())
    (theirs,) = runner.run(None, feeds)
    ours = compiled(model, feeds)
    finite = np.isfinite(theirs)
    np.testing.assert_allclose(ours[finite], theirs[finite], 1e-5, 1e-6)
    none = {"x": np.zeros((0, 4, 6, 6), np.float32)}
    model = model_of(operator, none, ["x", *ones], opset=21, **options)
    assert compiled(model, none).shape == (0, 4, 6, 6)


def test_training_is_left_to_arrays() -> None:
    feeds = {"x": random((2, 3, 4, 4))[0]}
    ones = [np.ones(3, np.float32)] * 4
    model = model_of("BatchNormalization", feeds, ["x", *ones], training_mode=1)
    model.graph.node[0].output.extend(["mean", "variance"])
    tested = lowered(model)
    tested.check(feeds["x"])
    assert tested.notes() == ["BatchNormalization is not compiled to train"]
