"""The loops around transforms and products.

A chunk is a block of tiles of the input, in order over lines and images, for some
columns of the result.  Its transformed input, and the products of some columns, stay in
the second-level cache.  Of finished tiles, those that are next to each other are given
to the epilogue together.
"""

from __future__ import annotations

from typing import Final

from onnxplug_cpu.compiler.codegen.emit import F32, I1, I64, PTR, Module, Value
from onnxplug_cpu.compiler.codegen.kernel import Generator, KernelFunction
from onnxplug_cpu.compiler.kernels.rows import move
from onnxplug_cpu.compiler.kernels.winograd.transforms import TILINGS, Tiling, padded
from onnxplug_cpu.compiler.target.isa import Isa

WORDS: Final = (
    "x",
    "x_image",
    "x_line",
    "x_pixel",
    "height",
    "width",
    "top",
    "left",
    "depth",
    "lines",
    "pixels",
    "columns",
    "tile_lines",
    "tile_pixels",
    "all_tiles",
    "block_tiles",
    "rows",
    "weights",
    "panel",
    "group",
    "call_panels",
    "parts",
    "scratch",
    "scratch_distance",
    "zeros",
    "finished",
    "together",
    "transformed",
    "transformed_row",
    "transformed_point",
    "products",
    "products_point",
    "input_transform",
    "output_transform",
    "exact",
    "tile",
    "tile_tail",
    "prefetch",
    "epilogue",
    "epilogue_words",
)


class WinogradBlocks(Generator):
    """Convolves blocks of tiles; distances are in bytes.

    Words:

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

    Attributes:
        tile: a size of :data:`~.transforms.TILINGS`.
    """

    tile: int

    words = WORDS

    def write(self, module: Module, name: str, isa: Isa) -> None:
        _write(module, name, TILINGS[self.tile])


