"""Rows between codes: what is computed row by row of numbers that are dequantised, and
are quantised again.

Some rows become floats in memory of a worker, are computed there by the kernel that
computes rows of floats, and go through a chain to where they belong, while they are in
the first cache.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from onnxplug_compiler.ir.elements import element_of
from onnxplug_compiler.ir.epilogue import Epilogue
from onnxplug_compiler.ir.formula import Formula
from onnxplug_compiler.ir.quantization import dequantised
from onnxplug_compiler.ir.traced import larger, smaller
from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.codegen.emit import F32, I32, I64, Module, Type, Value
from onnxplug_cpu.compiler.codegen.kernel import (
    Generator,
    Integer,
    Kernel,
    KernelWords,
    Pointer,
)
from onnxplug_cpu.compiler.commands.recording import Recorder, call
from onnxplug_cpu.compiler.commands.words import Code, Command, Words
from onnxplug_cpu.compiler.kernels.contraction.epilogue import epilogue_call
from onnxplug_cpu.compiler.kernels.contraction.tile import FinishedTile
from onnxplug_cpu.compiler.kernels.elementwise.commands import record_chain
from onnxplug_cpu.compiler.kernels.rows import chunk_size
from onnxplug_cpu.compiler.machine.isa import LANES, Isa

RecordRows = Callable[[Recorder, View, View], None]
"""Records what is computed of rows, [rows, columns]: ``record(recorder, x, out)``."""

_TILE_BYTES: Final = 16 << 10
"""Of floats at a time, about half of the first cache."""

_MOST_ROWS: Final = 16
_NANOSECONDS: Final = 0.6
"""What one element takes, about."""

_DTYPE: Final = np.dtype(np.float32)
_ROWS: Final = "chunk_rows"
"""The word of kernels of rows that says how many a chunk has."""


def record_between_codes(
    recorder: Recorder,
    codes: View,
    scale: View,
    zero: View | None,
    record: RecordRows,
    epilogue: Epilogue,
    *,
    label: str = "",
) -> None:
    """See ``coded.CodedRows.record_between_codes``; of codes of a byte in C order, rows
    that are no longer than a chunk take, all at once, and others one step after the
    other."""
    rows, columns = codes.shape
    if not codes.size:
        return
    block = _rows_of_block(columns)
    workers = recorder.target.workers
    part = recorder.part()
    tiles = recorder.temporary(_DTYPE, (workers * block, columns))
    record(part, tiles, tiles)
    if len(part.commands) != 1 or _ROWS not in part.commands[0].kernel.words:
        _record_apart(recorder, codes, scale, zero, record, epilogue, label)
        return
    (inner,) = part.commands
    after, words = epilogue_call(epilogue.with_line())
    parameters = recorder.temporary(_DTYPE, (2,))
    for number, view in enumerate((scale, zero)):
        _record_number(recorder, view, parameters.slice((number,), (1,)), label)
    groups = -(-rows // block)
    each = chunk_size(groups, _NANOSECONDS * block * columns, workers)
    call(
        recorder,
        Kernel(BetweenCodes(element_of(codes.dtype) or "")),
        {
            "codes": codes.address,
            "numbers": parameters.address,
            "rows": rows,
            "columns": columns,
            "block": block,
            "blocks": groups,
            "each": each,
            "tile": tiles.address,
            "inner": Code(inner.kernel),
            "inner_words": Words(_of_blocks(inner, block)),
            "epilogue": after,
            "epilogue_words": words,
        },
        chunks=-(-groups // each),
        label=f"{label} {rows}×{columns} of codes",
        flops=inner.flops // larger(1, workers * block) * rows,
        nbytes=2 * codes.nbytes,
    )


def _rows_of_block(columns: int) -> int:
    return larger(1, smaller(_MOST_ROWS, _TILE_BYTES // (4 * columns)))


def _of_blocks(inner: Command, block: int) -> tuple[Any, ...]:
    """The words of a command whose chunks have as many rows as a block."""
    words = list(inner.words)
    words[inner.kernel.words.index(_ROWS)] = block
    return tuple(words)


def _record_number(
    recorder: Recorder, view: View | None, out: View, label: str
) -> None:
    formula = Formula("f32")
    value = formula.number(0.0)
    if view is not None:
        value = formula.read_wide(view.broadcast_to((1,)))
    formula.record(recorder, value, out, label)


def _record_apart(
    recorder: Recorder,
    codes: View,
    scale: View,
    zero: View | None,
    record: RecordRows,
    epilogue: Epilogue,
    label: str,
) -> None:
    """Record each step for the whole array."""
    values = recorder.temporary(_DTYPE, codes.shape)
    chain = Formula("f32")
    number, factor = chain.read_wide(codes), chain.read_wide(scale)
    offset = None if zero is None else chain.read_wide(zero)
    result = dequantised(chain, number, factor, offset)
    chain.record(recorder, result, values, label)
    record(recorder, values, values)
    views = [values, *epilogue.operands]
    record_chain(recorder, epilogue.chain, views, epilogue.outputs, label=label)


class BetweenWords(KernelWords):
    """Words of :class:`BetweenCodes`.

    - ``codes`` in C order, ``rows`` of ``columns``, and ``numbers``, their scale and
      zero point as f32;
    - ``blocks`` of so many rows, of which a chunk takes ``each``;
    - ``tile``, floats for a ``block`` of each worker, one after another, and the
      function of rows, ``inner``, whose chunks are these;
    - the ``epilogue`` with its words.
    """

    codes: Pointer
    numbers: Pointer
    rows: Integer
    columns: Integer
    block: Integer
    blocks: Integer
    each: Integer
    tile: Pointer
    inner: Pointer
    inner_words: Pointer
    epilogue: Pointer
    epilogue_words: Pointer


class BetweenCodes(Generator):
    """A chunk is some blocks of rows.

    Of the last block rows that are not there are computed, too, of what memory has.

    Attributes:
        element: of the codes, ``i8`` or ``u8``.
    """

    element: str

    @property
    def words(self) -> tuple[str, ...]:
        return BetweenWords.names

    def write(self, module: Module, name: str, isa: Isa) -> None:
        k = BetweenWords(module, name)
        k.keep(("codes", "rows", "columns", "block", "inner", "inner_words"))
        f, codes = k.function, Type(self.element, LANES)
        wide = F32.vector(LANES)
        scale, zero = (f.load_splat(f.at(k.numbers, n, F32), wide) for n in range(2))
        tile = f.at(k.tile, k.worker * k.block * k.columns, F32)
        none = f.value(0, I64)

        def widen(source: Value, count: Value) -> None:
            """Write the numbers of *count* codes to the tile."""

            def widened(raw: Value) -> Value:
                number = f.convert(f.convert(raw, I32.vector(LANES)), wide)
                return (number - zero) * scale

            def whole(at: Value) -> None:
                raw = f.load(f.at(source, at, codes.scalar), codes, align=1)
                f.store(widened(raw), f.at(tile, at, F32), align=4)

            def part(at: Value) -> None:
                lanes = f.first_lanes(count - at, LANES)
                raw = f.load_masked(f.at(source, at, codes.scalar), lanes, codes)
                f.store_masked(widened(raw), f.at(tile, at, F32), lanes)

            full = count - count % LANES
            f.loop(full, whole, step=LANES)
            f.loop(count, part, start=full, step=LANES)

        def block(number: Value) -> None:
            first = number * k.block
            rows = f.minimum(k.rows - first, k.block)
            widen(f.at(k.codes, first * k.columns, codes.scalar), rows * k.columns)
            f.call_pointer(k.inner, k.inner_words, k.worker, k.worker)
            finished = FinishedTile(
                words=k.epilogue_words,
                batch0=none,
                batch1=none,
                line=none,
                row=first,
                rows=rows,
                column=none,
                columns=k.columns,
                tile=tile,
                tile_stride=k.columns,
            )
            f.call_pointer(k.epilogue, *finished)

        begin = k.chunk * k.each
        f.loop(f.minimum(begin + k.each, k.blocks), block, start=begin)
        f.finish()
