"""Counts of sequences of tokens, by walks along the edges of tries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxplug_compiler.ir.elements import element_of
from onnxplug_compiler.ir.tables import HASH, Grams
from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.codegen.emit import F32, I8, I64, Module, Type, Value
from onnxplug_cpu.compiler.codegen.kernel import (
    Generator,
    Integer,
    Kernel,
    KernelWords,
    Pointer,
)
from onnxplug_cpu.compiler.commands.recording import Recorder, call
from onnxplug_cpu.compiler.kernels.loop_nest import chunks
from onnxplug_cpu.compiler.machine.isa import LANES

if TYPE_CHECKING:
    from onnxplug_cpu.compiler.machine.isa import Isa

_EDGE = 4  # int64 of a bucket


def record_grams(
    recorder: Recorder, tokens: View, grams: Grams, out: View, label: str
) -> None:
    """See ``tables.Tables.record_grams``."""
    rows, columns = out.shape
    if not out.size:
        return
    lengths = max(0, grams.longest - grams.shortest + 1)
    walks = tokens.size * lengths * min(grams.steps, max(1, tokens.shape[1]))
    count, each = chunks(recorder, rows, 4.0 * walks + 0.2 * out.size)
    element = element_of(tokens.dtype)
    assert element is not None
    call(
        recorder,
        Kernel(_Grams(element)),
        {
            "rows": rows,
            "each": each,
            "tokens": tokens.address,
            "tokens_row": tokens.strides[0] * tokens.dtype.itemsize,
            "tokens_step": tokens.strides[1] * tokens.dtype.itemsize,
            "count": tokens.shape[1],
            "buckets": recorder.constant(grams.buckets).address,
            "mask": len(grams.buckets) - 1,
            "shortest": grams.shortest,
            "longest": grams.longest,
            "steps": grams.steps,
            "columns": columns,
            "out": out.address,
        },
        chunks=count,
        label=f"{label} {rows}×{tokens.shape[1]}",
        nbytes=tokens.nbytes + out.nbytes,
    )


class _Words(KernelWords):
    rows: Integer
    each: Integer
    tokens: Pointer
    tokens_row: Integer
    tokens_step: Integer
    count: Integer
    buckets: Pointer
    mask: Integer
    shortest: Integer
    longest: Integer
    steps: Integer
    columns: Integer
    out: Pointer


class _Grams(Generator):
    """A chunk is some rows.

    Attributes:
        element: of tokens.
    """

    element: str

    @property
    def words(self) -> tuple[str, ...]:
        return _Words.names

    def write(self, module: Module, name: str, isa: Isa) -> None:
        _Writer(_Words(module, name), Type(self.element)).write()


class _Writer:
    """Writes the function."""

    def __init__(self, k: _Words, token: Type) -> None:
        self.k, self.f, self.token = k, k.function, token
        k.keep(_Words.names)

    def write(self) -> None:
        f, k = self.f, self.k
        end = f.minimum((k.chunk + 1) * k.each, k.rows)
        f.loop(end, self._row, start=k.chunk * k.each)
        f.finish()

    def _row(self, row: Value) -> None:
        f, k = self.f, self.k
        out = f.at(k.out, row * k.columns, F32)
        vector = F32.vector(LANES)
        whole = k.columns & -LANES
        f.loop(whole, lambda i: f.store(f.zero(vector), f.at(out, i, F32)), step=LANES)
        f.loop(
            k.columns, lambda i: f.store(f.zero(F32), f.at(out, i, F32)), start=whole
        )
        tokens = f.at(k.tokens, row * k.tokens_row, I8)

        def of_length(length: Value) -> None:
            # one token has no gaps
            alone = length.compare("eq", 1)
            steps = f.select(alone, f.value(1, I64), k.steps)

            def of_step(step: Value) -> None:
                starts = k.count - (length - 1) * step
                f.loop(
                    starts, lambda start: self._count(tokens, start, step, length, out)
                )

            # beyond the text there is nothing
            last = f.minimum(steps, f.maximum(k.count, 1))
            f.loop(last + 1, of_step, start=1)

        f.loop(k.longest + 1, of_length, start=k.shortest)

    def _count(
        self, tokens: Value, start: Value, step: Value, length: Value, out: Value
    ) -> None:
        """Count the sequence that begins at *start*, if it is one that is counted."""
        f, k = self.f, self.k

        def go_on(number: Value, state: Value) -> tuple[Value, list[Value]]:
            place = start + number * step
            token = f.load(f.at(tokens, place * k.tokens_step, I8), self.token)
            after = self._follow(state, f.convert(token, I64))
            following = number + 1
            again = (after >= 0) & (following < length)
            return again, [following, after]

        _, end = f.repeat(go_on, [f.zero(I64), length])

        def add() -> None:
            place = f.at(out, end, F32)
            f.store(f.load(place, F32) + 1.0, place)

        f.branch(end >= 0, add)

    def _follow(self, state: Value, token: Value) -> Value:
        """Where the edge of a token leads; -1 if there is none."""
        f, k = self.f, self.k
        by_state, by_token, shift = HASH
        mixed = state * by_state + token * by_token
        first = (mixed ^ (mixed >> shift)) & k.mask

        def look(bucket: Value) -> tuple[Value, list[Value]]:
            edge = f.at(k.buckets, bucket * _EDGE, I64)
            own = f.load(edge, I64)
            same = own.compare("eq", state)
            same = same & f.load(f.at(edge, 1, I64), I64).compare("eq", token)
            ends = same | (own < 0)
            return ~ends, [f.select(ends, bucket, (bucket + 1) & k.mask)]

        (bucket,) = f.repeat(look, [first])
        # of a free bucket it is -1
        return f.load(f.at(k.buckets, bucket * _EDGE + 2, I64), I64)