def _write(module: Module, name: str, tiling: Tiling) -> None:
    k = KernelFunction(module, name, WORDS)
    f, integer, pointer = k.function, k.integer, k.pointer
    size, reach, points = tiling.size, tiling.reach, tiling.points
    places, doubtful = f.stack(I64, points), f.stack(I64, 1)
    parts = integer("parts")
    block, part = k.chunk // parts, k.chunk % parts
    first_tile = block * integer("block_tiles")
    count = f.minimum(integer("all_tiles") - first_tile, integer("block_tiles"))
    scratch = move(f, pointer("scratch"), k.worker * integer("scratch_distance"))
    zeros = move(f, scratch, integer("zeros"))
    finished = move(f, scratch, integer("finished"))
    transformed = move(f, scratch, integer("transformed"))
    row_bytes = integer("transformed_row")
    products = move(f, scratch, integer("products"))
    depth, columns, panel = integer("depth"), integer("columns"), integer("panel")
    per_panel = panel // F32.nbytes
    group_columns = integer("group")
    group_row = group_columns * F32.nbytes
    groups = (columns + (group_columns - 1)) // group_columns

    def place_of(index: Value) -> tuple[Value, Value, Value]:
        """Image, line and pixel of the first place of a tile's results."""
        tile = first_tile + index
        each_line = integer("tile_pixels")
        each = integer("tile_lines") * each_line
        image, rest = tile // each, tile % each
        return image, rest // each_line * size, rest % each_line * size

    def find(image: Value, line: Value, pixel: Value, is_tile: Value) -> None:
        """The addresses of what is reached from a place of the result, as *places*;
        what is beyond the input, or of no tile, is zeros."""
        line, pixel = line - integer("top"), pixel - integer("left")
        source = move(f, pointer("x"), image * integer("x_image"))
        within = [
            ((pixel + n) >= 0) & ((pixel + n) < integer("width")) for n in range(reach)
        ]
        for y in range(reach):
            here = line + y
            is_line = (here >= 0) & (here < integer("height")) & is_tile
            start = move(f, source, here * integer("x_line"))
            for x in range(reach):
                at = move(f, start, (pixel + x) * integer("x_pixel"))
                at = f.select(is_line & within[x], at, zeros)
                f.store(at, f.at(places, y * reach + x, I64))

    def transform(index: Value) -> None:
        find(*place_of(index), index < count)
        f.call_pointer(
            pointer("input_transform"),
            places,
            depth,
            move(f, transformed, index * row_bytes),
            integer("transformed_point"),
            scratch,
        )

    f.loop(depth, lambda n: f.store(f.value(0, F32), f.at(zeros, n, F32)))
    rows = integer("rows")
    row_tiles = (count + (rows - 1)) // rows
    # what is multiplied beyond the last tile is zeros, as denormal numbers are slow
    f.loop(row_tiles * rows, transform)

    def multiply(point: Value, group: Value) -> None:
        a = move(f, transformed, point * integer("transformed_point"))
        c = move(f, products, point * integer("products_point"))
        first = group * group_columns
        width = f.minimum(columns - first, group_columns)
        b = f.at(pointer("weights"), first * depth * points, F32)
        b = f.at(b, point * depth * padded(width), F32)
        whole = width // per_panel

        def over_panels(index: Value) -> None:
            count = f.minimum(whole - index, integer("call_panels"))
            times("tile", index, count, per_panel, panel)

        def times(
            tile: str, index: Value, count: Value, width: Value, b_row: Value
        ) -> None:
            """The block times panels of the group, from *index* on."""
            b_panel = depth * b_row
            here = move(f, b, index * depth * panel)
            step = integer("prefetch")

            def over_rows(number: Value) -> None:
                ahead = count * (b_panel + number * depth * step)
                to = move(f, c, index * panel + number * rows * group_row)
                f.call_pointer(
                    pointer(tile),
                    move(f, a, number * rows * row_bytes),
                    row_bytes,
                    here,
                    b_row,
                    depth,
                    width,
                    to,
                    group_row,
                    f.value(0, I64),
                    to,
                    group_row,
                    move(f, here, ahead),
                    step,
                    f.value(1, I64),
                    f.zero(PTR),
                    count,
                    b_panel,
                )

            f.loop(row_tiles, over_rows)

        f.loop(whole, over_panels, step=integer("call_panels"))
        left = width - whole * per_panel

        def tail() -> None:
            times("tile_tail", whole, f.value(1, I64), left, padded(left) * F32.nbytes)

        f.branch(left > 0, tail)

    def finish(group: Value) -> None:
        first = group * group_columns
        width = f.minimum(columns - first, group_columns)
        line_bytes = integer("together") * size * group_row

        def one_tile(
            index: Value, image: Value, line: Value, pixel: Value, target: Value
        ) -> None:
            f.call_pointer(
                pointer("output_transform"),
                move(f, products, index * group_row),
                integer("products_point"),
                width,
                target,
                line_bytes,
                group_row,
                scratch,
                doubtful,
            )

            def again() -> None:
                find(image, line, pixel, f.value(1, I1))
                f.call_pointer(
                    pointer("exact"),
                    places,
                    depth,
                    width,
                    target,
                    line_bytes,
                    group_row,
                    f.at(pointer("weights"), first * depth * points, F32),
                    per_panel,
                )

            f.branch(f.load(doubtful, I64).compare("ne", 0), again)

        def over_tiles(index: Value) -> tuple[Value, list[Value]]:
            image, line, pixel = place_of(index)
            left = integer("tile_pixels") - pixel // size
            tiles = f.minimum(f.minimum(left, integer("together")), count - index)
            f.loop(
                tiles,
                lambda n: one_tile(
                    index + n,
                    image,
                    line,
                    pixel + n * size,
                    move(f, finished, n * size * group_row),
                ),
            )
            there = f.minimum(integer("pixels") - pixel, tiles * size)

            def one_line(number: Value) -> None:
                f.call_pointer(
                    pointer("epilogue"),
                    pointer("epilogue_words"),
                    image,
                    f.value(0, I64),
                    line + number,
                    pixel,
                    there,
                    first,
                    width,
                    move(f, finished, number * line_bytes),
                    group_row // F32.nbytes,
                )

            f.loop(f.minimum(integer("lines") - line, f.value(size, I64)), one_line)
            after = index + tiles
            return after < count, [after]

        f.repeat(over_tiles, [f.value(0, I64)])

    def over_group(group: Value) -> None:
        f.loop(points, lambda point: multiply(point, group))
        finish(group)

    f.loop(groups * (part + 1) // parts, over_group, start=groups * part // parts)
    f.finish()
