"""Windows contracted from three bfloat16 terms, on emulated tiles."""

from __future__ import annotations

import functools
import itertools
from typing import Any, TypeAlias

import numpy as np
import pytest

from onnxplug_compiler.ir.elementwise import Chain, Step
from onnxplug_compiler.ir.epilogue import Epilogue, epilogue
from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.commands.recording import Recorder
from onnxplug_cpu.compiler.cpu_target import CpuTarget
from onnxplug_cpu.compiler.kernels.contraction.bf16_product import (
    SplitProduct,
    terms_of,
)
from onnxplug_cpu.compiler.kernels.contraction.commands import (
    record_contraction,
    record_matmul,
)
from onnxplug_cpu.compiler.kernels.contraction.operands import fold
from onnxplug_cpu.compiler.machine.isa import AMX, Isa

from ..interpreter import Interpreter
from ..tiled import EMULATED, counted
from .test_contraction_windows import exact, filters, normal, windows

Array: TypeAlias = np.ndarray[Any, Any]
SMALL_CACHE = 96 << 10  # so that small contractions have many parts
rarely = functools.partial(pytest.param, marks=pytest.mark.exhaustive)

each_isa = pytest.mark.parametrize("isa", EMULATED, ids=lambda isa: isa.name)


def record(
    recorder: Recorder,
    a: View,
    b: View,
    out: View,
    after: Epilogue | None = None,
    *,
    lengthens: bool = False,
) -> SplitProduct:
    """Record a contraction by tiles, whatever its sizes."""
    b = b.broadcast_to((*out.shape[:2], *b.shape[2:]))
    contraction = fold(a, b, out, after, lengthens=lengthens)
    terms = terms_of(recorder, b, of_matrices=False)
    product = SplitProduct(recorder, contraction, "Conv", terms)
    product.record()
    return product


def contract(
    isa: Isa,
    image: Array,
    weights: Array,
    strides: tuple[int, int] = (1, 1),
    dilations: tuple[int, int] = (1, 1),
    groups: int = 1,
    *,
    workers: int = 1,
    lengthens: bool = False,
    gap: int = 0,
) -> tuple[Array, Array, Array]:
    """The result, and what it should be made of."""
    interpreter = Interpreter(isa, workers)
    whole = np.pad(image, ((0, 0), (0, 0), (0, 0), (0, gap)))
    view = interpreter.input(whole).slice((0,) * 4, image.shape)
    a = windows(view, weights.shape[2:], strides, dilations, groups)
    b = filters(interpreter.recorder.constant(weights), groups)
    out = interpreter.output(np.float32, (*a.shape[:4], b.shape[-1]))
    record(interpreter.recorder, a, b, out, lengthens=lengthens)
    interpreter.run()
    return interpreter.read(out), interpreter.read(a), interpreter.read(b)


def close(found: Array, a: Array, b: Array, bound: float = 4e-7) -> None:
    wanted, size = exact(a, b)
    assert found.shape == wanted.shape
    assert np.all(np.abs(found - wanted) <= bound * size)


@each_isa
@pytest.mark.parametrize("lengthens", [False, True])
def test_random_windows(isa: Isa, lengthens: bool) -> None:
    rng = np.random.default_rng(1)
    for _ in range(30):
        kernel, strides, dilations = (
            tuple(int(n) for n in rng.integers(1, most, 2)) for most in (5, 4, 4)
        )
        groups = int(rng.choice([1, 1, 2]))
        depth, each = (int(n) for n in rng.choice([1, 3, 16, 33, 40, 70], 2))
        spatial = [
            (taps - 1) * dilation + 1 + int(rng.integers(0, 40))
            for taps, dilation in zip(kernel, dilations, strict=True)
        ]
        close(
            *contract(
                isa._replace(l2=int(rng.choice([SMALL_CACHE, 2 << 20]))),
                normal(rng, int(rng.integers(1, 3)), *spatial, groups * depth),
                normal(rng, groups * each, depth, *kernel),
                strides,
                dilations,
                groups,
                workers=int(rng.choice([1, 1, 2, 3])),
                lengthens=lengthens,
                gap=int(rng.choice([0, 0, 5])),
            )
        )


@pytest.mark.parametrize("workers", [rarely(1), 2])
@pytest.mark.parametrize(
    "width",
    [1, rarely(2), 5, rarely(7), rarely(14), 16, 17, rarely(28), 33, rarely(56)],
)
def test_every_width(workers: int, width: int) -> None:
    """Lines of one tile, of several, and of an odd number of them."""
    rng = np.random.default_rng(2)
    weights = normal(rng, 48, 40, 3, 3)
    for height, cache in itertools.product((1, 2, 9), (SMALL_CACHE, 2 << 20)):
        image = normal(rng, 2, height + 2, width + 2, 40)
        isa = EMULATED[0]._replace(l2=cache)
        close(*contract(isa, image, weights, workers=workers))


