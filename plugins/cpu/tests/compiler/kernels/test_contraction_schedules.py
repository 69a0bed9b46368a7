"""Every schedule of a contraction gives the same bits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from onnxplug_cpu.compiler.ir.commands import Address
from onnxplug_cpu.compiler.ir.recorder import Recorder
from onnxplug_cpu.compiler.kernels.contraction.commands import record_contraction
from onnxplug_cpu.compiler.kernels.contraction.fma import FmaProduct
from onnxplug_cpu.compiler.kernels.contraction.operands import fold
from onnxplug_cpu.compiler.kernels.contraction.schedule import SUGGESTED, Schedule
from onnxplug_cpu.compiler.target.isa import AVX512, Isa

from ..interpreter import ISAS, Interpreter
from ..tiled import EMULATED
from .test_contraction_windows import exact, filters, normal, windows

Array = np.ndarray[Any, Any]

WIDE = Schedule(tile=(2, 3))
"""Of as many registers as six rows take, which processors of AVX2 have."""

SHAPES = {
    "a product": ((1, 1, 67), 900, 70, (1, 1)),
    "many columns": ((1, 1, 40), 70, 700, (1, 1)),
    "few rows": ((1, 1, 3), 70, 90, (1, 1)),
    "one panel": ((1, 1, 300), 70, 9, (1, 1)),
    "a window": ((2, 4, 19), 60, 70, (3, 3)),
    "a long tap": ((1, 4, 19), 500, 40, (1, 2)),
}


def computed(
    isa: Isa, shape: str, schedule: Schedule, *, splits: bool = False
) -> tuple[Array, list[Any], list[Schedule]]:
    """The contraction of that name, its commands and its other schedules."""
    (images, height, width), depth, columns, kernel = SHAPES[shape]
    rng = np.random.default_rng(len(shape))
    image = normal(rng, images, height + kernel[0] - 1, width + kernel[1] - 1, depth)
    weights = normal(rng, columns, depth, *kernel)
    interpreter = Interpreter(isa, 2)
    recorder = interpreter.recorder
    ways: list[Schedule] = []

    def choose(
        given: Sequence[Any], record: Callable[[Recorder, Any], None], read: Any
    ) -> tuple[Any, str]:
        ways.extend(given)
        return schedule, ""

    recorder.choose = choose
    recorder.allow_bf16x3 = lambda: splits
    a = windows(interpreter.input(image), kernel, (1, 1), (1, 1))
    b = filters(recorder.constant(weights))
    out = interpreter.output(np.float32, (*a.shape[:4], columns))
    record_contraction(recorder, a, b, out)
    interpreter.run()
    found = interpreter.read(out)
    if schedule == SUGGESTED:
        wanted, size = exact(interpreter.read(a), interpreter.read(b))
        assert np.all(np.abs(found - wanted) <= 1e-6 * size)
    commands = [
        (c.kernel, c.chunks, [w for w in c.words if not isinstance(w, Address)])
        for c in recorder.commands
    ]
    return found, commands, ways


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
@pytest.mark.parametrize("shape", SHAPES)
def test_by_fma(isa: Isa, shape: str) -> None:
    expected, usual, ways = computed(isa, shape, SUGGESTED)
    together = Schedule(tile=ways[1].tile, row_parts=3, order="rows", passes=2)
    several, changed = [*ways[1:], together], 0
    if isa.name == "avx2":
        several.append(WIDE)
    for schedule in several:
        found, commands, _ = computed(isa, shape, schedule)
        assert found.tobytes() == expected.tobytes(), schedule
        changed += commands != usual
    assert changed > 2


@pytest.mark.parametrize("shape", ["a product", "a window"])
def test_by_tiles_of_bfloat16(shape: str) -> None:
    isa = EMULATED[0]._replace(l2=96 << 10)
    expected, usual, ways = computed(isa, shape, SUGGESTED, splits=True)
    assert "bf16x3" in str(usual[-1])
    assert len(ways) > 3
    for schedule in ways[1:]:
        found, _, _ = computed(isa, shape, schedule, splits=True)
        assert found.tobytes() == expected.tobytes(), schedule


def test_tiles_that_have_no_room_are_refused() -> None:
    recorder = Recorder(AVX512, 1)
    a = recorder.temporary(np.dtype(np.float32), (1, 1, 1, 40, 70))
    b = recorder.constant(np.zeros((1, 1, 70, 90), np.float32))
    out = recorder.temporary(np.dtype(np.float32), (1, 1, 1, 40, 90))
    contraction = fold(a, b, out, None)
    with pytest.raises(ValueError, match="is larger than"):
        FmaProduct(recorder, contraction, "MatMul", Schedule(tile=(14, 3)))
    ways = list(FmaProduct(recorder, contraction, "MatMul").schedules())
    assert {way.tile for way in ways if way.tile} >= {(13, 2), (9, 3), (6, 4)}
