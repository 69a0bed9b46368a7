"""Products of codes of 8 bits against numpy in int64."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

from onnxplug_compiler.ir.coded import Codes, Factor
from onnxplug_compiler.ir.formula import Formula
from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.kernels.coded.commands import record_coded
from onnxplug_cpu.compiler.machine.isa import AVX2, AVX512, Isa
from onnxplug_cpu.compiler.runtime.program import PackingRefused

from ..interpreter import ISAS, Interpreter

Array = np.ndarray[Any, Any]


class Given(NamedTuple):
    """A factor: codes, zero points that broadcast to them, and one of all."""

    codes: Array
    zero: Array | None = None
    offset: int = 0

    @property
    def content(self) -> Array:
        zero = 0 if self.zero is None else self.zero.astype(np.int64)
        return self.codes.astype(np.int64) - zero - self.offset


def product(
    isa: Isa,
    a: Given,
    b: Given,
    *,
    sums: int = 1,
    constant: bool = False,
    workers: int = 1,
    doubled: bool = False,
) -> tuple[Array, Array]:
    """The product, and what it should be.

    Args:
        sums: axes of them.
        constant: the second factor is.
        doubled: an epilogue adds the result to itself and writes it as int8.
    """
    interpreter = Interpreter(isa, workers)
    recorder = interpreter.recorder
    factors = []
    for given, is_constant in ((a, False), (b, constant)):
        place = recorder.constant if is_constant else interpreter.input
        view = place(_distinct(given.codes)).broadcast_to(given.codes.shape)
        zero = None
        if given.zero is not None:
            zero = Codes(place(given.zero).broadcast_to(given.codes.shape))
        factors.append(Factor(Codes(view), zero, given.offset))
    left, right = a.content, b.content
    rows = left.shape[2 : left.ndim - sums]
    shape = (*left.shape[:2], *rows, right.shape[-1])
    inner = int(np.prod(right.shape[2:-1], dtype=np.int64))
    expected = (
        left.reshape((*left.shape[:2], int(np.prod(rows)), inner))
        @ right.reshape((*right.shape[:2], inner, right.shape[-1]))
    ).astype(np.int32)
    out, after = interpreter.output(np.int32, shape), None
    if doubled:
        chain = Formula("i32")
        total = chain.tile()
        twice = chain.cast(chain.step("Add", total, total), "i8")
        found = interpreter.output(np.int8, shape)
        after = chain.epilogue([twice], [found])
        expected = (2 * expected).astype(np.int8)
    for _ in range(3):  # differences, codes, pairs
        recorder.commands.clear()
        record_coded(recorder, *factors, out, epilogue=after)
        with contextlib.suppress(PackingRefused):
            interpreter.run()
            break
    return interpreter.read(found if doubled else out), expected.reshape(shape)


def _distinct(array: Array) -> Array:
    """An array without repetitions over batches."""
    stretched = [1 if not stride else None for stride in array.strides[:2]]
    return array[tuple(slice(stop) for stop in stretched)]


def codes(rng: np.random.Generator, dtype: Any, *shape: int) -> Array:
    limits = np.iinfo(dtype)
    # the ends are where sums of two would saturate
    ends = rng.choice([limits.min, limits.max], shape)
    within = rng.integers(limits.min, limits.max, shape, endpoint=True)
    return np.where(rng.random(shape) < 0.3, ends, within).astype(dtype)


KINDS = [np.uint8, np.int8]


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("kinds", [(a, b) for a in KINDS for b in KINDS])
def test_any_shape_and_zero_points(
    isa: Isa, constant: bool, kinds: Sequence[Any]
) -> None:
    rng = np.random.default_rng(1)
    for _ in range(10):
        rows, columns, depth = (int(n) for n in rng.integers(1, 71, 3))
        rows = int(rng.choice([1, 2, 5, rows]))
        batch = (int(rng.integers(1, 3)), int(rng.integers(1, 3)))
        a, b = (
            codes(rng, kind, *batch, *shape)
            for kind, shape in zip(
                kinds, ((rows, depth), (depth, columns)), strict=True
            )
        )
        of_rows = codes(rng, kinds[0], rows, 1)
        of_columns = codes(rng, kinds[1], columns)
        found, expected = product(
            isa,
            Given(a, [None, of_rows[:1, :1], of_rows][rng.integers(3)]),
            Given(b, [None, of_columns][rng.integers(2)], int(rng.integers(-9, 9))),
            constant=constant,
            workers=int(rng.integers(1, 4)),
            doubled=bool(rng.integers(2)),
        )
        np.testing.assert_array_equal(found, expected)


def trained(rng: np.random.Generator, *shape: int) -> Array:
    """Weights of which few are large, as trained ones are, but some pairs are."""
    found = np.clip(np.rint(rng.standard_normal(shape) * 20), -127, 127)
    found[..., :: max(7, shape[-2]), :] = -128
    found[..., 1 :: max(9, shape[-2]), :] = rng.choice([-128, -1, 127])
    return found.astype(np.int8)


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
@pytest.mark.parametrize("kind", KINDS)
def test_weights_of_which_few_pairs_are_large(isa: Isa, kind: Any) -> None:
    rng = np.random.default_rng(4)
    for rows, depth, columns in (
        *((1, 16, 1), (2, 37, 15), (3, 64, 24), (5, 200, 17), (11, 700, 40)),
        *((7, 1900, 33), (40, 23, 100), (300, 32, 16)),
    ):
        for zero in range(3):
            a = codes(rng, kind, 1, 2, rows, depth)
            a[..., 0, :] = np.iinfo(kind).max  # sums of pairs are as large as can be
            zeros = None, codes(rng, kind), codes(rng, kind, rows, 1)
            b = trained(rng, 1, 1, depth, columns)
            found, expected = product(
                isa,
                Given(a, zeros[zero]),
                Given(np.broadcast_to(b, (1, 2, depth, columns))),
                constant=True,
                workers=1 + zero,
                doubled=zero == 1,
            )
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
def test_quads_are_refused_where_many_pairs_are_large(isa: Isa) -> None:
    if isa.name not in (AVX512.name, AVX2.name):
        pytest.skip("has no products of quads")
    rng = np.random.default_rng(6)
    a, ends = codes(rng, np.uint8, 1, 1, 9, 64), np.full((1, 1, 64, 20), -128, np.int8)
    interpreter = Interpreter(isa)
    b = Factor(Codes(interpreter.recorder.constant(ends)))
    left = Factor(Codes(interpreter.input(a)))
    out = interpreter.output(np.int32, (1, 1, 9, 20))
    record_coded(interpreter.recorder, left, b, out)
    with pytest.raises(PackingRefused):
        interpreter.run()
    # differences of nine bits
    wide = Given(np.zeros((1, 1, 64, 20), np.uint8), offset=200)
    np.testing.assert_array_equal(*product(isa, Given(a), wide, constant=True))


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
@pytest.mark.parametrize("depth", [1, 3, 8])
def test_windows_of_what_is_widened(isa: Isa, depth: int) -> None:
    """Axes of lines, rows and taps that overlap, of int16."""
    rng = np.random.default_rng(2)
    x = rng.integers(-255, 256, (2, 9, 11, depth), np.int16)
    w = codes(rng, np.int8, 3, 2, depth, 20)
    for constant, stride in ((True, 1), (True, 2), (False, 1)):
        interpreter = Interpreter(isa, 2)
        whole = interpreter.input(x)
        image, line, pixel, channel = whole.strides
        sizes = (2, 1, (9 - 3) // stride + 1, (11 - 2) // stride + 1, 3, 2, depth)
        steps = (image, 0, stride * line, stride * pixel, line, pixel, channel)
        a = View(whole.buffer, 0, whole.dtype, sizes, steps)
        place = interpreter.recorder.constant if constant else interpreter.input
        b = place(w).broadcast_to((2, 1, *w.shape))
        out = interpreter.output(np.int32, (*sizes[:4], 20))
        factors = Factor(Codes(a)), Factor(Codes(b), offset=3)
        record_coded(interpreter.recorder, *factors, out)
        interpreter.run()
        expected = np.einsum(
            "abcdefg,efgn->abcdn",
            interpreter.read(a).astype(np.int64),
            w.astype(np.int64) - 3,
        )
        np.testing.assert_array_equal(interpreter.read(out), expected)


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
def test_weights_of_windows_that_have_other_taps(isa: Isa) -> None:
    """Packed once, they serve windows whose taps are joined, and others."""
    rng, depth = np.random.default_rng(7), 16
    interpreter = Interpreter(isa)
    whole = interpreter.input(rng.integers(248, 256, (1, 9, 14, depth), np.uint8))
    w = rng.integers(-20, 20, (3, 2, depth, 20), np.int8)
    w[1, 1, 4:8], w[2, 0, 8:12] = -128, 127
    constant = interpreter.recorder.constant(w)
    b = Factor(Codes(constant.broadcast_to((1, 1, *w.shape))))
    image, line, pixel, channel = whole.strides
    found = []
    for apart in (1, 2):
        sizes = (1, 1, 7, 14 - apart, 3, 2, depth)
        steps = (image, 0, line, pixel, line, apart * pixel, channel)
        a = View(whole.buffer, 0, whole.dtype, sizes, steps)
        out = interpreter.output(np.int32, (*sizes[:4], 20))
        record_coded(interpreter.recorder, Factor(Codes(a)), b, out)
        found.append((a, out))
    interpreter.run()
    for a, out in found:
        windows = interpreter.read(a).astype(np.int64)
        expected = np.einsum("abcdefg,efgn->abcdn", windows, w.astype(np.int64))
        np.testing.assert_array_equal(interpreter.read(out), expected)


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
@pytest.mark.parametrize("columns", [20, 24, 40])
def test_weights_that_few_rows_and_many_share(isa: Isa, columns: int) -> None:
    rng = np.random.default_rng(9)
    interpreter = Interpreter(isa)
    w = rng.integers(-60, 60, (1, 1, 32, columns)).astype(np.int8)
    b = Factor(Codes(interpreter.recorder.constant(w)))
    for rows in (3, 40):
        x = codes(rng, np.uint8, 1, 1, rows, 32)
        a = Factor(Codes(interpreter.input(x)))
        out = interpreter.output(np.int32, (1, 1, rows, columns))
        record_coded(interpreter.recorder, a, b, out)
        interpreter.run()
        expected = x.astype(np.int64) @ w
        np.testing.assert_array_equal(interpreter.read(out), expected)


def test_sums_that_are_long_or_repeated() -> None:
    rng = np.random.default_rng(3)
    (isa, *_) = ISAS
    a, b = codes(rng, np.uint8, 1, 1, 1, 9000), codes(rng, np.int8, 1, 1, 9000, 3)
    found, expected = product(isa, Given(a), Given(b))
    np.testing.assert_array_equal(found, expected)
    interpreter = Interpreter(isa)
    count = 1 << 33
    left = interpreter.input(a[..., :1]).broadcast_to((1, 1, 1, count))
    right = interpreter.input(b[:, :, :1]).broadcast_to((1, 1, count, 3))
    out = interpreter.output(np.int32, (1, 1, 1, 3))
    factors = Factor(Codes(left)), Factor(Codes(right), offset=7)
    record_coded(interpreter.recorder, *factors, out)
    interpreter.run()
    one = a[0, 0, :, :1].astype(np.int64) * (b[0, 0, :1].astype(np.int64) - 7)
    wrapped = (one * count & 0xFFFFFFFF).astype(np.uint32).view(np.int32)
    np.testing.assert_array_equal(interpreter.read(out)[0, 0], wrapped)


def test_what_does_not_fit_is_an_error() -> None:
    interpreter = Interpreter()
    a = interpreter.input(np.zeros((1, 1, 4, 6), np.uint8))
    b = interpreter.input(np.zeros((1, 1, 5, 3), np.int8))
    for right, dtype in ((b, np.int32), (b.slice((0,) * 4, (1, 1, 5, 3)), np.int64)):
        out = interpreter.output(dtype, (1, 1, 4, 3))
        with pytest.raises(ValueError, match=r"do not give|sums of integers"):
            record_coded(
                interpreter.recorder, Factor(Codes(a)), Factor(Codes(right)), out
            )
