"""Instructions for products of narrow integers, against numpy in int64."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from onnxplug_cpu.compiler.codegen.byte_products import add_fours
from onnxplug_cpu.compiler.codegen.emit import I8, I32, Module
from onnxplug_cpu.compiler.codegen.integer_products import (
    SIGNED,
    UNSIGNED,
    add_pairs,
    add_quads,
    saturates,
)
from onnxplug_cpu.compiler.codegen.kernel import Generator, Kernel, KernelFunction
from onnxplug_cpu.compiler.commands.recording import call
from onnxplug_cpu.compiler.machine.isa import Isa

from ..integer_isas import NAMES, arm_here
from ..interpreter import ISAS, Interpreter

Array = np.ndarray[Any, Any]

FOURS, PAIRS = "fours", "pairs"
ALL = {**{isa: isa.name for isa in ISAS}, **NAMES}


@pytest.fixture(autouse=True)
def _arm_here() -> Iterator[None]:
    with arm_here():
        yield


class Products(Generator):
    """Adds the products of 64 bytes to sums, in vectors of two sizes."""

    kind: str

    words = ("a", "b", "sums")

    def write(self, module: Module, name: str, isa: Isa) -> None:
        k = KernelFunction(module, name, self.words)
        f = k.function
        for lanes, start, end in ((8, 0, 8), (4, 8, 16)):
            for at in range(start, end, lanes):
                vector = I32.vector(lanes)
                a, b, sums = (
                    f.load(f.at(k.pointer(word), at, I32), vector, align=4)
                    for word in self.words
                )
                if self.kind == FOURS:
                    octets = I8.vector(4 * lanes)
                    factors = f.bitcast(a, octets.of("u8")), f.bitcast(b, octets)
                    sums = add_fours(f, isa, [factors], sums)
                elif self.kind == PAIRS:
                    sums = add_pairs(f, isa, a, b, sums)
                else:
                    sums = add_quads(f, isa, a, b, sums, self.kind)
                f.store(sums, f.at(k.pointer("sums"), at, I32), 4)
        f.finish()


@pytest.mark.parametrize("isa", ALL, ids=ALL.get)
def test_products_are_exact(isa: Isa) -> None:
    rng = np.random.default_rng(8)
    for kind, left, right in (
        (UNSIGNED, np.uint8, np.int8),
        (SIGNED, np.int8, np.int8),
        (FOURS, np.uint8, np.int8),
        (PAIRS, np.int16, np.int16),
    ):
        for corner in (False, True):
            count = 64 // np.dtype(left).itemsize
            a, b = (_numbers(rng, dtype, count, corner) for dtype in (left, right))
            if kind == FOURS:  # of two neighbours at most 32767
                a >>= 1
            elif kind == UNSIGNED and saturates(isa):
                b >>= 1
            sums = rng.integers(-(2**31), 2**31, 16).astype(np.int32)
            interpreter = Interpreter(isa)
            out = interpreter.output(np.int32, (16,))
            interpreter.memory(out.buffer)[:] = sums.view(np.uint8)
            words = {
                "a": interpreter.input(a).address,
                "b": interpreter.input(b).address,
                "sums": out.address,
            }
            call(interpreter.recorder, Kernel(Products(kind)), words)
            interpreter.run()
            products = (a.astype(np.int64) * b).reshape(16, -1).sum(1)
            expected = (sums + products).astype(np.int32)  # which wraps
            np.testing.assert_array_equal(interpreter.read(out), expected)


def _numbers(rng: np.random.Generator, dtype: Any, count: int, corner: bool) -> Array:
    """Any, or the largest and the smallest; of 16 bits not four of the smallest."""
    limits = np.iinfo(dtype)
    low = limits.min + (limits.bits == 16)
    if corner:
        return rng.choice([low, limits.max], count).astype(dtype)
    return rng.integers(low, limits.max, count, dtype, endpoint=True)
