"""Products from three bfloat16 terms, on emulated tiles, against float64 and FMA."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

from onnxplug_compiler.ir.buffers import Packed
from onnxplug_compiler.ir.elementwise import Chain, Step
from onnxplug_compiler.ir.epilogue import Epilogue, epilogue
from onnxplug_compiler.ir.views import View, with_line
from onnxplug_cpu.compiler.commands.recording import Recorder
from onnxplug_cpu.compiler.cpu_target import CpuTarget
from onnxplug_cpu.compiler.kernels.contraction.bf16_product import (
    SplitProduct,
    terms_of,
)
from onnxplug_cpu.compiler.kernels.contraction.commands import record_matmul
from onnxplug_cpu.compiler.kernels.contraction.operands import fold
from onnxplug_cpu.compiler.machine.isa import AMX, Isa
from onnxplug_cpu.compiler.runtime.program import PackingRefused

from ..interpreter import ISAS, Interpreter
from ..tiled import EMULATED
from .test_contraction import Change, every_other, normal, same, swapped

Array = np.ndarray[Any, Any]
SMALL_CACHE = 96 << 10  # so that small products have many parts


def with_axes(view: View) -> View:
    lead = 4 - len(view.shape)
    shape, strides = (1,) * lead + view.shape, (0,) * lead + view.strides
    return View(view.buffer, view.offset, view.dtype, shape, strides)


def record_product(
    recorder: Recorder, a: View, b: View, out: View, after: Epilogue | None = None
) -> None:
    """Record a product by tiles, whatever its sizes; the views have two batch axes."""
    a, out = with_line(a), with_line(out)
    b = b.broadcast_to((*out.shape[:2], *b.shape[2:]))
    a = a.broadcast_to((*out.shape[:2], *a.shape[2:]))
    terms = terms_of(recorder, b, of_matrices=True)
    SplitProduct(recorder, fold(a, b, out, after), "MatMul", terms).record()


def multiply(
    isa: Isa,
    a: Array,
    b: Array,
    *,
    change_a: Change = same,
    change_b: Change = same,
    workers: int = 1,
) -> tuple[Array, Array, Array]:
    """The product of changed views, and the views' content."""
    interpreter = Interpreter(isa, workers)
    left = with_axes(change_a(interpreter.input(a)))
    right = with_axes(change_b(interpreter.recorder.constant(b)))
    shape = (*left.shape[:3], right.shape[3])
    out = interpreter.output(np.float32, shape)
    record_product(interpreter.recorder, left, right, out)
    interpreter.run()
    lead = max(a.ndim, b.ndim) - 2
    return tuple(
        interpreter.read(view).reshape(view.shape[2 - lead :])
        for view in (out, left, right)
    )


def multiply_by_fma(a: Array, b: Array) -> Array:
    interpreter = Interpreter(ISAS[0])
    recorder = interpreter.recorder
    out = interpreter.output(np.float32, (len(a), b.shape[1]))
    record_matmul(recorder, interpreter.input(a), recorder.constant(b), out)
    interpreter.run()
    return interpreter.read(out)


def errors(found: Array, a: Array, b: Array) -> Array:
    """Each element's error, in units of what its terms sum up to without signs."""
    exact = a.astype(np.float64) @ b.astype(np.float64)
    size = np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64)
    assert found.shape == exact.shape
    return np.asarray(np.abs(found - exact) / np.maximum(size, 1e-300))


@pytest.mark.parametrize("isa", EMULATED, ids=lambda isa: isa.name)
@pytest.mark.parametrize("change_b", [same, swapped, every_other])
@pytest.mark.parametrize("change_a", [same, swapped, every_other])
def test_any_shape_and_strides(isa: Isa, change_a: Change, change_b: Change) -> None:
    rng = np.random.default_rng(1)
    isa = isa._replace(l2=SMALL_CACHE)
    for workers in (1, 1, 2, 3):
        rows, columns, depth = (int(n) for n in rng.integers(1, 71, 3))
        found, a, b = multiply(
            isa,
            such_that(rng, change_a, rows, depth),
            such_that(rng, change_b, depth, columns),
            change_a=change_a,
            change_b=change_b,
            workers=workers,
        )
        assert found.shape == (rows, columns)
        assert errors(found, a, b).max() < 4e-7


def such_that(
    rng: np.random.Generator, change: Change, rows: int, columns: int
) -> Array:
    if change is swapped:
        return normal(rng, columns, rows)
    if change is every_other:
        return normal(rng, 2 * rows + 1, 3 * columns + 1)
    return normal(rng, rows, columns)


