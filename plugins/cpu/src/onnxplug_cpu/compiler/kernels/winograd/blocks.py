"""The loops around transforms and products.

A chunk is a block of tiles of the input, in order over lines and images, for some
columns of the result.  Its transformed input, and the products of some columns, stay in
the second-level cache.
"""

from __future__ import annotations

from typing import Final

from onnxplug_cpu.compiler.codegen.emit import F32, I64, PTR, Module, Value
from onnxplug_cpu.compiler.codegen.kernel import Generator, KernelFunction
from onnxplug_cpu.compiler.kernels.rows import move
from onnxplug_cpu.compiler.kernels.winograd.transforms import POINTS, REACH, TILE
from onnxplug_cpu.compiler.target.isa import LANES, Isa

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
    "block_depth",
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
    "group_panels",
    "parts",
    "scratch",
    "scratch_distance",
    "zeros",
    "finished",
    "transformed",
    "transformed_row",
    "transformed_point",
    "products",
    "products_point",
    "input_transform",
    "output_transform",
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
      zeros are before it, and ``depth``, its channels, of which ``block_depth`` are
      summed in one chain;
    - ``lines``, ``pixels`` and ``columns`` (channels) of the result; of its tiles how
      many there are along each axis, and in all images; ``block_tiles`` of a block, of
      which ``rows`` are multiplied at a time;
    - ``weights``, as :class:`~.transforms.TransformWeights` packs them in panels of
      ``panel`` bytes; ``group_panels`` of them are multiplied before their results are
      transformed, and all such groups are divided into ``parts``: a chunk is a part for
      a block;
    - ``scratch`` memory, distance of workers; from its beginning, which the transforms
      use: ``zeros``, as many as channels; ``finished``, a tile of results of a group;
      ``transformed``, the block, with the distances of tiles and points; ``products``,
      with the distance of points;
    - the functions that transform input and products, and those that multiply a
      ``tile`` of ``rows`` with a panel, and with the last panel; how many bytes of what
      comes next a step of them asks for (``prefetch``);
    - ``epilogue``, the function that takes finished results, and its words.
    """

    words = WORDS

    def write(self, module: Module, name: str, isa: Isa) -> None:
        _write(module, name)


def _write(module: Module, name: str) -> None:
    k = KernelFunction(module, name, WORDS)
    f, integer, pointer = k.function, k.integer, k.pointer
    places = f.stack(I64, POINTS)
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
    panels = (columns + (per_panel - 1)) // per_panel
    group_panels = integer("group_panels")
    group_row = group_panels * panel
    groups = (panels + (group_panels - 1)) // group_panels

    def place_of(index: Value) -> tuple[Value, Value, Value]:
        """Image, line and pixel of the first place of a tile's results."""
        tile = first_tile + index
        each_line = integer("tile_pixels")
        each = integer("tile_lines") * each_line
        image, rest = tile // each, tile % each
        return image, rest // each_line * TILE, rest % each_line * TILE

    def transform(index: Value) -> None:
        image, line, pixel = place_of(index)
        line, pixel = line - integer("top"), pixel - integer("left")
        is_tile = index < count
        source = move(f, pointer("x"), image * integer("x_image"))
        within = [
            ((pixel + n) >= 0) & ((pixel + n) < integer("width")) for n in range(REACH)
        ]
        for y in range(REACH):
            here = line + y
            is_line = (here >= 0) & (here < integer("height")) & is_tile
            start = move(f, source, here * integer("x_line"))
            for x in range(REACH):
                at = move(f, start, (pixel + x) * integer("x_pixel"))
                at = f.select(is_line & within[x], at, zeros)
                f.store(at, f.at(places, y * REACH + x, I64))
        f.call_pointer(
            pointer("input_transform"),
            places,
            depth,
            move(f, transformed, index * row_bytes),
            integer("transformed_point"),
            scratch,
        )

    f.loop(depth, lambda n: f.store(f.value(0, F32), f.at(zeros, n, F32)))
    rows, block_depth = integer("rows"), integer("block_depth")
    row_tiles = (count + (rows - 1)) // rows
    # what is multiplied beyond the last tile is zeros, as denormal numbers are slow
    f.loop(row_tiles * rows, transform)

    def multiply(point: Value, group: Value) -> None:
        a_point = move(f, transformed, point * integer("transformed_point"))
        c_point = move(f, products, point * integer("products_point"))
        end = f.minimum((group + 1) * group_panels, panels)

        def over_panel(index: Value) -> None:
            first = index * per_panel
            width = f.minimum(columns - first, per_panel)
            whole = width.compare("eq", per_panel)
            padded = (width + (LANES - 1)) & -LANES
            b_row = padded * F32.nbytes
            b = f.at(pointer("weights"), first * depth * POINTS, F32)
            b = move(f, b, point * depth * b_row)
            tile = f.select(whole, pointer("tile"), pointer("tile_tail"))
            c_panel = move(f, c_point, (index - group * group_panels) * panel)
            step = integer("prefetch")

            def over_rows(number: Value) -> None:
                a = move(f, a_point, number * rows * row_bytes)
                c = move(f, c_panel, number * rows * group_row)

                def over_depth(start: Value) -> None:
                    length = f.minimum(depth - start, block_depth)
                    ahead = (depth + start) * b_row + number * length * step
                    f.call_pointer(
                        tile,
                        f.at(a, start, F32),
                        row_bytes,
                        move(f, b, start * b_row),
                        b_row,
                        length,
                        width,
                        c,
                        group_row,
                        start,
                        c,
                        group_row,
                        move(f, b, ahead),
                        step,
                        f.value(1, I64),
                        f.zero(PTR),
                        f.value(1, I64),
                        f.value(0, I64),
                    )

                f.loop(depth, over_depth, step=block_depth)

            f.loop(row_tiles, over_rows)

        f.loop(end, over_panel, start=group * group_panels)

    def finish(index: Value, group: Value) -> None:
        image, line, pixel = place_of(index)
        first = group * group_panels * per_panel
        width = f.minimum(columns - first, group_panels * per_panel)
        f.call_pointer(
            pointer("output_transform"),
            move(f, products, index * group_row),
            integer("products_point"),
            width,
            finished,
            group_row,
            scratch,
        )
        there = f.minimum(integer("pixels") - pixel, f.value(TILE, I64))

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
                move(f, finished, number * TILE * group_row),
                group_row // F32.nbytes,
            )

        f.loop(f.minimum(integer("lines") - line, f.value(TILE, I64)), one_line)

    def over_group(group: Value) -> None:
        f.loop(POINTS, lambda point: multiply(point, group))
        f.loop(count, lambda index: finish(index, group))

    f.loop(groups * (part + 1) // parts, over_group, start=groups * part // parts)
    f.finish()
