"""The loops around the tiles of a contraction by fused multiply-adds.

Blocks of K are outermost, so that the block of A they need stays in the second-level
cache while the panels of B stream through it once; when sums of a tile need more than
one block, they wait in the result itself or in scratch memory.  K is all taps, and the
depth of each.
"""

from __future__ import annotations

from typing import Final

from onnxplug_cpu.compiler.codegen.emit import I64, PTR, Module, Type, Value
from onnxplug_cpu.compiler.codegen.kernel import Generator, Integer, Pointer
from onnxplug_cpu.compiler.kernels.contraction.chunk import Chunk, ChunkWords, Place
from onnxplug_cpu.compiler.kernels.contraction.pack import Panels, pack_panels
from onnxplug_cpu.compiler.kernels.contraction.tile import TileArguments, offset
from onnxplug_cpu.compiler.machine.isa import VECTOR_BYTES, Isa

STRIP_BYTES: Final = 128 * VECTOR_BYTES
"""Room for the tiles that wait for the epilogue together; no processor has registers
for as many bytes in one."""


class BlockWords(ChunkWords):
    """Words of :class:`BlockProduct`; strides and sizes are in bytes.

    - ``b`` and its strides over two batch axes; ``b_row`` is what tiles receive of B's
      strides, ``b_depth`` the distance of two elements along K, both with an own value
      for the last panel, and ``b_panel`` the distance of two panels;
    - ``depth``, the elements of a tap, the bytes of an ``element``, and the
      ``panel_bytes`` of a row of a panel;
    - ``by_rows``, not 0 when all panels of a row tile come before the next row tile;
    - ``strip``, how many whole panels are computed at once, for calls to be few; 1 if
      results wait for another pass;
    - ``b_prefetch``, the bytes of the next panel that a step of a tile asks for, and
      ``a_prefetch``, those of a later tile's A, for which the last panel asks;
    - the four functions of a tile, of one row less, and those of the last panel;
    - ``partial``, scratch for results that wait (0 when only one tile waits), distances
      of workers, tiles and panels;
    - ``pack``, 0 when tiles can read B, or the function that packs a panel, with B's
      strides and the rows to pack at a time, and ``packed``, scratch for a chunk's
      panels, distance of workers;
    - ``keeping`` and the like, 0 when tiles read the elements that B has, or the same
      four functions for the first tile of a chunk, which widens B's for the others:
      then ``b_row`` is that of what it keeps, and ``widened`` scratch for that,
      distance of workers: of a pass over the panels of a chunk if it goes by rows,
      otherwise over one.
    """

    b: Pointer
    b_batch0: Integer
    b_batch1: Integer
    b_row: Integer
    b_tail_row: Integer
    b_depth: Integer
    b_tail_depth: Integer
    b_panel: Integer
    depth: Integer
    element: Integer
    panel_bytes: Integer
    by_rows: Integer
    strip: Integer
    a_prefetch: Integer
    b_prefetch: Integer
    tile: Pointer
    tile_low: Pointer
    tile_tail: Pointer
    tile_low_tail: Pointer
    partial: Pointer
    partial_distance: Integer
    partial_tile: Integer
    partial_panel: Integer
    pack: Pointer
    pack_row: Integer
    pack_column: Integer
    pack_rows: Integer
    packed: Pointer
    packed_distance: Integer
    keeping: Pointer
    keeping_low: Pointer
    keeping_tail: Pointer
    keeping_low_tail: Pointer
    widened: Pointer
    widened_distance: Integer


class BlockProduct(Generator):
    """Computes chunks of contractions."""

    words = BlockWords.names

    def write(self, module: Module, name: str, isa: Isa) -> None:
        _Block(BlockWords(module, name), isa).write()


