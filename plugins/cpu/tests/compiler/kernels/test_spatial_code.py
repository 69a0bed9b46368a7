"""The code of what reads between pixels: it needs nothing from outside."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import llvmlite.binding as llvm
import numpy as np
import pytest

from onnxplug_compiler.ir.images import ResampledAxis
from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.kernels.reduction.commands import record_moments
from onnxplug_cpu.compiler.kernels.spatial.grid_sample import record_grid_sample
from onnxplug_cpu.compiler.kernels.spatial.resample import record_resample
from onnxplug_cpu.compiler.kernels.spatial.roi_align import record_roi_align
from onnxplug_cpu.compiler.machine.isa import AVX2, AVX512, NEON, Isa

from ..interpreter import Interpreter, source, target_machine
from ..rarely import crossed


def floats(run: Interpreter, *shape: int) -> View:
    return run.input(np.zeros(shape, np.float32))


def grids(mode: str, padding: str) -> Callable[[Interpreter], None]:
    def record(run: Interpreter) -> None:
        x, points = floats(run, 1, 64, 8, 8), floats(run, 1, 40, 2)
        last = floats(run, 1, 8, 8, 64).transpose((0, 3, 1, 2))
        for view in (x, last):
            record_grid_sample(
                run.recorder,
                view,
                points,
                run.output(np.float32, (1, 64, 40)),
                mode=mode,
                padding=padding,
                align_corners=False,
            )

    return record


def regions(mode: str, samples: int) -> Callable[[Interpreter], None]:
    def record(run: Interpreter) -> None:
        record_roi_align(
            run.recorder,
            floats(run, 1, 8, 8, 64).transpose((0, 3, 1, 2)),
            floats(run, 2, 4),
            run.input(np.zeros(2, np.int64)),
            run.output(np.float32, (2, 3, 3, 64)).transpose((0, 3, 1, 2)),
            mode=mode,
            samples=samples,
            scale=1.0,
            half_pixel=not samples,
        )

    return record


def tables(taps: int) -> Callable[[Interpreter], None]:
    def record(run: Interpreter) -> None:
        places = np.zeros((max(taps, 1), 16), np.int64)
        weights = np.ones(places.shape, np.float32) if taps else None
        axes = [ResampledAxis(axis, places, weights) for axis in (2, 3)]
        for x, out in (
            (floats(run, 1, 64, 8, 8), run.output(np.float32, (1, 64, 16, 16))),
            (
                floats(run, 1, 8, 8, 64).transpose((0, 3, 1, 2)),
                run.output(np.float32, (1, 16, 16, 64)).transpose((0, 3, 1, 2)),
            ),
        ):
            record_resample(run.recorder, x, out, axes)

    return record


def moments(run: Interpreter) -> None:
    record_moments(run.recorder, floats(run, 2, 3, 500), (2,))
    record_moments(run.recorder, floats(run, 2, 500, 64), (1,))


def recorded() -> Iterator[Callable[[Interpreter], None]]:
    for mode in ("nearest", "linear", "cubic"):
        for padding in ("zeros", "border", "reflection"):
            yield grids(mode, padding)
    for mode in ("avg", "max"):
        for samples in (0, 2):
            yield regions(mode, samples)
    for taps in (0, 1, 2, 4, 7):
        yield tables(taps)
    yield moments


@pytest.mark.parametrize(
    ("isa", "record"),
    crossed([AVX512, AVX2, NEON], [*recorded()]),
    ids=lambda value: value.name if isinstance(value, Isa) else None,
)
def test_no_symbol_is_needed(isa: Isa, record: Callable[[Interpreter], None]) -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    run = Interpreter(isa)
    record(run)
    assert run.recorder.commands
    for command in run.recorder.commands:
        module = llvm.parse_assembly(source(command.kernel, isa))
        text = str(target_machine(isa, jit=False).emit_assembly(module))
        called = re.findall(r"^\s+(?:callq?|bl)\s+([a-zA-Z_]\w*)", text, re.M)
        assert not called, (command.kernel, called)
