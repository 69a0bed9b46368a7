"""Matrix products against numpy in float64."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import pytest

from onnxplug_compiler.ir.buffers import Packed
from onnxplug_compiler.ir.elementwise import Chain, Step
from onnxplug_compiler.ir.epilogue import epilogue
from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.commands.recording import Recorder
from onnxplug_cpu.compiler.cpu_target import CpuTarget
from onnxplug_cpu.compiler.kernels.contraction import commands
from onnxplug_cpu.compiler.kernels.contraction.commands import record_matmul
from onnxplug_cpu.compiler.machine.isa import Isa

from ..interpreter import ISAS, Interpreter

Array: TypeAlias = np.ndarray[Any, Any]
Change: TypeAlias = Callable[[View], View]


def swapped(view: View) -> View:
    axes = [*range(len(view.shape))]
    axes[-2:] = axes[:-3:-1]
    return view.transpose(axes)


def every_other(view: View) -> View:
    """Elements that follow each other along no axis."""
    starts = [0] * (len(view.shape) - 2) + [1, 1]
    sizes = [*view.shape[:-2], (view.shape[-2] - 1) // 2, (view.shape[-1] - 1) // 3]
    steps = [1] * (len(view.shape) - 2) + [2, 3]
    return view.slice(starts, sizes, steps)


def same(view: View) -> View:
    return view


def multiply(
    isa: Isa,
    a: Array,
    b: Array,
    *,
    change_a: Change = same,
    change_b: Change = same,
    constant: bool = False,
    workers: int = 1,
) -> tuple[Array, Array, Array]:
    """The product of changed views, and the views' content."""
    interpreter = Interpreter(isa, workers)
    left = change_a(interpreter.input(a))
    right = change_b(
        interpreter.recorder.constant(b) if constant else interpreter.input(b)
    )
    batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    out = interpreter.output(a.dtype, (*batch, left.shape[-2], right.shape[-1]))
    record_matmul(interpreter.recorder, left, right, out)
    interpreter.run()
    return interpreter.read(out), interpreter.read(left), interpreter.read(right)


def check(found: Array, a: Array, b: Array, bound: float | None = None) -> None:
    """Each element's error, in units of what its terms sum up to without signs."""
    if bound is None:
        bound = 1e-6 if found.dtype == np.float32 else 2e-15
    exact = a.astype(np.float64) @ b.astype(np.float64)
    size = np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64)
    assert found.shape == exact.shape
    assert np.all(np.abs(found - exact) <= bound * size)


def normal(rng: np.random.Generator, *shape: int, dtype: Any = np.float32) -> Array:
    return rng.standard_normal(shape).astype(dtype)


CHANGES: dict[str, Change] = {"": same, "T": swapped, "strided": every_other}


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "uint64"])
def test_integers_wrap(isa: Isa, constant: bool, dtype: str) -> None:
    rng = np.random.default_rng(3)
    limits = np.iinfo(dtype)
    for change_a, change_b in itertools.product(CHANGES.values(), repeat=2):
        rows, columns, depth = (int(n) for n in rng.integers(1, 71, 3))
        a, b = (
            rng.integers(limits.min, limits.max, like.shape, dtype, endpoint=True)
            for like in (
                _such_that(rng, change_a, rows, depth, np.float32),
                _such_that(rng, change_b, depth, columns, np.float32),
            )
        )
        found, left, right = multiply(
            isa, a, b, change_a=change_a, change_b=change_b, constant=constant
        )
        np.testing.assert_array_equal(found, left @ right)


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_constants_of_16_bits(isa: Isa, dtype: Any) -> None:
    """Widened by each tile, or for several, of all panels or of one after another."""
    rng = np.random.default_rng(5)
    for rows, columns, depth, workers in (
        (3, 70, 40, 1),  # one tile
        (61, 70, 40, 2),  # all panels
        (83, 200, 900, 1),  # one panel
        (400, 90, 1200, 1),  # all panels, for one pass after another
        (300, 500, 1200, 1),  # one panel of a pass
    ):
        a, b = normal(rng, rows, depth), normal(rng, depth, columns, dtype=dtype)
        for change, given in ((same, b), (swapped, np.ascontiguousarray(b.T))):
            found, left, right = multiply(
                isa, a, given, change_b=change, constant=True, workers=workers
            )
            check(found, left, right)


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_any_shape_and_strides(isa: Isa, constant: bool, dtype: Any) -> None:
    rng = np.random.default_rng(1)
    for change_a, change_b in itertools.product(CHANGES.values(), repeat=2):
        for _ in range(4):
            rows, columns, depth = (int(n) for n in rng.integers(1, 71, 3))
            rows = int(rng.choice([1, 2, 3, 4, rows]))
            a = _such_that(rng, change_a, rows, depth, dtype)
            b = _such_that(rng, change_b, depth, columns, dtype)
            check(
                *multiply(
                    isa,
                    a,
                    b,
                    change_a=change_a,
                    change_b=change_b,
                    constant=constant,
                    workers=int(rng.integers(1, 4)),
                )
            )


