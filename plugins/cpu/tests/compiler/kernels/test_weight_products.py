"""Floats times weights that are codes, against numpy in float64."""

from __future__ import annotations

from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from onnxplug_compiler.ir.coded import Codes, Factor
from onnxplug_compiler.ir.elementwise import Number
from onnxplug_compiler.ir.formula import Formula
from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.kernels.coded.commands import record_coded
from onnxplug_cpu.compiler.machine.isa import AVX512, Isa, host_isa

from ..differential import session
from ..interpreter import ISAS, Interpreter

Array = np.ndarray[Any, Any]


class Weights(NamedTuple):
    """``[columns, blocks, block]`` codes, and what they stand for.

    Attributes:
        bits: of a code.
        codes: as integers.
        scale: ``[columns, blocks]``.
        zero: likewise; one number for all blocks if it has no axes.
        packed: whether zero points are stored as codes are.
    """

    bits: int
    codes: Array
    scale: Array
    zero: Array
    packed: bool = False

    @property
    def numbers(self) -> Array:
        """``[columns, blocks * block]`` in float64."""
        zero = self.zero.astype(np.float64)
        zero = zero[..., None] if zero.ndim else zero
        scale = self.scale.astype(np.float64)[..., None]
        found: Array = (self.codes.astype(np.float64) - zero) * scale
        return found.reshape(len(found), -1)

    def factor(self, run: Interpreter) -> Factor:
        """As ``[1, 1, blocks, block, columns]``."""
        columns, blocks, block = self.codes.shape
        shape = (1, 1, blocks, block, columns)

        def turned(array: Array, inner: int) -> View:
            view = run.input(array.reshape(1, 1, columns, -1, inner))
            return view.transpose((0, 1, 3, 4, 2))

        packed = pack(self.codes, self.bits)
        codes = Codes(turned(packed, packed.shape[-1]), self.bits % 8, 3)
        scale = turned(self.scale, 1).broadcast_to(shape)
        if not self.zero.ndim:
            return Factor(codes, offset=int(self.zero), scale=scale)
        if not self.packed:
            zero = turned(self.zero, 1).broadcast_to(shape)
            return Factor(codes, Codes(zero), scale=scale)
        zeros = pack(self.zero, self.bits)
        view = turned(zeros, 1)
        view = view.broadcast_to((*view.shape[:3], block, columns))
        return Factor(codes, Codes(view, self.bits % 8, 2), scale=scale)


def pack(codes: Array, bits: int) -> Array:
    """Along the last axis, the first in the lowest bits."""
    each = 8 // bits
    missing = -codes.shape[-1] % each
    padded = np.pad(codes, [(0, 0)] * (codes.ndim - 1) + [(0, missing)])
    parts = padded.reshape(*padded.shape[:-1], -1, each).astype(np.uint32)
    shifted = parts << (bits * np.arange(each, dtype=np.uint32))
    return shifted.sum(-1).astype(np.int8 if codes.dtype == np.int8 else np.uint8)


def weights(
    rng: np.random.Generator,
    sizes: tuple[int, int, int],
    bits: int,
    zero: str = "",
    scale: Any = np.float32,
) -> Weights:
    columns, blocks, _ = sizes
    codes = rng.integers(0, 1 << bits, sizes).astype(np.uint8)
    if zero == "signed":
        codes = codes.view(np.int8)
    scales = (rng.random((columns, blocks)) + 0.1).astype(scale)
    if zero in ("", "signed"):
        of_all = np.array(0 if zero else 1 << (bits - 1))
        return Weights(bits, codes, scales, of_all)
    zeros = rng.integers(0, 1 << bits, (columns, blocks)).astype(np.uint8)
    if zero == "packed":
        return Weights(bits, codes, scales, zeros, True)
    floats = (zeros + rng.random(zeros.shape)).astype(zero)
    return Weights(bits, codes, scales, floats)


def product(
    isa: Isa,
    x: Array,
    w: Weights,
    *,
    workers: int = 1,
    bias: Array | None = None,
    rounds: bool = False,
) -> tuple[Array, Array, Array]:
    """What is computed, what is expected, and the sums of sizes of terms."""
    run = Interpreter(isa, workers, tiled=True)
    _, blocks, block = w.codes.shape
    view = run.input(x.reshape(1, 1, len(x), blocks, block))
    out = run.output(np.float32, (1, 1, len(x), len(w.codes)))
    after = None
    if bias is not None:
        chain = Formula("f32")
        tile: Number = chain.tile_of("f32")
        added = run.input(bias).broadcast_to(out.shape)
        value = chain.step("Relu", chain.step("Add", tile, chain.read(added)))
        after = chain.epilogue([value], [out])
    tile_view = out if after is None else run.recorder.temporary(out.dtype, out.shape)
    record_coded(
        run.recorder,
        Factor(Codes(view), rounds=rounds),
        w.factor(run),
        tile_view,
        epilogue=after,
    )
    run.run()
    left, right = x.astype(np.float64), w.numbers
    if rounds and block * w.bits % 128 == 0:  # of shorter blocks nothing is rounded
        left = rounded(x, block)
    expected = left @ right.T
    if bias is not None:
        expected = np.maximum(expected + bias, 0)
    # codes and zero points are summed apart
    zero = w.zero.astype(np.float64)
    largest = w.codes.astype(np.float64) + np.abs(
        zero[..., None] if zero.ndim else zero
    )
    sizes = (np.abs(largest) * np.abs(w.scale.astype(np.float64))[..., None]).reshape(
        right.shape
    )
    return run.read(out)[0, 0], expected, np.abs(left) @ sizes.T


