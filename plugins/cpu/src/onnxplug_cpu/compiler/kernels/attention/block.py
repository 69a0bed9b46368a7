"""Attention of many queries: all scores of some queries of a head, by tiles.

The tiles are those of the matrix product; keys, values and queries are packed for them.
"""

from __future__ import annotations

from onnxplug_cpu.compiler.codegen.emit import F32, I64, PTR, Module, Value
from onnxplug_cpu.compiler.codegen.kernel import Generator, KernelFunction
from onnxplug_cpu.compiler.kernels.attention.scores import (
    Row,
    Rows,
    Undefined,
    mask_words,
)
from onnxplug_cpu.compiler.kernels.contraction.pack import Panels, pack_panels
from onnxplug_cpu.compiler.kernels.contraction.tile import TileArguments
from onnxplug_cpu.compiler.kernels.rows import Operand, move, opaque
from onnxplug_cpu.compiler.target.isa import LANES, Isa

BLOCK_DEPTH = 256
"""Keys that are summed in one chain; with the panel of the values that is half of the
first-level cache."""


_WORDS = (
    *("q", "q_batch", "q_head", "q_row", "out", "out_batch", "out_head", "out_row"),
    *("k", "k_batch", "k_head", "k_row", "v", "v_batch", "v_head", "v_row"),
    *("heads", "group", "kv_heads", "queries", "keys", "size", "width", "past"),
    *("scale", "softcap", "parts", "tiles", "tall_tiles", "tile_rows", "panel"),
    *("chunk_heads", "chunk_parts", "pack_keys", "pack_values", "prefetch"),
    *("packed_keys", "keys_head", "keys_tail"),
    *("packed_values", "values_head", "values_tail"),
    *("tile", "tile_low", "keys_tile", "keys_tile_low"),
    *("values_tile", "values_tile_low"),
    *("scratch", "scratch_distance", "scratch_rows", "q_row_packed", "score_row"),
)


