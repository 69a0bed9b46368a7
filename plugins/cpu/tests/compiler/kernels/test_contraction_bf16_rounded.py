"""Products of float32 whose factors are rounded to bfloat16, by tiles and by vectors of
pairs, against products in float64 of factors that numpy rounds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import pytest

from onnxplug_compiler.ir.buffers import Constant, Packed
from onnxplug_cpu.compiler.codegen.kernel import Kernel
from onnxplug_cpu.compiler.commands.recording import Recorder
from onnxplug_cpu.compiler.cpu_target import CpuTarget
from onnxplug_cpu.compiler.kernels.contraction.bf16_pairs import (
    PAIRS_LINES,
    BlockOfPairs,
)
from onnxplug_cpu.compiler.kernels.contraction.bf16_tiles import BlockOfSums
from onnxplug_cpu.compiler.kernels.contraction.commands import record_matmul
from onnxplug_cpu.compiler.machine.isa import AMX, Isa
from onnxplug_cpu.compiler.runtime.program import PackingRefused

from ..integer_isas import arm_here
from ..interpreter import ISAS, Interpreter, assembly
from ..tiled import AVX512_BF16, DEFINED, EMULATED, INSTRUCTIONS
from .test_contraction_bf16_code import count
from .test_contraction_bf16_terms import SMALL_CACHE, errors, record_product, with_axes
from .test_contraction_bf16_windows import record
from .test_contraction_code import loops, vectors_on_stack
from .test_contraction_windows import exact, filters, windows

Array: TypeAlias = np.ndarray[Any, Any]

WAYS = [ISAS[0], EMULATED[0], *INSTRUCTIONS, *DEFINED]
"""By vectors of pairs, which any processor can, by tiles, by the instruction for
pairs where this processor has it, and by aarch64's for squares, or its definition."""

each_way = pytest.mark.parametrize(
    "isa", WAYS, ids=lambda isa: isa.tiles or isa.features.rpartition("+")[2]
)


@pytest.fixture(autouse=True)
def _arm_here() -> Iterator[None]:
    with arm_here():
        yield


def rounded(array: Array) -> Array:
    """The nearest bfloat16; of two, the larger one in size."""
    bits = array.astype(np.float32).view(np.uint32)
    result: Array = ((bits + 0x8000) & 0xFFFF_0000).view(np.float32)
    return result


ROUNDED = (("float32", 1), ("bfloat16", 1))
DTYPES: dict[str, Any] = {"bfloat16": ml_dtypes.bfloat16}


def an_interpreter(
    isa: Isa, workers: int = 1, rounds: tuple[tuple[str, int], ...] = ROUNDED
) -> Interpreter:
    interpreter = Interpreter(isa._replace(l2=SMALL_CACHE), workers)
    recorder = interpreter.recorder
    recorder.target = recorder.target._replace(rounds=rounds)
    return interpreter


def multiply(interpreter: Interpreter, a: Array, b: Array) -> Array:
    recorder = interpreter.recorder
    left, right = interpreter.input(a), recorder.constant(b)
    out = interpreter.output(np.float32, (1, 1, len(a), b.shape[1]))
    record_product(recorder, with_axes(left), with_axes(right), out)
    interpreter.run()
    return interpreter.read(out)[0, 0]


@each_way
@pytest.mark.parametrize("workers", [1, 2])
def test_any_shape(isa: Isa, workers: int) -> None:
    rng = np.random.default_rng(workers)
    for rows in (1, 33, 66):  # a tile, some of 11, and of 14 or of 16
        columns, depth = (int(n) for n in rng.integers(1, 71, 2))
        depth *= rows // 2 + 1
        a, b = rng.standard_normal((rows, depth)), rng.standard_normal((depth, columns))
        a, b = a.astype(np.float32), b.astype(np.float32)
        found = multiply(an_interpreter(isa, workers), a, b)
        assert errors(found, rounded(a), rounded(b)).max() < 3e-7
        # of each product at most 2⁻⁸, as either factor is off by half of that
        assert errors(found, a, b).max() < 2**-8 + 2**-16


def test_two_terms_of_float16() -> None:
    """Three products of tiles, which leave out at most 2⁻¹⁷ of each product by the
    third term of a factor of float32, and 2⁻¹⁸ by the product of second terms."""
    rng = np.random.default_rng(6)
    for rows, columns, depth in ((33, 70, 900), (70, 33, 64)):
        interpreter = an_interpreter(EMULATED[0], rounds=(("float16", 2),))
        a = rng.standard_normal((rows, depth), np.float32)
        b = rng.standard_normal((depth, columns)).astype(np.float16)
        b[0, :3] = 2.0**-24, 65504, -(2.0**-14)  # the least, the largest, a normal one
        found = multiply(interpreter, a, b)
        assert interpreter.recorder.commands[-1].label.endswith("(bf16x2)")
        worst = errors(found, a, b).max()
        assert worst < 2**-17 + 2**-18
        assert worst > 3e-7  # which three terms are not off by


