"""Sums that become codes of a byte behind a product, at all limits, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxplug_compiler.ir.elementwise import Chain, ChainBuilder
from onnxplug_compiler.ir.quantization import CODE_LIMITS
from onnxplug_cpu.compiler.machine.isa import AVX512, Isa

from ..interpreter import ISAS, Interpreter, assembly
from .test_elementwise import epilogue, epilogue_call, finish

each_isa = pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)

SHAPE = (1, 1, 2, 17, 208)
"""Of strips of 64 columns, and of what is left of them."""


def chain_of(element: str, low: float, high: float, *, zero: bool) -> Chain:
    """Sums times a factor of each column, rounded, and limited."""
    builder = ChainBuilder()
    tile, factor = builder.input("i32"), builder.input("f32")
    value = builder.step("Mul", [builder.step("Cast", [tile], "f32"), factor], "f32")
    value = builder.step("Round", [value], "f32")
    if zero:
        shift = builder.step("Cast", [builder.input(element)], "f32")
        value = builder.step("Add", [value, shift], "f32")
    least, most = (builder.constant("f32", limit) for limit in (low, high))
    value = builder.step("Max", [value, least], "f32")
    value = builder.step("Min", [value, most], "f32")
    return builder.build([builder.step("Cast", [value], element)])


@each_isa
@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize("ends", [None, (3, 100)])
@pytest.mark.parametrize("zeros", ["", "one", "columns"])
def test_codes_are_within_their_limits(
    isa: Isa, kind: Any, ends: tuple[int, int] | None, zeros: str
) -> None:
    rng = np.random.default_rng(11)
    element = {"uint8": "u8", "int8": "i8"}[np.dtype(kind).name]
    low, high = ends or CODE_LIMITS[element]
    sums = rng.integers(-400, 400, SHAPE).astype(np.int32)
    sums[..., ::7] = rng.integers(-(2**31), 2**31, sums[..., ::7].shape)
    # halves, and what no i32 holds
    factor = rng.choice([0.5, 1.0, 0.37, 1e6, -1e6], SHAPE[-1:]).astype(np.float32)
    shape = {"one": (1,), "columns": SHAPE[-1:]}.get(zeros, (1,))
    zero = rng.integers(*CODE_LIMITS[element], shape, endpoint=True).astype(kind)
    interpreter = Interpreter(isa)
    arrays = [factor, zero] if zeros else [factor]
    views = [interpreter.input(each).broadcast_to(SHAPE) for each in arrays]
    output = interpreter.output(np.dtype(kind), SHAPE)
    chain = chain_of(element, low, high, zero=bool(zeros))
    finish(isa, interpreter, chain, sums, views, [output], width=128)
    steps = np.rint(sums.astype(np.float32) * factor).astype(np.float64)
    wanted = np.clip(steps + (zero.astype(np.float64) if zeros else 0), low, high)
    np.testing.assert_array_equal(interpreter.read(output), wanted.astype(kind))


def test_whole_strips_are_packed() -> None:
    """Two limits of three are those of instructions that pack."""
    interpreter = Interpreter(AVX512)
    view = interpreter.input(np.zeros(SHAPE, np.float32))
    output = interpreter.output(np.dtype(np.uint8), SHAPE)
    for ends, count in (((0, 255), 1), ((1, 255), 0)):
        chain = chain_of("u8", *ends, zero=False)
        code, _ = epilogue_call(epilogue(chain, [view], [output]))
        text = assembly(code.kernel, AVX512)
        assert text.count("vpackuswb") == count
        assert text.count("vpackssdw") == 2 * count
