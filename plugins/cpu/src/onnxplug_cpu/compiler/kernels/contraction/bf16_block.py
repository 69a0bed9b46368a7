"""The loops around the blocks of a contraction that is computed from bfloat16 terms.

As much of K as the second-level cache holds of the terms of A comes first; then the
panels of B stream through, each for all row tiles, two at a time.  Some such pairs take
turns at each block of a panel, which stays in the first-level cache meanwhile: each
goes on with the sums that it had.  Where terms are exact, sums begin anew every few
hundred elements of K and are added as float32, because the sums of tiles round worse
the longer they are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from onnxplug_cpu.compiler.codegen.emit import (
    I64,
    U32,
    Function,
    Module,
    Type,
    Value,
)
from onnxplug_cpu.compiler.codegen.kernel import Generator, Integer, Pointer
from onnxplug_cpu.compiler.codegen.tile_registers import state_bytes, tiles_of
from onnxplug_cpu.compiler.kernels.contraction.bf16_narrow import (
    STEP_BYTES as NARROW_STEP,
)
from onnxplug_cpu.compiler.kernels.contraction.bf16_narrow import (
    WidenArguments,
    define_widen_panel,
)
from onnxplug_cpu.compiler.kernels.contraction.bf16_terms import (
    BLOCK,
    FLAG_BYTES,
    PIXEL_BYTES,
    STEP,
    TERM_BYTES,
    TERMS,
    SplitArguments,
    define_split_pixels,
)
from onnxplug_cpu.compiler.kernels.contraction.bf16_tiles import (
    SUMS_BYTES,
    SUMS_ROW,
    TILE_SUMS,
    BlockArguments,
    FlaggedArguments,
    SumsArguments,
    configure,
    define_add_sums,
    define_flagged_rows,
)
from onnxplug_cpu.compiler.kernels.contraction.chunk import Chunk, ChunkWords, RowTile
from onnxplug_cpu.compiler.kernels.contraction.tile import offset
from onnxplug_cpu.compiler.machine.isa import LANES, Isa


class TermsWords(ChunkWords):
    """Words of :class:`TermsProduct`; strides are in bytes.

    Tiles are computed two ``together``, and ``block_depth`` is in steps.  Sums of
    ``chain`` blocks go on from each other, and ``turns`` pairs of tiles take turns.

    - ``b``, packed, with its strides over two batch axes and the distance of panels;
      ``depth``, the elements of a tap;
    - the bytes from a ``pixel`` of A to the next, and in pixels the distances of lines
      and of rows, and the last tap's; ``term_offsets`` of the taps, in a plane;
    - ``pitch``, from how many rows on those of tiles belong to the next line of the
      result, of which only the first ``line_rows`` are wanted;
    - ``terms``, those of A, with the bytes of a matrix and of a ``plane``, and
      ``flags``; where ``splits`` is not 0, each chunk makes them for its pixels, and
      they are scratch with the distances of workers; otherwise they are there, for all
      pixels and all of K;
    - ``sums``, the function of a block, ``sums_tail``, that of the last panel, those of
      a single tile of rows, and the bytes of the next panel that one block
      ``prefetch``\\ es in a step;
    - ``partial``, scratch for sums, with the distances of workers and of panels, which
      is 0 if none has to wait for another pass; before them are ``turns`` sums that
      have begun anew;
    - ``b_terms``, scratch for the terms of a block of a panel that is narrower in
      memory, and the distance of workers.
    """

    chain: Integer
    turns: Integer

    b: Pointer
    b_batch0: Integer
    b_batch1: Integer
    b_panel: Integer
    depth: Integer
    pixel: Integer
    pixel_line: Integer
    pixel_row: Integer
    last_pixel: Integer
    pitch: Integer
    line_rows: Integer
    term_offsets: Pointer
    splits: Integer
    terms: Pointer
    terms_distance: Integer
    terms_matrix: Integer
    plane: Integer
    flags: Pointer
    flags_distance: Integer
    flags_matrix: Integer
    sums: Pointer
    sums_tail: Pointer
    sums_low: Pointer
    sums_low_tail: Pointer
    prefetch: Integer
    partial: Pointer
    partial_distance: Integer
    partial_panel: Integer
    b_terms: Pointer
    b_terms_distance: Integer


class TermsProduct(Generator):
    """Computes chunks of contractions.

    Attributes:
        left, right: terms of an element of A and of B.
        narrow: B is float16 in memory (:mod:`~.bf16_narrow`).
    """

    words = TermsWords.names
    left: int = TERMS
    right: int = TERMS
    narrow: bool = False

    def write(self, module: Module, name: str, isa: Isa) -> None:
        _Terms(module, name, isa, self).write()


class _Terms:
    """The loops over passes, panels, pairs of tiles and blocks of K."""

    def __init__(self, module: Module, name: str, isa: Isa, form: TermsProduct) -> None:
        self.left, self.step_bytes = form.left, form.right * TERM_BYTES
        self.narrow = form.narrow
        self.read_bytes = NARROW_STEP if form.narrow else self.step_bytes
        self.widen_panel = define_widen_panel(module, isa) if form.narrow else ""
        self.split_pixels = define_split_pixels(module, form.left)
        self.add_sums = define_add_sums(module)
        self.flagged_rows = define_flagged_rows(module, isa, form.right)
        words = self.words = TermsWords(module, name)
        chunk = self.chunk = Chunk(words)
        f = self.f = words.function
        byte = Type("i8")
        self.state = f.stack(byte, state_bytes(isa))
        self.tiles = tiles_of(f, isa, self.state) if isa.tiles else None
        self.zero = f.value(0, I64)
        self.a, self.b = chunk.matrix_of("a"), chunk.matrix_of("b")
        self.a_line, self.a_row = words.a_line, words.a_row
        self.b_panel = words.b_panel
        self.taps, self.depth = words.taps, words.depth
        self.offsets, self.term_offsets = words.offsets, words.term_offsets
        self.pairs = (chunk.end_tile - chunk.first_tile + 1) // 2
        self.pixel, self.pixel_row = words.pixel, words.pixel_row
        self.pixel_line, self.plane = words.pixel_line, words.plane
        self.pitch, self.line_rows = words.pitch, words.line_rows
        self._find_terms()
        self.outer, self.inner = words.outer_blocks, words.inner_blocks
        self.blocks, self.block_taps = words.blocks, words.block_taps
        self.tap_blocks, self.block_steps = words.tap_blocks, words.block_depth
        self.tap_steps = (self.depth + (STEP - 1)) // STEP
        self.chain, self.turns = words.chain, words.turns
        self.spare = offset(f, words.partial, words.worker * words.partial_distance)
        self.partial = offset(f, self.spare, self.turns * SUMS_BYTES)
        self.groups = (self.pairs + (self.turns - 1)) // self.turns
        self.b_terms = offset(f, words.b_terms, words.worker * words.b_terms_distance)

    def _find_terms(self) -> None:
        """Which pixels the chunk reads, and where their terms and flags are."""
        f, words, chunk = self.f, self.words, self.chunk
        end = chunk.row_tile(chunk.end_tile - 1)
        self.first_pixel = self.pixel_of(chunk.row_tile(chunk.first_tile))
        last = self.pixel_of(end) + (end.rows - 1) * self.pixel_row
        end_pixel = last + words.last_pixel + 1
        self.pixels = end_pixel - self.first_pixel
        self.splits = words.splits.compare("ne", 0)
        # those of all pixels have also those before this chunk's
        before = f.select(self.splits, self.zero, self.first_pixel)
        terms = offset(f, words.terms, words.worker * words.terms_distance)
        terms = offset(f, terms, chunk.matrix * words.terms_matrix)
        self.terms = offset(f, terms, before * PIXEL_BYTES)
        flags = offset(f, words.flags, words.worker * words.flags_distance)
        flags = offset(f, flags, chunk.matrix * words.flags_matrix)
        self.flags = offset(f, flags, before * FLAG_BYTES)

    def pixel_of(self, tile: RowTile) -> Value:
        """The first pixel of a tile."""
        return tile.line * self.pixel_line + tile.row * self.pixel_row

    def write(self) -> None:
        if self.tiles is not None:
            configure(self.tiles, self.chunk.tile_rows)
        self.f.loop(self.outer, self._pass)
        if self.tiles is not None:
            self.tiles.release()
        self.f.finish()

    def _pass(self, number: Value) -> None:
        f, chunk = self.f, self.chunk
        pass_ = _Pass(self, number)

        def panel(panel: Value) -> None:
            f.loop(self.groups, lambda group: _Group(pass_, panel, group).write())

        f.loop(chunk.end_panel, panel, start=chunk.first_panel)

    def split(self, start: Value, length: Value) -> None:
        """Make the terms of the chunk's pixels, of so much of a tap."""
        f = self.f
        arguments = SplitArguments(
            source=offset(f, self.a, self.first_pixel * self.pixel + start * 4),
            apart=self.pixel,
            pixels=self.pixels,
            depth=length,
            target=self.terms,
            plane=self.plane,
            flags=self.flags,
        )
        f.call_void(self.split_pixels, *arguments)


