"""Resampling by tables against sums in float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from onnxplug_compiler.ir.images import ResampledAxis
from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.kernels.spatial.resample import record_resample
from onnxplug_cpu.compiler.machine.isa import AVX512, Isa

from ..interpreter import ISAS, Interpreter, assembly
from ..rarely import first

isas = pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)


def taps(
    generator: np.random.Generator, axis: int, length: int, size: int, count: int
) -> ResampledAxis:
    """A random table; without weights if *count* is 0."""
    index = generator.integers(0, length, (max(count, 1), size))
    weight = generator.standard_normal(index.shape).astype(np.float32)
    return ResampledAxis(axis, index, weight if count else None)


def expected(x: Any, axes: list[ResampledAxis]) -> Any:
    y = np.asarray(x, np.float64)
    for axis, index, weight in axes:
        column = (-1, *(1,) * (y.ndim - 1 - axis))
        y = sum(
            np.take(y, places, axis)
            * (1 if weight is None else weight[tap].astype(np.float64).reshape(column))
            for tap, places in enumerate(index)
        )
    return y


def laid(run: Interpreter, order: list[int], shape: tuple[int, ...], x: Any) -> View:
    """An input, or an output, whose axes lie in memory in *order*."""
    inverse = np.argsort(order).tolist()
    if x is not None:
        return run.input(x.transpose(order)).transpose(inverse)
    return run.output(np.float32, tuple(shape[a] for a in order)).transpose(inverse)


def resample(
    isa: Isa,
    x: Any,
    axes: list[ResampledAxis],
    order: list[int],
    out_order: list[int],
    workers: int = 1,
) -> Any:
    run = Interpreter(isa, workers)
    shape = list(x.shape)
    for axis, index, _ in axes:
        shape[axis] = index.shape[1]
    source = laid(run, order, x.shape, x)
    target = laid(run, out_order, tuple(shape), None)
    record_resample(run.recorder, source, target, axes)
    run.run()
    return run.read(target)


@isas
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("turns", first(1, [40, 120]))
def test_random_shapes_and_orders(isa: Isa, turns: int, workers: int) -> None:
    generator = np.random.default_rng(workers)
    for _ in range(turns):
        rank = int(generator.integers(1, 6))
        sizes = [1, 2, 3, 5, 16, 17, 40, 70, 130]
        shape: list[int] = []
        for _ in range(rank):
            size = int(generator.choice(sizes))
            shape.insert(0, size if math.prod(shape) * size < 3000 else 2)
        chosen = generator.permutation(rank)[: generator.integers(1, 4)]
        kind = int(generator.integers(0, 2))
        axes = [
            taps(
                generator,
                int(axis),
                shape[axis],
                int(generator.choice([1, 3, 17, 33])),
                kind and int(generator.choice([1, 2, 4, 7])),
            )
            for axis in chosen
        ]
        x = generator.standard_normal(shape).astype(np.float32)
        order = generator.permutation(rank).tolist()
        other = order if generator.random() < 0.7 else generator.permutation(rank)
        found = resample(isa, x, axes, order, list(other), workers)
        wanted = expected(x, axes)
        if kind:
            bound = expected(
                abs(x),
                [a._replace(weights=abs(a.weights)) for a in axes],  # type: ignore[arg-type]
            )
            assert (abs(found - wanted) <= 1e-6 * bound).all(), (shape, axes, order)
        else:
            np.testing.assert_array_equal(found, wanted.astype(np.float32))


@isas
def test_elements_that_are_only_moved_stay_as_they_are(isa: Isa) -> None:
    special = [math.inf, -math.inf, math.nan, -0.0, 1e-42, 3.0]
    x = np.resize(np.array(special, np.float32), (2, 3, 6, 7))
    generator = np.random.default_rng(0)
    axes = [taps(generator, 2, 6, 20, 0), taps(generator, 3, 7, 33, 0)]
    for order in ([0, 1, 2, 3], [0, 2, 3, 1]):
        found = resample(isa, x, axes, order, order)
        wanted = x[:, :, axes[0].places[0]][:, :, :, axes[1].places[0]]
        assert found.tobytes() == wanted.tobytes()


@isas
def test_a_tap_of_weight_0_still_counts(isa: Isa) -> None:
    """As in the formula: 0 · ∞ is no number."""
    x = np.array([[1.0, math.inf, 2.0]], np.float32)
    index = np.array([[0, 2], [1, 0]])
    weight = np.array([[1, 1], [0, 0]], np.float32)
    found = resample(isa, x, [ResampledAxis(1, index, weight)], [0, 1], [0, 1])
    np.testing.assert_array_equal(found, [[math.nan, 2.0]])


@isas
def test_strided_and_sliced(isa: Isa) -> None:
    generator = np.random.default_rng(5)
    x = generator.standard_normal((6, 40, 30)).astype(np.float32)
    viewed = x[1:5, 2:36:2, 29:0:-3]
    for axis, length in ((1, 17), (2, 10)):
        run = Interpreter(isa)
        view = run.input(x).slice((1, 2, 29), (4, 17, 10), (1, 2, -3))
        resampled = taps(generator, axis, length, 21, 2)
        shape = [4, 17, 10]
        shape[axis] = 21
        out = run.output(np.float32, tuple(shape))
        record_resample(run.recorder, view, out, [resampled])
        run.run()
        wanted = expected(viewed, [resampled])
        np.testing.assert_allclose(run.read(out), wanted, 1e-5, 1e-6)


def test_a_long_row_is_divided_among_workers() -> None:
    generator = np.random.default_rng(6)
    x = generator.standard_normal((1, 50_000)).astype(np.float32)
    axis = taps(generator, 1, 50_000, 100_003, 2)
    run = Interpreter(workers=4)
    out = run.output(np.float32, (1, 100_003))
    record_resample(run.recorder, run.input(x), out, [axis])
    assert run.recorder.commands[0].chunks > 1
    run.run()
    np.testing.assert_allclose(run.read(out), expected(x, [axis]), 1e-5, 1e-6)


def test_what_does_not_fit_is_refused() -> None:
    run = Interpreter()
    x, out = run.input(np.zeros((2, 3), np.float32)), run.output(np.float32, (2, 4))
    one = np.ones((1, 4), np.float32)
    for index in (np.full((1, 4), 3), np.full((1, 4), -1), np.zeros((0, 4), np.int64)):
        with pytest.raises(ValueError, match="taps of axis 1"):
            record_resample(run.recorder, x, out, [ResampledAxis(1, index, one)])
    fits = ResampledAxis(1, np.zeros((1, 4), np.int64), None)
    with pytest.raises(ValueError, match="is not resampled"):
        record_resample(run.recorder, x, x, [fits])
    with pytest.raises(ValueError, match="no weights"):
        twice = ResampledAxis(1, np.zeros((2, 4), np.int64), None)
        record_resample(run.recorder, x, out, [twice])


@pytest.mark.parametrize("count", [0, 1, 2, 4, 7])
@pytest.mark.parametrize("order", [[0, 1, 2, 3], [0, 2, 3, 1]])
def test_no_vector_is_spilled(count: int, order: list[int]) -> None:
    generator = np.random.default_rng(0)
    run = Interpreter(AVX512)
    x = laid(run, order, (1, 64, 8, 8), np.zeros((1, 64, 8, 8), np.float32))
    out = laid(run, order, (1, 64, 16, 16), None)
    axes = [taps(generator, axis, 8, 16, count) for axis in (2, 3)]
    record_resample(run.recorder, x, out, axes)
    for command in run.recorder.commands:
        lines = assembly(command.kernel, AVX512).splitlines()
        assert not [line for line in lines if "zmm" in line and "rsp)" in line]
