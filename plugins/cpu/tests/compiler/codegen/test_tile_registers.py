"""Emulated tiles against the definition of the instructions, computed by numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxplug_cpu.compiler.codegen.emit import I8, I32, I64, Module
from onnxplug_cpu.compiler.codegen.kernel import Generator, Kernel, KernelFunction
from onnxplug_cpu.compiler.codegen.tile_registers import COUNT, state_bytes, tiles_of
from onnxplug_cpu.compiler.commands.recording import call
from onnxplug_cpu.compiler.commands.words import Word
from onnxplug_cpu.compiler.machine.isa import Isa

from ..interpreter import Interpreter
from ..tiled import EMULATED

Array = np.ndarray[Any, Any]


class Twice(Generator):
    """Adds to the sums in memory twice the product, through tiles 0, 3 and 7."""

    words = ("a", "b", "sums", "stride", "rows", "configuration", "released")

    def write(self, module: Module, name: str, isa: Isa) -> None:
        k = KernelFunction(module, name, self.words)
        f = k.function
        state = f.stack(I8, state_bytes(isa))
        tiles = tiles_of(f, isa, state)
        tiles.configure({0: k.integer("rows"), 3: k.integer("rows")})
        for tile in range(COUNT):
            tiles.zero(tile)
        tiles.load(0, k.pointer("sums"), k.integer("stride"))
        tiles.load(3, k.pointer("a"), 64)
        tiles.load(7, k.pointer("b"), 64)
        tiles.multiply(0, 3, 7)
        tiles.multiply(0, 3, 7)
        tiles.store(0, k.pointer("sums"), k.integer("stride"))
        bits = I32.vector(16)
        f.store(f.load(state, bits), k.pointer("configuration"))
        tiles.release()
        f.store(f.load(state, I64), k.pointer("released"))
        f.finish()


TWICE = Kernel(Twice())


def as_float(bits: Array) -> Array:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def flushed(values: Array) -> Array:
    small = np.abs(values) < np.finfo(np.float32).tiny
    return np.where(small, np.copysign(np.float32(0), values), values)


def product(a: Array, b: Array, sums: Array) -> Array:
    """``TDPBF16PS``: a of [rows, 32] and b of [16, 32] bfloat16 bits."""
    left, right = flushed(as_float(a)), flushed(as_float(b))
    ways = []
    for way in range(2):
        total = np.zeros_like(sums)
        for k in range(16):
            factor, row = left[:, 2 * k + way, None], right[k, way::2]
            # which is exact in float64, as is the sum but for what rounds alike
            wide = factor.astype(np.float64) * row + total
            total = flushed(wide.astype(np.float32))
        ways.append(total)
    return flushed(flushed(sums) + flushed(ways[0] + ways[1]))


def bits(rng: np.random.Generator, shape: tuple[int, ...], kind: str) -> Array:
    """Bits of bfloat16 numbers."""
    if kind == "denormal":  # and products that are
        exponents = rng.integers(0, 70, shape)
    else:
        exponents = rng.integers(120, 132, shape)
    signs, fractions = rng.integers(0, 2, shape), rng.integers(0, 128, shape)
    return (signs << 15 | exponents << 7 | fractions).astype(np.uint16)


@pytest.mark.parametrize("isa", EMULATED, ids=lambda isa: isa.name)
@pytest.mark.parametrize("kind", ["normal", "denormal"])
@pytest.mark.parametrize("rows", [1, 7, 16])
def test_a_product_of_tiles(isa: Isa, kind: str, rows: int) -> None:
    rng = np.random.default_rng(rows)
    a, b = bits(rng, (rows, 32), kind), bits(rng, (16, 32), kind)
    scale = 1 if kind == "normal" else 2.0**-125
    sums = (rng.standard_normal((rows, 20)) * scale).astype(np.float32)
    interpreter = Interpreter(isa)
    out = interpreter.output(np.float32, sums.shape)
    interpreter.memory(out.buffer)[:] = sums.view(np.uint8).reshape(-1)
    released = interpreter.output(np.int64, (1,))
    configuration = interpreter.output(np.uint8, (64,))
    words: dict[str, Word] = {
        "a": interpreter.input(a).address,
        "b": interpreter.input(b).address,
        "sums": out.address,
        "stride": 80,
        "rows": rows,
        "configuration": configuration.address,
        "released": released.address,
    }
    call(interpreter.recorder, TWICE, words)
    interpreter.run()
    expected = sums.copy()
    for _ in range(2):
        expected[:, :16] = product(a, b, expected[:, :16])
    found = interpreter.read(out)
    np.testing.assert_array_equal(found.view(np.uint32), expected.view(np.uint32))
    assert not interpreter.read(released)
    # as the manual lays it out: palette, row to go on at, bytes of rows, rows
    layout = interpreter.read(configuration)
    assert layout[:16].tolist() == [1] + 15 * [0]
    assert layout[16:48].view(np.uint16).tolist() == 8 * [64] + 8 * [0]
    assert layout[48:].tolist() == [rows, 16, 16, rows, 16, 16, 16, 16] + 8 * [0]
