"""Contractions and products of matrices as commands."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Final

import numpy as np

from onnxplug_compiler.ir.buffers import Constant
from onnxplug_compiler.ir.traced import larger, smaller
from onnxplug_compiler.ir.views import View, with_line
from onnxplug_cpu.compiler.commands.chunks import BYTES_PER_SECOND, fewest_chunks
from onnxplug_cpu.compiler.commands.recording import Recorder
from onnxplug_cpu.compiler.kernels.contraction.fma import FmaProduct
from onnxplug_cpu.compiler.kernels.contraction.operands import fold, once
from onnxplug_cpu.compiler.kernels.elementwise.commands import record_chain
from onnxplug_cpu.compiler.kernels.movement.copy import record_copy
from onnxplug_cpu.compiler.kernels.widening import widened

if TYPE_CHECKING:
    from onnxplug_compiler.ir.epilogue import Epilogue

MOST_TAP_AXES: Final = 3

_LEAD: Final = 4
"""Axes of A before those of K."""

_MOST_SUMS: Final = 4096
"""Parts of K at most, each of which is planned: those of more have no memory."""

_ROWS, _COLUMNS = 16, 64
"""Of a tile at most, about."""

_FLOPS: Final = 60e9  # of one thread, a second: to guess how long work takes


def record_contraction(
    recorder: Recorder,
    a: View,
    b: View,
    out: View,
    *,
    epilogue: Epilogue | None = None,
    label: str = "Conv",
    of_matrices: bool = False,
) -> None:
    """See ``families.Contractions.record_contraction``.

    Of float32, float64, and integers of 32 and 64 bits; only to tiles of float32 is an
    epilogue applied while they are at hand.  A *b* that is a view of a constant is
    packed once.  Axes are folded as far as strides allow; an *a* whose depth is
    consecutive is fastest, another is copied with all its taps.

    Args:
        of_matrices: it is a product of matrices, of which options mean more.

    Raises:
        ValueError: *out* has strided columns, or shapes do not fit.
    """
    axes = len(a.shape)
    if (
        not 5 <= axes <= 5 + MOST_TAP_AXES
        or len(out.shape) != 5
        or out.shape[2:] != (*a.shape[2:4], b.shape[-1])
        or b.shape[2:-1] != a.shape[4:]
    ):
        raise ValueError(
            f"a of shape {a.shape} times b of shape {b.shape} does not give {out.shape}"
        )
    if epilogue is None and out.strides[4] != 1 and out.shape[4] > 1:
        raise ValueError(f"the result's columns are strided: {out.strides}")
    if 0 in out.shape:
        return
    if b.dtype != a.dtype and not isinstance(b.buffer, Constant):
        b = widened(recorder, b)
    if epilogue is not None and out.dtype != np.float32:
        total = recorder.temporary(out.dtype, out.shape)
        record_contraction(recorder, a, b, total, label=label, of_matrices=of_matrices)
        views = [total, *epilogue.operands]
        record_chain(recorder, epilogue.chain, views, epilogue.outputs, label=label)
        return
    batches = out.shape[:2]
    a = a.broadcast_to((*batches, *a.shape[2:]))
    b = b.broadcast_to((*batches, *b.shape[2:]))
    same = _repeated(a, b)
    parts = fewest_sums(a, out)
    if same or parts > 1:
        # few are so, and what they take is not imported for others
        from onnxplug_cpu.compiler.kernels.contraction import long_sums

        def record(a: View, b: View, out: View) -> None:
            record_contraction(
                recorder, a, b, out, label=label, of_matrices=of_matrices
            )

        given = (a, b, out, epilogue, label)
        if same:
            long_sums.record_repeated_sum(recorder, record, same, *given)
        else:
            long_sums.record_long_sum(recorder, record, parts, *given)
        return
    label = f"{label} {sizes_of(a, out)}"
    contraction = fold(a, b, out, epilogue)
    if contraction.gathers:
        single = once(a)
        copy = recorder.temporary(a.dtype, single.shape)
        record_copy(recorder, single, copy)
        contraction = fold(copy.broadcast_to(a.shape), b, out, epilogue)
    # otherwise the modules need not be imported
    target = recorder.target
    if target.isa.tiles or (recorder.narrows and (b.dtype_name, 1) in target.rounds):
        from onnxplug_cpu.compiler.kernels.contraction import bf16_product

        ways = [contraction]
        taps = a.shape[4:-1]
        if contraction.taps != taps and math.prod(taps) <= bf16_product.MOST_TAPS:
            ways.append(fold(a, b, out, epilogue, lengthens=False))
        # of short lines, which do not fill tiles, pixels may lie as rows of a matrix
        single = once(a)
        copy = recorder.temporary(a.dtype, single.shape)
        copied = fold(copy.broadcast_to(a.shape), b, out, epilogue)
        terms = bf16_product.terms_of(recorder, b, of_matrices=of_matrices)
        by_tiles = bf16_product.best(recorder, ways, copied, terms)
        if by_tiles is not None:
            if by_tiles is copied:
                record_copy(recorder, single, copy)
            bf16_product.SplitProduct(recorder, by_tiles, label, terms).record()
            return
    FmaProduct(recorder, contraction, label).record()


def _repeated(a: View, b: View) -> tuple[int, ...]:
    """The axes of K, numbered as those of *a*, along which both are stretched."""
    return tuple(
        axis
        for axis in range(_LEAD, len(a.shape))
        if a.shape[axis] > 1 and not a.strides[axis] and not b.strides[axis - 2]
    )


def fewest_sums(a: View, out: View) -> int:
    """Into how many parts K is to be divided; 1 if a tile does not take long.

    Args:
        a, out: as :func:`record_contraction` takes them.
    """
    rows = smaller(a.shape[_LEAD - 1], _ROWS)
    columns = smaller(out.shape[-1], _COLUMNS)
    nbytes = a.dtype.itemsize * (rows + columns)
    element = larger(2 * rows * columns / _FLOPS, nbytes / BYTES_PER_SECOND)
    # what takes twice as long as it should does no harm
    parts = fewest_chunks(math.prod(a.shape[_LEAD:]) * element / 2)
    longest = functools.reduce(larger, a.shape[_LEAD:])
    return larger(1, smaller(smaller(parts, longest // 2), _MOST_SUMS))


def sizes_of(a: View, out: View) -> str:
    """What a contraction is called after: its axes but those of one element."""
    lead, taps = (
        [n for n in sizes if n > 1] for sizes in (out.shape[:3], a.shape[4:-1])
    )
    return "×".join(map(str, [*lead, *out.shape[3:], *taps, a.shape[-1]]))


def record_matmul(
    recorder: Recorder,
    a: View,
    b: View,
    out: View,
    *,
    epilogue: Epilogue | None = None,
    label: str = "MatMul",
) -> None:
    """See ``families.Contractions.record_matmul``.

    Of float32, float64, and integers of 32 and 64 bits; only to tiles of float32 is an
    epilogue applied while they are at hand.  A *b* that is a view of a constant is
    packed once.  Rows of consecutive elements are fastest, consecutive columns of *b*
    cost a transposition, anything else (and *a* without consecutive rows) a copy.
    K = 0 gives zeros.

    Raises:
        ValueError: *out* has strided columns, or shapes do not fit.
    """
    for view in (a, b, out):
        if not 2 <= len(view.shape) <= 4:
            raise ValueError(
                "a matrix with at most two batch axes is needed; got the shape "
                f"{view.shape}"
            )
    lead = (1,) * (4 - len(b.shape))
    shape, strides = lead + b.shape, (0,) * len(lead) + b.strides
    record_contraction(
        recorder,
        with_line(a),
        View(b.buffer, b.offset, b.dtype, shape, strides),
        with_line(out),
        epilogue=None if epilogue is None else epilogue.with_line(),
        label=label,
        of_matrices=True,
    )