@pytest.mark.parametrize("depth", [1700, 2400])
def test_three_terms_times_float16_in_several_passes(depth: int) -> None:
    """Sums that begin anew in a pass are not those of another panel in the next one."""
    rng = np.random.default_rng(depth)
    interpreter = an_interpreter(EMULATED[0], rounds=())
    a = rng.standard_normal((70, depth), np.float32)
    b = rng.standard_normal((depth, 97)).astype(np.float16)
    found = multiply(interpreter, a, b)
    (product,) = (
        command
        for command in interpreter.recorder.commands
        if command.label.endswith("(bf16x3)")
    )
    words = dict(zip(product.kernel.words, product.words, strict=True))
    assert words["outer_blocks"] > 1 and words["chain"] > 1
    assert errors(found, a, b).max() < 3e-7


def test_special_values_times_float16() -> None:
    """Over several blocks of K, in which pairs of tiles take turns."""
    rng = np.random.default_rng(8)
    interpreter = an_interpreter(EMULATED[0], 2, rounds=(("float16", 2),))
    a = rng.standard_normal((150, 900), np.float32)
    b = rng.standard_normal((900, 41)).astype(np.float16)
    a[3, 5], a[77, 890], a[120, 0], a[149, 1] = np.inf, np.nan, 3.4e38, -np.inf
    found = multiply(interpreter, a, b)
    with np.errstate(invalid="ignore", over="ignore"):
        expected = a.astype(np.float64) @ b.astype(np.float64)
        expected = expected.astype(np.float32)
    special = [3, 77, 149]
    np.testing.assert_array_equal(found[special], expected[special])
    np.testing.assert_allclose(found[120], expected[120], 1e-6)
    rest = [row for row in range(150) if row not in (*special, 120)]
    assert errors(found[rest], a[rest], b).max() < 2**-17 + 2**-18


def test_a_weight_of_float16_that_is_not_finite_is_refused() -> None:
    b = np.ones((70, 41), np.float16)
    b[69, 40] = np.inf
    interpreter = an_interpreter(EMULATED[0], rounds=(("float16", 2),))
    with pytest.raises(PackingRefused):
        multiply(interpreter, np.eye(70, dtype=np.float32), b)


def test_convolutions_of_float16_have_three_terms() -> None:
    rng = np.random.default_rng(7)
    interpreter = an_interpreter(EMULATED[0], rounds=(("float16", 2),))
    image = interpreter.input(rng.standard_normal((1, 9, 9, 64), np.float32))
    weights = rng.standard_normal((64, 64, 3, 3)).astype(np.float16)
    a = windows(image, (3, 3), (1, 1), (1, 1), 1)
    b = filters(interpreter.recorder.constant(weights), 1)
    out = interpreter.output(np.float32, (*a.shape[:4], 64))
    product = record(interpreter.recorder, a, b, out)
    assert product.label.endswith("(bf16x3)")


@each_way
def test_windows(isa: Isa) -> None:
    rng = np.random.default_rng(3)
    for kernel, strides, groups in (((3, 3), (1, 1), 1), ((2, 3), (2, 1), 2)):
        interpreter = an_interpreter(isa, 2)
        image = rng.standard_normal((2, 13, 17, 33 * groups), np.float32)
        weights = rng.standard_normal((20 * groups, 33, *kernel), np.float32)
        a = windows(interpreter.input(image), kernel, strides, (1, 1), groups)
        b = filters(interpreter.recorder.constant(weights), groups)
        out = interpreter.output(np.float32, (*a.shape[:4], 20))
        product = record(interpreter.recorder, a, b, out)
        assert product.label.endswith("(bf16)")
        interpreter.run()
        wanted, size = exact(rounded(interpreter.read(a)), rounded(interpreter.read(b)))
        assert (np.abs(interpreter.read(out) - wanted) <= 3e-7 * size).all()


@each_way
def test_rows_with_special_values_are_products_of_float32(isa: Isa) -> None:
    """With rounded weights; other rows do not notice."""
    rng = np.random.default_rng(4)
    a = rng.standard_normal((40, 70), np.float32)
    b = rng.standard_normal((70, 33), np.float32)
    a[3, 5], a[7, 69], a[20, 0], a[39, 1] = np.inf, np.nan, 3.4e38, -np.inf
    a[39, 2] = np.inf
    found = multiply(an_interpreter(isa), a, b)
    with np.errstate(invalid="ignore"):
        expected = a.astype(np.float64) @ rounded(b)
    special = [3, 7, 39]
    with np.errstate(over="ignore"):
        expected = expected.astype(np.float32)
    np.testing.assert_array_equal(found[special], expected[special])
    np.testing.assert_allclose(found[20], expected[20], 1e-6)
    rest = [row for row in range(40) if row not in (*special, 20)]
    assert errors(found[rest], rounded(a[rest]), rounded(b)).max() < 3e-7