@pytest.mark.parametrize("isa", EMULATED[:1], ids=lambda isa: isa.name)
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("cache", [SMALL_CACHE, 2 << 20])
def test_every_tail(isa: Isa, workers: int, cache: int) -> None:
    """Blocks of 32 rows and columns, steps of 32, in all their fillings."""
    rng = np.random.default_rng(2)
    a, b = normal(rng, 70, 70), normal(rng, 70, 70)
    isa = isa._replace(l2=cache)
    for size in range(1, 71):
        other, third = 1 + size * 13 % 70, 1 + size * 29 % 70
        for rows, columns, depth in (
            (size, other, third),
            (third, size, other),
            (other, third, size),
        ):
            left, right = a[:rows, :depth], b[:depth, :columns]
            found, *_ = multiply(isa, left, right, workers=workers)
            assert errors(found, left, right).max() < 4e-7, (rows, columns, depth)


@pytest.mark.parametrize(
    ("rows", "columns", "depth", "workers", "cache"),
    [
        (40, 40, 800, 1, 2 << 20),  # two sums along K
        (100, 70, 1600, 1, SMALL_CACHE),  # which wait, as do those of several panels
        (100, 300, 1600, 2, SMALL_CACHE),
        (300, 70, 200, 3, SMALL_CACHE),
        (64, 1000, 800, 2, 2 << 20),  # A is split before
        (33, 33, 1537, 1, 4096),
    ],
)
def test_parts(rows: int, columns: int, depth: int, workers: int, cache: int) -> None:
    rng = np.random.default_rng(3)
    isa = EMULATED[0]._replace(l2=cache)
    found, a, b = multiply(
        isa, normal(rng, rows, depth), normal(rng, depth, columns), workers=workers
    )
    assert errors(found, a, b).max() < 2e-7


def test_batches() -> None:
    rng = np.random.default_rng(4)
    shapes = [((2, 3), (2, 3)), ((2, 3), (1, 1)), ((2, 3), (1, 3)), ((2, 1), (2, 1))]
    for of_a, of_b in shapes:
        for workers in (1, 2):
            found, a, b = multiply(
                EMULATED[0],
                normal(rng, *of_a, 34, 40),
                normal(rng, *of_b, 40, 50),
                workers=workers,
            )
            assert errors(found, a, b).max() < 4e-7


def factors(rng: np.random.Generator, kind: str, depth: int) -> tuple[Array, Array]:
    size = 48
    a, b = rng.standard_normal((size, depth)), rng.standard_normal((depth, size))
    match kind:
        case "relu":
            a = np.maximum(a, 0)
        case "positive":
            a, b = rng.random(a.shape) + 0.5, rng.random(b.shape) + 0.5
        case "wide":
            a = np.sign(a) * np.exp(4 * rng.standard_normal(a.shape))
            b = np.sign(b) * np.exp(4 * rng.standard_normal(b.shape))
        case "cancelling":
            half = depth // 2
            a[:, half:] = -a[:, :half] * (1 + 1e-4 * a[:, half:])
            b[half:] = b[:half]
    return a.astype(np.float32), b.astype(np.float32)


def test_as_exact_as_fma() -> None:
    """On average more exact, and never much less; compared with float64."""
    rng = np.random.default_rng(5)
    means, most = [], []
    for kind in ("normal", "relu", "positive", "wide", "cancelling"):
        for depth in (2, 64, 256, 768, 1152, 4608):
            a, b = factors(rng, kind, depth)
            found, *_ = multiply(EMULATED[0], a, b)
            by_tiles, by_fma = errors(found, a, b), errors(multiply_by_fma(a, b), a, b)
            means.append(np.sqrt((by_tiles**2).mean() / (by_fma**2).mean()))
            most.append(by_tiles.max() / by_fma.max())
            assert means[-1] < 1.15, (kind, depth)
            assert most[-1] < 2, (kind, depth)
    assert np.exp(np.mean(np.log(means))) < 0.75
    assert np.exp(np.mean(np.log(most))) < 0.9


def test_short_products_are_exact() -> None:
    """Integers whose sums fit 23 bits, and any number times one."""
    rng = np.random.default_rng(6)
    a = rng.integers(-255, 256, (40, 64)).astype(np.float32)
    b = rng.integers(-255, 256, (64, 40)).astype(np.float32)
    np.testing.assert_array_equal(multiply(EMULATED[0], a, b)[0], a @ b)
    wide = (normal(rng, 40, 40) * np.exp2(rng.integers(-60, 60, (40, 40)))).astype("f4")
    for sign in (1, -1):
        found, *_ = multiply(EMULATED[0], wide, sign * np.eye(40, dtype=np.float32))
        np.testing.assert_array_equal(found, sign * wide)
        found, *_ = multiply(EMULATED[0], sign * np.eye(40, dtype=np.float32), wide)
        np.testing.assert_array_equal(found, sign * wide)


LARGEST = np.finfo(np.float32).max
HALFWAY = np.uint32(0x7F7F8000).view(np.float32)
"""The least number that is infinite as bfloat16."""