@pytest.mark.parametrize("workers", [rarely(1), 2])
@pytest.mark.parametrize(
    ("depth", "kernel"),
    [(900, (1, 1)), (900, (3, 2)), (256, (3, 3)), (40, (7, 7)), (1700, (1, 2))],
)
def test_several_sums(workers: int, depth: int, kernel: tuple[int, int]) -> None:
    rng = np.random.default_rng(3)
    weights = normal(rng, 70, depth, *kernel)
    image = normal(rng, 1, 4 + kernel[0], 18 + kernel[1], depth)
    for cache in (SMALL_CACHE, 2 << 20):
        isa = EMULATED[0]._replace(l2=cache)
        close(*contract(isa, image, weights, workers=workers), bound=2e-7)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_special_values_in_an_image(dtype: type, workers: int) -> None:
    """All windows that have them are as FMA computes them, and no others change."""
    rng = np.random.default_rng(4)
    image = normal(rng, 1, 12, 20, 40)
    weights = normal(rng, 70, 40, 3, 3).astype(dtype)
    special = [np.inf, -np.inf, np.nan, np.finfo(np.float32).max, 3.397e38]
    for value in special:
        image[0, rng.integers(12), rng.integers(20), rng.integers(40)] = value
    image[0, 11, 19, 39] = np.inf
    found, a, b = contract(EMULATED[0], image, weights, workers=workers)
    wanted, size = exact(a, b)
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = wanted.astype(np.float32)
    # what overflows depends on the order of the sum
    sure = ~(np.isinf(rounded) & np.isfinite(wanted))
    finite = sure & np.isfinite(rounded)
    assert (np.abs(found[finite] - wanted[finite]) <= 4e-7 * size[finite]).all()
    np.testing.assert_array_equal(found[sure & ~finite], rounded[sure & ~finite])
    assert (sure & ~finite).any()


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("kernel", [(1, 1), (3, 3)])
def test_epilogue(groups: int, kernel: tuple[int, int]) -> None:
    rng = np.random.default_rng(5)
    interpreter = Interpreter(EMULATED[0]._replace(l2=SMALL_CACHE))
    image = interpreter.input(normal(rng, 2, 10, 31, 34 * groups))
    weights = interpreter.recorder.constant(normal(rng, 50 * groups, 34, *kernel))
    a = windows(image, kernel, (1, 1), (1, 1), groups)
    shape = (*a.shape[:4], 50)
    residual = interpreter.input(normal(rng, *shape))
    chain = Chain(("f32", "f32"), (), (Step("Add", (0, 1), "f32"),), (2,))
    n, _, lines, rows, columns = shape
    whole = interpreter.output(np.float32, (n, lines, rows, groups, columns))
    out = whole.transpose((0, 3, 1, 2, 4))
    b = filters(weights, groups)
    record(interpreter.recorder, a, b, out, epilogue(chain, [residual], [out]))
    interpreter.run()
    wanted, size = exact(interpreter.read(a), interpreter.read(b))
    added = interpreter.read(residual)
    error = np.abs(interpreter.read(out) - (wanted + added))
    assert np.all(error <= 4e-7 * (size + np.abs(added)))


def test_as_exact_as_fma() -> None:
    rng = np.random.default_rng(6)
    image, weights = np.abs(normal(rng, 1, 16, 16, 128)), normal(rng, 64, 128, 3, 3)
    found, a, b = contract(EMULATED[0], image, weights)
    interpreter = Interpreter(EMULATED[0])
    view = windows(interpreter.input(image), (3, 3), (1, 1), (1, 1))
    out = interpreter.output(np.float32, found.shape)
    constant = filters(interpreter.recorder.constant(weights))
    record_contraction(interpreter.recorder, view, constant, out)
    interpreter.run()
    wanted, _ = exact(a, b)
    by_fma = np.linalg.norm(interpreter.read(out) - wanted)
    assert np.linalg.norm(found - wanted) < by_fma


