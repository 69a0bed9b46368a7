"""The code of recurrent layers: spills and calls."""

from __future__ import annotations

import llvmlite.binding as llvm
import numpy as np
import pytest

from onnxplug_compiler.ir.recurrent import Cell, Layer
from onnxplug_cpu.compiler.kernels.recurrent.commands import record_recurrent
from onnxplug_cpu.compiler.machine.isa import AVX2, AVX512, NEON, Isa

from ..interpreter import Interpreter, assembly, source, target_machine
from .test_recurrent import CELLS


def recorded(isa: Isa, cell: Cell, batch: int) -> Interpreter:
    run = Interpreter(isa)
    hidden = 40

    def floats(*shape: int) -> np.ndarray:
        return run.input(np.zeros(shape, np.float32))

    rows = cell.gates * hidden
    layer = Layer(
        floats(2, batch, 8),
        floats(1, rows, 8),
        floats(1, rows, hidden),
        floats(1, 2 * rows),
        None,
        None,
        None,
        floats(1, 3 * hidden) if cell.peepholes else None,
        run.output(np.float32, (2, 1, batch, hidden)),
        None,
        None,
        (False,),
    )
    record_recurrent(run.recorder, cell, layer, cell.kind)
    del run.recorder.commands[:-1]
    return run


@pytest.mark.parametrize("cell", CELLS.values(), ids=CELLS)
@pytest.mark.parametrize("batch", [1, 6, 11])
@pytest.mark.parametrize("isa", [AVX512, AVX2], ids=lambda isa: isa.name)
def test_no_sum_is_spilled_in_the_loop_over_a_state(
    isa: Isa, batch: int, cell: Cell
) -> None:
    (command,) = recorded(isa, cell, batch).recorder.commands
    for block in assembly(command.kernel, isa).split("\n.LBB"):
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
    for command in recorded(NEON, cell, 5).recorder.commands:
        module = llvm.parse_assembly(source(command.kernel, NEON))
        text = str(target_machine(NEON, jit=False).emit_assembly(module))
        assert "\tbl\t" not in text, command.label
