"""Tries the products by tiles of bfloat16 before a process relies on them.

What a processor does with tiles is tested by the processor alone: a virtual machine, an
emulator or a fault may do otherwise.  So the first session that would use them computes
a small product both ways.  The cache keeps that it went well, for the host and the
version of its system.
"""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from onnxplug_compiler.ir.buffers import Input, Output
from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.commands.recording import Machine, Recorder
from onnxplug_cpu.compiler.kernels.contraction.bf16_product import BLOCK_STEPS
from onnxplug_cpu.compiler.kernels.contraction.bf16_terms import STEP
from onnxplug_cpu.compiler.kernels.contraction.commands import record_matmul
from onnxplug_cpu.compiler.runtime.jit import KernelUnavailable, warn_of_amx
from onnxplug_cpu.compiler.runtime.program import PackingRefused, Program

if TYPE_CHECKING:
    from collections.abc import Callable

    from onnxplug_cpu.compiler.machine.isa import Isa
    from onnxplug_cpu.compiler.runtime.jit import Library

ROWS: Final = 45
COLUMNS: Final = 70
DEPTH: Final = BLOCK_STEPS * STEP + 45
"""Of the product of the trial: with tails, and more than one sum along K."""

ALLOWED: Final = 5e-7
"""How far results of both ways may be apart, as a share of what the terms of a sum are
together without their signs."""

tried: dict[Isa, bool] = {}
"""What trials in this process gave, by processor."""


def splits_well(library: Library) -> bool:
    """Whether products of float32 can be computed from bfloat16 terms on tiles.

    That is what a trial gave, the first time in a process, or in an earlier process on
    this system, if it succeeded; if it failed, a warning says so.
    """
    return succeeds(library, "trial", tried, attempt, warn_of_amx)


def succeeds(
    library: Library,
    name: str,
    tried: dict[Isa, bool],
    attempt: Callable[[Library], str | None],
    warn: Callable[[str], None],
) -> bool:
    """What a trial gives, or gave before.

    Args:
        name: of the trial.
        tried: what it gave in this process.
        attempt: the trial; what is wrong, if anything is.
        warn: of that.
    """
    isa = library.isa
    if isa not in tried:  # which two threads may find at a time; both find the same
        note = f"{name} on {platform.node()} with {platform.release()}"
        if not library.remembers(note):
            problem = attempt(library)
            if problem is not None:
                warn(problem)
                tried[isa] = False
                return False
            library.remember(note)
        tried[isa] = True
    return tried[isa]


def attempt(library: Library) -> str | None:
    """What is wrong with the products of *library*; ``None`` if nothing is."""
    a, b = _factors()
    try:
        expected = _product(library, a, b, by_tiles=False)
        found = _product(library, a, b, by_tiles=True)
    except (KernelUnavailable, PackingRefused) as error:
        return f"the kernel of tiles cannot be had: {error!r}"
    with np.errstate(invalid="ignore"):
        size = np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64)
        apart = np.abs(found.astype(np.float64) - expected) / size
    special = ~np.isfinite(expected)
    if special.any() and not np.array_equal(
        found[special], expected[special], equal_nan=True
    ):
        return f"{_WRONG} infinity and NaN; {_REPORT}"
    worst = float(apart[~special].max())
    if not worst <= ALLOWED:  # NaN, too
        return f"{_WRONG} a product, by {worst:.1e} of its terms; {_REPORT}"
    return None


_WRONG: Final = "in a trial, tiles and FMA did not agree on"
_REPORT: Final = (
    "report this processor and system, and set the option fp32_matmul=fma, which "
    "computes the same without the trial"
)


def _factors() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    # numpy's generators take longer to import than all of this
    count = np.arange(ROWS * DEPTH + DEPTH * COLUMNS, dtype=np.float64)
    numbers = np.sin(count * 12.9898 + 78.233).astype(np.float32)
    a = numbers[: ROWS * DEPTH].reshape(ROWS, DEPTH)
    b = numbers[ROWS * DEPTH :].reshape(DEPTH, COLUMNS)
    # sums of one term, in which each of the products of its parts counts
    for row in range(0, ROWS, 3):
        term = a[row, row * 17]
        a[row] = 0
        a[row, row * 17] = term
    a[ROWS // 2, DEPTH - 3] = np.inf
    a[ROWS - 1, 5] = np.nan
    return a, b


def _product(
    library: Library,
    a: np.ndarray[Any, Any],
    b: np.ndarray[Any, Any],
    *,
    by_tiles: bool,
) -> np.ndarray[Any, Any]:
    recorder = Recorder(Machine(library.isa, 1, lambda: by_tiles))
    result = np.empty((len(a), b.shape[1]), np.float32)
    left = View.contiguous(Input(0, a.nbytes), a.dtype, a.shape)
    out = View.contiguous(Output(0, result.nbytes), result.dtype, result.shape)
    record_matmul(recorder, left, recorder.constant(b), out)
    program = Program(recorder.commands, library, 1, n_inputs=1, n_outputs=1)
    program.run([a], [result])
    return result