@pytest.mark.parametrize(
    ("height", "width", "depth", "columns", "kernel", "stride", "expected"),
    [
        (56, 56, 64, 64, 3, 1, True),
        (7, 7, 512, 512, 3, 1, True),
        (28, 28, 256, 128, 1, 2, True),
        (112, 112, 3, 64, 7, 2, True),  # the taps of a line together
        (56, 56, 16, 16, 3, 1, False),  # too few columns
        (3, 3, 512, 512, 3, 1, False),  # too few rows
        (20, 2, 64, 64, 9, 1, False),  # more between lines than in them
    ],
)
def test_when_tiles_are_used(
    height: int,
    width: int,
    depth: int,
    columns: int,
    kernel: int,
    stride: int,
    expected: bool,
) -> None:
    recorder = Recorder(CpuTarget(AMX, 1, lambda: True))
    size = [(n - 1) * stride + kernel for n in (height, width)]
    image = recorder.temporary(np.dtype(np.float32), (1, *size, depth))
    weights = recorder.constant(np.ones((columns, depth, kernel, kernel), np.float32))
    a = windows(image, (kernel,) * 2, (stride,) * 2, (1, 1))
    out = recorder.temporary(np.dtype(np.float32), (*a.shape[:4], columns))
    record_contraction(recorder, a, filters(weights), out)
    (command,) = recorder.commands
    assert ("bf16x3" in command.label) == expected


def test_pixels_are_split_once() -> None:
    """However many windows they are in; of strided images only those that are read."""
    recorder = Recorder(CpuTarget(EMULATED[0], 1))
    for kernel, stride, pixels in ((3, 1, 16 * 16), (1, 2, 7 * 16 + 8)):
        image = recorder.temporary(np.dtype(np.float32), (1, 16, 16, 64))
        weights = recorder.constant(np.ones((64, 64, kernel, kernel), np.float32))
        a = windows(image, (kernel,) * 2, (stride,) * 2, (1, 1))
        out = recorder.temporary(np.dtype(np.float32), (*a.shape[:4], 64))
        product = record(recorder, a, filters(weights), out)
        assert product.pixels.number <= pixels


def test_lines_that_do_not_follow_each_other_are_copied_first() -> None:
    recorder = Recorder(CpuTarget(EMULATED[0], 1, lambda: True))
    image = recorder.temporary(np.dtype(np.float32), (40, 40, 64))
    weights = recorder.constant(np.ones((1, 1, 64, 64), np.float32))
    out = recorder.temporary(np.dtype(np.float32), (1, 1, 4, 40, 64))
    for strides in ((64, 40 * 64), (-40 * 64, 64)):
        offset = 4 * 3 * 40 * 64 if strides[0] < 0 else 0
        a = View(
            image.buffer, offset, image.dtype, (1, 1, 4, 40, 64), (0, 0, *strides, 1)
        )
        with pytest.raises(ValueError, match="pixels"):
            record(recorder, a, weights, out)
        record_contraction(recorder, a, weights, out)
        *_, copy, product = recorder.commands
        assert copy.label.startswith("Copy"), copy.label
        assert "bf16x3" in product.label


@pytest.mark.parametrize(
    ("rows", "tiles"), [(32, 2), (33, 3), (50, 4), (77, 5), (128, 8), (197, 13)]
)
def test_products_take_as_few_tiles_as_hold_their_rows(rows: int, tiles: int) -> None:
    """Six products for each tile of rows, of columns, and step of K."""
    with counted() as count:
        interpreter = Interpreter(count.isa)
        recorder = interpreter.recorder
        recorder.target = recorder.target._replace(allow_bf16x3=lambda: True)
        a = interpreter.input(np.ones((rows, 96), np.float32))
        out = interpreter.output(np.float32, (rows, 80))
        b = recorder.constant(np.ones((96, 80), np.float32))
        record_matmul(recorder, a, b, out)
        interpreter.run()
    assert (interpreter.read(out) == 96).all()
    assert count.products == tiles * 5 * 3 * 6
    assert count.rows <= 1.06 * rows * 5 * 3 * 6


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "most"),
    [
        (56, 3, 1, 1.15),
        (28, 3, 1, 1.15),
        (14, 3, 1, 1.15),
        (7, 3, 1, 1.31),
        (28, 3, 2, 1.15),
        (14, 1, 1, 1.07),
        (7, 1, 1, 1.31),
    ],
)
def test_convolutions_take_few_more_tiles_than_hold_them(
    size: int, kernel: int, stride: int, most: float
) -> None:
    with counted() as count:
        interpreter = Interpreter(count.isa)
        recorder = interpreter.recorder
        extent = (size - 1) * stride + kernel
        image = interpreter.input(np.ones((1, extent, extent, 64), np.float32))
        weights = recorder.constant(np.ones((64, 64, kernel, kernel), np.float32))
        a = windows(image, (kernel,) * 2, (stride,) * 2, (1, 1))
        out = interpreter.output(np.float32, (1, 1, size, size, 64))
        record(recorder, a, filters(weights), out)
        interpreter.run()
    assert (interpreter.read(out) == 64 * kernel**2).all()
    held = size**2 / 16 * (64 / 16) * (64 / 32) * kernel**2 * 6
    assert count.products <= most * held
