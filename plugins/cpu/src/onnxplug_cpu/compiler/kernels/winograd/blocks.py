"""The loops around transforms and products.

A chunk is a block of tiles of the input, in order over lines and images, for some
columns of the result.  Its transformed input, and the products of some columns, stay in
the second-level cache.  Of finished tiles, those that are next to each other are given
to the epilogue together.
"""

from __future__ import annotations

from onnxplug_cpu.compiler.codegen.emit import F32, I1, I64, PTR, Module, Value
from onnxplug_cpu.compiler.codegen.kernel import (
    Generator,
    Integer,
    KernelWords,
    Pointer,
)
from onnxplug_cpu.compiler.kernels.contraction.tile import FinishedTile, TileArguments
from onnxplug_cpu.compiler.kernels.rows import move
from onnxplug_cpu.compiler.kernels.winograd.exact import ExactArguments
from onnxplug_cpu.compiler.kernels.winograd.transforms import (
    TILINGS,
    InputArguments,
    OutputArguments,
    Tiling,
    padded,
)
from onnxplug_cpu.compiler.machine.isa import Isa


class BlocksWords(KernelWords):
    """Words of :class:`WinogradBlocks`; distances are in bytes.

    - ``x``, the input, whose channels are consecutive, with the distances of images,
      lines and pixels; its ``height`` and ``width``, ``top`` and ``left``, how many
      zeros are before it, and ``depth``, its channels;
    - ``lines``, ``pixels`` and ``columns`` (channels) of the result; of its tiles how
      many there are along each axis, and in all images; ``block_tiles`` of a block, of
      which ``rows`` are multiplied at a time;
    - ``weights``, as :class:`~.transforms.TransformWeights` packs them in panels of
      ``panel`` bytes, ``call_panels`` of which are multiplied at a time; those of a
      ``group`` of columns are multiplied before their results are transformed, and all
      such groups are divided into ``parts``: a chunk is a part for a block;
    - ``scratch`` memory, distance of workers; from its beginning, which the transforms
      use: ``zeros``, as many as channels; ``finished``, the results of a group for up
      to ``together`` tiles; ``transformed``, the block, with the distances of tiles and
      points; ``products``, with the distance of points;
    - the functions that transform input and products, and that which computes a tile
      without transforms (``exact``); and those that multiply a
      ``tile`` of ``rows`` with a panel, and with the last panel; how many bytes of what
      comes next a step of them asks for (``prefetch``);
    - ``epilogue``, the function that takes finished results, and its words.
    """

    x: Pointer
    x_image: Integer
    x_line: Integer
    x_pixel: Integer
    height: Integer
    width: Integer
    top: Integer
    left: Integer
    depth: Integer
    lines: Integer
    pixels: Integer
    columns: Integer
    tile_lines: Integer
    tile_pixels: Integer
    all_tiles: Integer
    block_tiles: Integer
    rows: Integer
    weights: Pointer
    panel: Integer
    group: Integer
    call_panels: Integer
    parts: Integer
    scratch: Pointer
    scratch_distance: Integer
    zeros: Integer
    finished: Integer
    together: Integer
    transformed: Integer
    transformed_row: Integer
    transformed_point: Integer
    products: Integer
    products_point: Integer
    input_transform: Pointer
    output_transform: Pointer
    exact: Pointer
    tile: Pointer
    tile_tail: Pointer
    prefetch: Integer
    epilogue: Pointer
    epilogue_words: Pointer


class WinogradBlocks(Generator):
    """Convolves blocks of tiles.

    Attributes:
        tile: a size of :data:`~.transforms.TILINGS`.
    """

    tile: int

    words = BlocksWords.names

    def write(self, module: Module, name: str, isa: Isa) -> None:
        _Block(BlocksWords(module, name), TILINGS[self.tile]).write()