SPECIAL = [
    *(np.inf, -np.inf, np.nan, LARGEST, -LARGEST),
    *(HALFWAY, 3.3961e38, 3.3895e38, 1e38),
    *np.array([0x7F800001, 0x7FFFFFFF, 0xFFC00000], np.uint32).view(np.float32),
]


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("depth", [50, 1700])
def test_special_values_in_a(workers: int, depth: int) -> None:
    rng = np.random.default_rng(7)
    a, b = normal(rng, 45, depth), normal(rng, depth, 600)
    for place, value in enumerate(SPECIAL):
        a[3 * place, (place * 331) % depth] = value
    a[-1, depth - 1] = np.inf
    a[-2, 0], a[-2, -1] = np.inf, -np.inf
    isa = EMULATED[0]._replace(l2=SMALL_CACHE)
    found, *_ = multiply(isa, a, b, workers=workers)
    with np.errstate(invalid="ignore", over="ignore"):
        wide = np.array([float(x) for x in a.flat]).reshape(a.shape)  # quiet NaN
        exact = wide @ b
        expected = exact.astype(np.float32)
    # what overflows depends on the order of the sum
    sure = ~(np.isinf(expected) & np.isfinite(exact))
    finite = sure & np.isfinite(expected)
    with np.errstate(invalid="ignore"):
        size = np.abs(wide) @ np.abs(b)
    assert (np.abs(found[finite] - exact[finite]) <= 4e-7 * size[finite]).all()
    others = sure & ~np.isfinite(expected)
    assert others.any()
    np.testing.assert_array_equal(found[others], expected[others])


def test_flagged_rows_are_as_exact_as_others() -> None:
    rng = np.random.default_rng(8)
    a, b = normal(rng, 40, 900), normal(rng, 900, 70)
    b[13] = 0
    a[:, 13] = LARGEST  # which all rows are flagged for
    found, *_ = multiply(EMULATED[0], a, b)
    without = a.copy()
    without[:, 13] = 0
    assert errors(found, without, b).max() < 4e-7


@pytest.mark.parametrize("isa", EMULATED, ids=lambda isa: isa.name)
@pytest.mark.parametrize(
    ("value", "fits"),
    [
        (0.0, True),
        (-0.0, True),
        (2.0**-103, True),
        (2.0**-103 * (1 + 2.0**-23), True),
        (-3.38e38, True),
        (HALFWAY, False),
        (np.nextafter(HALFWAY, np.float32(0)), True),
        (2.0**-104, False),
        (1e-42, False),
        (np.inf, False),
        (np.nan, False),
    ],
)
@pytest.mark.parametrize("place", [(0, 0), (69, 40), (33, 17)])
def test_weights_that_tiles_cannot_have_are_refused(
    isa: Isa, value: float, fits: bool, place: tuple[int, int]
) -> None:
    b = normal(np.random.default_rng(9), 70, 41)
    b[place] = value
    for workers in (1, 2):
        interpreter = Interpreter(isa, workers)
        recorder = interpreter.recorder
        out = interpreter.output(np.float32, (1, 1, 32, 41))
        a = with_axes(interpreter.input(np.eye(32, 70, dtype=np.float32)))
        record_product(recorder, a, with_axes(recorder.constant(b)), out)
        (packed,) = {
            word.buffer
            for word in recorder.commands[-1].words
            if hasattr(word, "buffer") and isinstance(word.buffer, Packed)
        }
        assert packed.accepts is not None
        refusal = nullcontext() if fits else pytest.raises(PackingRefused)
        with refusal:
            interpreter.memory(packed)


def test_few_columns_are_accepted() -> None:
    """Whatever is in memory beside them."""
    for columns in (1, 15, 16, 17, 33, 48):
        for workers in (1, 2, 4):
            interpreter = Interpreter(EMULATED[0], workers)
            recorder = interpreter.recorder
            b = with_axes(recorder.constant(np.ones((500, columns), np.float32)))
            a = with_axes(interpreter.input(np.ones((32, 500), np.float32)))
            out = interpreter.output(np.float32, (1, 1, 32, columns))
            record_product(recorder, a, b, out)
            (packed,) = {
                word.buffer
                for word in recorder.commands[-1].words
                if hasattr(word, "buffer") and isinstance(word.buffer, Packed)
            }
            assert packed.accepts is not None
            assert packed.accepts(interpreter.memory(packed))