def rounded(x: Array, block: int) -> Array:
    """Each block of a row as bytes and their scale, in float64."""
    apart = x.astype(np.float32).reshape(len(x), -1, block)
    scale = np.abs(apart).max(-1, keepdims=True) / np.float32(127)
    with np.errstate(invalid="ignore", divide="ignore"):
        codes = np.where(scale == 0, 0, np.rint(apart * (np.float32(1) / scale)))
    found: Array = (codes.astype(np.float64) * scale).reshape(len(x), -1)
    return found


def check(found: Array, expected: Array, sizes: Array, inner: int) -> None:
    assert found.dtype == np.float32
    bound = sizes * (4 + inner / 16) * 2.0**-24 + 1e-30
    assert (np.abs(found - expected) <= bound).all()


def floats(rng: np.random.Generator, rows: int, w: Weights) -> Array:
    shape = rows, w.codes[0].size
    return rng.standard_normal(shape).astype(np.float32)


ZEROS = ["", "packed", "float16"]

VNNI = AVX512._replace(features=f"{AVX512.features},+avx512vnni")
OF_BYTES = [*ISAS, VNNI] if (HOST := host_isa()) and HOST.has("avx512vnni") else ISAS
"""Those that rows of bytes are multiplied on, with an instruction for four products
where this processor has it."""


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zero", ZEROS)
def test_bits_and_zero_points(isa: Isa, bits: int, zero: str) -> None:
    rng = np.random.default_rng(bits)
    for rows in (1, 5):
        for columns, blocks, block in ((7, 3, 32), (9, 18, 16)):
            w = weights(rng, (columns, blocks, block), bits, zero)
            found, expected, sizes = product(isa, floats(rng, rows, w), w)
            check(found, expected, sizes, blocks * block)


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
@pytest.mark.parametrize("block", [2, 24, 100, 1000])
def test_blocks_of_any_length(isa: Isa, block: int) -> None:
    rng = np.random.default_rng(block)
    for bits in (4, 8):
        w = weights(rng, (5, 2, block), bits)
        found, expected, sizes = product(isa, floats(rng, 2, w), w)
        check(found, expected, sizes, 2 * block)


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
@pytest.mark.parametrize("element", ["float16", "bfloat16"])
def test_narrow_floats(isa: Isa, element: str) -> None:
    rng = np.random.default_rng(3)
    dtype = np.dtype(getattr(ml_dtypes, element, element))
    # scales are read one by one, or four at once where blocks are of a step
    for shape in ((6, 3, 32), (6, 8, 32), (9, 4, 16), (6, 4, 64)):
        for rows, zero in ((1, ""), (3, "packed"), (4, "")):
            w = weights(rng, shape, 4, zero, dtype)
            found, expected, sizes = product(isa, floats(rng, rows, w).astype(dtype), w)
            check(found, expected, sizes, shape[1] * shape[2])


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
def test_signed_codes(isa: Isa) -> None:
    rng = np.random.default_rng(4)
    w = weights(rng, (6, 3, 32), 8, "signed")
    found, expected, sizes = product(isa, floats(rng, 3, w), w)
    check(found, expected, sizes, 96)


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
@pytest.mark.parametrize("workers", [1, 3])
def test_what_follows_the_product(isa: Isa, workers: int) -> None:
    rng = np.random.default_rng(5)
    for rows, columns in ((1, 300), (3, 77), (1, 1)):
        w = weights(rng, (columns, 4, 32), 4)
        bias = rng.standard_normal(columns).astype(np.float32)
        x = floats(rng, rows, w)
        found, expected, sizes = product(isa, x, w, workers=workers, bias=bias)
        check(found, expected, sizes, 128)


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
def test_many_rows(isa: Isa) -> None:
    rng = np.random.default_rng(6)
    for rows, columns, blocks, block, bits, zero in (
        (9, 40, 3, 32, 4, ""),
        (37, 17, 30, 16, 4, "packed"),
        (64, 33, 2, 500, 2, "float32"),
        (13, 16, 2, 64, 8, "signed"),
        (700, 5, 1, 64, 8, ""),
    ):
        w = weights(rng, (columns, blocks, block), bits, zero)
        x = floats(rng, rows, w)
        for bias in (None, rng.standard_normal(columns).astype(np.float32)):
            found, expected, sizes = product(isa, x, w, workers=2, bias=bias)
            check(found, expected, sizes, blocks * block)


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zero", ZEROS)
def test_rows_that_are_rounded_to_bytes(isa: Isa, bits: int, zero: str) -> None:
    """Each is what the products of the rounded rows are."""
    rng = np.random.default_rng(bits)
    for rows, columns, blocks, block in (
        (1, 7, 18, 32),
        (1, 5, 132, 32),
        (5, 6, 3, 64),
        (3, 2, 1, 640),
    ):
        w = weights(rng, (columns, blocks, block), bits, zero)
        x = floats(rng, rows, w) * np.float32(3)
        x[-1, :block] = 0
        found, expected, sizes = product(isa, x, w, workers=2, rounds=True)
        check(found, expected, sizes + 1e-3, blocks * block)