def _such_that(
    rng: np.random.Generator, change: Change, rows: int, columns: int, dtype: Any
) -> Array:
    """An array that *change* makes *rows* × *columns*."""
    if change is swapped:
        return normal(rng, columns, rows, dtype=dtype)
    if change is every_other:
        return normal(rng, 2 * rows + 1, 3 * columns + 1, dtype=dtype)
    return normal(rng, rows, columns, dtype=dtype)


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
@pytest.mark.parametrize(
    ("a_batch", "b_batch"),
    [((5,), ()), ((), (3,)), ((2, 3), (2, 3)), ((2, 3), (1, 3)), ((2, 1), (1, 3))],
)
def test_batches(isa: Isa, a_batch: tuple[int, ...], b_batch: tuple[int, ...]) -> None:
    rng = np.random.default_rng(2)
    for transposed, constant, rows in itertools.product((0, 1), (0, 1), (1, 3, 9, 40)):
        columns, depth = 33, 37
        b_shape = (columns, depth) if transposed else (depth, columns)
        a, b = normal(rng, *a_batch, rows, depth), normal(rng, *b_batch, *b_shape)
        check(
            *multiply(
                isa,
                a,
                b,
                change_b=swapped if transposed else same,
                constant=bool(constant),
                workers=1 + rows % 2,
            )
        )


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
@pytest.mark.parametrize(
    ("rows", "columns", "depth"),
    [
        (13, 40, 769),  # blocks of K within tiles
        (130, 70, 1700),  # and several passes
        (300, 100, 800),  # several parts of the rows
        (40, 64, 1024),  # rows of A a page apart
        (5, 64, 1024),
        (1, 1000, 800),
        (3, 500, 800),
        (2000, 1, 3),
        (1, 1, 1),
    ],
)
def test_divided(isa: Isa, rows: int, columns: int, depth: int) -> None:
    rng = np.random.default_rng(3)
    a, b = normal(rng, rows, depth), normal(rng, depth, columns)
    for constant, workers in itertools.product((False, True), (1, 3)):
        check(*multiply(isa, a, b, constant=constant, workers=workers))
    turned = np.ascontiguousarray(b.T)
    check(*multiply(isa, a, turned, change_b=swapped, workers=2))


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 8, 15, 22, 169])
@pytest.mark.parametrize("columns", [1, 33, 40, 100, 1000])
def test_what_is_equal_stays_equal(isa: Isa, rows: int, columns: int) -> None:
    """Whichever tiles compute them, equal rows and columns give the same bits."""
    rng = np.random.default_rng(12)
    depth = 700
    a = np.repeat(normal(rng, 1, depth), rows, 0)
    b = np.repeat(normal(rng, depth, 1), columns, 1)
    for constant, workers in itertools.product((False, True), (1, 3)):
        found, _, _ = multiply(isa, a, b, constant=constant, workers=workers)
        assert np.all(found == found[0, 0])
    turned = np.ascontiguousarray(b.T)
    found, _, _ = multiply(isa, a, turned, change_b=swapped)
    assert np.all(found == found[0, 0])


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
def test_long_sums_round_as_little_as_short_ones(isa: Isa) -> None:
    rng = np.random.default_rng(4)
    a, b = rng.random((32, 4608), np.float32), rng.random((4608, 32), np.float32)
    found, _, _ = multiply(isa, a, b, constant=True)
    exact = a.astype(np.float64) @ b
    assert np.linalg.norm(found - exact) < 5e-7 * np.linalg.norm(exact)


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
@pytest.mark.parametrize("rows", [1, 3, 8, 20])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("constant", [False, True])
def test_special_values(isa: Isa, rows: int, transposed: bool, constant: bool) -> None:
    rng = np.random.default_rng(5)
    a, b = normal(rng, rows, 35), normal(rng, 35, 37)
    a[0] = 0
    a[-1, 33] = np.inf
    b[7, 3], b[8, 20], b[34, 36] = np.inf, np.nan, -np.inf
    b[:, 5] = 1e-42  # denormal
    stored = np.ascontiguousarray(b.T) if transposed else b
    found, _, _ = multiply(
        isa,
        a,
        stored,
        change_b=swapped if transposed else same,
        constant=constant,
    )
    with np.errstate(invalid="ignore"):
        exact = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(found, exact, 1e-4, 1e-5)
    if rows > 1:
        assert np.isnan(found[0, [3, 20, 36]]).all()
    denormal = np.isfinite(exact[:, 5])
    np.testing.assert_allclose(found[denormal, 5], exact[denormal, 5], 0, 2e-44)


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
def test_no_depth_gives_zeros(isa: Isa) -> None:
    for rows, constant in itertools.product((1, 3, 30), (False, True)):
        a, b = np.ones((rows, 0), np.float32), np.ones((0, 40), np.float32)
        found, _, _ = multiply(isa, a, b, constant=constant)
        assert found.shape == (rows, 40) and not found.any()