class _Pass:
    """Some blocks of K over the chunk."""

    def __init__(self, terms: _Terms, number: Value) -> None:
        self.terms, f = terms, terms.f
        self.first_block = number * terms.inner
        self.blocks = f.minimum(terms.blocks - self.first_block, terms.inner)
        # of a tap, if there are several passes; they have parts of one tap each
        first_step = f.select(
            terms.outer.compare("gt", 1),
            self.first_block * terms.block_steps,
            terms.zero,
        )
        start = first_step * STEP
        length = terms.depth - start
        part = f.minimum(length, self.blocks * terms.block_steps * STEP)
        length = f.select(terms.outer.compare("gt", 1), part, length)
        f.branch(terms.splits, lambda: terms.split(start, length))
        # steps before this part of K among the terms
        self.skipped = f.select(terms.splits, first_step, terms.zero)
        self.flagged = _any_flag(f, terms.flags, terms.pixels)
        self.is_last = (number + 1).compare("eq", terms.outer)


class _Group:
    """Pairs that take turns at the blocks of a panel of B."""

    def __init__(self, pass_: _Pass, panel: Value, number: Value) -> None:
        self.pass_, self.panel, terms = pass_, panel, pass_.terms
        f = terms.f
        self.first = number * terms.turns
        self.end = f.minimum(self.first + terms.turns, terms.pairs)
        self.b = offset(f, terms.b, panel * terms.b_panel)
        self.waits = terms.words.partial_panel.compare("ne", 0)

    def write(self) -> None:
        """Compute the blocks of the pass, and finish the tiles after the last one."""
        f, pass_ = self.pass_.terms.f, self.pass_
        f.loop(pass_.blocks, self._block)

        def finish(number: Value) -> None:
            pair = _Pair(self, number)
            pair.each(pair.finish)

        f.branch(pass_.is_last, lambda: f.loop(self.end, finish, start=self.first))

    def _block(self, index: Value) -> None:
        block = _Block(self, index)
        block.widen()
        self.pass_.terms.f.loop(
            self.end, lambda n: block.multiply(_Pair(self, n)), start=self.first
        )


