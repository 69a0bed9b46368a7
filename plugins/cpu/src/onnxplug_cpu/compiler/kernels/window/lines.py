"""The loops around the tiles of windows.

A chunk is some lines of the result, for some channels of one image.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from onnxplug_cpu.compiler.codegen.emit import F32, I64, PTR, Module, Value
from onnxplug_cpu.compiler.codegen.kernel import (
    Generator,
    Integer,
    KernelWords,
    Pointer,
)
from onnxplug_cpu.compiler.kernels.contraction.tile import FinishedTile
from onnxplug_cpu.compiler.kernels.rows import move
from onnxplug_cpu.compiler.kernels.window.tile import WindowArguments, taps_within
from onnxplug_cpu.compiler.machine.isa import Isa

AXES: Final = ("plane", "line", "pixel")
"""The spatial axes, the innermost last."""

AXIS_WORDS: Final = ("size", "taps", "stride", "dilation", "before", "low", "high")
"""What is said of each of them: the size of the input, how windows slide along it, and
from where to where elements count."""


class LinesWords(KernelWords):
    """Words of :class:`WindowLines`; distances are in bytes.

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
      wait in ``finished``, scratch memory, distance of workers;
    - ``zero``, the zero point of codes, f32.
    """

    x: Pointer
    x_image: Integer
    x_channel: Integer
    x_plane: Integer
    x_line: Integer
    x_pixel: Integer
    w: Pointer
    w_plane: Integer
    w_line: Integer
    w_pixel: Integer
    out: Pointer
    out_image: Integer
    out_channel: Integer
    out_plane: Integer
    out_line: Integer
    out_pixel: Integer
    plane_size: Integer
    plane_taps: Integer
    plane_stride: Integer
    plane_dilation: Integer
    plane_before: Integer
    plane_low: Integer
    plane_high: Integer
    line_size: Integer
    line_taps: Integer
    line_stride: Integer
    line_dilation: Integer
    line_before: Integer
    line_low: Integer
    line_high: Integer
    pixel_size: Integer
    pixel_taps: Integer
    pixel_stride: Integer
    pixel_dilation: Integer
    pixel_before: Integer
    pixel_low: Integer
    pixel_high: Integer
    planes: Integer
    lines: Integer
    channels: Integer
    block_channels: Integer
    blocks: Integer
    parts: Integer
    tiles: Integer
    tall_tiles: Integer
    tile_pixels: Integer
    tile: Pointer
    tile_low: Pointer
    finished: Pointer
    finished_distance: Integer
    epilogue: Pointer
    epilogue_words: Pointer
    zero: Pointer


class WindowLines(Generator):
    """Computes lines of windows over one image."""

    words = LinesWords.names

    def write(self, module: Module, name: str, isa: Isa) -> None:
        _Chunk(LinesWords(module, name)).write()


class _Chunk:
    """The loop over lines, of all planes."""

    def __init__(self, k: LinesWords) -> None:
        f = self.f = k.function
        self.k = k
        self.parts, blocks = k.parts, k.blocks
        # parts before blocks: a thread has the same lines in one command after another
        rest, block = k.chunk // blocks, k.chunk % blocks
        self.image, self.part = rest // self.parts, rest % self.parts
        self.first_channel = block * k.block_channels
        channels = k.channels - self.first_channel
        self.channels = f.minimum(channels, k.block_channels)
        self.x, self.out = self._of_chunk("x"), self._of_chunk("out")
        self.w = f.at(k.w, self.first_channel, F32)
        self.epilogue = k.epilogue
        self.direct = self.epilogue.compare("eq", f.zero(PTR))
        self.finished = move(f, k.finished, k.worker * k.finished_distance)
        # a finished tile has rows of the channels of a block
        finished_pixel = k.block_channels * F32.nbytes
        self.lines, self.tile_pixels = k.lines, k.tile_pixels
        self.out_pixel = f.select(self.direct, k.out_pixel, finished_pixel)
        one = f.value(F32.nbytes, I64)
        self.out_channel = f.select(self.direct, k.out_channel, one)

    def _of_chunk(self, word: str) -> Value:
        f, k = self.f, self.k
        place = move(f, k.pointer(word), self.image * k.integer(f"{word}_image"))
        return move(f, place, self.first_channel * k.integer(f"{word}_channel"))

    def write(self) -> None:
        all_lines = self.k.planes * self.lines
        self.f.loop(
            all_lines * (self.part + 1) // self.parts,
            lambda index: _Line(self, index).write(),
            start=all_lines * self.part // self.parts,
        )
        self.f.finish()

    def along(self, axis: str, index: Value) -> _Along:
        """Of a window, by its number along an axis."""
        f, integer = self.f, self.k.integer
        taps, dilation = integer(f"{axis}_taps"), integer(f"{axis}_dilation")
        begin = index * integer(f"{axis}_stride") - integer(f"{axis}_before")
        size = integer(f"{axis}_size")
        first, end = taps_within(f, begin, 0, size, taps, dilation)
        low, high = integer(f"{axis}_low"), integer(f"{axis}_high")
        from_, to = taps_within(f, begin, low, high, taps, dilation)
        return _Along(end - first, begin + first * dilation, first, to - from_)


class _Along(NamedTuple):
    """The elements of a window that lie in the input, along an axis.

    Attributes:
        taps: how many.
        place, first: where the first one is, and which one that is.
        counted: how many count.
    """

    taps: Value
    place: Value
    first: Value
    counted: Value


class _Line:
    """A line of the result, tile after tile."""

    def __init__(self, chunk: _Chunk, index: Value) -> None:
        self.chunk, self.f, k = chunk, chunk.f, chunk.k
        f = self.f
        self.plane, self.row = index // chunk.lines, index % chunk.lines
        self.in_planes = chunk.along("plane", self.plane)
        self.in_lines = chunk.along("line", self.row)
        offset = self.in_planes.place * k.x_plane + self.in_lines.place * k.x_line
        self.x = move(f, chunk.x, offset)
        offset = self.in_planes.first * k.w_plane + self.in_lines.first * k.w_line
        self.w = move(f, chunk.w, offset)
        offset = self.plane * k.out_plane + self.row * k.out_line
        self.out = move(f, chunk.out, offset)

    def write(self) -> None:
        """Compute the tiles."""
        self.f.loop(self.chunk.k.tiles, self._tile, [self.f.value(0, I64)])

    def _tile(self, number: Value, pixel: Value) -> list[Value]:
        f, chunk, k = self.f, self.chunk, self.chunk.k
        tall = number < k.tall_tiles
        pixels = f.select(tall, chunk.tile_pixels, chunk.tile_pixels - 1)
        begin = pixel * k.pixel_stride - k.pixel_before
        target = move(f, self.out, pixel * k.out_pixel)
        target = f.select(chunk.direct, target, chunk.finished)
        function = f.select(tall, k.tile, k.tile_low)
        arguments = WindowArguments(
            x=move(f, self.x, begin * k.x_pixel),
            x_plane=k.x_plane * k.plane_dilation,
            x_line=k.x_line * k.line_dilation,
            x_pixel=k.x_pixel,
            x_channel=k.x_channel,
            planes=self.in_planes.taps,
            lines=self.in_lines.taps,
            first_line=self.in_lines.first,
            w=self.w,
            w_plane=k.w_plane,
            w_line=k.w_line,
            w_tap=k.w_pixel,
            taps=k.pixel_taps,
            stride=k.pixel_stride,
            dilation=k.pixel_dilation,
            base=begin,
            width=k.pixel_size,
            low=k.pixel_low,
            high=k.pixel_high,
            count_=self.in_planes.counted * self.in_lines.counted,
            pixels=pixels,
            channels=chunk.channels,
            out=target,
            out_pixel=chunk.out_pixel,
            out_channel=chunk.out_channel,
            zero=k.zero,
        )
        f.call_pointer(function, *arguments)
        f.branch(chunk.direct, lambda: None, lambda: self._finish(pixel, pixels))
        return [pixel + pixels]

    def _finish(self, pixel: Value, pixels: Value) -> None:
        f, chunk, k = self.f, self.chunk, self.chunk.k
        finished = FinishedTile(
            words=k.epilogue_words,
            batch0=chunk.image,
            batch1=self.plane,
            line=self.row,
            row=pixel,
            rows=pixels,
            column=chunk.first_channel,
            columns=chunk.channels,
            tile=chunk.finished,
            tile_stride=k.block_channels,
        )
        f.call_pointer(chunk.epilogue, *finished)
