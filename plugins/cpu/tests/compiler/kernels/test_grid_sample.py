"""GridSample against formulas in float64, point by point."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.kernels.spatial.grid_sample import record_grid_sample
from onnxplug_cpu.compiler.machine.isa import AVX512, Isa

from ..interpreter import ISAS, Interpreter, assembly

isas = pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)

MODES = ("nearest", "linear", "cubic")
PADDINGS = ("zeros", "border", "reflection")


def reflected(place: float, low: float, high: float) -> float:
    if high == low:
        return low
    while not low <= place <= high:
        place = 2 * low - place if place < low else 2 * high - place
    return place


def keys(distance: float) -> float:
    a, x = -0.75, abs(distance)
    if x <= 1:
        return (a + 2) * x**3 - (a + 3) * x**2 + 1
    return a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a if x < 2 else 0.0


def axis_taps(
    point: float, size: int, mode: str, padding: str, align: bool
) -> list[tuple[int, float]]:
    """(index, weight) of what is read; nothing for what is outside."""
    low, high = (0.0, size - 1.0) if align else (-0.5, size - 0.5)
    place = (point + 1) / 2 * (high - low) + low
    if mode == "nearest":
        place = round(place)
    if padding == "reflection":
        place = reflected(place, low, high)
    if padding == "border" and mode != "cubic":
        place = min(max(place, 0.0), size - 1.0)
    if mode == "nearest":
        taps = [(math.floor(place), 1.0)]
    elif mode == "linear":
        first = math.floor(place)
        taps = [(first, 1 - (place - first)), (first + 1, place - first)]
    else:
        first = math.floor(place)
        taps = [(first + s, keys(place - first - s)) for s in range(-1, 3)]
    found = []
    for index, weight in taps:
        if padding == "reflection":
            index = round(reflected(index, low, high))
        if padding != "zeros":
            index = min(max(index, 0), size - 1)
        if 0 <= index < size:
            found.append((index, weight))
    return found


def expected(x: Any, grid: Any, mode: str, padding: str, align: bool) -> Any:
    x = x.astype(np.float64)
    out = np.zeros((*x.shape[:2], grid.shape[1]))
    for image, point in np.ndindex(*grid.shape[:2]):
        taps = [
            axis_taps(coordinate, size, mode, padding, align)
            for coordinate, size in zip(
                grid[image, point, ::-1].tolist(), x.shape[2:], strict=True
            )
        ]
        for combination in itertools.product(*taps):
            places = tuple(index for index, _ in combination)
            weight = math.prod(weight for _, weight in combination)
            out[image, :, point] += weight * x[(image, slice(None), *places)]
    return out


def last_to(run: Interpreter, array: Any, axis: int) -> View:
    """An input in which *axis* lies last in memory."""
    order = [a for a in range(array.ndim) if a != axis] + [axis]
    return run.input(array.transpose(order)).transpose(np.argsort(order).tolist())


def sample(
    isa: Isa,
    x: Any,
    grid: Any,
    mode: str,
    padding: str,
    align: bool,
    *,
    channels_last: bool,
    workers: int = 1,
) -> Any:
    run = Interpreter(isa, workers)
    shape = (*x.shape[:2], grid.shape[1])
    if channels_last:
        out = run.output(np.float32, (shape[0], shape[2], shape[1])).transpose(
            (0, 2, 1)
        )
    else:
        out = run.output(np.float32, shape)
    record_grid_sample(
        run.recorder,
        last_to(run, x, 1) if channels_last else run.input(x),
        run.input(grid),
        out,
        mode=mode,
        padding=padding,
        align_corners=align,
    )
    run.run()
    return run.read(out)


def places(generator: np.random.Generator, shape: Any, sizes: Any, align: bool) -> Any:
    """Points, some of them outside; halfway between two elements only exactly so."""
    grid = generator.uniform(-1.7, 1.7, (*shape, len(sizes)))
    grid = np.where(generator.random(grid.shape) < 0.2, np.round(2 * grid) / 2, grid)
    for axis, size in enumerate(reversed(sizes)):
        low, high = (0.0, size - 1.0) if align else (-0.5, size - 0.5)
        if high == low:
            continue
        place = (grid[..., axis] + 1) / 2 * (high - low) + low
        apart = abs(place - np.floor(place) - 0.5)
        place = place + 0.03 * ((apart > 0) & (apart < 0.01))
        grid[..., axis] = (place - low) / (high - low) * 2 - 1
    return grid.astype(np.float32)


@isas
@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("turns", [6, pytest.param(24, marks=pytest.mark.exhaustive)])
def test_random_sizes(isa: Isa, mode: str, padding: str, turns: int) -> None:
    generator = np.random.default_rng(MODES.index(mode) * 3 + PADDINGS.index(padding))
    for turn in range(turns):
        rank = 1 + turn % 3
        align = bool(turn & 1)
        sizes = [int(n) for n in generator.choice([1, 2, 3, 5, 9], rank)]
        channels = int(generator.choice([1, 3, 8, 17, 70]))
        points = int(generator.choice([1, 15, 16, 33]))
        x = generator.standard_normal((2, channels, *sizes)).astype(np.float32)
        grid = places(generator, (2, points), sizes, align)
        wanted = expected(x, grid, mode, padding, align)
        for last in (False, True):
            found = sample(
                isa, x, grid, mode, padding, align, channels_last=last, workers=2
            )
            np.testing.assert_allclose(found, wanted, 2e-5, 2e-5, err_msg=str(sizes))


@isas
@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("mode", MODES)
def test_no_point_is_read_outside(isa: Isa, mode: str, padding: str) -> None:
    """Whatever the grid has; the memory around the input is looked at, too."""
    extremes = [math.nan, math.inf, -math.inf, 3e38, -3e38, 1e9, -1e9, 1e-45, 7e6]
    grid = np.array(list(itertools.product(extremes, repeat=2)), np.float32)[None]
    x = np.random.default_rng(0).uniform(1, 2, (1, 9, 5, 7)).astype(np.float32)
    for align, last in itertools.product((False, True), repeat=2):
        found = sample(isa, x, grid, mode, padding, align, channels_last=last)
        assert np.isfinite(found).all()
        if padding == "zeros":
            outside = ~(abs(grid) <= 1).all(axis=-1)[0]
            assert (found[:, :, outside] == 0).all()
        else:  # every point is somewhere within
            assert found.min() > 0.2 and found.max() < 3.5


@isas
def test_what_is_outside_is_zero_beside_infinity(isa: Isa) -> None:
    x = np.full((1, 16, 1, 1), math.inf, np.float32)
    grid = np.array([[[-5.0, 0.0], [0.0, 0.0]]], np.float32)
    for last in (False, True):
        found = sample(isa, x, grid, "nearest", "zeros", False, channels_last=last)
        np.testing.assert_array_equal(found[0, 3], [0, math.inf])


@isas
def test_strides(isa: Isa) -> None:
    generator = np.random.default_rng(2)
    x = generator.standard_normal((6, 7, 4, 3)).astype(np.float32)
    grid = places(generator, (3, 19), (6, 7), False)
    for change, viewed in (
        (lambda v: v.transpose((3, 2, 0, 1)), x.transpose(3, 2, 0, 1)),
        (
            lambda v: v.slice((5, 6, 3, 2), x.shape, (-1,) * 4).transpose((3, 2, 0, 1)),
            x[::-1, ::-1, ::-1, ::-1].transpose(3, 2, 0, 1),
        ),
    ):
        run = Interpreter(isa)
        out = run.output(np.float32, (19, 3, 4)).transpose((1, 2, 0))
        record_grid_sample(
            run.recorder,
            change(run.input(x)),
            last_to(run, grid, 0),
            out,
            mode="linear",
            padding="border",
            align_corners=False,
        )
        run.run()
        wanted = expected(viewed, grid, "linear", "border", False)
        np.testing.assert_allclose(run.read(out), wanted, 2e-5, 2e-5)


def test_what_does_not_fit_is_refused() -> None:
    run = Interpreter()

    def record(x: Any, grid: Any, out: Any, **options: Any) -> None:
        given = {"mode": "linear", "padding": "zeros", "align_corners": False}
        views = [run.input(np.zeros(shape, np.float32)) for shape in (x, grid)]
        out = run.output(np.float32, out)
        record_grid_sample(run.recorder, *views, out, **{**given, **options})

    record((1, 2, 3, 4), (1, 5, 2), (1, 2, 5))
    for shapes in [
        ((1, 2, 3, 4), (2, 5, 2), (1, 2, 5)),
        ((1, 2, 3, 4), (1, 5, 3), (1, 2, 5)),
        ((1, 2, 3, 4), (1, 5, 2), (1, 2, 6)),
        ((1, 2, 0, 4), (1, 5, 2), (1, 2, 5)),
        ((1, 2), (1, 5, 0), (1, 2, 5)),
    ]:
        with pytest.raises(ValueError, match="GridSample of float32"):
            record(*shapes)
    for option in ({"mode": "bilinear"}, {"padding": "wrap"}):
        with pytest.raises(ValueError, match="GridSample of float32"):
            record((1, 2, 3, 4), (1, 5, 2), (1, 2, 5), **option)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_no_vector_is_spilled_but_places(mode: str, last: bool) -> None:
    """The loops over channels load what was placed, and store nothing but results; of
    the cubic places some go to memory, once for as many points as there are lanes."""
    run = Interpreter(AVX512)
    x = np.zeros((1, 64, 8, 8), np.float32)
    out = run.output(np.float32, (1, 64, 40))
    record_grid_sample(
        run.recorder,
        last_to(run, x, 1) if last else run.input(x),
        run.input(np.zeros((1, 40, 2), np.float32)),
        out,
        mode=mode,
        padding="zeros",
        align_corners=False,
    )
    (command,) = run.recorder.commands
    lines = assembly(command.kernel, AVX512).splitlines()
    stored = [line for line in lines if "zmm" in line and line.endswith("rsp)")]
    taps = {"nearest": 1, "linear": 4}[mode]
    assert len(stored) <= 2 * taps + 2, stored
