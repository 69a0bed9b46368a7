"""Keeps the rows of a cache that are before the new ones."""

from __future__ import annotations

from onnxplug_cpu.compiler.codegen.emit import I64, Module, Type, Value
from onnxplug_cpu.compiler.codegen.kernel import (
    Generator,
    Integer,
    KernelWords,
    Pointer,
)
from onnxplug_cpu.compiler.kernels.attention.in_use import Cache, InUse
from onnxplug_cpu.compiler.kernels.rows import move, opaque
from onnxplug_cpu.compiler.machine.isa import LANES, Isa


class KeepWords(KernelWords):
    """Words of :class:`KeepRows`; strides are in bytes.

    - ``past`` and ``present`` with their strides over sequences, heads and rows, and
      how many rows they have;
    - ``heads`` and the ``size`` of a row; ``parts`` of the rows of ``present``;
    - ``flag``, which receives 3 where ``past`` lacks a row before the first new one.
    """

    past: Pointer
    past_batch: Integer
    past_head: Integer
    past_row: Integer
    past_rows: Integer
    present: Pointer
    present_batch: Integer
    present_head: Integer
    present_row: Integer
    present_rows: Integer
    heads: Integer
    size: Integer
    parts: Integer
    flag: Pointer


class KeepRows(Generator):
    """Copies rows before the first new one, and writes zeros behind; nothing where both
    caches are the same memory.  A chunk is a part of the rows of a head.

    Attributes:
        cache: how the first new row is read; ``None`` if all rows are kept.
        element: of as many bytes as those of the caches.
    """

    cache: InUse | None
    element: str

    @property
    def words(self) -> tuple[str, ...]:
        return (*KeepWords.names, *self._more)

    @property
    def _more(self) -> tuple[str, ...]:
        return () if self.cache is None else self.cache.words

    def write(self, module: Module, name: str, isa: Isa) -> None:
        k = KeepWords(module, name, self._more)
        f = k.function
        past, present = k.past, k.present
        differ = past.compare("ne", present)
        f.branch(differ, lambda: self._write(k))
        f.finish()

    def _write(self, k: KeepWords) -> None:
        f, parts, heads = k.function, k.parts, k.heads
        rest, part = k.chunk // parts, k.chunk % parts
        batch, head = rest // heads, rest % heads
        kept = k.past_rows
        if self.cache is not None:
            first = Cache(k, self.cache, batch).first
            lacks = first > k.past_rows
            f.branch(lacks, lambda: f.store(f.value(3, I64), k.flag))
            kept = f.maximum(f.minimum(first, k.past_rows), f.value(0, I64))
        begin = k.present_rows * part // parts
        end = k.present_rows * (part + 1) // parts
        source = move(f, k.past, batch * k.past_batch + head * k.past_head)
        target = move(f, k.present, batch * k.present_batch + head * k.present_head)
        middle = f.maximum(f.minimum(kept, end), begin)
        size, row, present_row = k.size, k.past_row, k.present_row
        whole = size - size % LANES
        vector = Type(self.element, LANES)
        rest_mask = f.first_lanes(size - whole, LANES)

        def one(index: Value) -> None:
            from_ = opaque(f, move(f, source, index * row))
            to = opaque(f, move(f, target, index * present_row))

            def some(j: Value) -> None:
                f.store(f.load(f.at(from_, j, vector), vector), f.at(to, j, vector))

            f.loop(whole, some, step=LANES)
            value = f.load_masked(f.at(from_, whole, vector), rest_mask, vector)
            f.store_masked(value, f.at(to, whole, vector), rest_mask)

        def none(index: Value) -> None:
            to = opaque(f, move(f, target, index * present_row))
            zero = f.zero(vector)
            f.loop(whole, lambda j: f.store(zero, f.at(to, j, vector)), step=LANES)
            f.store_masked(zero, f.at(to, whole, vector), rest_mask)

        f.loop(middle, one, start=begin)
        f.loop(end, none, start=middle)
