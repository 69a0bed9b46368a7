"""Tries the products by tiles of bytes before a process relies on them, as
:mod:`.trial_of_tiles` does those of bfloat16."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from onnxplug_compiler.ir.buffers import Input, Output
from onnxplug_compiler.ir.coded import Codes, Factor
from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.commands.recording import Recorder
from onnxplug_cpu.compiler.cpu_target import CpuTarget
from onnxplug_cpu.compiler.kernels.coded.commands import record_coded
from onnxplug_cpu.compiler.runtime.jit import KernelUnavailable, warn_of_byte_tiles
from onnxplug_cpu.compiler.runtime.program import PackingRefused, Program
from onnxplug_cpu.compiler.trial_of_tiles import succeeds

if TYPE_CHECKING:
    from onnxplug_cpu.compiler.machine.isa import Isa
    from onnxplug_cpu.compiler.runtime.jit import Library

ROWS: Final = 45
COLUMNS: Final = 70
DEPTH: Final = 204
"""Of the products of the trial: with tails."""

tried: dict[Isa, bool] = {}
"""What trials in this process gave, by processor."""


def multiplies_bytes_well(library: Library) -> bool:
    """Whether products of bytes can be computed by tiles; see
    :func:`~.trial_of_tiles.splits_well`."""
    return succeeds(library, "bytes", tried, attempt, warn_of_byte_tiles)


def attempt(library: Library) -> str | None:
    """What is wrong with the products of *library*; ``None`` if nothing is."""
    count = np.arange(ROWS * DEPTH + DEPTH * COLUMNS)
    numbers = count * count * 31 >> 3 & 255  # all there are, in no order
    a, b = numbers[: ROWS * DEPTH], numbers[ROWS * DEPTH :]
    right = b.astype(np.uint8).view(np.int8).reshape(DEPTH, COLUMNS)
    for dtype in (np.uint8, np.int8):
        left = a.astype(np.uint8).view(dtype).reshape(ROWS, DEPTH)
        try:
            found = _product(library, left, right)
        except (KernelUnavailable, PackingRefused) as error:
            return f"the kernel of tiles cannot be had: {error!r}"
        if (found != left.astype(np.int32) @ right.astype(np.int32)).any():
            return (
                f"in a trial, tiles and numpy did not agree on a product of "
                f"{left.dtype}; report this processor and system"
            )
    return None


def _product(
    library: Library, a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    recorder = Recorder(CpuTarget(library.isa, 1))
    result = np.empty((len(a), b.shape[1]), np.int32)
    left = View.contiguous(Input(0, a.nbytes), a.dtype, (1, 1, *a.shape))
    out = View.contiguous(Output(0, result.nbytes), result.dtype, (1, 1, *result.shape))
    right = recorder.constant(b.reshape(1, 1, *b.shape))
    record_coded(recorder, Factor(Codes(left)), Factor(Codes(right)), out)
    program = Program(recorder.commands, library, 1, n_inputs=1, n_outputs=1)
    program.run([a], [result])
    return result