class ManyQueries(Generator):
    """A chunk is some parts of the queries of some heads that share a key head.

    Words, all sizes in elements and all strides in bytes:

    - queries, output, keys and values with their strides over batches, heads and rows;
    - ``heads``, of which ``group`` share one of ``kv_heads``; ``queries``, ``keys``,
      their ``size`` and the ``width`` of a value; the ``past`` keys;
    - ``scale`` and ``softcap``, the bits of f32;
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

    causal: bool
    capped: bool
    undefined: Undefined
    mask: Operand | None
    hides: bool
    fill: float

    @property
    def words(self) -> tuple[str, ...]:
        return (*_WORDS, *mask_words(self))

    def write(self, module: Module, name: str, isa: Isa) -> None:
        _Writer(KernelFunction(module, name, self.words), isa, self).write()


class _Writer:
    def __init__(self, k: KernelFunction, isa: Isa, form: ManyQueries) -> None:
        self.k, self.f, self.form = k, k.function, form
        self.rows = Rows(k, isa, form)
        # rows of scores whose softmax is computed at a time
        self.side = 4 if isa.registers * isa.vector_bytes >= 2048 else 2

    def write(self) -> None:
        k, f = self.k, self.f
        self.keys, self.size = k.integer("keys"), k.integer("size")
        self.panel = k.integer("panel")
        self.panel_columns = self.panel // 4
        self.score_row, self.q_row = k.integer("score_row"), k.integer("q_row_packed")
        self.past = k.integer("past")
        self.tall, self.tile_rows = k.integer("tall_tiles"), k.integer("tile_rows")
        parts, heads = k.integer("parts"), k.integer("heads")
        chunk_parts, chunk_heads = k.integer("chunk_parts"), k.integer("chunk_heads")
        turns = parts // chunk_parts
        rest = k.chunk // turns
        first_part = (k.chunk % turns) * chunk_parts
        head_turns = heads // chunk_heads
        self.batch = rest // head_turns
        first_head = (rest % head_turns) * chunk_heads
        self._place_scratch()
        self._find_keys(first_head // k.integer("group"))

        def over_heads(head: Value) -> None:
            self.head = head
            f.loop(first_part + chunk_parts, self._part, start=first_part)

        f.loop(first_head + chunk_heads, over_heads, start=first_head)
        f.finish()

    def _place_scratch(self) -> None:
        k, f = self.k, self.f
        rows = k.integer("scratch_rows")
        self.packed_q = move(
            f, k.pointer("scratch"), k.worker * k.integer("scratch_distance")
        )
        self.scores = move(f, self.packed_q, rows * self.q_row)
        self.spare = move(f, self.scores, rows * self.score_row)
        self.packed = move(f, self.spare, self.tile_rows * self.panel)

    def _find_keys(self, kv_head: Value) -> None:
        """Pack the keys and the values, or find where they have been packed."""
        k, f = self.k, self.f
        pack = k.pointer("pack_keys")
        matrix = self.batch * k.integer("kv_heads") + kv_head

        fetch = k.integer("prefetch")
        self.following = [
            (
                move(
                    f,
                    k.pointer(name),
                    self.batch * k.integer(f"{name}_batch")
                    + (head + 1) * k.integer(f"{name}_head"),
                ),
                k.integer(f"{name}_row"),
                fetch * ((k.integer(size) + 15) // 16),
            )
            for name, head, size in (
                ("k", kv_head, "size"),
                ("v", kv_head, "width"),
                ("q", kv_head * k.integer("group") + (k.integer("group") - 1), "size"),
            )
        ]

        def packed() -> list[Value]:
            return [
                move(f, k.pointer(f"packed_{name}"), matrix * k.integer(f"{name}_head"))
                for name in ("keys", "values")
            ]

        def pack_now() -> list[Value]:
            values = move(f, self.packed, k.integer("keys_head"))
            element = f.value(4, I64)
            sources = [
                move(
                    f,
                    k.pointer(name),
                    self.batch * k.integer(f"{name}_batch")
                    + kv_head * k.integer(f"{name}_head"),
                )
                for name in ("k", "v")
            ]
            self._pack(
                pack,
                sources[0],
                element,
                k.integer("k_row"),
                self.size,
                self.keys,
                self.packed,
            )
            self._pack(
                k.pointer("pack_values"),
                sources[1],
                k.integer("v_row"),
                element,
                self.keys,
                k.integer("width"),
                values,
            )
            return [self.packed, values]

        self.packed_keys, self.packed_values = f.branch(
            pack.compare("eq", f.zero(PTR)), packed, pack_now
        )

    def _pack(
        self,
        function: Value,
        source: Value,
        row: Value,
        column: Value,
        rows: Value,
        columns: Value,
        target: Value,
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
        )
        count = (columns + (self.panel_columns - 1)) // self.panel_columns
        pack_panels(f, panels, f.value(0, I64), count)

    def _part(self, part: Value) -> None:
        """All steps for a part of the queries of a head."""
        tiles, parts = self.k.integer("tiles"), self.k.integer("parts")
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
            return self.keys
        return self.f.minimum(self.keys, self.past + end_row)

    def _copy_queries(self) -> None:
        k, f = self.k, self.f
        source = move(f, k.pointer("q"), self.batch * k.integer("q_batch"))
        source = move(f, source, self.head * k.integer("q_head"))
        row_bytes = k.integer("q_row")
        scale = f.splat(k.word("scale", F32), LANES)
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

    def _scores(self) -> None:
        """Queries times keys, panel by panel, so that a panel is read once."""
        k, f = self.k, self.f
        panel_bytes = self.panel * self.size
        limit = self._limit(self.end_row)

        def over_panels(column: Value) -> None:
            index = column // self.panel_columns
            whole = (column + self.panel_columns).compare("le", self.keys)
            b = move(f, self.packed_keys, index * panel_bytes)
            b_row = f.select(whole, self.panel, k.integer("keys_tail"))
            tile = f.select(whole, k.pointer("tile"), k.pointer("keys_tile"))
            low = f.select(whole, k.pointer("tile_low"), k.pointer("keys_tile_low"))

            def over_tiles(t: Value) -> None:
                row = self._row_of(t)
                tall = t < self.tall
                here = row - self.first_row

                def compute() -> None:
                    self._tile(
                        f.select(tall, tile, low),
                        a=move(f, self.packed_q, here * self.q_row),
                        a_row=self.q_row,
                        b=b,
                        b_row=b_row,
                        k=self.size,
                        columns=b_row // 4,
                        c=move(f, self.scores, here * self.score_row + column * 4),
                        c_row=self.score_row,
                        add=f.value(0, I64),
                        **self._ahead(t, column, b),
                    )

                if self.form.causal:
                    seen = column < self._limit(self._row_of(t + 1))
                    f.branch(seen, compute)
                else:
                    compute()

            f.loop(self.end_tile, over_tiles, start=self.first_tile)

        f.loop(limit, over_panels, step=self.panel_columns)

    def _ahead(self, tile: Value, key: Value, default: Value) -> dict[str, Value]:
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
        return {"next": default, "next_step": step}

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
                    )
                )
            self.rows.softmax(rows, rows[0].length, most)

        f.loop(self.end_row, several, start=self.first_row, step=self.side)

    def _values(self) -> None:
        """Weights times values, in blocks of keys that stay in the cache."""
        k, f = self.k, self.f
        out = move(f, k.pointer("out"), self.batch * k.integer("out_batch"))
        out = move(f, out, self.head * k.integer("out_head"))
        out_row, width = k.integer("out_row"), k.integer("width")
        panel_bytes = self.panel * self.keys
        step = f.value(BLOCK_DEPTH, I64)

        def over_panels(column: Value) -> None:
            index = column // self.panel_columns
            left = f.minimum(width - column, self.panel_columns)
            whole = (column + self.panel_columns).compare("le", width)
            b = move(f, self.packed_values, index * panel_bytes)
            b_row = f.select(whole, self.panel, k.integer("values_tail"))
            tile = f.select(whole, k.pointer("tile"), k.pointer("values_tile"))
            low = f.select(whole, k.pointer("tile_low"), k.pointer("values_tile_low"))
            direct = (left * 4).compare("eq", b_row)

            def over_tiles(t: Value) -> None:
                row, end = self._row_of(t), self._row_of(t + 1)
                function = f.select(t < self.tall, tile, low)
                place = move(f, out, row * out_row + column * 4)
                target = f.select(direct, place, self.spare)
                target_row = f.select(direct, out_row, b_row)
                a = move(f, self.scores, (row - self.first_row) * self.score_row)
                limit = self._limit(end)

                def over_keys(start: Value) -> None:
                    self._tile(
                        function,
                        a=f.at(a, start, F32),
                        a_row=self.score_row,
                        b=move(f, b, start * b_row),
                        b_row=b_row,
                        k=f.minimum(limit - start, step),
                        columns=left,
                        c=target,
                        c_row=target_row,
                        add=start,
                        next=b,
                        next_step=f.value(0, I64),
                    )

                # no keys at all give zeros
                f.loop(f.maximum(limit, f.value(1, I64)), over_keys, step=BLOCK_DEPTH)
                f.branch(
                    direct,
                    lambda: None,
                    lambda: self._copy(b_row, place, out_row, end - row, left),
                )

            f.loop(self.end_tile, over_tiles, start=self.first_tile)

        f.loop(width, over_panels, step=self.panel_columns)

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

    def _tile(self, function: Value, **arguments: Value) -> None:
        """Call the function of a tile of the matrix product."""
        f = self.f
        arguments |= {"result": arguments["c"], "result_row": arguments["c_row"]}
        arguments = {name: opaque(f, value) for name, value in arguments.items()}
        one, none = f.value(1, I64), f.value(0, I64)
        arguments |= {"taps": one, "offsets": f.zero(PTR)}
        arguments |= {"panels": one, "b_panel": none}
        f.call_pointer(function, *TileArguments(**arguments))