class _Block:
    """The loops over tiles and groups of columns."""

    def __init__(self, k: BlocksWords, tiling: Tiling) -> None:
        f = self.f = k.function
        self.k, self.tiling = k, tiling
        self.places = f.stack(I64, tiling.points)
        self.doubtful = f.stack(I64, 1)
        self.parts = k.parts
        block, self.part = k.chunk // self.parts, k.chunk % self.parts
        self.first_tile = block * k.block_tiles
        self.count = f.minimum(k.all_tiles - self.first_tile, k.block_tiles)
        self.scratch = move(f, k.scratch, k.worker * k.scratch_distance)
        self.zeros = move(f, self.scratch, k.zeros)
        self.finished = move(f, self.scratch, k.finished)
        self.transformed = move(f, self.scratch, k.transformed)
        self.row_bytes = k.transformed_row
        self.products = move(f, self.scratch, k.products)
        self.depth, self.columns, self.panel = k.depth, k.columns, k.panel
        self.per_panel = self.panel // F32.nbytes
        self.group_columns = k.group
        self.group_row = self.group_columns * F32.nbytes

    def write(self) -> None:
        f, k = self.f, self.k
        groups = (self.columns + (self.group_columns - 1)) // self.group_columns
        f.loop(self.depth, lambda n: f.store(f.value(0, F32), f.at(self.zeros, n, F32)))
        self.rows = k.rows
        self.row_tiles = (self.count + (self.rows - 1)) // self.rows
        # what is multiplied beyond the last tile is zeros, as denormal numbers are slow
        f.loop(self.row_tiles * self.rows, self._transform)
        end = groups * (self.part + 1) // self.parts
        f.loop(end, self._group, start=groups * self.part // self.parts)
        f.finish()

    def place_of(self, index: Value) -> tuple[Value, Value, Value]:
        """Image, line and pixel of the first place of a tile's results."""
        size, tile = self.tiling.size, self.first_tile + index
        each_line = self.k.tile_pixels
        each = self.k.tile_lines * each_line
        image, rest = tile // each, tile % each
        return image, rest // each_line * size, rest % each_line * size

    def find(self, image: Value, line: Value, pixel: Value, is_tile: Value) -> None:
        """The addresses of what is reached from a place of the result, as *places*;
        what is beyond the input, or of no tile, is zeros."""
        f, k, reach = self.f, self.k, self.tiling.reach
        line, pixel = line - k.top, pixel - k.left
        source = move(f, k.x, image * k.x_image)
        within = [((pixel + n) >= 0) & ((pixel + n) < k.width) for n in range(reach)]
        for y in range(reach):
            here = line + y
            is_line = (here >= 0) & (here < k.height) & is_tile
            start = move(f, source, here * k.x_line)
            for x in range(reach):
                at = move(f, start, (pixel + x) * k.x_pixel)
                at = f.select(is_line & within[x], at, self.zeros)
                f.store(at, f.at(self.places, y * reach + x, I64))

    def _transform(self, index: Value) -> None:
        f, k = self.f, self.k
        self.find(*self.place_of(index), index < self.count)
        function = k.input_transform
        arguments = InputArguments(
            pixels=self.places,
            channels=self.depth,
            target=move(f, self.transformed, index * self.row_bytes),
            point=k.transformed_point,
            stage=self.scratch,
        )
        f.call_pointer(function, *arguments)

    def _group(self, number: Value) -> None:
        f = self.f
        f.loop(self.tiling.points, lambda point: _Point(self, number, point).write())
        _Results(self, number).write()


class _Point:
    """The products of a point, for a group of columns."""

    def __init__(self, block: _Block, group: Value, point: Value) -> None:
        self.block, self.f, k = block, block.f, block.k
        f, depth = self.f, block.depth
        self.a = move(f, block.transformed, point * k.transformed_point)
        self.c = move(f, block.products, point * k.products_point)
        first = group * block.group_columns
        self.width = f.minimum(block.columns - first, block.group_columns)
        b = f.at(k.weights, first * depth * block.tiling.points, F32)
        self.b = f.at(b, point * depth * padded(self.width), F32)

    def write(self) -> None:
        f, block, k = self.f, self.block, self.block.k
        whole = self.width // block.per_panel

        def panels(index: Value) -> None:
            count = f.minimum(whole - index, k.call_panels)
            self._multiply("tile", index, count, block.per_panel, block.panel)

        f.loop(whole, panels, step=k.call_panels)
        left = self.width - whole * block.per_panel

        def tail() -> None:
            row, one = padded(left) * F32.nbytes, f.value(1, I64)
            self._multiply("tile_tail", whole, one, left, row)

        f.branch(left > 0, tail)

    def _multiply(
        self, tile: str, index: Value, count: Value, width: Value, b_row: Value
    ) -> None:
        """The block times panels of the group, from *index* on.

        Args:
            tile: the word with the function.
            count: of panels.
            width, b_row: columns and bytes of a row of a panel.
        """
        f, block, k = self.f, self.block, self.block.k
        b_panel = block.depth * b_row
        b = move(f, self.b, index * block.depth * block.panel)
        step = k.prefetch

        def row_tile(number: Value) -> None:
            ahead = count * (b_panel + number * block.depth * step)
            at = index * block.panel + number * block.rows * block.group_row
            c = move(f, self.c, at)
            arguments = TileArguments(
                a=move(f, self.a, number * block.rows * block.row_bytes),
                a_row=block.row_bytes,
                b=b,
                b_row=b_row,
                k=block.depth,
                columns=width,
                c=c,
                c_row=block.group_row,
                add=f.value(0, I64),
                result=c,
                result_row=block.group_row,
                next=move(f, b, ahead),
                next_step=step,
                taps=f.value(1, I64),
                offsets=f.zero(PTR),
                panels=count,
                b_panel=b_panel,
                kept=f.zero(PTR),
            )
            f.call_pointer(k.pointer(tile), *arguments)

        f.loop(block.row_tiles, row_tile)


class _Results:
    """The tiles of a group of columns, from their products."""

    def __init__(self, block: _Block, group: Value) -> None:
        self.block, self.f = block, block.f
        self.first = group * block.group_columns
        self.width = self.f.minimum(block.columns - self.first, block.group_columns)
        self.line_bytes = block.k.together * block.tiling.size * block.group_row

    def write(self) -> None:
        self.f.repeat(self._tiles, [self.f.value(0, I64)])

    def _tiles(self, index: Value) -> tuple[Value, list[Value]]:
        """Tiles of a line, whose places are finished together."""
        f, block, k = self.f, self.block, self.block.k
        size = block.tiling.size
        image, line, pixel = block.place_of(index)
        left = k.tile_pixels - pixel // size
        tiles = f.minimum(f.minimum(left, k.together), block.count - index)

        def tile(n: Value) -> None:
            at = (index + n, pixel + n * size, n * size * block.group_row)
            self._tile(at[0], image, line, at[1], move(f, block.finished, at[2]))

        f.loop(tiles, tile)
        there = f.minimum(k.pixels - pixel, tiles * size)

        def finish(number: Value) -> None:
            function = k.epilogue
            finished = FinishedTile(
                words=k.epilogue_words,
                batch0=image,
                batch1=f.value(0, I64),
                line=line + number,
                row=pixel,
                rows=there,
                column=self.first,
                columns=self.width,
                tile=move(f, block.finished, number * self.line_bytes),
                tile_stride=block.group_row // F32.nbytes,
            )
            f.call_pointer(function, *finished)

        f.loop(f.minimum(k.lines - line, f.value(size, I64)), finish)
        after = index + tiles
        return after < block.count, [after]

    def _tile(
        self, index: Value, image: Value, line: Value, pixel: Value, target: Value
    ) -> None:
        f, block = self.f, self.block
        function = block.k.output_transform
        arguments = OutputArguments(
            products=move(f, block.products, index * block.group_row),
            point=block.k.products_point,
            columns=self.width,
            target=target,
            line=self.line_bytes,
            place=block.group_row,
            stage=block.scratch,
            doubtful=block.doubtful,
        )
        f.call_pointer(function, *arguments)
        doubtful = f.load(block.doubtful, I64).compare("ne", 0)

        def again() -> None:
            block.find(image, line, pixel, f.value(1, I1))
            self._compute_exactly(target)

        f.branch(doubtful, again)

    def _compute_exactly(self, target: Value) -> None:
        f, block, k = self.f, self.block, self.block.k
        function = k.exact
        arguments = ExactArguments(
            pixels=block.places,
            channels=block.depth,
            columns=self.width,
            target=target,
            line=self.line_bytes,
            place=block.group_row,
            weights=f.at(
                k.weights, self.first * block.depth * block.tiling.points, F32
            ),
            panel=block.per_panel,
        )
        f.call_pointer(function, *arguments)
