"""Pools and depthwise convolutions: how they are divided, and their commands."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from onnxplug_compiler.ir.buffers import Address, Constant
from onnxplug_compiler.ir.elements import element_of, is_half
from onnxplug_compiler.ir.traced import either, larger, smaller
from onnxplug_compiler.ir.views import View, c_strides
from onnxplug_compiler.ir.windows import (
    MOST_CODED_TERMS,
    STILL,
    WEIGHED,
    Combining,
    Slide,
    slides_of,
)
from onnxplug_cpu.compiler.codegen.emit import F32
from onnxplug_cpu.compiler.codegen.kernel import Kernel
from onnxplug_cpu.compiler.commands.recording import Recorder, call, worker_memory
from onnxplug_cpu.compiler.commands.words import Word, code_of
from onnxplug_cpu.compiler.kernels.contraction.epilogue import epilogue_call
from onnxplug_cpu.compiler.kernels.loop_nest import chunks_wanted
from onnxplug_cpu.compiler.kernels.movement.copy import record_copy
from onnxplug_cpu.compiler.kernels.rows import byte_strides
from onnxplug_cpu.compiler.kernels.widening import widened
from onnxplug_cpu.compiler.kernels.window.channel_tile import ChannelTile
from onnxplug_cpu.compiler.kernels.window.lines import AXES, AXIS_WORDS, WindowLines
from onnxplug_cpu.compiler.kernels.window.quads_filters import (
    packed_filters,
    row_bytes,
)
from onnxplug_cpu.compiler.kernels.window.quads_tile import QuadsTile
from onnxplug_cpu.compiler.kernels.window.reach import require_reach
from onnxplug_cpu.compiler.kernels.window.tile import (
    ChannelTaps,
    PixelTile,
    group_pixels,
    tile_shape,
)
from onnxplug_cpu.compiler.machine.isa import LANES, VECTOR_BYTES, Isa

if TYPE_CHECKING:
    from onnxplug_compiler.ir.epilogue import Epilogue

LONG: Final = 384
"""Terms of a sum from which on rounding errors are carried along."""

_F32: Final = np.dtype(np.float32)

_MOST_LINES, _MOST_TAPS = 8, 5
"""Of windows that are multiplied as quads: of more taps in a line more sums are added
up at a time than there are registers for."""

_MOST_STRIDE: Final = 2
"""Of a :class:`ChannelTile`."""

_COPIED_CHANNELS: Final = 8
"""From so many on, what has them apart is copied to have them side by side: windows
along the lanes take ten times as long, with strides fifty."""

_LINES_BYTES: Final = 32 << 10
"""About how much of the input the lines of a window should be, to be read once."""

_FAR_BYTES: Final = 1 << 20
"""Input and output of so many bytes are not expected in the second-level cache."""

_FAR_LINES_BYTES: Final = 128 << 10
"""The most of the lines of a window of theirs: what comes from memory comes faster in
order, with all channels of a pixel."""

_FINISHED_BYTES: Final = 16 << 10
"""The most of a tile that waits for its epilogue."""

_CODES: Final = frozenset({"i8", "u8"})

_FINISHED_PIXELS: Final = 64
"""The most windows of such a tile."""


def record_depthwise(
    recorder: Recorder,
    a: View,
    weights: View,
    out: View,
    *,
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int],
    zero: View | None = None,
    codes: View | None = None,
    epilogue: Epilogue | None = None,
    label: str = "Conv",
) -> None:
    """See ``families.Windows.record_depthwise``.

    Consecutive channels are fastest; many that are apart are copied, and codes always.
    Weights that are a view of a constant are packed once.

    Raises:
        ValueError: shapes do not fit, windows reach beyond
            :data:`~.reach.MOST_POSITIONS`, or dtypes are not f32, or i8 and u8 of
            codes, whose windows have at most ``MOST_CODED_TERMS`` elements.
    """
    rank = len(a.shape) - 2
    slides = slides_of(weights.shape[2:], strides, dilations, pads)
    depth = weights.shape[1]
    if (
        len(weights.shape) != rank + 2
        or weights.shape[0] != a.shape[1]
        or (
            depth > 1
            and not takes_groups(recorder, depth, slides, a.shape, out.shape[-1])
        )
    ):
        raise ValueError(f"weights of shape {weights.shape} do not fit {a.shape}")
    fewest = _COPIED_CHANNELS if a.dtype == _F32 else 1
    a = channels_side_by_side(recorder, a, fewest=fewest)
    work = _Windows(recorder, WEIGHED, a, weights, out, slides, epilogue, label, zero)
    work.take_codes(codes)
    work.record()


def record_windows(
    recorder: Recorder,
    combining: Combining,
    x: View,
    out: View,
    slides: Sequence[Slide],
    *,
    counts_padding: bool = False,
    label: str = "Pool",
) -> None:
    """Combine the elements of each window, as :func:`~.pool.record_pool`, at once."""
    work = _Windows(recorder, combining, x, None, out, slides, None, label)
    work.counts_padding = counts_padding
    work.record()


def takes_codes() -> bool:
    """See ``families.Windows.takes_codes``."""
    return True


def takes_groups(
    recorder: Recorder,
    depth: int,
    slides: Sequence[Slide],
    shape: Sequence[int],
    pixels: int,
) -> bool:
    """See ``families.Windows.takes_groups``."""
    isa = recorder.target.isa
    elements = depth * math.prod(slide.taps for slide in slides)
    return (
        depth in (2, 4, 8)
        and isa.vector_bytes % (depth * F32.nbytes) == 0
        and shape[1] % depth == 0
        and shape[1] >= _COPIED_CHANNELS
        and elements <= LONG
        and _fixed_pixels(isa, slides[-1], shape[-1], pixels, depth) > 0
    )


def _fixed_pixels(
    isa: Isa, slide: Slide, size: int, pixels: int, depth: int = 1
) -> int:
    """The most windows of a :class:`ChannelTile`; 0 if none can compute them."""
    shape = tile_shape(isa)
    last = (pixels - 1) * slide.stride - slide.before
    if (
        slide.taps > shape.taps
        or slide.stride > _MOST_STRIDE
        or (slide.dilation > 1 and slide.taps > 1)
        or slide.before >= slide.taps
        or last >= size
    ):
        return 0
    most = shape.pixels if depth == 1 else group_pixels(isa, depth)
    return most if slide.stride == 1 else -(-most // 2)


def channels_side_by_side(
    recorder: Recorder, x: View, fewest: int = _COPIED_CHANNELS
) -> View:
    """*x*, or a copy of it with consecutive channels if it has many that are apart.

    Args:
        x: [N, C, *spatial].
        fewest: how many are.
    """
    if x.strides[1] == 1 or x.shape[1] < fewest:
        return x
    rank = len(x.shape)
    order = (0, *range(2, rank), 1)
    copy = recorder.temporary(x.dtype, [x.shape[axis] for axis in order])
    copy = copy.transpose([order.index(axis) for axis in range(rank)])
    record_copy(recorder, x, copy)
    return copy


class _Windows:
    """Windows over an input with three spatial axes, while they are recorded.

    Attributes:
        depth: channels of a group.
        counts_padding: whether padding counts in a mean.
        filters: weights as codes, if they are multiplied as such.
    """

    def __init__(
        self,
        recorder: Recorder,
        combining: Combining,
        x: View,
        weights: View | None,
        out: View,
        slides: Sequence[Slide],
        epilogue: Epilogue | None,
        label: str,
        zero: View | None = None,
    ) -> None:
        rank = len(slides)
        if (
            not 1 <= rank <= 3
            or len(x.shape) != rank + 2
            or x.shape[:2] != out.shape[:2]
        ):
            raise ValueError(
                f"windows of {rank} axes over {x.shape} do not give {out.shape}"
            )
        views = [x] if weights is None else [x, weights]
        if epilogue is None:  # which makes other elements of what is finished
            views.insert(0, out)
        self.element = str(element_of(x.dtype))
        self.of_codes = zero is not None or self.element in _CODES
        if self.of_codes:
            _check_codes(x, weights, zero)
            if epilogue is None and out.dtype != _F32:
                raise ValueError(f"sums of codes are f32; got {out.dtype}")
        elif any(view.dtype != _F32 for view in views[:-1]) or not (
            views[-1].dtype == _F32 or (weights is not None and is_half(weights.dtype))
        ):
            raise ValueError(f"windows are over f32; got {[v.dtype for v in views]}")
        self.zero = zero
        spatial = "×".join(str(slide.taps) for slide in slides)
        sizes = "×".join(map(str, out.shape))
        self.label = f"{label} {sizes}×{spatial}"
        missing = 3 - rank
        self.slides = [STILL] * missing + [*slides]
        self.x, self.out = _with_axes(x, missing), _with_axes(out, missing)
        self.weights = None if weights is None else _with_axes(weights, missing)
        self.recorder, self.combining, self.epilogue = recorder, combining, epilogue
        self.depth = 1 if weights is None else weights.shape[1]
        self.counts_padding = False
        self.filters: View | None = None
        require_reach(self.slides, self.x.shape[2:], self.out.shape[2:])
        if epilogue is not None and any(
            view.shape != out.shape for view in (*epilogue.operands, *epilogue.outputs)
        ):
            raise ValueError(f"the epilogue is not of the result's shape {out.shape}")

    def take_codes(self, codes: View | None) -> None:
        """Multiply *codes* instead of the weights, where that is faster."""
        planes, lines, pixels = self.slides
        if (
            codes is not None
            and codes.dtype == np.int8
            and isinstance(codes.buffer, Constant)
            and self.recorder.target.isa.has("avx512vnni")
            and self.depth == planes.taps == 1
            and lines.taps <= _MOST_LINES
            and pixels.taps <= _MOST_TAPS
            and self._is_near()
            and self._fixed_pixels()
        ):
            self.filters = _with_axes(codes, 5 - len(codes.shape))

    def record(self) -> None:
        if not self.out.size:
            return
        x, out, recorder = self.x, self.out, self.recorder
        images, channels, planes, lines, pixels = out.shape
        by_channels = self.of_codes or (channels > 1 and x.strides[1] == 1)
        most = self._fixed_pixels() if by_channels else 0
        tile = self._fixed_tile()
        if not most:
            tile = self._any_tile(by_channels)
            most = pixels if self.epilogue is None else _FINISHED_PIXELS
        tiles = -(-pixels // most)
        tile_pixels = -(-pixels // tiles)
        tall_tiles = pixels - tiles * (tile_pixels - 1)
        block = self._block_channels(by_channels, tile_pixels)
        blocks = -(-channels // block)
        wanted = chunks_wanted(recorder, self._nanoseconds(by_channels))
        # each thread some lines: channels are divided for the caches only
        parts = smaller(planes * lines, -(-wanted // images))
        low_pixels = either(tall_tiles, tiles, tile_pixels - 1, tile_pixels)
        words: dict[str, Word] = {
            **_strided("x", x),
            **_strided("out", out),
            **self._weight_words(),
            "planes": planes,
            "lines": lines,
            "channels": channels,
            "block_channels": block,
            "blocks": blocks,
            "parts": parts,
            "tiles": tiles,
            "tall_tiles": tall_tiles,
            "tile_pixels": tile_pixels,
            "tile": code_of(tile, tile_pixels),
            "tile_low": code_of(tile, low_pixels),
            "finished": 0,
            "finished_distance": 0,
            "epilogue": 0,
            "epilogue_words": 0,
            "zero": 0 if self.zero is None else self.zero.address,
        }
        for axis, size, slide in zip(AXES, x.shape[2:], self.slides, strict=True):
            counts = self.counts_padding
            low_, high = -slide.before if counts else 0, size + counts * slide.after
            values = (size, *slide[:4], low_, high)
            for name, value in zip(AXIS_WORDS, values, strict=True):
                words[f"{axis}_{name}"] = value
        if self.epilogue is not None:
            finished, distance = worker_memory(
                recorder, tile_pixels * block * F32.nbytes
            )
            code, more = epilogue_call(self._of_tiles(self.epilogue))
            words |= {
                "finished": finished,
                "finished_distance": distance,
                "epilogue": code,
                "epilogue_words": more,
            }
        taps = math.prod(slide.taps for slide in self.slides)
        call(
            recorder,
            Kernel(WindowLines()),
            words,
            chunks=images * blocks * parts,
            label=self.label,
            flops=(2 if self.combining.weighs else 1) * out.size * taps * self.depth,
            nbytes=x.nbytes + out.nbytes,
        )

    def _fixed_pixels(self) -> int:
        """The most windows of a :class:`ChannelTile`; 0 if none can compute them."""
        if self._is_long() or self.combining.change == "power":  # whose code is long
            return 0
        isa, slide = self.recorder.target.isa, self.slides[-1]
        size, pixels = self.x.shape[-1], self.out.shape[-1]
        return _fixed_pixels(isa, slide, size, pixels, self.depth)

    def _fixed_tile(self) -> Callable[[int], Kernel]:
        """The tile of so many windows."""
        slide, combining = self.slides[-1], self.combining
        if self.filters is not None:
            lines, moved = self.slides[1].taps, self.zero is not None
            form = lines, slide.taps, slide.stride, self.element, moved
            return lambda pixels: Kernel(QuadsTile(pixels, *form))
        more = slide.taps, slide.stride, self._is_near(), self.depth, self.element
        moved = self.zero is not None
        return lambda pixels: Kernel(ChannelTile(combining, pixels, *more, moved))

    def _any_tile(self, by_channels: bool) -> Callable[[int], Kernel]:
        """The tile of any windows, whatever their number."""
        combining, long, near = self.combining, self._is_long(), self._is_near()
        if by_channels:
            more = self.element, self.zero is not None
            return lambda _: Kernel(ChannelTaps(combining, long, near, *more))
        pixel = self.x.strides[-1] * self.slides[-1].stride
        x_near = pixel == 1 or self.out.shape[-1] == 1
        out_near = self.epilogue is None and (
            self.out.strides[-1] == 1 or self.out.shape[-1] == 1
        )
        return lambda _: Kernel(PixelTile(combining, long, x_near, out_near))

    def _is_near(self) -> bool:
        """Whether what a tile writes has consecutive channels."""
        return self.epilogue is not None or self.out.strides[1] == 1

    def _is_long(self) -> bool:
        """Whether sums have so many terms that their rounding errors matter."""
        return self.combining.fold == "add" and self._elements() > LONG

    def _elements(self) -> int:
        """How many elements of the input a window has at most."""
        return math.prod(
            min(slide.taps, size)
            for slide, size in zip(self.slides, self.x.shape[2:], strict=True)
        )

    def _nanoseconds(self, by_channels: bool) -> float:
        """About how long one thread takes."""
        fixed = by_channels and self._fixed_pixels()
        each = 0.02 if fixed else 0.05 if by_channels else 0.15
        if self.combining.change == "power":
            each += 4.0
        return self.out.size * (0.3 + each * self._elements() * self.depth)

    def _block_channels(self, by_channels: bool, tile_pixels: int) -> int:
        """For how many channels all lines are computed before those of the next."""
        channels = self.out.shape[1]
        if not by_channels:
            return 1 if self.epilogue is None else min(channels, LANES)
        lines = math.prod(min(slide.taps, 8) for slide in self.slides[:2])
        most = channels
        if lines > 1:  # otherwise nothing is read again
            both = self.x.nbytes + self.out.nbytes
            nbytes = either(_FAR_BYTES, both, _FAR_LINES_BYTES, _LINES_BYTES)
            most = nbytes // (lines * self.x.shape[-1] * self.x.dtype.itemsize)
        if self.epilogue is not None:
            most = smaller(most, _FINISHED_BYTES // (tile_pixels * F32.nbytes))
        grain = LANES if self.filters is None else VECTOR_BYTES
        most = larger(most // grain, 4 * LANES // grain) * grain
        blocks = -(-channels // most)
        return -(-channels // (blocks * grain)) * grain

    def _of_tiles(self, epilogue: Epilogue) -> Epilogue:
        """The same with the axes of tiles: image, plane, line, pixel, channel."""
        missing = len(self.out.shape) - len(epilogue.outputs[0].shape)

        def moved(views: Sequence[View]) -> tuple[View, ...]:
            return tuple(
                _with_axes(view, missing).transpose((0, 2, 3, 4, 1)) for view in views
            )

        return epilogue._replace(
            operands=moved(epilogue.operands), outputs=moved(epilogue.outputs)
        )

    def _weight_words(self) -> dict[str, Word]:
        words: dict[str, Word] = {"w": 0, **{f"w_{axis}": 0 for axis in AXES}}
        if self.weights is None:
            return words
        if self.filters is not None:
            words["w"] = packed_filters(self.recorder, self.filters)
            words["w_pixel"] = row_bytes(self.filters.shape[0])
            return words
        weights = _channels_last(self.weights)
        is_constant = isinstance(weights.buffer, Constant)
        if (
            (self.depth > 1 and weights.strides != c_strides(weights.shape))
            or (weights.strides[-1] != 1 and weights.shape[-1] > 1)
            or (is_half(weights.dtype) and is_constant)
        ):
            weights = self._packed(self.weights)
        elif is_half(weights.dtype):
            weights = _channels_last(widened(self.recorder, self.weights))
        words["w"] = weights.address
        plane, line, tap, channel, _ = byte_strides(weights)
        distances = (plane, line, tap if self.depth == 1 else channel)
        for axis, distance in zip(AXES, distances, strict=True):
            words[f"w_{axis}"] = distance
        return words

    def _packed(self, weights: View) -> View:
        """The weights with consecutive channels: constants once, others before."""
        shape = _channels_last(weights).shape
        if not isinstance(weights.buffer, Constant):
            packed = self.recorder.temporary(_F32, shape)
            _record_pack(self.recorder, weights, packed.address)
            return packed
        address = self.recorder.packed(
            weights,
            f"depthwise({weights.offset},{weights.shape},{weights.strides},"
            f"{weights.dtype_name})",
            weights.size * F32.nbytes,
            _record_pack,
        )
        return View.contiguous(address.buffer, _F32, shape, address.offset)


def _check_codes(x: View, weights: View | None, zero: View | None) -> None:
    if (
        weights is None
        or element_of(x.dtype) not in _CODES
        or weights.dtype != _F32
        or (zero is not None and (zero.dtype, zero.size) != (_F32, 1))
        or math.prod(weights.shape[1:]) > MOST_CODED_TERMS
    ):
        raise ValueError(
            f"windows over codes have a zero point of f32 and up to {MOST_CODED_TERMS} "
            f"weights; got {x.dtype}, {zero and zero.dtype}, "
            f"{weights and weights.shape}"
        )


def _with_axes(view: View, missing: int) -> View:
    """The view with *missing* axes of size 1 before its spatial axes."""
    shape = (*view.shape[:2], *(1,) * missing, *view.shape[2:])
    strides = (*view.strides[:2], *(0,) * missing, *view.strides[2:])
    return View(view.buffer, view.offset, view.dtype, shape, strides)


def _channels_last(weights: View) -> View:
    """[C, D, planes, lines, taps] as [planes, lines, taps, D, C]."""
    return weights.transpose((2, 3, 4, 1, 0))


def _record_pack(recorder: Recorder, weights: View, target: Address) -> None:
    source = _channels_last(widened(recorder, weights))
    packed = View.contiguous(target.buffer, source.dtype, source.shape, target.offset)
    record_copy(recorder, source, packed, label="Conv: pack weights")


def _strided(name: str, view: View) -> dict[str, Word]:
    """The address of an array and the distances of neighbours along its axes."""
    words: dict[str, Word] = {name: view.address}
    axes = ("image", "channel", *AXES)
    for axis, distance in zip(axes, byte_strides(view), strict=True):
        words[f"{name}_{axis}"] = distance
    return words
