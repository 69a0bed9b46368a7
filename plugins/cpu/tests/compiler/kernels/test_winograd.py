"""Convolutions by transforms of tiles against numpy in float64."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from onnxplug_compiler.ir.buffers import Address, Packed
from onnxplug_compiler.ir.elementwise import Chain, Step
from onnxplug_compiler.ir.epilogue import epilogue
from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.kernels.winograd.commands import record_transformed
from onnxplug_cpu.compiler.kernels.winograd.division import best_tile
from onnxplug_cpu.compiler.machine.isa import AMX, AVX2, AVX512, Isa
from onnxplug_cpu.compiler.runtime.packed_layout import layout_name

from ..interpreter import ISAS, Interpreter
from .test_window import PLACINGS, Placing, backward, channels_last, rows

Array = np.ndarray[Any, Any]
EPSILON = float(np.finfo(np.float32).eps)
each_isa = pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
each_tile = pytest.mark.parametrize("tile", [2, 4])

COPY = Chain(("f32",), (), (), (0,))
RELU_OF_SUM = Chain(
    ("f32", "f32", "f32"),
    (),
    (Step("Add", (0, 1), "f32"), Step("Add", (3, 2), "f32"), Step("Relu", (4,), "f32")),
    (5,),
)


class Sizes(NamedTuple):
    """Of a convolution; *pads* at the beginnings, and then at the ends."""

    images: int
    depth: int
    height: int
    width: int
    columns: int
    pads: tuple[int, int, int, int] = (1, 1, 1, 1)

    @property
    def result(self) -> tuple[int, ...]:
        top, left, bottom, right = self.pads
        height, width = self.height + top + bottom - 2, self.width + left + right - 2
        return self.images, height, width, self.columns

    def random(self, seed: int = 0) -> tuple[Array, Array]:
        rng = np.random.default_rng(seed)
        x = rng.standard_normal((self.images, self.depth, self.height, self.width))
        weights = rng.standard_normal((self.columns, self.depth, 3, 3))
        return x.astype(np.float32), weights.astype(np.float32)


def exact(x: Array, weights: Array, pads: tuple[int, int, int, int]) -> Array:
    """The convolution in float64, [N, lines, pixels, M]."""
    top, left, bottom, right = pads
    around = ((0, 0), (0, 0), (top, bottom), (left, right))
    padded = np.pad(x.astype(np.float64), around)
    every = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    return np.einsum(
        "nchwij,mcij->nhwm", every, weights.astype(np.float64), optimize=True
    )


def run(
    isa: Isa,
    x: Array,
    weights: Array,
    pads: tuple[int, int, int, int],
    *,
    placing: Placing = channels_last,
    tile: int = 2,
    workers: int = 1,
    lasts: bool = True,
) -> Array:
    interpreter = Interpreter(isa, workers)
    recorder = interpreter.recorder
    sizes = Sizes(*x.shape, len(weights), pads)
    out = result(interpreter, sizes, lasts=lasts)
    record_transformed(
        recorder,
        placing(interpreter, x),
        recorder.constant(weights),
        pads[:2],
        epilogue(COPY, [], [out]),
        tile=tile,
    )
    interpreter.run()
    return interpreter.read(out)[:, 0]


def result(interpreter: Interpreter, sizes: Sizes, *, lasts: bool) -> View:
    """[N, 1, lines, pixels, M], its channels last in memory or not."""
    images, lines, pixels, columns = sizes.result
    if lasts:
        return interpreter.output(np.float32, (images, 1, lines, pixels, columns))
    shape = (images, 1, columns, lines, pixels)
    return interpreter.output(np.float32, shape).transpose((0, 1, 3, 4, 2))


def rms(array: Array) -> float:
    return float(np.sqrt((array.astype(np.float64) ** 2).mean()))


CASES = [
    Sizes(1, 32, 8, 8, 32),
    Sizes(1, 1, 1, 1, 1, (1, 1, 1, 1)),
    Sizes(2, 37, 9, 11, 50),
    Sizes(1, 64, 20, 13, 65, (0, 0, 0, 0)),
    Sizes(3, 16, 5, 30, 100, (2, 0, 1, 2)),
    Sizes(1, 400, 6, 6, 33, (0, 2, 2, 1)),
    Sizes(1, 20, 40, 41, 17, (1, 2, 0, 1)),
    Sizes(1, 1024, 3, 4, 40),
    Sizes(2, 5, 2, 3, 129, (7, 5, 6, 9)),
]


@each_isa
@pytest.mark.parametrize("placing", [p for p in PLACINGS if p not in (rows, backward)])
@pytest.mark.parametrize(("tile", "workers"), [(2, 1), (2, 3), (4, 3)])
def test_is_near_the_convolution(
    isa: Isa, placing: Placing, tile: int, workers: int
) -> None:
    # of the errors' root mean square, and of the largest, in units of the last place
    usual, most = (4, 50) if tile == 2 else (12, 150)
    for number, sizes in enumerate(CASES):
        x, weights = sizes.random(number)
        found = run(
            isa,
            x,
            weights,
            sizes.pads,
            placing=placing,
            tile=tile,
            workers=workers,
            lasts=number % 2 == 0,
        )
        expected = exact(x, weights, sizes.pads)
        assert found.shape == expected.shape
        # of sums of so many products of normal numbers
        size = np.sqrt(9 * sizes.depth)
        assert abs(found - expected).max() <= most * EPSILON * size, sizes
        assert rms(found - expected) <= usual * EPSILON * size, sizes


@each_isa
@pytest.mark.parametrize(("tile", "most"), [(2, 3e-7), (4, 1e-6)])
def test_the_error_is_small(isa: Isa, tile: int, most: float) -> None:
    sizes = Sizes(1, 64, 28, 28, 64)
    x, weights = sizes.random()
    expected = exact(x, weights, sizes.pads)
    found = run(isa, x, weights, sizes.pads, tile=tile)
    # 3·10⁻⁷ is what sums of as many products have
    assert rms(found - expected) <= most * rms(expected)


@each_isa
@each_tile
def test_what_follows_is_applied_to_each_tile(isa: Isa, tile: int) -> None:
    sizes = Sizes(2, 33, 10, 7, 70)
    x, weights = sizes.random(3)
    bias, residual = (
        np.random.default_rng(4).standard_normal(shape).astype(np.float32)
        for shape in ((70,), sizes.result)
    )
    interpreter = Interpreter(isa, 2)
    recorder = interpreter.recorder
    out = result(interpreter, sizes, lasts=True)
    images, *rest = sizes.result
    shape = (images, 1, *rest)
    operands = [
        recorder.constant(bias).broadcast_to(shape),
        interpreter.input(residual.reshape(shape)),
    ]
    record_transformed(
        recorder,
        channels_last(interpreter, x),
        recorder.constant(weights),
        (1, 1),
        epilogue(RELU_OF_SUM, operands, [out]),
        tile=tile,
    )
    interpreter.run()
    expected = np.maximum(exact(x, weights, sizes.pads) + bias + residual, 0)
    np.testing.assert_allclose(interpreter.read(out)[:, 0], expected, 1e-4, 3e-4)


@each_isa
@each_tile
@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf, 3e38])
def test_what_is_not_finite_is_exact(isa: Isa, tile: int, special: float) -> None:
    """Places that reach such an element are what they are without transforms, and all
    others are as if it were not there."""
    sizes = Sizes(2, 17, 17, 18, 21)
    x, weights = sizes.random()
    weights[3, 5, 1] = 0
    x[0, 3, 6, 9] = x[1, 5, 0, 0] = special
    x[1, 0, 16, 17] = -special
    found = run(isa, x, weights, sizes.pads, tile=tile, workers=2)
    with np.errstate(all="ignore"):
        expected = np.zeros(sizes.result, np.float32)
        padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
        every = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
        for tap in np.ndindex(3, 3):
            for c in range(sizes.depth):
                # as a product by BLAS would not be
                products = every[:, c, :, :, *tap, None] * weights[:, c, *tap]
                expected = expected + products
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(found[~finite], expected[~finite])
    assert np.isfinite(found[finite]).all()
    usual = finite & (abs(expected) < 1e30)
    assert usual.any() and (abs(special) < np.inf or not finite.all())
    near = abs(found[usual] - expected[usual])
    assert near.max() <= 1e-4


@each_isa
@each_tile
def test_denormal_numbers(isa: Isa, tile: int) -> None:
    sizes = Sizes(1, 16, 8, 8, 16)
    x, weights = sizes.random()
    x *= np.float32(1e-40)
    found = run(isa, x, weights, sizes.pads, tile=tile)
    expected = exact(x, weights, sizes.pads)
    assert abs(found - expected).max() <= 1e-41


@each_isa
def test_weights_are_packed_once(isa: Isa) -> None:
    """For a session and, however many threads runs have, for others."""
    sizes = Sizes(1, 32, 8, 8, 200)
    x, weights = sizes.random()
    names: set[str | None] = set()
    for workers in (1, 3):
        interpreter = Interpreter(isa, workers)
        recorder = interpreter.recorder
        constant = recorder.constant(weights)
        for _ in range(2):
            record_transformed(
                recorder,
                channels_last(interpreter, x),
                constant,
                (1, 1),
                epilogue(COPY, [], [result(interpreter, sizes, lasts=True)]),
                tile=2,
            )
        (packed,) = {
            word.buffer
            for command in recorder.commands
            for word in command.words
            if isinstance(word, Address) and isinstance(word.buffer, Packed)
        }
        assert packed.source is not None
        names.add(layout_name(packed.fill, packed.source, packed, isa))
    assert len(names) == 1
    assert None not in names


def test_what_does_not_fit_is_refused() -> None:
    sizes = Sizes(1, 8, 6, 6, 8)
    x, weights = sizes.random()
    interpreter = Interpreter()
    recorder = interpreter.recorder
    after = epilogue(COPY, [], [result(interpreter, sizes, lasts=True)])
    with pytest.raises(ValueError, match="apart"):
        record_transformed(
            recorder,
            rows(interpreter, x),
            recorder.constant(weights),
            (1, 1),
            after,
            tile=2,
        )
    for wrong in (weights[:7], weights[:, :7], weights[..., :2]):
        with pytest.raises(ValueError, match="does not give"):
            record_transformed(
                recorder,
                channels_last(interpreter, x),
                recorder.constant(np.ascontiguousarray(wrong)),
                (1, 1),
                after,
                tile=2,
            )
    with pytest.raises(ValueError, match="does not give"):
        record_transformed(
            recorder,
            channels_last(interpreter, x),
            interpreter.input(weights),
            (1, 1),
            after,
            tile=2,
        )


@pytest.mark.parametrize(
    ("depth", "shape", "expected"),
    [
        (64, (1, 56, 56, 64), (2, 4)),
        (256, (1, 14, 14, 256), (2, 4)),
        (512, (1, 7, 7, 512), (2, 2)),  # larger weights take longer to read
        (512, (9, 7, 7, 512), (2, 4)),
        (512, (1, 2, 2, 512), (0, 0)),
        (15, (1, 56, 56, 64), (0, 0)),
        (64, (1, 56, 56, 15), (0, 0)),
        (16, (1, 56, 56, 16), (0, 4)),  # transforms take longer than products save
        (64, (0, 56, 56, 64), (0, 0)),
        (4096, (1, 56, 56, 64), (2, 4)),
        (4097, (1, 56, 56, 64), (0, 0)),
        (64, (1, 5, 1, 64), (0, 0)),  # tiles of which are mostly beyond the result
    ],
)
def test_when_it_pays(
    depth: int, shape: tuple[int, ...], expected: tuple[int, int]
) -> None:
    recorder = Interpreter(AVX2).recorder
    found = tuple(best_tile(recorder, n, depth, shape) for n in (2, 4))
    assert found == expected
    assert best_tile(recorder, 0, depth, shape) == 0


def test_reading_weights_matters_more_to_wide_registers() -> None:
    recorder = Interpreter(AVX512).recorder
    assert best_tile(recorder, 4, 64, (1, 56, 56, 64)) == 4
    assert best_tile(recorder, 4, 512, (1, 7, 7, 512)) == 0


def test_tiles_of_bfloat16_are_preferred() -> None:
    recorder = Interpreter(AMX).recorder
    recorder.target = recorder.target._replace(allow_bf16x3=lambda: True)
    assert not best_tile(recorder, 4, 64, (1, 56, 56, 64))
    recorder.target = recorder.target._replace(allow_bf16x3=lambda: False)
    assert best_tile(recorder, 4, 64, (1, 56, 56, 64)) == 4