@each_way
@pytest.mark.parametrize(
    ("value", "fits"),
    [(0.0, True), (2.0**-119, True), (2.0**-120, False), (np.inf, False)],
)
def test_weights_that_do_not_round_are_refused(
    isa: Isa, value: float, fits: bool
) -> None:
    b = np.ones((70, 41), np.float32)
    b[33, 17] = value
    interpreter = an_interpreter(isa)
    if fits:
        found = multiply(interpreter, np.eye(70, dtype=np.float32), b)
        np.testing.assert_array_equal(found, b)
    else:
        with pytest.raises(PackingRefused):
            multiply(interpreter, np.eye(70, dtype=np.float32), b)


@pytest.mark.parametrize(
    ("dtype", "rounds", "nbytes"),
    [
        ("float32", (), 6),
        ("float32", (("bfloat16", 1),), 6),
        ("float32", ROUNDED, 2),
        ("float16", ROUNDED, 2),
        ("bfloat16", (), 2),
        ("bfloat16", ROUNDED, 2),
    ],
)
def test_bytes_of_a_packed_weight(
    dtype: str, rounds: tuple[tuple[str, int], ...], nbytes: int
) -> None:
    interpreter = an_interpreter(EMULATED[0], rounds=rounds)
    rng = np.random.default_rng(5)
    a, b = rng.standard_normal((33, 64)), rng.standard_normal((64, 96))
    a, b = a.astype(np.float32), b.astype(DTYPES.get(dtype, dtype))
    found = multiply(interpreter, a, b)
    if dtype not in dict(rounds):
        assert errors(found, a, b).max() < 4e-7
    else:
        assert errors(found, rounded(a), rounded(b)).max() < 3e-7
    (packed,) = {
        word.buffer
        for word in interpreter.recorder.commands[-1].words
        if hasattr(word, "buffer") and isinstance(word.buffer, Packed)
    }
    assert packed.nbytes == nbytes * b.size + 64


@pytest.mark.parametrize(
    ("isa", "rounds", "exactly", "label"),
    [
        (AMX, True, False, "(bf16)"),
        (AMX, False, False, "(bf16x3)"),
        (AMX, True, True, "(bf16x3)"),
        (AVX512_BF16, True, False, "(bf16)"),
        (AVX512_BF16, False, False, ""),
        (AVX512_BF16, True, True, ""),
    ],
)
def test_when_factors_are_rounded(
    isa: Isa, rounds: bool, exactly: bool, label: str
) -> None:
    target = CpuTarget(isa, 1, lambda: bool(isa.tiles))
    recorder = Recorder(target._replace(rounds=ROUNDED if rounds else ()))
    recorder.narrows = not exactly
    f32 = np.dtype(np.float32)
    a, out = (recorder.temporary(f32, (128, n)) for n in (768, 96))
    b = recorder.constant(np.ones((768, 96), np.float32))
    assert isinstance(b.buffer, Constant)
    record_matmul(recorder, a, b, out)
    found = recorder.commands[-1].label
    assert found.endswith(label) if label else "bf16" not in found


# machine code


@pytest.mark.parametrize("rows", [14, 9, 1])
@pytest.mark.parametrize("lines", [0, *PAIRS_LINES])
@pytest.mark.parametrize("columns", [1, 2])
def test_vectors_of_pairs(rows: int, lines: int, columns: int) -> None:
    """A turn of four pairs: products, of which each row's share a load, and loads."""
    text = assembly(Kernel(BlockOfPairs(2, rows, columns, lines)), AVX512_BF16)
    assert not vectors_on_stack(text)
    bodies = loops(text)
    assert len(bodies) == 2
    for body in bodies:
        step = "\n".join(f"\t{line}" for line in body)
        assert count(step, "vdpbf16ps") == 4 * rows * columns
        assert len(body) <= 4 * rows * (columns + 1) + 4 * columns * 2 + 25


@pytest.mark.parametrize(
    ("left", "right", "products", "loads"),
    [(1, 1, 4, 4), (3, 1, 12, 8), (3, 2, 20, 12)],
)
def test_fewer_terms_take_fewer_products(
    left: int, right: int, products: int, loads: int
) -> None:
    text = assembly(Kernel(BlockOfSums(2, 2, 12, left, right)), AMX)
    (body,) = loops(text)
    step = "\n".join(f"\t{line}" for line in body)
    assert count(step, "tdpbf16ps") == products
    assert count(step, "tileloadd") == loads
    assert not vectors_on_stack(text)