def test_nothing_to_compute_records_nothing() -> None:
    for rows, columns in ((0, 5), (5, 0)):
        interpreter = Interpreter()
        a = interpreter.input(np.ones((rows, 4), np.float32))
        b = interpreter.input(np.ones((4, columns), np.float32))
        out = interpreter.output(np.float32, (rows, columns))
        record_matmul(interpreter.recorder, a, b, out)
        assert not interpreter.recorder.commands


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
@pytest.mark.parametrize("rows", [1, 4, 30])
def test_result_through_strides(isa: Isa, rows: int) -> None:
    """Heads of attention, from and to [batch, sequence, head, element]."""
    rng = np.random.default_rng(6)
    interpreter = Interpreter(isa, 2)
    a = interpreter.input(normal(rng, 2, rows, 3, 21)).transpose((0, 2, 1, 3))
    b = interpreter.input(normal(rng, 2, 21, 3, 35)).transpose((0, 2, 1, 3))
    wide = interpreter.output(np.float32, (2, rows, 3, 40))
    interpreter.memory(wide.buffer)[:] = 0
    out = wide.slice((0, 0, 0, 2), (2, rows, 3, 35)).transpose((0, 2, 1, 3))
    record_matmul(interpreter.recorder, a, b, out)
    interpreter.run()
    check(interpreter.read(out), interpreter.read(a), interpreter.read(b))
    around = interpreter.read(wide)
    assert not around[..., :2].any() and not around[..., 37:].any()


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
@pytest.mark.parametrize(
    ("batch", "rows", "columns", "depth"),
    [
        ((1, 1), 30, 70, 20),
        ((2, 3), 5, 33, 64),
        ((1, 1), 150, 50, 1600),
        ((1, 1), 1, 300, 800),
        ((2, 2), 2, 30, 0),
    ],
)
@pytest.mark.parametrize("transposed", [False, True])
def test_epilogue(
    isa: Isa,
    batch: tuple[int, int],
    rows: int,
    columns: int,
    depth: int,
    transposed: bool,
) -> None:
    rng = np.random.default_rng(7)
    interpreter = Interpreter(isa, 2)
    recorder = interpreter.recorder
    scale = np.float32(1 / max(depth, 1) ** 0.5)
    a = interpreter.input(normal(rng, *batch, rows, depth) * scale)
    shape = (columns, depth) if transposed else (depth, columns)
    b = interpreter.input(normal(rng, *batch, *shape))
    bias = interpreter.input(normal(rng, columns))
    residual = interpreter.input(normal(rng, *batch, rows, columns))
    # two outputs: the sum with the bias, doubled, and the residual added to it
    chain = Chain(
        ("f32", "f32", "f32"),
        (),
        (
            Step("Add", (0, 1), "f32"),
            Step("Add", (3, 3), "f32"),
            Step("Add", (4, 2), "f32"),
        ),
        (4, 5),
    )
    whole = (*batch, rows, columns)
    first, second = (interpreter.output(np.float32, whole) for _ in range(2))
    after = epilogue(chain, [bias.broadcast_to(whole), residual], [first, second])
    record_matmul(recorder, a, swapped(b) if transposed else b, first, epilogue=after)
    interpreter.run()
    left, right = interpreter.read(a), interpreter.read(b)
    if transposed:
        right = right.swapaxes(-1, -2)
    exact = 2 * (left.astype(np.float64) @ right + interpreter.read(bias))
    np.testing.assert_allclose(interpreter.read(first), exact, 2e-6, 1e-5)
    exact = exact + interpreter.read(residual)
    np.testing.assert_allclose(interpreter.read(second), exact, 2e-6, 1e-5)


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("rows", [2, 20])
def test_unaligned(isa: Isa, constant: bool, rows: int) -> None:
    rng = np.random.default_rng(8)
    columns, depth = 50, 30

    def off(shape: tuple[int, int]) -> Change:
        return lambda v: View(v.buffer, 4, v.dtype, shape, (shape[1], 1))

    check(
        *multiply(
            isa,
            normal(rng, rows * depth + 1),
            normal(rng, depth * columns + 1),
            change_a=off((rows, depth)),
            change_b=off((depth, columns)),
            constant=constant,
        )
    )