class _Pair:
    """One or two row tiles by a panel of B."""

    def __init__(self, group: _Group, number: Value) -> None:
        pass_, panel = group.pass_, group.panel
        self.terms, self.number = pass_.terms, number
        terms, f, chunk = self.terms, self.terms.f, self.terms.chunk
        words = terms.words
        self.column = panel * BLOCK
        self.width = f.minimum(chunk.columns - self.column, BLOCK)
        narrow = self.width <= BLOCK // 2
        tile = chunk.first_tile + number * 2
        self.are_two = tile + 1 < chunk.end_tile
        self.function = f.select(
            self.are_two,
            f.select(narrow, words.sums_tail, words.sums),
            f.select(narrow, words.sums_low_tail, words.sums_low),
        )
        # the first tile stands for a second one that is not there
        self.tiles = [
            chunk.row_tile(tile),
            chunk.row_tile(f.select(self.are_two, tile + 1, tile)),
        ]
        self.pixels = [terms.pixel_of(each) - terms.first_pixel for each in self.tiles]
        turn = number - group.first
        place = f.select(group.waits, number, turn) * SUMS_BYTES
        place = place + (panel - chunk.first_panel) * words.partial_panel
        self.sums = offset(f, terms.partial, place)
        self.spare = offset(f, terms.spare, turn * SUMS_BYTES)
        self.following = f.select(
            (panel + 1).compare("lt", chunk.end_panel),
            offset(f, group.b, terms.b_panel),
            group.b,
        )

    def each(self, body: Callable[[RowTile, Value, Value], None]) -> None:
        """*body* with each tile, its first pixel and where its sums are."""
        f = self.terms.f
        body(self.tiles[0], self.pixels[0], self.terms.zero)
        second = f.value(TILE_SUMS, I64)
        f.branch(self.are_two, lambda: body(self.tiles[1], self.pixels[1], second))

    def finish(self, tile: RowTile, _: Value, at: Value) -> None:
        """The rows of a tile, which may belong to several lines of the result."""
        terms, f = self.terms, self.terms.f
        end = tile.row + tile.rows
        place = offset(f, self.sums, at)

        def one_line(line: Value) -> None:
            start = line * terms.pitch
            first = f.maximum(start, tile.row)
            rows = f.minimum(start + terms.line_rows, end) - first
            part = tile._replace(line=tile.line + line, row=first - start, rows=rows)
            source = offset(f, place, (first - tile.row) * SUMS_ROW)
            f.branch(
                rows.compare("gt", 0),
                lambda: terms.chunk.finish(
                    part, self.column, self.width, source, f.value(BLOCK, I64), 4
                ),
            )

        last = (end - 1) // terms.pitch
        f.loop(last + 1, one_line, start=tile.row // terms.pitch)


class _Block:
    """A block of K of a panel."""

    def __init__(self, group: _Group, index: Value) -> None:
        self.pass_, self.terms = group.pass_, group.pass_.terms
        terms, f = self.terms, self.terms.f
        number = self.pass_.first_block + index
        self.first_tap = number // terms.tap_blocks * terms.block_taps
        self.taps = f.minimum(terms.taps - self.first_tap, terms.block_taps)
        self.start = number % terms.tap_blocks * terms.block_steps
        self.length = f.minimum(
            terms.depth - self.start * STEP, terms.block_steps * STEP
        )
        self.steps = (self.length + (STEP - 1)) // STEP
        self.above = self.first_tap * terms.tap_steps + self.start
        self.source = offset(f, group.b, self.above * terms.read_bytes)
        self.b = terms.b_terms if terms.narrow else self.source
        # where sums are those of blocks before, which go on or are added to
        link = number % terms.chain
        self.is_apart = number.compare("ge", terms.chain)
        # those apart are added as a pass ends: others are there before the next one
        begins = self.is_apart & index.compare("eq", 0)
        self.goes_on = f.convert(link.compare("ne", 0) & (begins ^ 1), I64)
        is_end = (link + 1).compare("eq", terms.chain)
        is_last = (index + 1).compare("eq", self.pass_.blocks)
        self.adds = self.is_apart & (is_end | is_last)

    def widen(self) -> None:
        """Make the terms of a block that is narrower in memory."""
        terms, f = self.terms, self.terms.f
        if terms.narrow:
            steps = self.taps * self.steps
            arguments = WidenArguments(self.source, terms.b_terms, steps)
            f.call_void(terms.widen_panel, *arguments)

    def multiply(self, pair: _Pair) -> None:
        """Multiply, also rows that are flagged, and add sums that began anew to those
        before."""
        terms, f = self.terms, self.terms.f
        sums = f.select(self.is_apart, pair.spare, pair.sums)
        skipped = (self.start - self.pass_.skipped) * (terms.plane * terms.left)
        a = offset(f, terms.terms, skipped)
        self.term_offsets = f.at(terms.term_offsets, self.first_tap, I64)
        arguments = BlockArguments(
            state=terms.state,
            first=offset(f, a, pair.pixels[0] * PIXEL_BYTES),
            second=offset(f, a, pair.pixels[1] * PIXEL_BYTES),
            row=terms.pixel_row * PIXEL_BYTES,
            plane=terms.plane,
            b=self.b,
            sums=sums,
            adds=self.goes_on,
            steps=self.steps,
            taps=self.taps,
            offsets=self.term_offsets,
            next=offset(
                f,
                pair.following,
                self.above * terms.read_bytes
                + pair.number * (self.taps * self.steps * terms.words.prefetch),
            ),
        )
        f.call_pointer(pair.function, *arguments)
        flagged = functools.partial(self._add_flagged, sums)
        f.branch(self.pass_.flagged, lambda: pair.each(flagged))
        add = functools.partial(self._add, pair)
        f.branch(self.adds, lambda: pair.each(add))

    def _add_flagged(self, sums: Value, tile: RowTile, pixel: Value, at: Value) -> None:
        terms, f = self.terms, self.terms.f
        row = tile.line * terms.a_line + tile.row * terms.a_row
        arguments = FlaggedArguments(
            a=offset(f, terms.a, row + self.start * (STEP * 4)),
            a_row=terms.a_row,
            rows=tile.rows,
            taps=self.taps,
            offsets=f.at(terms.offsets, self.first_tap, I64),
            depth=self.length,
            b=self.b,
            sums=offset(f, sums, at),
            flags=offset(f, terms.flags, pixel * FLAG_BYTES),
            flags_row=terms.pixel_row * FLAG_BYTES,
            term_offsets=self.term_offsets,
        )
        f.call_void(terms.flagged_rows, *arguments)

    def _add(self, pair: _Pair, tile: RowTile, _: Value, at: Value) -> None:
        terms, f = self.terms, self.terms.f
        sums, more = (offset(f, place, at) for place in (pair.sums, pair.spare))
        f.call_void(terms.add_sums, *SumsArguments(sums, more, tile.rows))


def _any_flag(f: Function, flags: Value, pixels: Value) -> Value:
    """Whether a flag of so many is set."""
    bits = U32.vector(LANES)

    def some(first: Value, seen: Value) -> list[Value]:
        mask = f.first_lanes(pixels - first, LANES)
        return [seen | f.load_masked(f.at(flags, first, U32), mask, bits)]

    (seen,) = f.loop(pixels, some, [f.zero(bits)], step=LANES)
    return f.reduce("or", seen).compare("ne", 0)