@pytest.mark.skipif(VNNI not in OF_BYTES, reason="the processor has no VNNI")
@pytest.mark.parametrize(
    ("bits", "zero"), [(4, ""), (4, "packed"), (8, ""), (8, "float16"), (2, "packed")]
)
def test_rounded_rows_with_panels_of_codes(bits: int, zero: str) -> None:
    rng = np.random.default_rng(bits)
    for rows, columns, blocks, block in (
        (1, 7, 18, 32),
        (4, 6, 3, 64),
        (5, 16, 1, 2048),
        (16, 37, 20, 128),
    ):
        w = weights(rng, (columns, blocks, block), bits, zero)
        x = floats(rng, rows, w)
        found, expected, sizes = product(VNNI, x, w, workers=2, rounds=True)
        check(found, expected, sizes + 1e-3, blocks * block)


def test_rows_are_not_rounded_where_sums_would_be_too_large() -> None:
    block = 1 << 17
    codes = np.full((2, 1, block), 255, np.uint8)
    one, x = np.ones((2, 1), np.float32), np.ones((3, block), np.float32)
    w = Weights(8, codes, one, np.zeros((2, 1), np.uint8), True)
    for isa in OF_BYTES:
        found, *_ = product(isa, x, w, rounds=True)
        np.testing.assert_allclose(found, 255.0 * block, rtol=1e-6)


def test_infinite_elements_are_what_the_definition_says() -> None:
    """Where all weights have one zero point, or many rows meet them."""
    rng = np.random.default_rng(10)
    for isa, rows, zero in (
        (ISAS[0], 1, ""),
        (ISAS[0], 3, ""),
        (ISAS[-1], 12, "packed"),
    ):
        w = weights(rng, (9, 4, 32), 4, zero)
        x = floats(rng, rows, w)
        x[0, 40] = np.inf
        x[-1, 77] = -np.inf if rows > 1 else 1
        with np.errstate(invalid="ignore"):
            found, expected, _ = product(isa, x, w)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3)


def test_rounded_rows_in_parts() -> None:
    rng = np.random.default_rng(8)
    w = weights(rng, (70, 512, 32), 4)
    x = floats(rng, 37, w)
    bias = rng.standard_normal(70).astype(np.float32)
    for isa in ISAS:
        for added in (None, bias):
            found, expected, sizes = product(isa, x, w, bias=added, rounds=True)
            check(found, expected, sizes, 512 * 32)


@pytest.mark.parametrize(("bits", "blocks"), [(4, 1), (4, 2), (2, 4)])
def test_zero_points_of_a_column_in_one_byte(bits: int, blocks: int) -> None:
    rng = np.random.default_rng(9)
    w = weights(rng, (5, blocks, 16), bits, "packed")
    arrays = {"w": pack(w.codes, bits), "s": w.scale, "z": pack(w.zero, bits)}
    make, inner = helper.make_tensor_value_info, blocks * 16
    node = helper.make_node(
        "MatMulNBits", ["x", *arrays], ["y"], domain="com.microsoft", K=inner, N=5,
        bits=bits, block_size=16,
    )  # fmt: skip
    graph = helper.make_graph(
        [node],
        "product",
        [make("x", onnx.TensorProto.FLOAT, [3, inner])],
        [make("y", onnx.TensorProto.FLOAT, [3, 5])],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    run, x = session(model, compiled=True), floats(rng, 3, w)
    (found,) = run.run(None, {"x": x})
    np.testing.assert_allclose(found, x @ w.numbers.T, 1e-4, 1e-4)
    assert not [each.note for each in run.explain().nodes if each.note]