def test_a_constant_is_packed_once() -> None:
    rng = np.random.default_rng(9)
    recorder = Recorder(CpuTarget(ISAS[0], 1))
    b = recorder.constant(normal(rng, 40, 40))
    for rows in (1, 7, 300):
        a, out = (recorder.temporary(np.dtype(np.float32), (rows, 40)) for _ in "ao")
        record_matmul(recorder, a, b, out)
    packed = {
        word.buffer
        for command in recorder.commands
        for word in command.words
        if hasattr(word, "buffer") and isinstance(word.buffer, Packed)
    }
    assert len(packed) == 1


def test_small_work_is_one_chunk_and_large_work_several() -> None:
    recorder = Recorder(CpuTarget(ISAS[0], 2))
    for size in (16, 512):
        a, b, out = (
            recorder.temporary(np.dtype(np.float32), (size, size)) for _ in range(3)
        )
        record_matmul(recorder, a, b, out)
    small, *_, large = recorder.commands
    assert small.chunks == 1
    assert large.chunks >= 6
    assert large.flops == 2 * 512**3


def test_what_does_not_fit_is_refused() -> None:
    recorder = Recorder(CpuTarget(ISAS[0], 1))

    def view(*shape: int) -> View:
        return recorder.temporary(np.dtype(np.float32), shape)

    with pytest.raises(ValueError, match="does not give"):
        record_matmul(recorder, view(2, 3), view(4, 5), view(2, 5))
    with pytest.raises(ValueError, match="columns are strided"):
        record_matmul(recorder, view(2, 3), view(3, 5), swapped(view(5, 2)))
    with pytest.raises(ValueError, match="two batch axes"):
        record_matmul(recorder, view(1, 1, 1, 2, 3), view(3, 5), view(1, 1, 1, 2, 5))


def test_sums_that_take_long_are_sums_of_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "fewest_chunks", lambda s: max(1, int(s * 1e9 / 30)))
    rng = np.random.default_rng(12)
    for rows, columns, depth in [(1, 1, 777), (1, 40, 301), (5, 3, 100), (20, 70, 99)]:
        for constant in (False, True):
            a, b = normal(rng, rows, depth), normal(rng, depth, columns)
            check(*multiply(ISAS[0], a, b, constant=constant))
            a, b = normal(rng, 2, 3, rows, depth), normal(rng, depth, columns)
            check(*multiply(ISAS[0], a, b, constant=constant))
        test_epilogue(ISAS[0], (2, 3), rows, columns, depth, transposed=True)
    recorder = Recorder(CpuTarget(ISAS[0], 1))
    dtype = np.dtype(np.float32)
    a, b, out = (
        recorder.temporary(dtype, shape) for shape in ((1, 777), (777, 1), (1, 1))
    )
    record_matmul(recorder, a, b, out)
    assert len(recorder.commands) > 5


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_terms_that_are_only_repeated_are_added_up_at_once(dtype: Any) -> None:
    rng = np.random.default_rng(13)
    a, b = normal(rng, 5, 1, dtype=dtype), normal(rng, 1, 7, dtype=dtype)
    found = _product_of_stretched(a, b, 1 << 40)
    exact = a.astype(np.float64) @ b.astype(np.float64) * 2.0**40
    np.testing.assert_allclose(found, exact, rtol=3e-7)


def _product_of_stretched(a: Array, b: Array, depth: int) -> Array:
    interpreter = Interpreter(ISAS[0])
    left = interpreter.input(a).broadcast_to((a.shape[0], depth))
    right = interpreter.input(b).broadcast_to((depth, b.shape[1]))
    out = interpreter.output(a.dtype, (a.shape[0], b.shape[1]))
    record_matmul(interpreter.recorder, left, right, out)
    interpreter.run()
    return interpreter.read(out)
