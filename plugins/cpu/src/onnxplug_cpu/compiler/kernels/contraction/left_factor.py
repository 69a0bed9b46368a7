"""How the left factor of a product lies in memory.

Planning asks for it, and apart from the rest of products it is light to import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onnxplug_cpu.compiler.target.isa import VECTOR_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from onnxplug_cpu.compiler.ir.recorder import Recorder
    from onnxplug_cpu.compiler.ir.views import View

_PAGE = 4096  # rows so far apart, or a multiple, share few lines of the first cache


def rows_collide(nbytes: int) -> bool:
    """Whether rows so far apart evict each other from the first cache."""
    return nbytes > 0 and nbytes % _PAGE == 0


def left_factor(recorder: Recorder, dtype: np.dtype[Any], shape: Sequence[int]) -> View:
    """Memory for an A, ``[..., M, K]``, with rows that do not evict each other."""
    lanes = VECTOR_BYTES // dtype.itemsize
    width = -(-shape[-1] // lanes) * lanes
    if rows_collide(width * dtype.itemsize):
        width += lanes
    whole = recorder.temporary(dtype, (*shape[:-1], width))
    return whole.slice([0] * len(shape), shape)
