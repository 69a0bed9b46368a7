"""Windows over arrays against numpy in float64, window by window."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from onnxplug_compiler.ir.elementwise import Chain, Step
from onnxplug_compiler.ir.epilogue import epilogue
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.ir.windows import (
    LARGEST,
    MEAN,
    SUM,
    Combining,
    Slide,
    norm,
    slides_of,
)
from onnxplug_cpu.compiler.kernels import rows as kernels_rows
from onnxplug_cpu.compiler.kernels.window.commands import record_depthwise
from onnxplug_cpu.compiler.kernels.window.pool import record_pool
from onnxplug_cpu.compiler.machine.isa import Isa

from ..integer_isas import NAMES, VNNI
from ..interpreter import ISAS, Interpreter

Array = np.ndarray[Any, Any]
EPSILON = float(np.finfo(np.float32).eps)
each_isa = pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
OF_CODES = {isa: isa.name for isa in ISAS} | ({VNNI: "vnni"} if VNNI in NAMES else {})


class Windows(NamedTuple):
    """Windows that slide along some axes."""

    taps: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]

    @classmethod
    def of(
        cls,
        taps: tuple[int, ...],
        stride: int = 1,
        dilation: int = 1,
        pads: tuple[int, ...] = (),
    ) -> Windows:
        rank = len(taps)
        return cls(
            taps, (stride,) * rank, (dilation,) * rank, pads or (0,) * (2 * rank)
        )

    def counts(self, spatial: tuple[int, ...]) -> tuple[int, ...]:
        rank = len(self.taps)
        return tuple(
            (n + b + e - (k - 1) * d - 1) // s + 1
            for n, k, s, d, b, e in zip(
                spatial,
                *self[:3],
                self.pads[:rank],
                self.pads[rank:],
                strict=True,
            )
        )

    def within(self, x: Array, counts: tuple[int, ...], beyond: float) -> Array:
        """What windows over *x* have, [*counts, *taps] at the end; *beyond* where
        there is no element."""
        rank = len(self.taps)
        extents = [
            (k - 1) * d + 1 for k, d in zip(self.taps, self.dilations, strict=True)
        ]
        ends = [
            max((c - 1) * s + extent - b - n, 0)
            for c, s, extent, b, n in zip(
                counts,
                self.strides,
                extents,
                self.pads[:rank],
                x.shape[-rank:],
                strict=True,
            )
        ]
        widths = [(0, 0)] * (x.ndim - rank) + [
            *zip(self.pads[:rank], ends, strict=True)
        ]
        padded = np.pad(x, widths, constant_values=beyond)
        axes = tuple(range(x.ndim - rank, x.ndim))
        every = np.lib.stride_tricks.sliding_window_view(padded, extents, axes)
        starts = [
            slice(None, c * s, s) for c, s in zip(counts, self.strides, strict=True)
        ]
        taps = [slice(None, None, d) for d in self.dilations]
        return every[(..., *starts, *taps)]


def reference(
    combining: Combining,
    x: Array,
    windows: Windows,
    weights: Array | None = None,
    *,
    counts_padding: bool = False,
) -> tuple[Array, Array]:
    """The results in float64, and what the terms of each are together."""
    spatial, rank = x.shape[2:], len(windows.taps)
    counts = windows.counts(spatial)
    over = tuple(range(-rank, 0))
    if not x.size:
        return (np.zeros((*x.shape[:2], *counts)),) * 2
    begins, ends = windows.pads[:rank], windows.pads[rank:]
    ones = np.ones(spatial)
    if counts_padding:
        ones = np.pad(ones, [*zip(begins, ends, strict=True)], constant_values=1)
        unpadded = windows._replace(pads=(0,) * (2 * rank))
        counted = unpadded.within(ones, counts, 0).sum(over)
    else:
        counted = windows.within(ones, counts, 0).sum(over)
    largest = combining.fold == "max"
    values = windows.within(x.astype(np.float64), counts, -math.inf if largest else 0)
    if weights is not None:
        shape = (x.shape[1], *(1,) * rank, *windows.taps)
        values = values * weights.astype(np.float64).reshape(shape)
    with np.errstate(all="ignore"):
        if largest:
            return values.max(over), np.zeros((*x.shape[:2], *counts))
        size = abs(values).sum(over)
        p = {"": 0, "magnitude": 1, "square": 2, "power": combining.p}
        if exponent := p.get(combining.change):
            return (abs(values) ** exponent).sum(over) ** (1 / exponent), size
        if combining.divides:
            return values.sum(over) / counted, size / counted
        return values.sum(over), size


def last(rank: int) -> tuple[int, ...]:
    """The order of axes with channels last."""
    return (0, *range(2, rank), 1)


def first(rank: int) -> tuple[int, ...]:
    """From channels last to channels after images."""
    return (0, rank - 1, *range(1, rank - 1))


Placing = Callable[[Interpreter, Array], View]


def rows(interpreter: Interpreter, x: Array) -> View:
    return interpreter.input(x)


def channels_last(interpreter: Interpreter, x: Array) -> View:
    view = interpreter.input(np.ascontiguousarray(x.transpose(last(x.ndim))))
    return view.transpose(first(x.ndim))


def apart(interpreter: Interpreter, x: Array) -> View:
    """Channels last, with gaps between pixels."""
    gap = np.nan if x.dtype.kind == "f" else 77
    wide = np.full((*(x.shape[a] for a in last(x.ndim)[:-1]), x.shape[1] + 5), gap)
    wide[..., 2 : 2 + x.shape[1]] = x.transpose(last(x.ndim))
    view = interpreter.input(wide.astype(x.dtype))
    starts = [0] * x.ndim
    starts[-1] = 2
    view = view.slice(starts, [x.shape[a] for a in last(x.ndim)])
    return view.transpose(first(x.ndim))


def backward(interpreter: Interpreter, x: Array) -> View:
    """Every other element, from the end."""
    wide = np.repeat(x[..., ::-1], 2, -1)
    view = interpreter.input(wide)
    starts = [0] * x.ndim
    starts[-1] = wide.shape[-1] - 1
    steps = [1] * x.ndim
    steps[-1] = -2
    return view.slice(starts, x.shape, steps)


PLACINGS: list[Placing] = [channels_last, rows, apart, backward]


def output(interpreter: Interpreter, shape: tuple[int, ...], *, lasts: bool) -> View:
    if not lasts:
        return interpreter.output(np.float32, shape)
    moved = tuple(shape[axis] for axis in last(len(shape)))
    return interpreter.output(np.float32, moved).transpose(first(len(shape)))


def run(
    isa: Isa,
    combining: Combining,
    x: Array,
    windows: Windows,
    placing: Placing = channels_last,
    *,
    workers: int = 1,
    lasts: bool = True,
    counts_padding: bool = False,
) -> Array:
    interpreter = Interpreter(isa, workers)
    view = placing(interpreter, x)
    shape = (*x.shape[:2], *windows.counts(x.shape[2:]))
    out = output(interpreter, shape, lasts=lasts)
    record_pool(
        interpreter.recorder,
        combining,
        view,
        out,
        slides_of(*windows),
        counts_padding=counts_padding,
    )
    interpreter.run()
    return interpreter.read(out)


CASES: list[tuple[tuple[int, ...], Windows]] = [
    ((1, 1, 1), Windows.of((1,))),
    ((2, 3, 7), Windows.of((3,), 2, pads=(1, 1))),
    ((1, 40, 50), Windows.of((5,), pads=(2, 2))),
    ((1, 64, 14, 14), Windows.of((3, 3), pads=(1, 1, 1, 1))),
    ((2, 33, 15, 29), Windows.of((3, 3), 2, pads=(0, 1, 1, 0))),
    ((1, 150, 5, 6), Windows.of((3, 3), 2, pads=(1, 1, 1, 1))),
    ((1, 17, 9, 8), Windows.of((5, 5), pads=(2, 2, 2, 2))),
    ((1, 20, 2, 3), Windows.of((5, 7), pads=(4, 6, 4, 6))),
    ((1, 16, 10, 31), Windows.of((2, 2), 2)),
    ((1, 70, 6, 40), Windows.of((3, 1), 3, pads=(1, 0, 0, 0))),
    ((1, 18, 12, 13), Windows.of((3, 3), dilation=2, pads=(2, 2, 2, 2))),
    ((2, 5, 30, 17), Windows.of((11, 11), 4, pads=(5, 5, 5, 5))),
    ((1, 34, 5, 6, 7), Windows.of((3, 2, 3), pads=(1, 1, 0, 1, 0, 1))),
    ((1, 3, 4, 5, 20), Windows.of((2, 2, 2), 2, 2)),
    ((2, 0, 5, 5), Windows.of((2, 2))),
    ((0, 3, 5, 5), Windows.of((2, 2))),
]

POOLS = [LARGEST, MEAN, SUM, norm(1), norm(2), norm(3)]


@each_isa
@pytest.mark.parametrize("combining", POOLS, ids=lambda c: c.finish + c.change + c.fold)
def test_pools(isa: Isa, combining: Combining) -> None:
    rng = np.random.default_rng(1)
    for number, (shape, windows) in enumerate(CASES):
        x = rng.standard_normal(shape).astype(np.float32)
        for placing in PLACINGS:
            lasts, counting = number % 2 == 0, number % 3 == 0
            found = run(
                isa,
                combining,
                x,
                windows,
                placing,
                lasts=lasts,
                counts_padding=counting,
            )
            expected, size = reference(combining, x, windows, counts_padding=counting)
            steps = 0 if combining is LARGEST else 6
            near = abs(found - expected) <= steps * EPSILON * size + 1e-37
            assert near.all(), (shape, windows, placing, found, expected)


@each_isa
def test_depthwise(isa: Isa) -> None:
    rng = np.random.default_rng(2)
    for shape, windows in CASES:
        x = rng.standard_normal(shape).astype(np.float32)
        weights = rng.standard_normal((shape[1], 1, *windows.taps)).astype(np.float32)
        for number, placing in enumerate(PLACINGS):
            interpreter = Interpreter(isa, 2)
            out = output(
                interpreter,
                (*shape[:2], *windows.counts(shape[2:])),
                lasts=number % 2 == 0,
            )
            constant = number > 1
            given = (
                interpreter.recorder.constant(weights)
                if constant
                else interpreter.input(weights)
            )
            _, strides, dilations, pads = windows
            record_depthwise(
                interpreter.recorder,
                placing(interpreter, x),
                given,
                out,
                strides=strides,
                dilations=dilations,
                pads=pads,
            )
            interpreter.run()
            found = interpreter.read(out)
            expected, size = reference(SUM, x, windows, weights)
            near = abs(found - expected) <= 6 * EPSILON * size + 1e-37
            assert near.all(), (shape, windows, placing, found, expected)


@pytest.mark.parametrize("isa", OF_CODES, ids=OF_CODES.get)
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_depthwise_of_codes(isa: Isa, dtype: type[np.integer[Any]]) -> None:
    """Sums of differences of codes are exact."""
    rng = np.random.default_rng(3)
    least = np.iinfo(dtype).min
    for number, (shape, windows) in enumerate(CASES):
        x = rng.integers(least, least + 256, shape).astype(dtype)
        zero = np.array(number % 3 and least + rng.integers(0, 256), np.float32)
        taps = shape[1], 1, *windows.taps
        weights = rng.integers(-255, 256, taps).astype(np.float32)
        for placing, are_codes in itertools.product(PLACINGS, (False, True)):
            interpreter = Interpreter(isa, 2)
            recorder = interpreter.recorder
            given = recorder.constant if number % 2 else interpreter.input
            filters = None
            if are_codes:
                weights = np.clip(weights, -128, 127)
                filters = recorder.constant(weights.astype(np.int8))
            counts = windows.counts(shape[2:])
            out = interpreter.output(np.float32, (*shape[:2], *counts))
            record_depthwise(
                recorder,
                placing(interpreter, x),
                given(weights),
                out,
                strides=windows.strides,
                dilations=windows.dilations,
                pads=windows.pads,
                zero=interpreter.input(zero) if zero else None,
                codes=filters,
            )
            interpreter.run()
            expected, _ = reference(SUM, x - zero.astype(np.float64), windows, weights)
            found = interpreter.read(out)
            assert np.array_equal(found, expected), (shape, windows, placing)


@pytest.mark.parametrize(
    ("dtype", "taps"), [(np.uint8, (17, 16)), (np.int16, (3, 3))], ids=["long", "wide"]
)
def test_codes_whose_sums_are_not_exact_are_refused(
    dtype: type[np.integer[Any]], taps: tuple[int, int]
) -> None:
    interpreter = Interpreter()
    x = interpreter.input(np.zeros((1, 8, 20, 20), dtype))
    with pytest.raises(ValueError, match="windows over codes have"):
        record_depthwise(
            interpreter.recorder,
            x,
            interpreter.input(np.zeros((8, 1, *taps), np.float32)),
            interpreter.output(np.float32, (1, 8, 21 - taps[0], 21 - taps[1])),
            strides=(1, 1),
            dilations=(1, 1),
            pads=(0,) * 4,
            zero=interpreter.input(np.array(0, np.float32)),
        )


LARGE: list[tuple[tuple[int, ...], Windows]] = [
    ((2, 3, 700), Windows.of((400,), 3, pads=(0, 7))),
    ((1, 18, 90), Windows.of((70,), pads=(69, 69))),
    ((1, 2, 40, 37), Windows.of((33, 21), pads=(32, 0, 16, 20))),
    ((1, 20, 30, 35), Windows.of((30, 35), pads=(3, 2, 1, 0))),
    ((2, 17, 26, 25), Windows.of((13, 14), 5, pads=(0, 0, 12, 13))),
    ((1, 2, 11, 12, 13), Windows.of((9, 10, 11), pads=(4, 0, 0, 4, 0, 5))),
    ((1, 3, 60, 61), Windows.of((19, 20), 2, 2, pads=(3, 3, 3, 3))),
    ((1, 4, 50, 3), Windows.of((64, 2), pads=(60, 0, 50, 1))),
]
"""Windows whose axes are combined one after the other."""


@each_isa
def test_maps_beyond_the_cache(isa: Isa) -> None:
    """Channels are in blocks of other sizes than those of small maps."""
    rng = np.random.default_rng(4)
    windows = Windows((3, 3), (1, 1), (1, 1), (1, 1, 1, 1))
    for shape in [(1, 333, 34, 41), (1, 32, 90, 120)]:
        x = rng.standard_normal(shape).astype(np.float32)
        weights = rng.standard_normal((shape[1], 1, 3, 3)).astype(np.float32)
        interpreter = Interpreter(isa, 2)
        out = output(interpreter, shape, lasts=True)
        given = interpreter.recorder.constant(weights)
        _, strides, dilations, pads = windows
        record_depthwise(
            interpreter.recorder,
            channels_last(interpreter, x),
            given,
            out,
            strides=strides,
            dilations=dilations,
            pads=pads,
        )
        interpreter.run()
        expected, size = reference(SUM, x, windows, weights)
        near = abs(interpreter.read(out) - expected) <= 6 * EPSILON * size + 1e-37
        assert near.all(), shape


@each_isa
@pytest.mark.parametrize("combining", POOLS, ids=lambda c: c.finish + c.change + c.fold)
def test_large_windows(isa: Isa, combining: Combining) -> None:
    rng = np.random.default_rng(4)
    for number, (shape, windows) in enumerate(LARGE):
        x = rng.standard_normal(shape).astype(np.float32)
        for placing in PLACINGS:
            lasts, counting = number % 2 == 0, number % 3 == 0
            found = run(
                isa,
                combining,
                x,
                windows,
                placing,
                lasts=lasts,
                counts_padding=counting,
                workers=1 + number % 2,
            )
            expected, size = reference(combining, x, windows, counts_padding=counting)
            steps = 0 if combining is LARGEST else 6
            near = abs(found - expected) <= steps * EPSILON * size + 1e-37
            assert near.all(), (shape, windows, placing)


@each_isa
@pytest.mark.parametrize("placing", [channels_last, rows])
def test_long_sums_are_exact_to_the_last_digits(isa: Isa, placing: Placing) -> None:
    """Chains of additions would be off by a hundred units in the last place."""
    x = np.random.default_rng(5).uniform(0, 1, (1, 17, 20_000)).astype(np.float32)
    windows = Windows.of((9_000,), 4_000)
    found = run(isa, MEAN, x, windows, placing)
    wide = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), 9_000, 2)
    expected = wide[:, :, ::4_000].mean(-1)
    assert (abs(found - expected) <= 2 * EPSILON * expected).all()


@each_isa
@pytest.mark.parametrize("placing", [channels_last, rows])
def test_what_is_not_finite_stays_in_its_windows(isa: Isa, placing: Placing) -> None:
    """Also where windows share what they add up."""
    inf, nan = math.inf, math.nan
    for shape, windows in [*CASES[3:6], *LARGE[1:5]]:
        rng = np.random.default_rng(6)
        x = rng.standard_normal(shape).astype(np.float32)
        for value in (inf, -inf, nan):
            x.reshape(-1)[rng.integers(0, x.size, 3)] = value
        for combining in (LARGEST, MEAN, norm(1), norm(2)):
            found = run(isa, combining, x, windows, placing)
            expected, size = reference(combining, x, windows)
            same = (found == expected) | (np.isnan(found) & np.isnan(expected))
            with np.errstate(invalid="ignore"):
                near = abs(found - expected) <= 6 * EPSILON * size
            assert (same | near & np.isfinite(size)).all(), (shape, combining)


@each_isa
def test_windows_beyond_the_input_have_no_elements(isa: Isa) -> None:
    x = np.ones((1, 2, 3, 3), np.float32)
    for taps in ((2, 2), (20, 20)):
        windows = Windows.of(taps, 1, pads=(30, 30, 30, 30))
        for combining in POOLS:
            found = run(isa, combining, x, windows)
            expected, _ = reference(combining, x, windows)
            np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_windows_that_reach_too_far_are_refused() -> None:
    interpreter = Interpreter()
    x = interpreter.input(np.zeros((1, 2, 4), np.float32))
    out = interpreter.output(np.float32, (1, 2, 4))
    for numbers in [(1 << 31, 1, 1, 0, 0), (1, 1, 1, 1 << 30, 0), (0, 1, 1, 0, 0)]:
        with pytest.raises(ValueError, match="do not slide"):
            record_pool(interpreter.recorder, MEAN, x, out, [Slide(*numbers)])


EPILOGUE = Chain(
    ("f32", "f32", "f32"),
    (),
    (Step("Add", (0, 1), "f32"), Step("Relu", (3,), "f32"), Step("Mul", (4, 2), "f32")),
    (5, 3),
)
"""A bias, and behind an activation another array; what was before it is kept, too."""


@each_isa
@pytest.mark.parametrize("workers", [1, 3])
def test_an_epilogue_takes_every_element_once(isa: Isa, workers: int) -> None:
    rng = np.random.default_rng(3)
    for shape, windows in CASES:
        counts = windows.counts(shape[2:])
        result = (*shape[:2], *counts)
        x = rng.standard_normal(shape).astype(np.float32)
        weights = rng.standard_normal((shape[1], 1, *windows.taps)).astype(np.float32)
        bias = rng.standard_normal((shape[1], *(1,) * len(counts))).astype(np.float32)
        other = rng.standard_normal(result).astype(np.float32)
        expected, size = reference(SUM, x, windows, weights)
        before = expected + bias
        after = np.maximum(before, 0) * other
        for placing in PLACINGS:
            for lasts in (True, False):
                interpreter = Interpreter(isa, workers)
                recorder = interpreter.recorder
                outs = [output(interpreter, result, lasts=lasts) for _ in range(2)]
                record_depthwise(
                    recorder,
                    placing(interpreter, x),
                    interpreter.input(weights),
                    recorder.temporary(np.dtype(np.float32), result),
                    strides=windows.strides,
                    dilations=windows.dilations,
                    pads=windows.pads,
                    epilogue=epilogue(
                        EPILOGUE,
                        [
                            interpreter.input(bias).broadcast_to(result),
                            interpreter.input(other),
                        ],
                        outs,
                    ),
                )
                interpreter.run()
                found, kept = map(interpreter.read, outs)
                near = 8 * EPSILON * (size + abs(bias)) + 1e-37
                assert (abs(kept - before) <= near).all()
                assert (abs(found - after) <= near * (abs(other) + 1)).all()


def test_an_epilogue_of_another_shape_is_refused() -> None:
    interpreter = Interpreter()
    x = interpreter.input(np.zeros((1, 2, 4, 4), np.float32))
    weights = interpreter.input(np.zeros((2, 1, 1, 1), np.float32))
    out = interpreter.output(np.float32, (1, 2, 4, 4))
    chain = Chain(("f32",), (), (Step("Relu", (0,), "f32"),), (1,))
    folded = out.reshape((1, 1, 2, 4, 4))
    assert folded is not None
    with pytest.raises(ValueError, match="not of the result's shape"):
        record_depthwise(
            interpreter.recorder,
            x,
            weights,
            out,
            strides=(1, 1),
            dilations=(1, 1),
            pads=(0,) * 4,
            epilogue=epilogue(chain, [], [folded]),
        )


@pytest.mark.parametrize("combining", [LARGEST, MEAN], ids=["max", "mean"])
def test_scans_that_take_long_are_divided(
    combining: Combining, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        kernels_rows, "fewest_chunks", lambda s: max(1, int(s * 1e9 / 500))
    )
    test_large_windows(ISAS[0], combining)


@pytest.mark.parametrize("combining", [LARGEST, MEAN], ids=["max", "mean"])
@pytest.mark.parametrize("pads", [(0, 0, 0, 0), (1, 0, 1, 0), (0, 1, 0, 0)])
@pytest.mark.parametrize("stretched", [(1, 9), (8, 1), (1, 1)])
def test_what_is_stretched_is_as_if_it_were_not(
    combining: Combining, pads: tuple[int, ...], stretched: tuple[int, int]
) -> None:
    few = np.random.default_rng(7).standard_normal((2, 3, *stretched))
    x = np.broadcast_to(few.astype(np.float32), (2, 3, 8, 9))
    windows = Windows.of((3, 2), 2, pads=pads)

    def placing(interpreter: Interpreter, _: Array) -> View:
        return interpreter.input(few.astype(np.float32)).broadcast_to(x.shape)

    found = run(ISAS[0], combining, x, windows, placing, lasts=False)
    expected, _ = reference(combining, x, windows)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
