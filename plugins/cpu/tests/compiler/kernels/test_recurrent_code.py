"""The code of recurrent layers: spills and calls."""

from __future__ import annotations

import llvmlite.binding as llvm
import numpy as np
import pytest

from onnxplug_compiler.ir.recurrent import Cell, Layer
from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.kernels.recurrent import commands
from onnxplug_cpu.compiler.kernels.recurrent.commands import record_recurrent
from onnxplug_cpu.compiler.kernels.recurrent.sums import panel_lanes, tile_of
from onnxplug_cpu.compiler.machine.isa import AVX2, AVX512, NEON, SSE, Isa

from ..interpreter import Interpreter, assembly, source, target_machine
from ..rarely import crossed
from .test_recurrent import CELLS


def recorded(isa: Isa, cell: Cell, batch: int, time: int = 2) -> Interpreter:
    """The steps; of one step that multiplies its inputs itself, too."""
    run = Interpreter(isa, workers=2)
    hidden = 40

    def floats(*shape: int) -> View:
        return run.input(np.zeros(shape, np.float32))

    def weights(*shape: int) -> View:
        return run.recorder.constant(np.zeros(shape, np.float32))

    rows = cell.gates * hidden
    layer = Layer(
        floats(time, batch, 8),
        weights(1, rows, 8),
        weights(1, rows, hidden),
        floats(1, 2 * rows),
        None,
        None,
        None,
        floats(1, 3 * hidden) if cell.peepholes else None,
        run.output(np.float32, (time, 1, batch, hidden)),
        None,
        None,
        (False,),
    )
    record_recurrent(run.recorder, cell, layer, cell.kind)
    steps = [one for one in run.recorder.commands if "r0" in one.kernel.words]
    run.recorder.commands[:] = steps
    return run


@pytest.mark.parametrize("isa", [AVX512, AVX2, SSE, NEON], ids=lambda isa: isa.name)
def test_a_tile_has_rows_and_fits_into_registers(isa: Isa) -> None:
    vectors = 4 * panel_lanes(isa) // isa.vector_bytes
    for gates in (1, 2, 3, 4):
        for batch in range(1, 40):
            tile = tile_of(isa, gates, batch)
            assert tile.rows >= 1 and gates % tile.gates == 0
            assert (tile.rows + 1) * tile.gates * vectors < isa.registers


SEQUENCES = {
    "one": (1, 2, 1),
    "shared": (1, 2, 1e-9),
    "a step": (1, 1, 1),
    "ahead": (1, 40, 1),
    "ahead and shared": (1, 80, 1e-9),
    "six": (6, 2, 1),
}
"""Of how many rows, of how many steps, and what the shortest share of a worker is."""


@pytest.mark.parametrize(
    ("isa", "sequence", "name"),
    crossed([AVX512, AVX2], [*SEQUENCES], [*CELLS]),
    ids=lambda value: value.name if isinstance(value, Isa) else value,
)
def test_no_sum_is_spilled_in_the_loop_over_a_state(
    isa: Isa, sequence: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell, (batch, time, shortest) = CELLS[name], SEQUENCES[sequence]
    monkeypatch.setattr(commands, "SHORTEST_SHARE", shortest)
    kernels = {one.kernel for one in recorded(isa, cell, batch, time).recorder.commands}
    assert len(kernels) == 1 + (shortest < 1)
    texts = [assembly(kernel, isa) for kernel in kernels]
    for block in "\n".join(texts).split("\n.LBB"):
        # the loop's, by what it does and what only the cell's equations do
        if "vbroadcastss" not in block or "vfmadd" not in block or "vdiv" in block:
            continue
        spills = [
            line
            for line in block.splitlines()
            if "rsp)" in line and ("zmm" in line or "ymm" in line)
        ]
        assert spills == [] or "vrcp14ps" in block, block


@pytest.mark.parametrize("cell", CELLS.values(), ids=CELLS)
def test_compiles_for_aarch64_without_calls(cell: Cell) -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    runs = recorded(NEON, cell, 5), recorded(NEON, cell, 1, time=40)
    for command in [each for run in runs for each in run.recorder.commands]:
        module = llvm.parse_assembly(source(command.kernel, NEON))
        text = str(target_machine(NEON, jit=False).emit_assembly(module))
        assert "\tbl\t" not in text, command.label
