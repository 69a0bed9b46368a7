"""Products of codes by all instructions there are for bytes, against numpy in int64."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from onnxplug_compiler.ir.coded import Codes, Factor
from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.kernels.coded.commands import record_coded
from onnxplug_cpu.compiler.machine.isa import Isa

from ..integer_isas import NAMES, arm_here
from ..interpreter import Interpreter
from .test_coded_integers import KINDS, Given, codes, product

SIZES = [
    *((1, 64, 32), (5, 67, 3), (16, 128, 40), (17, 200, 33), (33, 61, 8)),
    *((32, 65, 64), (70, 260, 100), (40, 36, 600)),
]
"""Rows, terms and columns."""


@pytest.fixture(autouse=True)
def _arm_here() -> Iterator[None]:
    with arm_here():
        yield


@pytest.mark.parametrize("isa", NAMES, ids=NAMES.get)
@pytest.mark.parametrize("kind", KINDS)
def test_sizes_and_zero_points(isa: Isa, kind: Any) -> None:
    rng = np.random.default_rng(5)
    for number, (rows, depth, columns) in enumerate(SIZES):
        a = codes(rng, kind, 1, 2, rows, depth)
        b = codes(rng, np.int8, 1, 2, depth, columns)
        if number % 2:  # sums as large as can be
            a[..., 0, :], b[..., 0] = np.iinfo(kind).min, -128
            a[..., -1, :], b[..., -1] = np.iinfo(kind).max, 127
        zero = [None, codes(rng, kind), codes(rng, kind, rows, 1)][number % 3]
        found, expected = product(
            isa,
            Given(a, zero),
            Given(b, offset=number % 2),
            constant=True,
            workers=1 + number % 2,
            doubled=number % 3 == 1,
        )
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("isa", NAMES, ids=NAMES.get)
def test_windows(isa: Isa) -> None:
    """Taps of whole quads, read where they are, next to each other or not."""
    rng = np.random.default_rng(6)
    for depth, kind, pixels, apart in (
        *((64, np.uint8, 2, 1), (72, np.uint8, 2, 2)),
        *((20, np.int8, 3, 2), (20, np.uint8, 2, 2), (12, np.int8, 1, 1)),
    ):
        interpreter = Interpreter(isa, 2)
        whole = interpreter.input(codes(rng, kind, 2, 7, 20, depth))
        w = codes(rng, np.int8, 3, pixels, depth, 40)
        image, line, pixel, channel = whole.strides
        sizes = (2, 1, 5, 20 - apart * (pixels - 1), 3, pixels, depth)
        steps = (image, 0, line, pixel, line, apart * pixel, channel)
        a = View(whole.buffer, 0, whole.dtype, sizes, steps)
        b = interpreter.recorder.constant(w).broadcast_to((2, 1, *w.shape))
        out = interpreter.output(np.int32, (*sizes[:4], 40))
        factors = Factor(Codes(a), offset=5), Factor(Codes(b))
        record_coded(interpreter.recorder, *factors, out)
        interpreter.run()
        windows = interpreter.read(a).astype(np.int64) - 5
        expected = np.einsum("abcdefg,efgn->abcdn", windows, w.astype(np.int64))
        np.testing.assert_array_equal(interpreter.read(out), expected)
