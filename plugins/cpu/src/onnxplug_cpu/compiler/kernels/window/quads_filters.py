"""Filters of codes as :class:`~.quads_tile.QuadsTile` has them, packed once."""

from __future__ import annotations

from typing import Final

import numpy as np

from onnxplug_compiler.ir.buffers import Address
from onnxplug_compiler.ir.formula import Formula
from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.commands.recording import Recorder
from onnxplug_cpu.compiler.kernels.movement.copy import record_copy
from onnxplug_cpu.compiler.kernels.reduction.commands import record_reduce
from onnxplug_cpu.compiler.kernels.window.quads_tile import QUAD
from onnxplug_cpu.compiler.machine.isa import VECTOR_BYTES

_I8: Final = np.dtype(np.int8)
_I32: Final = np.dtype(np.int32)


def row_bytes(channels: int) -> int:
    """Of the quads of one tap, of all channels that strips have."""
    return -(-channels // VECTOR_BYTES) * VECTOR_BYTES * _I32.itemsize


def packed_filters(recorder: Recorder, filters: View) -> Address:
    """Where sums of weights are, and then quads of these, tap by tap.

    Args:
        filters: [C, 1, 1, lines, taps] of int8, a constant.
    """
    channels, _, _, lines, taps = filters.shape
    form = filters.offset, filters.shape, filters.strides
    return recorder.packed(
        filters,
        f"quads of lines({','.join(map(str, form))})",
        row_bytes(channels) * (1 + taps * -(-lines // QUAD)),
        _record_pack,
    )


def _record_pack(recorder: Recorder, filters: View, target: Address) -> None:
    channels, _, _, lines, taps = filters.shape
    row, rows = row_bytes(channels), -(-lines // QUAD)
    whole = 1 + taps * rows, row // _I32.itemsize
    everything = View.contiguous(target.buffer, _I32, whole, target.offset)
    chain = Formula("i32")
    chain.record(recorder, chain.number(0), everything, "Conv: pack weights")
    wide = recorder.temporary(_I32, filters.shape)
    chain = Formula("i32")
    chain.record(recorder, chain.read_wide(filters), wide, "Conv: pack weights")
    sums = View.contiguous(target.buffer, _I32, (channels, 1, 1, 1, 1), target.offset)
    record_reduce(recorder, "ReduceSum", wide, sums, (3, 4))
    for number in range(rows):
        first = QUAD * number
        count = min(QUAD, lines - first)
        source = filters.slice((0, 0, 0, first, 0), (channels, 1, 1, count, taps))
        quads = View(
            target.buffer,
            target.offset + row * (1 + number),
            _I8,
            source.shape,
            (QUAD, 0, 0, 1, row * rows),
        )
        record_copy(recorder, source, quads, label="Conv: pack weights")
