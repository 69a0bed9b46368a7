"""How the left factor of a product lies in memory.

Planning asks for it, and apart from the rest of products it is light to import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onnxplug_cpu.compiler.machine.isa import VECTOR_BYTES, Isa

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from onnxplug_compiler.ir.views import View
    from onnxplug_cpu.compiler.commands.recording import Recorder

_PAGE = 4096  # rows so far apart, or a multiple, share few lines of the first cache

_SHORT = 1024
"""The same where the first cache guesses the way of a line by some bits of its address,
as that of AMD's processors.  Measured on Zen 3 with 6 rows: tiles reach 98 % of the
peak, with rows a multiple of 1 KiB apart 86 %, of 2 KiB 62 %, of 4 KiB 40 %."""


def rows_collide(nbytes: int) -> bool:
    """Whether rows so far apart evict each other from the first cache."""
    return nbytes > 0 and nbytes % _PAGE == 0


def rows_hinder(isa: Isa, nbytes: int) -> bool:
    """Whether rows of a new array should be farther apart: if they would evict each
    other, or be read more slowly."""
    distance = _SHORT if isa.name == "avx2" else _PAGE
    return nbytes > 0 and nbytes % distance == 0


def left_factor(recorder: Recorder, dtype: np.dtype[Any], shape: Sequence[int]) -> View:
    """Memory for an A, ``[..., M, K]``, with rows that do not evict each other."""
    lanes = VECTOR_BYTES // dtype.itemsize
    width = -(-shape[-1] // lanes) * lanes
    if rows_hinder(recorder.target.isa, width * dtype.itemsize):
        width += lanes
    whole = recorder.temporary(dtype, (*shape[:-1], width))
    return whole.slice([0] * len(shape), shape)