def test_small_numbers() -> None:
    """Exact down to about 2⁻¹⁰³, then worse, never off by more than what is flushed."""
    rng = np.random.default_rng(10)
    a, b = normal(rng, 40, 200), normal(rng, 200, 64)
    for exponent, bound in ((-60, 4e-7), (-95, 4e-7), (-105, 1e-3), (-120, 2)):
        small = np.ldexp(a, exponent)
        found, *_ = multiply(EMULATED[0], small, b)
        exact = small.astype(np.float64) @ b
        size = np.abs(small).astype(np.float64) @ np.abs(b)
        flushed = 2.0**-126 * (np.abs(b).sum(0) + 6 * 200)
        assert (np.abs(found - exact) <= 4e-7 * size + flushed).all()
        assert np.abs(found - exact).max() <= bound * size.max()


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("batch", "rows", "columns", "depth"),
    [((1, 1), 33, 70, 64), ((2, 2), 40, 40, 100), ((1, 1), 150, 500, 1000)],
)
def test_epilogue(
    workers: int, batch: tuple[int, int], rows: int, columns: int, depth: int
) -> None:
    rng = np.random.default_rng(11)
    interpreter = Interpreter(EMULATED[0]._replace(l2=SMALL_CACHE), workers)
    recorder = interpreter.recorder
    a = interpreter.input(normal(rng, *batch, rows, depth))
    b = recorder.constant(normal(rng, 1, 1, depth, columns))
    bias = interpreter.input(normal(rng, columns))
    residual = interpreter.input(normal(rng, *batch, rows, columns))
    chain = Chain(
        ("f32", "f32", "f32"),
        (),
        (Step("Add", (0, 1), "f32"), Step("Mul", (3, 2), "f32")),
        (3, 4),
    )
    whole = (*batch, rows, columns)
    first, second = (interpreter.output(np.float32, whole) for _ in range(2))
    inputs = [bias.broadcast_to(whole), residual]
    after = epilogue(chain, inputs, [first, second])
    record_product(recorder, a, b, first, after.with_line())
    interpreter.run()
    left, right = interpreter.read(a).astype(np.float64), interpreter.read(b)
    exact = left @ right + interpreter.read(bias)
    scale = np.abs(left) @ np.abs(right)
    assert (np.abs(interpreter.read(first) - exact) <= 4e-7 * (scale + 4)).all()
    np.testing.assert_allclose(
        interpreter.read(second),
        interpreter.read(first) * interpreter.read(residual),
        1e-6,
    )


def test_result_through_strides() -> None:
    rng = np.random.default_rng(12)
    interpreter = Interpreter(EMULATED[0], 2)
    recorder = interpreter.recorder
    a = interpreter.input(normal(rng, 2, 40, 3, 21)).transpose((0, 2, 1, 3))
    b = recorder.constant(normal(rng, 1, 1, 21, 35))
    wide = interpreter.output(np.float32, (2, 40, 3, 40))
    interpreter.memory(wide.buffer)[:] = 0
    out = wide.slice((0, 0, 0, 2), (2, 40, 3, 35)).transpose((0, 2, 1, 3))
    record_product(recorder, a, b, out)
    interpreter.run()
    left, right = interpreter.read(a), interpreter.read(b)
    assert errors(interpreter.read(out), left, right).max() < 4e-7
    around = interpreter.read(wide)
    assert not around[..., :2].any()
    assert not around[..., 37:].any()


@pytest.mark.parametrize(
    ("isa", "rows", "columns", "depth", "constant", "allowed", "expected"),
    [
        (AMX, 32, 64, 64, True, True, True),
        (AMX, 31, 64, 64, True, True, False),
        (AMX, 32, 63, 64, True, True, False),
        (AMX, 32, 64, 63, True, True, False),
        (AMX, 128, 768, 768, False, True, False),
        (AMX, 128, 768, 768, True, False, False),
        (AMX._replace(tiles=""), 128, 768, 768, True, True, False),
    ],
)
def test_when_tiles_are_used(
    isa: Isa,
    rows: int,
    columns: int,
    depth: int,
    constant: bool,
    allowed: bool,
    expected: bool,
) -> None:
    recorder = Recorder(CpuTarget(isa, 1, lambda: allowed))
    dtype = np.dtype(np.float32)
    a, out = (recorder.temporary(dtype, (rows, n)) for n in (depth, columns))
    b = recorder.temporary(dtype, (depth, columns))
    if constant:
        b = recorder.constant(np.ones((depth, columns), np.float32))
    record_matmul(recorder, a, b, out)
    assert ("bf16x3" in recorder.commands[-1].label) == expected


def test_large_work_is_several_chunks() -> None:
    for workers, least in ((1, 1), (2, 6), (4, 12)):
        recorder = Recorder(CpuTarget(AMX, workers, lambda: True))
        dtype = np.dtype(np.float32)
        a, out = (recorder.temporary(dtype, (128, n)) for n in (768, 3072))
        record_matmul(recorder, a, recorder.constant(np.ones((768, 3072), "f4")), out)
        assert recorder.commands[-1].chunks >= least
        assert recorder.commands[-1].flops == 2 * 128 * 768 * 3072
