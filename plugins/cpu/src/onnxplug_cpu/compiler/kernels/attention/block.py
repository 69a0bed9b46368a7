"""Attention of many queries: all scores of some queries of a head, by tiles.

The tiles are those of the matrix product; keys, values and queries are packed for them.
"""

from __future__ import annotations

import functools
from typing import Final, NamedTuple

from onnxplug_compiler.ir.families import Undefined
from onnxplug_cpu.compiler.codegen.emit import F32, I64, PTR, Module, Value
from onnxplug_cpu.compiler.codegen.kernel import (
    Float,
    Generator,
    Integer,
    KernelWords,
    Pointer,
)
from onnxplug_cpu.compiler.codegen.lanes import stored
from onnxplug_cpu.compiler.kernels.attention.in_use import Cache, InUse, seen
from onnxplug_cpu.compiler.kernels.attention.scores import Row, Rows, mask_words
from onnxplug_cpu.compiler.kernels.contraction.pack import Panels, pack_panels
from onnxplug_cpu.compiler.kernels.contraction.tile import TileArguments
from onnxplug_cpu.compiler.kernels.rows import Operand, move, opaque
from onnxplug_cpu.compiler.machine.isa import LANES, Isa

BLOCK_DEPTH = 256
"""Keys that are summed in one chain; with the panel of the values that is half of the
first-level cache."""


class ManyWords(KernelWords):
    """Words of :class:`ManyQueries`, all sizes in elements and all strides in bytes.

    - queries, output, keys and values with their strides over batches, heads and rows;
    - ``heads``, of which ``group`` share one of ``kv_heads``; ``queries``, ``keys``,
      their ``size`` and the ``width`` of a value; the ``past`` keys;
    - ``scale`` and ``softcap``;
    - ``parts`` of the queries; ``tiles`` of rows, the first ``tall_tiles`` of
      ``tile_rows`` rows, the others of one less;
    - ``panel``, the bytes of a row of a panel;
    - a chunk's heads and parts; the functions that pack a panel of keys and of values
      into scratch memory first, or 0; 1 to ``prefetch`` those of the next head, or 0;
    - the packed keys and values, the bytes of a head, and of a row of the last panel;
    - the functions of a tile, of one with a row less, and those of the last panels;
    - ``scratch`` of a worker: packed queries, then scores, then one tile of the output,
      then perhaps packed keys and values.
    """

    q: Pointer
    q_batch: Integer
    q_head: Integer
    q_row: Integer
    out: Pointer
    out_batch: Integer
    out_head: Integer
    out_row: Integer
    k: Pointer
    k_batch: Integer
    k_head: Integer
    k_row: Integer
    v: Pointer
    v_batch: Integer
    v_head: Integer
    v_row: Integer
    heads: Integer
    group: Integer
    kv_heads: Integer
    queries: Integer
    keys: Integer
    size: Integer
    width: Integer
    past: Integer
    scale: Float
    softcap: Float
    parts: Integer
    tiles: Integer
    tall_tiles: Integer
    tile_rows: Integer
    panel: Integer
    chunk_heads: Integer
    chunk_parts: Integer
    pack_keys: Pointer
    pack_values: Pointer
    prefetch: Integer
    packed_keys: Pointer
    keys_head: Integer
    keys_tail: Integer
    packed_values: Pointer
    values_head: Integer
    values_tail: Integer
    tile: Pointer
    tile_low: Pointer
    keys_tile: Pointer
    keys_tile_low: Pointer
    values_tile: Pointer
    values_tile_low: Pointer
    scratch: Pointer
    scratch_distance: Integer
    scratch_rows: Integer
    q_row_packed: Integer
    score_row: Integer


class ManyQueries(Generator):
    """A chunk is some parts of the queries of some heads that share a key head.

    Attributes:
        factor: of keys and values, as of :class:`~.few.FewQueries`.
    """

    causal: bool
    capped: bool
    undefined: Undefined
    mask: Operand | None
    hides: bool
    fill: float
    cache: InUse | None = None
    factor: str = ""

    @property
    def words(self) -> tuple[str, ...]:
        return (*ManyWords.names, *self._more)

    @property
    def _more(self) -> tuple[str, ...]:
        return (*mask_words(self), *(self.cache.words if self.cache else ()))

    def write(self, module: Module, name: str, isa: Isa) -> None:
        _Chunk(ManyWords(module, name, self._more), isa, self).write()


class _Panel(NamedTuple):
    """A panel of packed keys or values, bytes of its rows, and the functions of a tile
    and of one of a row less."""

    place: Value
    row: Value
    tile: Value
    tile_low: Value