class _Block:
    """The loops over passes, row tiles and strips of panels, and blocks of K."""

    def __init__(self, words: BlockWords, isa: Isa) -> None:
        self.words = words
        self.chunk = chunk = Chunk(words)
        self.f = f = words.function
        self.stack = f.stack(Type("i8"), STRIP_BYTES)
        self.a, self.b = chunk.matrix_of("a"), chunk.matrix_of("b")
        self.a_line, self.a_row = words.a_line, words.a_row
        self.element = words.element
        self.taps, self.offsets, self.depth = words.taps, words.offsets, words.depth
        self.panel_bytes, self.b_panel = words.panel_bytes, words.b_panel
        self.panel_columns = self.panel_bytes // self.element
        pack = words.pack
        (self.b,) = f.branch(
            pack.compare("eq", f.zero(PTR)),
            lambda: [self.b],
            lambda: [self._packed(pack)],
        )
        partial = words.partial
        self.partial = f.select(
            partial.compare("eq", f.zero(PTR)),
            self.stack,
            offset(f, partial, words.worker * words.partial_distance),
        )
        self.outer, self.inner = words.outer_blocks, words.inner_blocks
        self.blocks, self.block_taps = words.blocks, words.block_taps
        self.tap_blocks, self.block_depth = words.tap_blocks, words.block_depth
        self.by_rows = words.by_rows.compare("ne", 0)
        self.widens = words.widened_distance.compare("ne", 0)
        self.widened = offset(f, words.widened, words.worker * words.widened_distance)
        self.last_tap = f.load(f.at(self.offsets, self.taps - 1, I64), I64)
        self.tiles = chunk.end_tile - chunk.first_tile
        self.strip = words.strip
        self.strip_columns = self.strip * self.panel_columns
        whole = f.minimum(chunk.end_panel, chunk.columns // self.panel_columns)
        self.whole_panels = whole - chunk.first_panel
        # a last panel that is not whole is a strip of its own
        strips = (self.whole_panels + (self.strip - 1)) // self.strip
        rest = chunk.end_panel - chunk.first_panel - self.whole_panels
        self.strips = strips + rest
        self.begin = chunk.place(chunk.first_tile)
        self.beyond = chunk.place(chunk.end_tile)

    def _packed(self, function: Value) -> Value:
        """Pack the chunk's panels; where B's first one would be."""
        f, words, chunk = self.f, self.words, self.chunk
        target = offset(f, words.packed, words.worker * words.packed_distance)
        target = offset(f, target, 0 - chunk.first_panel * self.b_panel)
        panels = Panels(
            function=function,
            source=self.b,
            row=words.pack_row,
            column=words.pack_column,
            rows=self.taps * self.depth,
            rows_together=words.pack_rows,
            columns=chunk.columns,
            target=target,
            panel=self.panel_bytes,
            element=self.element,
        )
        pack_panels(f, panels, chunk.first_panel, chunk.end_panel)
        return target

    def write(self) -> None:
        self.f.loop(self.outer, self._pass)
        self.f.finish()

    def _pass(self, number: Value) -> None:
        pass_ = _Pass(self, number)
        turns = self.f.select(self.by_rows, self.tiles, self.strips)
        self.f.loop(turns, pass_.major, self.begin)


class _Pass:
    """Some blocks of K over the chunk.

    The outer loop is over row tiles or over strips, the inner one over the others.
    """

    def __init__(self, block: _Block, number: Value) -> None:
        self.block, f = block, block.f
        self.first_block = number * block.inner
        self.blocks = f.minimum(block.blocks - self.first_block, block.inner)
        # where its first block begins: in which tap, and where there
        self.first_tap = self.first_block // block.tap_blocks * block.block_taps
        self.start = self.first_block % block.tap_blocks * block.block_depth
        self.is_last = (number + 1).compare("eq", block.outer)
        # elements of K before it, and in it; several passes have parts of one tap
        self.above = self.first_tap * block.depth + self.start
        part = f.minimum(block.depth - self.start, block.inner * block.block_depth)
        self.length = f.select(block.outer > 1, part, block.taps * block.depth)

    def kept(self, panel: Value) -> Value:
        """Where elements of a panel are that a tile widened."""
        block, f = self.block, self.block.f
        number = f.select(block.by_rows, panel - block.chunk.first_panel, 0)
        return offset(f, block.widened, number * self.kept_panel)

    @property
    def kept_panel(self) -> Value:
        """The distance of two panels there."""
        return self.length * self.block.panel_bytes

    def major(self, i: Value, *carried: Value) -> list[Value]:
        """A turn of the outer loop, which carries the place of a tile."""
        block, f, chunk = self.block, self.block.f, self.block.chunk
        here = Place(*carried)
        next_row = chunk.following(here)

        def minor(j: Value, *carried: Value) -> list[Value]:
            here, later = Place(*carried[:2]), Place(*carried[2:])
            strip, tile = f.select(block.by_rows, j, i), f.select(block.by_rows, i, j)
            _Tile(self, _Strip(block, strip), tile, here).write(later)
            return [
                *self._chosen(here, chunk.following(here)),
                *self._chosen(later, chunk.following(later)),
            ]

        f.loop(
            f.select(block.by_rows, block.strips, block.tiles),
            minor,
            [*here, *self._chosen(next_row, block.beyond)],
        )
        return self._chosen(next_row, here)

    def _chosen(self, if_by_rows: Place, otherwise: Place) -> list[Value]:
        pairs = zip(if_by_rows, otherwise, strict=True)
        return [self.block.f.select(self.block.by_rows, *pair) for pair in pairs]


class _Strip:
    """Panels of B that are multiplied with one row tile at once."""

    def __init__(self, block: _Block, number: Value) -> None:
        f, words, chunk = block.f, block.words, block.chunk
        self.first = f.minimum(number * block.strip, block.whole_panels)
        self.is_whole = self.first < block.whole_panels
        panels = f.minimum(block.whole_panels - self.first, block.strip)
        self.panels = f.select(self.is_whole, panels, 1)
        self.panel = self.first + chunk.first_panel
        self.column = self.panel * block.panel_columns
        width = chunk.columns - self.column
        self.width = f.minimum(width, self.panels * block.panel_columns)
        self.row = f.select(self.is_whole, words.b_row, words.b_tail_row)
        self.depth = f.select(self.is_whole, words.b_depth, words.b_tail_depth)
        self.tile = f.select(self.is_whole, words.tile, words.tile_tail)
        self.tile_low = f.select(self.is_whole, words.tile_low, words.tile_low_tail)
        self.keeping = f.select(self.is_whole, words.keeping, words.keeping_tail)
        self.keeping_low = f.select(
            self.is_whole, words.keeping_low, words.keeping_low_tail
        )
        self.place = offset(f, block.b, self.panel * block.b_panel)


class _Tile:
    """A row tile by a strip; *number* is its own in the chunk."""

    def __init__(self, pass_: _Pass, strip: _Strip, number: Value, at: Place) -> None:
        self.pass_, self.block = pass_, pass_.block
        self.strip, self.number = strip, number
        block, f, chunk = self.block, self.block.f, self.block.chunk
        self.direct = strip.is_whole & (chunk.has_epilogue ^ 1)
        waiting = offset(f, block.partial, strip.first * block.words.partial_panel)
        self.at = chunk.row_tile(at)
        is_first = number.compare("eq", 0)
        self.keeps = block.widens & is_first
        self.reads_kept = block.widens & (is_first ^ 1)
        usual = f.select(self.at.is_tall, strip.tile, strip.tile_low)
        keeping = f.select(self.at.is_tall, strip.keeping, strip.keeping_low)
        self.function = f.select(self.keeps, keeping, usual)
        result = chunk.result(self.at, strip.column)
        waiting = offset(f, waiting, number * block.words.partial_tile)
        self.sums = f.select(self.direct, result, waiting)
        strip_row = block.strip * block.panel_bytes
        self.sums_row = f.select(self.direct, chunk.result_row, strip_row)
        self.result = f.select(pass_.is_last, result, self.sums)
        self.result_row = f.select(pass_.is_last, chunk.result_row, self.sums_row)
        row = self.at.line * block.a_line + self.at.row * block.a_row
        self.a = offset(f, block.a, row)

    def write(self, later: Place) -> None:
        """Compute the blocks of the pass, and finish the tile after the last one.

        No panel follows the last: it asks for the A of the tile that comes *later*, or
        that is next for the first panel, as far as no tap before has read it.
        """
        block, strip, pass_ = self.block, self.strip, self.pass_
        f, words, chunk = block.f, block.words, block.chunk
        tile = chunk.row_tile(later)
        self.is_end = (strip.panel + strip.panels).compare("eq", chunk.end_panel)
        row = tile.line * block.a_line + tile.row * block.a_row
        a = offset(f, block.a, row + block.last_tap)
        b = offset(f, strip.place, strip.panels * block.b_panel)
        self.ahead = f.select(self.is_end, a, b)
        self.step = f.select(self.is_end, words.a_prefetch, words.b_prefetch)
        f.loop(pass_.blocks, self._multiply, [pass_.first_tap, pass_.start])
        f.branch((self.direct ^ 1) & pass_.is_last, self._finish)

    def _multiply(self, index: Value, first_tap: Value, start: Value) -> list[Value]:
        """A block of K; the tap, and the place there, of the next one."""
        block, strip, f = self.block, self.strip, self.block.f
        count = f.minimum(block.taps - first_tap, block.block_taps)
        length = f.minimum(block.depth - start, block.block_depth)
        done = first_tap * block.depth + start
        above = done * strip.depth
        kept = self.pass_.kept(strip.panel)
        kept = offset(f, kept, (done - self.pass_.above) * strip.row)
        ahead = f.select(
            self.is_end,
            done * self.step,
            above + self.number * (count * length * self.step),
        )
        arguments = TileArguments(
            a=offset(f, self.a, start * block.element),
            a_row=block.a_row,
            b=f.select(self.reads_kept, kept, offset(f, strip.place, above)),
            b_row=f.select(self.keeps, strip.depth, strip.row),
            k=length,
            columns=strip.width,
            c=self.sums,
            c_row=self.sums_row,
            add=self.pass_.first_block + index,
            result=self.result,
            result_row=self.result_row,
            next=offset(f, self.ahead, ahead),
            next_step=self.step,
            taps=count,
            offsets=f.at(block.offsets, first_tap, I64),
            panels=strip.panels,
            b_panel=f.select(self.reads_kept, self.pass_.kept_panel, block.b_panel),
            kept=kept,
        )
        f.call_pointer(self.function, *arguments)
        start = start + block.block_depth
        whole = start.compare("ge", block.depth)
        return [
            f.select(whole, first_tap + block.block_taps, first_tap),
            f.select(whole, f.value(0, I64), start),
        ]

    def _finish(self) -> None:
        block, strip = self.block, self.strip
        block.chunk.finish(
            self.at,
            strip.column,
            strip.width,
            self.sums,
            block.strip_columns,
            block.element,
        )
