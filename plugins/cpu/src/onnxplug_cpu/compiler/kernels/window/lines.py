"""The loops around the tiles of windows.

A chunk is some lines of the result, for some channels of one image.
"""

from __future__ import annotations

from typing import Final

from onnxplug_cpu.compiler.codegen.emit import F32, I64, PTR, Module, Value
from onnxplug_cpu.compiler.codegen.kernel import Generator, KernelFunction
from onnxplug_cpu.compiler.kernels.rows import move
from onnxplug_cpu.compiler.kernels.window.tile import taps_within
from onnxplug_cpu.compiler.target.isa import Isa

AXES: Final = ("plane", "line", "pixel")
"""The spatial axes, the innermost last."""

AXIS_WORDS: Final = ("size", "taps", "stride", "dilation", "before", "low", "high")
"""What is said of each of them: the size of the input, how windows slide along it, and
from where to where elements count."""

WORDS: Final = (
    "x",
    "x_image",
    "x_channel",
    *(f"x_{axis}" for axis in AXES),
    "w",
    *(f"w_{axis}" for axis in AXES),
    "out",
    "out_image",
    "out_channel",
    *(f"out_{axis}" for axis in AXES),
    *(f"{axis}_{word}" for axis in AXES for word in AXIS_WORDS),
    "planes",
    "lines",
    "channels",
    "block_channels",
    "blocks",
    "parts",
    "tiles",
    "tall_tiles",
    "tile_pixels",
    "tile",
    "tile_low",
    "finished",
    "finished_distance",
    "epilogue",
    "epilogue_words",
)


class WindowLines(Generator):
    """Computes lines of windows over one image; distances are in bytes.

    Words:

    - ``x``, ``w`` and ``out``, the input, weights (whose channels are consecutive) and
      the result, with the distances of their neighbours along each axis;
    - of each spatial axis ``size``, the input's; ``taps``, ``stride`` and ``dilation``
      of windows, of which the first begins ``before`` the first element; positions
      from ``low`` to ``high`` count;
    - ``planes`` and ``lines`` of the result;
    - ``channels``, in ``blocks`` of ``block_channels``, and all lines of all planes in
      ``parts``: a chunk is a part, for a block, of an image;
    - ``tiles`` of a line, the first ``tall_tiles`` of ``tile_pixels``, the others of
      one less, and the functions that compute them;
    - ``epilogue``, 0 or the function that takes finished tiles, and its words; these
      wait in ``finished``, scratch memory, distance of workers.
    """

    words = WORDS

    def write(self, module: Module, name: str, isa: Isa) -> None:
        _write(module, name)


def _write(module: Module, name: str) -> None:
    k = KernelFunction(module, name, WORDS)
    f, integer, pointer = k.function, k.integer, k.pointer
    parts, blocks = integer("parts"), integer("blocks")
    # parts before blocks: a thread has the same lines in one command after another
    rest, block = k.chunk // blocks, k.chunk % blocks
    image, part = rest // parts, rest % parts
    first_channel = block * integer("block_channels")
    channels = f.minimum(integer("channels") - first_channel, integer("block_channels"))

    def of_chunk(word: str) -> Value:
        place = move(f, pointer(word), image * integer(f"{word}_image"))
        return move(f, place, first_channel * integer(f"{word}_channel"))

    x, out = of_chunk("x"), of_chunk("out")
    w = f.at(pointer("w"), first_channel, F32)
    epilogue = pointer("epilogue")
    direct = epilogue.compare("eq", f.zero(PTR))
    finished = move(f, pointer("finished"), k.worker * integer("finished_distance"))
    # a finished tile has rows of the channels of a block
    finished_pixel = integer("block_channels") * F32.nbytes
    lines, tile_pixels = integer("lines"), integer("tile_pixels")
    out_pixel = f.select(direct, integer("out_pixel"), finished_pixel)
    out_channel = f.select(direct, integer("out_channel"), f.value(F32.nbytes, I64))

    def along(axis: str, index: Value) -> tuple[Value, Value, Value, Value]:
        """Of a window: how many of its elements lie in the input, where the first one
        is, which one that is, and how many count."""
        taps, dilation = integer(f"{axis}_taps"), integer(f"{axis}_dilation")
        begin = index * integer(f"{axis}_stride") - integer(f"{axis}_before")
        size = integer(f"{axis}_size")
        first, end = taps_within(f, begin, 0, size, taps, dilation)
        low, high = integer(f"{axis}_low"), integer(f"{axis}_high")
        from_, to = taps_within(f, begin, low, high, taps, dilation)
        return end - first, begin + first * dilation, first, to - from_

    def line(index: Value) -> None:
        plane, row = index // lines, index % lines
        in_planes, at_plane, first_plane, count_planes = along("plane", plane)
        in_lines, at_line, first_line, count_lines = along("line", row)
        offset = at_plane * integer("x_plane") + at_line * integer("x_line")
        line_x = move(f, x, offset)
        offset = first_plane * integer("w_plane") + first_line * integer("w_line")
        line_w = move(f, w, offset)
        offset = plane * integer("out_plane") + row * integer("out_line")
        line_out = move(f, out, offset)

        def tile(number: Value, pixel: Value) -> list[Value]:
            tall = number < integer("tall_tiles")
            pixels = f.select(tall, tile_pixels, tile_pixels - 1)
            begin = pixel * integer("pixel_stride") - integer("pixel_before")
            target = move(f, line_out, pixel * integer("out_pixel"))
            target = f.select(direct, target, finished)
            f.call_pointer(
                f.select(tall, pointer("tile"), pointer("tile_low")),
                move(f, line_x, begin * integer("x_pixel")),
                integer("x_plane") * integer("plane_dilation"),
                integer("x_line") * integer("line_dilation"),
                integer("x_pixel"),
                integer("x_channel"),
                in_planes,
                in_lines,
                line_w,
                integer("w_plane"),
                integer("w_line"),
                integer("w_pixel"),
                integer("pixel_taps"),
                integer("pixel_stride"),
                integer("pixel_dilation"),
                begin,
                integer("pixel_size"),
                integer("pixel_low"),
                integer("pixel_high"),
                count_planes * count_lines,
                pixels,
                channels,
                target,
                out_pixel,
                out_channel,
            )

            def finish() -> None:
                f.call_pointer(
                    epilogue,
                    pointer("epilogue_words"),
                    image,
                    plane,
                    row,
                    pixel,
                    pixels,
                    first_channel,
                    channels,
                    finished,
                    integer("block_channels"),
                )

            f.branch(direct, lambda: None, finish)
            return [pixel + pixels]

        f.loop(integer("tiles"), tile, [f.value(0, I64)])

    all_lines = integer("planes") * lines
    f.loop(all_lines * (part + 1) // parts, line, start=all_lines * part // parts)
    f.finish()