_HIDDEN: Final = (
    *("a", "a_row", "b", "b_row", "k", "columns", "c", "c_row", "add"),
    *("next", "next_step", "result", "result_row"),
)
"""Arguments of a tile whose origin LLVM is not to see."""


class _Chunk:
    """Scores of a part of the queries, their softmax, and the weighted sums of values,
    head by head."""

    def __init__(self, k: ManyWords, isa: Isa, form: ManyQueries) -> None:
        self.k, self.f, self.form = k, k.function, form
        self.rows = Rows(k, isa, form)
        one, none = self.f.value(1, I64), self.f.value(0, I64)
        self._one_panel = {
            "taps": one,
            "offsets": self.f.zero(PTR),
            "panels": one,
            "b_panel": none,
            "kept": self.f.zero(PTR),
        }
        # rows of scores whose softmax is computed at a time
        self.side = 4 if isa.registers * isa.vector_bytes >= 2048 else 2

    def write(self) -> None:
        k, f = self.k, self.f
        self.keys, self.size = k.keys, k.size
        self.panel = k.panel
        self.panel_columns = self.panel // 4
        self.score_row, self.q_row = k.score_row, k.q_row_packed
        self.past = k.past
        self.tall, self.tile_rows = k.tall_tiles, k.tile_rows
        parts, heads = k.parts, k.heads
        chunk_parts, chunk_heads = k.chunk_parts, k.chunk_heads
        turns = parts // chunk_parts
        rest = k.chunk // turns
        first_part = (k.chunk % turns) * chunk_parts
        head_turns = heads // chunk_heads
        self.batch = rest // head_turns
        first_head = (rest % head_turns) * chunk_heads
        self.cache, self.used = None, self.keys
        if self.form.cache is not None:
            self.cache = Cache(k, self.form.cache, self.batch)
            self.used, self.past = self.cache.used(self.keys), self.cache.first
        self._place_scratch()
        self._find_keys(first_head // k.group)

        def over_heads(head: Value) -> None:
            self.head = head
            f.loop(first_part + chunk_parts, self._part, start=first_part)

        f.loop(first_head + chunk_heads, over_heads, start=first_head)
        f.finish()

    def _place_scratch(self) -> None:
        k, f = self.k, self.f
        rows = k.scratch_rows
        self.packed_q = move(f, k.scratch, k.worker * k.scratch_distance)
        self.scores = move(f, self.packed_q, rows * self.q_row)
        self.spare = move(f, self.scores, rows * self.score_row)
        self.packed = move(f, self.spare, self.tile_rows * self.panel)

    def _find_keys(self, kv_head: Value) -> None:
        """Pack the keys and the values, or find where they have been packed."""
        k, f = self.k, self.f
        pack = k.pack_keys
        matrix = self.batch * k.kv_heads + kv_head
        fetch = k.prefetch
        self.following = [
            (
                self._matrix(name, head, 1),
                k.integer(f"{name}_row"),
                fetch * ((k.integer(size) + 15) // 16),
            )
            for name, head, size in (
                ("k", kv_head, "size"),
                ("v", kv_head, "width"),
                ("q", kv_head * k.group + (k.group - 1), "size"),
            )
        ]
        self.packed_keys, self.packed_values = f.branch(
            pack.compare("eq", f.zero(PTR)),
            lambda: [
                move(f, k.packed_keys, matrix * k.keys_head),
                move(f, k.packed_values, matrix * k.values_head),
            ],
            lambda: self._pack_head(kv_head, pack),
        )

    def _matrix(self, name: str, head: Value, further: int = 0) -> Value:
        """Where the matrix of a head, so many heads further on, begins."""
        k = self.k
        base, offset = k.pointer(name), self.batch * k.integer(f"{name}_batch")
        offset = offset + (head + further) * k.integer(f"{name}_head")
        return move(self.f, base, offset)

    def _pack_head(self, kv_head: Value, pack_keys: Value) -> list[Value]:
        """Where the keys and the values of a head are packed to."""
        k, f = self.k, self.f
        target = move(f, self.packed, k.keys_head)
        element = f.value(stored(self.form.factor or "f32").nbytes, I64)
        keys, values = self._matrix("k", kv_head), self._matrix("v", kv_head)
        row = k.k_row
        # whole panels of keys: what is not in use gives scores that nobody reads
        panels = (self.used + (self.panel_columns - 1)) // self.panel_columns
        columns = f.minimum(panels * self.panel_columns, self.keys)
        self._pack(pack_keys, keys, element, row, self.size, columns, self.packed)
        pack_values, row = k.pack_values, k.v_row
        self._pack(
            pack_values, values, row, element, self.used, k.width, target, self.keys
        )
        return [self.packed, target]

    def _pack(
        self,
        function: Value,
        source: Value,
        row: Value,
        column: Value,
        rows: Value,
        columns: Value,
        target: Value,
        panel_rows: Value | None = None,
    ) -> None:
        f = self.f
        panels = Panels(
            function=function,
            source=source,
            row=row,
            column=column,
            rows=rows,
            rows_together=f.maximum(rows, f.value(1, I64)),
            columns=columns,
            target=target,
            panel=self.panel,
            element=f.value(4, I64),
            panel_rows=panel_rows,
        )
        count = (columns + (self.panel_columns - 1)) // self.panel_columns
        pack_panels(f, panels, f.value(0, I64), count)

    def _part(self, part: Value) -> None:
        """All steps for a part of the queries of a head."""
        tiles, parts = self.k.tiles, self.k.parts
        self.first_tile = tiles * part // parts
        self.end_tile = tiles * (part + 1) // parts
        self.first_row = self._row_of(self.first_tile)
        self.end_row = self._row_of(self.end_tile)
        self._copy_queries()
        self._scores()
        self._softmax()
        self._values()

    def _row_of(self, tile: Value) -> Value:
        low = self.f.maximum(tile - self.tall, self.f.value(0, I64))
        return tile * self.tile_rows - low

    def _limit(self, end_row: Value) -> Value:
        """How many keys the queries before *end_row* see."""
        if not self.form.causal:
            return self.used
        return seen(self.f, self.used, self.past + end_row)

    def _copy_queries(self) -> None:
        k, f = self.k, self.f
        source = move(f, k.q, self.batch * k.q_batch)
        source = move(f, source, self.head * k.q_head)
        row_bytes = k.q_row
        scale = f.splat(k.scale, LANES)
        vector = F32.vector(LANES)

        def row(i: Value) -> None:
            start = opaque(f, move(f, source, i * row_bytes))
            target = move(f, self.packed_q, (i - self.first_row) * self.q_row)
            target = opaque(f, target)

            def some(j: Value) -> None:
                lanes = f.first_lanes(self.size - j, LANES)
                x = f.load_masked(f.at(start, j, F32), lanes, vector)
                f.store(x * scale, f.at(target, j, F32))

            f.loop(self.size, some, step=LANES)

        f.loop(self.end_row, row, start=self.first_row)

    def _panel(self, name: str, place: Value, is_whole: Value) -> _Panel:
        """A panel of the *keys* or *values* and what computes with it."""
        f, k = self.f, self.k
        return _Panel(
            place,
            f.select(is_whole, self.panel, k.integer(f"{name}_tail")),
            f.select(is_whole, k.tile, k.pointer(f"{name}_tile")),
            f.select(is_whole, k.tile_low, k.pointer(f"{name}_tile_low")),
        )

    def _scores(self) -> None:
        """Queries times keys, panel by panel, so that a panel is read once."""
        f = self.f
        panel_bytes = self.panel * self.size
        limit = self._limit(self.end_row)

        def panel(column: Value) -> None:
            index = column // self.panel_columns
            is_whole = (column + self.panel_columns).compare("le", self.keys)
            place = move(f, self.packed_keys, index * panel_bytes)
            panel = self._panel("keys", place, is_whole)
            tile = functools.partial(self._score_tile, panel, column)
            f.loop(self.end_tile, tile, start=self.first_tile)

        f.loop(limit, panel, step=self.panel_columns)

    def _score_tile(self, panel: _Panel, column: Value, number: Value) -> None:
        """The scores of some queries and a panel of keys, unless they see none."""
        f = self.f
        row = self._row_of(number)
        tall = number < self.tall
        here = row - self.first_row

        def compute() -> None:
            function = f.select(tall, panel.tile, panel.tile_low)
            a = move(f, self.packed_q, here * self.q_row)
            columns = panel.row // 4
            c = move(f, self.scores, here * self.score_row + column * 4)
            ahead, step = self._ahead(number, column, panel.place)
            arguments = TileArguments(
                a=a,
                a_row=self.q_row,
                b=panel.place,
                b_row=panel.row,
                k=self.size,
                columns=columns,
                c=c,
                c_row=self.score_row,
                add=f.value(0, I64),
                result=c,
                result_row=self.score_row,
                next=ahead,
                next_step=step,
                **self._one_panel,
            )
            self._call_tile(function, arguments)

        if self.form.causal:
            f.branch(column < self._limit(self._row_of(number + 1)), compute)
        else:
            compute()

    def _ahead(self, tile: Value, key: Value, default: Value) -> tuple[Value, Value]:
        """What a tile of scores prefetches: the next head's keys, values and queries.

        The first tiles of a panel fetch a cache line each of as many rows.  There
        may be no next head: then addresses are prefetched that mean nothing, which
        does nothing.
        """
        f = self.f
        step = f.value(0, I64)
        first = f.value(0, I64)
        for source, row_bytes, lines in self.following:
            line = tile - first
            chosen = (line >= 0) & (line < lines)
            place = move(f, source, key * row_bytes + line * 64)
            default = f.select(chosen, place, default)
            step = f.select(chosen, row_bytes, step)
            first = first + lines
        return default, step

    def _softmax(self) -> None:
        k, f = self.k, self.f
        most = self._limit(self.end_row)
        last = self.end_row - 1

        def several(first: Value) -> None:
            rows = []
            for u in range(self.side):
                # behind the last row it is computed again
                i = f.minimum(first + u, last) if u else first
                rows.append(
                    Row(
                        move(f, self.scores, (i - self.first_row) * self.score_row),
                        self.rows.mask_at(k, self.batch, self.head, i),
                        self._limit(i + 1),
                        self._hidden(i),
                    )
                )
            self.rows.softmax(rows, rows[0].length, most)

        f.loop(self.end_row, several, start=self.first_row, step=self.side)

    def _hidden(self, row: Value) -> Value | None:
        """The score of no key, if there is one, of a query that sees no keys before its
        window from here on."""
        if self.cache is None:
            return None
        place = (row - self.first_row) * self.score_row
        self.cache.hide(move(self.f, self.scores, place), row, self._limit(row + 1))
        return self.cache.sink(self.head, self.f.value(0, I64))

    def _values(self) -> None:
        """Weights times values, in blocks of keys that stay in the cache."""
        k, f = self.k, self.f
        out = move(f, k.out, self.batch * k.out_batch)
        self.out = move(f, out, self.head * k.out_head)
        self.out_row, self.width = k.out_row, k.width
        panel_bytes = self.panel * self.keys

        def panel(column: Value) -> None:
            index = column // self.panel_columns
            left = f.minimum(self.width - column, self.panel_columns)
            is_whole = (column + self.panel_columns).compare("le", self.width)
            place = move(f, self.packed_values, index * panel_bytes)
            panel = self._panel("values", place, is_whole)
            direct = (left * 4).compare("eq", panel.row)
            tile = functools.partial(self._value_tile, panel, column, left, direct)
            f.loop(self.end_tile, tile, start=self.first_tile)

        f.loop(self.width, panel, step=self.panel_columns)

    def _value_tile(
        self, panel: _Panel, column: Value, left: Value, direct: Value, number: Value
    ) -> None:
        """The results of some queries, in *left* columns from *column* on.

        Args:
            direct: whether the tile has no more columns than that.
        """
        f = self.f
        row, end = self._row_of(number), self._row_of(number + 1)
        function = f.select(number < self.tall, panel.tile, panel.tile_low)
        place = move(f, self.out, row * self.out_row + column * 4)
        target = f.select(direct, place, self.spare)
        target_row = f.select(direct, self.out_row, panel.row)
        a = move(f, self.scores, (row - self.first_row) * self.score_row)
        limit = self._limit(end)

        def keys(start: Value) -> None:
            arguments = TileArguments(
                a=f.at(a, start, F32),
                a_row=self.score_row,
                b=move(f, panel.place, start * panel.row),
                b_row=panel.row,
                k=f.minimum(limit - start, f.value(BLOCK_DEPTH, I64)),
                columns=left,
                c=target,
                c_row=target_row,
                add=start,
                result=target,
                result_row=target_row,
                next=panel.place,
                next_step=f.value(0, I64),
                **self._one_panel,
            )
            self._call_tile(function, arguments)

        # no keys at all give zeros
        f.loop(f.maximum(limit, f.value(1, I64)), keys, step=BLOCK_DEPTH)
        f.branch(
            direct,
            lambda: None,
            lambda: self._copy(panel.row, place, self.out_row, end - row, left),
        )

    def _copy(
        self,
        b_row: Value,
        target: Value,
        target_row: Value,
        rows: Value,
        columns: Value,
    ) -> None:
        """Copy the spare tile, whose rows are *b_row* bytes, to the output."""
        f = self.f
        vector = F32.vector(LANES)

        def some(column: Value) -> None:
            lanes = f.first_lanes(columns - column, LANES)

            def one(i: Value) -> None:
                x = f.load(f.at(move(f, self.spare, i * b_row), column, F32), vector)
                place = f.at(move(f, target, i * target_row), column, F32)
                f.store_masked(x, place, lanes)

            f.loop(rows, one)

        f.loop(columns, some, step=LANES)

    def _call_tile(self, function: Value, arguments: TileArguments) -> None:
        """Call the function of a tile of the matrix product."""
        f = self.f
        hidden = {name: opaque(f, getattr(arguments, name)) for name in _HIDDEN}
        f.call_pointer(function, *arguments._replace(**hidden))
