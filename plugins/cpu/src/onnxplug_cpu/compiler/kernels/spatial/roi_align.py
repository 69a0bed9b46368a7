"""RoiAlign: regions of images, read between pixels and pooled into bins of one size.

K. He et al., "Mask R-CNN" (2017), arXiv:1703.06870.  Vectors go along channels; images
and results in which these are not adjacent are transposed.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence

from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.codegen.emit import (
    F32,
    F64,
    I8,
    I64,
    Module,
    Value,
)
from onnxplug_cpu.compiler.codegen.kernel import (
    Double,
    Generator,
    Integer,
    Kernel,
    KernelWords,
    Pointer,
)
from onnxplug_cpu.compiler.commands.recording import Recorder, call
from onnxplug_cpu.compiler.commands.words import Word
from onnxplug_cpu.compiler.kernels.loop_nest import chunks
from onnxplug_cpu.compiler.kernels.movement.copy import record_copy
from onnxplug_cpu.compiler.kernels.reduction.accumulator import maximum
from onnxplug_cpu.compiler.kernels.rows import Elements
from onnxplug_cpu.compiler.kernels.spatial.weighted_rows import VECTOR, sweep_columns
from onnxplug_cpu.compiler.machine.isa import LANES, Isa

MOST_SAMPLES = 256
"""Samples of a bin along one axis, where an attribute says how many."""

_FINEST = 1 << 30  # samples of a bin along one axis, where its size says how many


def record_roi_align(
    recorder: Recorder,
    x: View,
    regions: View,
    images: View,
    out: View,
    *,
    mode: str,
    samples: int,
    scale: float,
    half_pixel: bool,
    label: str = "RoiAlign",
) -> None:
    """Pool the bins of each region.

    Args:
        x: f32 [N, C, H, W], any strides.
        regions: f32 [regions, 4]: x1, y1, x2, y2; any strides.
        images: int64 [regions]: which image each is of; any stride.
        out: f32 [regions, C, height, width], any strides, but no element twice.
        mode: ``avg``, or ``max``, which is of the weighted elements.
        samples: of a bin along each axis; 0 for about one in each element.
        scale: of the regions' coordinates, finite and larger than 0.
        half_pixel: whether the centre of the first element is at one half; if not, a
            region is at least one element large.

    Raises:
        ValueError: shapes, dtypes or options are none of these; after a run, a corner
            that is not finite.
        IndexError: after a run, an image that there is not.
    """
    dtypes = [view.dtype_name for view in (x, regions, out, images)]
    if (
        len(x.shape) != 4
        or 0 in x.shape[2:]
        or (out.size and not x.shape[0])
        or out.shape[:2] != (*regions.shape[:1], x.shape[1])
        or len(out.shape) != 4
        or (regions.shape, images.shape) != ((out.shape[0], 4), out.shape[:1])
        or dtypes != ["float32"] * 3 + ["int64"]
        or mode not in ("avg", "max")
        or not 0 <= samples <= MOST_SAMPLES
        or not 0 < scale < math.inf
    ):
        raise ValueError(
            f"RoiAlign of {x.dtype} {x.shape}, {regions.dtype} {regions.shape} and "
            f"{images.dtype} {images.shape} to {out.dtype} {out.shape}, mode {mode}, "
            f"{samples} samples, scale {scale}"
        )
    if not out.size:
        return
    source = x
    if x.strides[1] != 1 and x.shape[1] > 1:
        source = _channels_last(recorder, x)
        record_copy(recorder, x, source, label=label)
    target = out
    if out.strides[1] != 1 and out.shape[1] > 1:
        target = _channels_last(recorder, out)
    count, channels, height, width = out.shape
    nanoseconds = out.size * 0.3 * (samples or 2) ** 2 + 50 * count * height * width
    number, each = chunks(recorder, count * height, nanoseconds)
    words: dict[str, Word] = {
        "x": source.address,
        "regions": regions.address,
        "images": images.address,
        "out": target.address,
        "items": count * height,
        "each": each,
        "channels": channels,
        "count": x.shape[0],
        "height": x.shape[2],
        "width": x.shape[3],
        "out_height": height,
        "out_width": width,
        "samples": samples,
        "scale": struct.unpack("<q", struct.pack("<d", scale))[0],
        "region_step": 4 * regions.strides[0],
        "corner_step": 4 * regions.strides[1],
        "image_step": 8 * images.strides[0],
        "not_finite": recorder.check(_not_finite),
        "no_image": recorder.check(_no_image(x.shape[0])),
    }
    for name, view in (("x", source), ("out", target)):
        for axis in (0, 2, 3):
            words[f"{name}{axis}"] = 4 * view.strides[axis]
    call(
        recorder,
        Kernel(_RoiAlign(mode, half_pixel, samples == 0)),
        words,
        chunks=number,
        label=f"{label} {'×'.join(map(str, out.shape))}",
        flops=8 * out.size * (samples or 1) ** 2,
        nbytes=x.nbytes + out.nbytes,
    )
    if target is not out:
        record_copy(recorder, target, out, label=label)


def _channels_last(recorder: Recorder, like: View) -> View:
    images, channels, *spatial = like.shape
    whole = recorder.temporary(like.dtype, (images, *spatial, channels))
    return whole.transpose((0, 3, 1, 2))


def _not_finite(_: int) -> Exception:
    return ValueError("regions have corners that are not finite; expected numbers")


def _no_image(count: int) -> Callable[[int], Exception]:
    def error(found: int) -> Exception:
        return IndexError(
            f"index {found} is out of range for the batch of size {count}; "
            f"expected 0 to {count - 1}"
        )

    return error


class RoiWords(KernelWords):
    """Words of :class:`_RoiAlign`.

    ``x`` and ``out`` with the bytes between images or regions, lines and pixels; the
    ``regions``' corners and ``images``, with the bytes between them; the sizes of both;
    ``samples`` of a bin along an axis, the ``scale`` of corners, and flags.
    """

    x: Pointer
    regions: Pointer
    images: Pointer
    out: Pointer
    items: Integer
    each: Integer
    channels: Integer
    count: Integer
    height: Integer
    width: Integer
    out_height: Integer
    out_width: Integer
    samples: Integer
    scale: Double
    region_step: Integer
    corner_step: Integer
    image_step: Integer
    not_finite: Pointer
    no_image: Pointer
    x0: Integer
    x2: Integer
    x3: Integer
    out0: Integer
    out2: Integer
    out3: Integer


class _RoiAlign(Generator):
    """A chunk is some rows of bins.

    Attributes:
        mode, half_pixel: as of :func:`record_roi_align`.
        is_adaptive: whether the size of a bin says how many samples it has.
    """

    mode: str
    half_pixel: bool
    is_adaptive: bool

    words = RoiWords.names

    def write(self, module: Module, name: str, isa: Isa) -> None:
        _Writer(RoiWords(module, name), self).write()


class _Line:
    """The samples of all bins along one axis.

    Attributes:
        fine: how many each bin has.
        start, step: f32: sample i is at ``start + (i + 1/2) * step``.
        first, last: which of them can lie within the image.
        size: of the image's axis.
        stride: of the image's axis, in bytes.
    """

    fine: Value
    start: Value
    step: Value
    first: Value
    last: Value
    size: Value
    stride: Value


class _Writer:
    def __init__(self, k: RoiWords, form: _RoiAlign) -> None:
        self.k, self.f, self.form = k, k.function, form
        self.near = Elements(self.f, VECTOR)
        pointers = ("x", "regions", "images", "out", "not_finite", "no_image", "scale")
        k.keep(word for word in k.names if word not in pointers)
        self.scale = k.scale

    def write(self) -> None:
        """Emit the function."""
        f, k = self.f, self.k
        regions, images = k.regions, k.images
        flags = k.not_finite, k.no_image
        begin = k.chunk * k.each
        end = f.minimum(begin + k.each, k.items)

        def bins(item: Value) -> None:
            region, row = item // k.out_height, item % k.out_height
            image = f.load(f.at(images, region * k.image_step, I8), I64)
            corners = self._corners(f.at(regions, region * k.region_step, I8))
            total = corners[0] - corners[0]
            for corner in corners[1:]:
                total = total + (corner - corner)
            finite = total.compare("eq", 0.0)
            known = image.compare("ge", 0) & (image < k.count)
            f.branch(finite, lambda: None, lambda: f.store(f.value(1, I64), flags[0]))
            f.branch(known, lambda: None, lambda: f.store(image, flags[1]))
            f.branch(finite & known, lambda: self._row(region, row, image, corners))

        f.loop(end, bins, start=begin)
        f.finish()

    def _corners(self, region: Value) -> list[Value]:
        """x1, y1, x2, y2 in elements, as f64."""
        f = self.f
        corners = []
        for number in range(4):
            at = f.at(region, self.k.corner_step * number, I8)
            corner = f.convert(f.load(at, F32), F64) * self.scale
            corners.append(corner - 0.5 if self.form.half_pixel else corner)
        return corners

    def _row(
        self, region: Value, row: Value, image: Value, corners: Sequence[Value]
    ) -> None:
        """One row of bins of a region."""
        f, k = self.f, self.k
        x1, y1, x2, y2 = corners
        down = self._line(y1, y2, k.out_height, k.height, k.x2)
        along = self._line(x1, x2, k.out_width, k.width, k.x3)
        source = f.at(k.x, image * k.x0, I8)
        target = f.at(k.out, region * k.out0, I8)
        target = f.at(target, row * k.out2, I8)
        # numpy divides by the number of samples, as f32
        count = f.convert(down.fine, F32) * f.convert(along.fine, F32)
        some = down.fine.compare("gt", 0) & (along.fine > 0)
        rows = self._samples(down, row, some)

        def bin_(column: Value, to: Value) -> list[Value]:
            columns = self._samples(along, column, some)
            whole = (rows[1] - rows[0]).compare("eq", down.fine) & (
                (columns[1] - columns[0]).compare("eq", along.fine)
            )

            def vectors(channel: Value, number: int, mask: Value | None) -> None:
                place = f.at(source, channel, F32)
                totals = self._pooled(
                    place, mask, number, (down, rows), (along, columns)
                )
                for n, total in enumerate(totals):
                    if self.form.mode == "avg":
                        total = total / f.splat(count, LANES)
                    else:
                        beside = f.select(total > 0.0, total, f.zero(VECTOR))
                        is_nan = total.compare("ne", total)
                        beside = f.select(is_nan, total, beside)
                        total = f.select(whole, total, beside)
                    total = f.select(some, total, f.zero(VECTOR))
                    at = f.at(to, channel + LANES * n, F32)
                    self.near.store(total, at, mask)

            sweep_columns(f, k.channels, vectors)
            return [f.at(to, k.out3, I8)]

        f.loop(k.out_width, bin_, [target])

    def _line(
        self, start: Value, stop: Value, count: Value, size: Value, stride: Value
    ) -> _Line:
        f, k = self.f, self.k
        line = _Line()
        length = stop - start
        if not self.form.half_pixel:
            length = f.select(length < 1.0, f.value(1.0, F64), length)
        bins = f.convert(count, F64)
        line.size, line.stride = size, stride
        line.fine = k.samples
        if self.form.is_adaptive:
            fine = f.convert(f.unary("ceil", length / bins), I64)
            line.fine = f.minimum(fine, _FINEST)
        step = length / (bins * f.convert(line.fine, F64))
        line.start, line.step = f.convert(start, F32), f.convert(step, F32)
        line.first, line.last = f.value(0, I64), count * line.fine
        if self.form.is_adaptive:
            # of a huge region most samples are outside; f32 may round these by a few
            before = (-2.0 - start) / step - 2.0
            after = (f.convert(line.size, F64) + 1.0 - start) / step + 2.0
            line.first = f.maximum(f.convert(before, I64), 0)
            line.last = f.minimum(f.convert(after, I64), line.last)
        return line

    def _samples(self, line: _Line, number: Value, some: Value) -> tuple[Value, Value]:
        """Which samples of a bin to look at: from, to."""
        f = self.f
        begin = f.maximum(number * line.fine, line.first)
        end = f.minimum((number + 1) * line.fine, line.last)
        none = f.value(0, I64)
        return f.select(some, begin, none), f.select(some, end, none)

    def _pooled(
        self,
        source: Value,
        mask: Value | None,
        number: int,
        down: tuple[_Line, tuple[Value, Value]],
        along: tuple[_Line, tuple[Value, Value]],
    ) -> list[Value]:
        """The sums, or the largest, of the samples of a bin."""
        f, adds = self.f, self.form.mode == "avg"
        empty = f.value(0.0 if adds else -math.inf, VECTOR)

        def merged(totals: Sequence[Value], values: Sequence[Value]) -> list[Value]:
            if adds:
                return [a + b for a, b in zip(totals, values, strict=True)]
            return [maximum(f, a, b) for a, b in zip(totals, values, strict=True)]

        def outside(totals: Sequence[Value]) -> list[Value]:
            return merged(totals, [f.zero(VECTOR)] * number)

        def row(y: Value, *totals: Value) -> list[Value]:
            inside, tops, lines = self._taps(down[0], y)

            def within() -> list[Value]:
                rows = [f.at(source, line, I8) for line in lines]
                # sums of rows are added, so that no chain of additions is long
                sums = f.loop(
                    along[1][1],
                    lambda x, *sums: self._sample(
                        x, along[0], rows, tops, mask, sums, merged
                    ),
                    [empty] * number,
                    start=along[1][0],
                )
                return merged(totals, sums)

            return f.branch(inside, within, lambda: outside(totals))

        return f.loop(down[1][1], row, [empty] * number, start=down[1][0])

    def _sample(
        self,
        x: Value,
        line: _Line,
        rows: Sequence[Value],
        tops: Sequence[Value],
        mask: Value | None,
        sums: Sequence[Value],
        merged: Callable[[Sequence[Value], Sequence[Value]], list[Value]],
    ) -> list[Value]:
        """*sums* with a sample between two rows."""
        f, adds = self.f, self.form.mode == "avg"
        inside, sides, columns = self._taps(line, x)

        def within() -> list[Value]:
            totals = list(sums)
            for row, top in zip(rows, tops, strict=True):
                for column, side in zip(columns, sides, strict=True):
                    weight = f.splat(top * side, LANES)
                    place = f.at(row, column, I8)
                    pixels = [
                        self.near.load(f.at(place, LANES * n, F32), mask)
                        for n in range(len(totals))
                    ]
                    if adds:
                        totals = [
                            f.fma(pixel, weight, total)
                            for pixel, total in zip(pixels, totals, strict=True)
                        ]
                    else:
                        totals = merged(totals, [p * weight for p in pixels])
            return totals

        return f.branch(
            inside, within, lambda: merged(sums, [f.zero(VECTOR)] * len(sums))
        )

    def _taps(
        self, line: _Line, index: Value
    ) -> tuple[Value, tuple[Value, Value], tuple[Value, Value]]:
        """Whether a sample is within, and its neighbours' weights and places."""
        f = self.f
        point = line.start + (f.convert(index, F32) + 0.5) * line.step
        size = f.convert(line.size, F32)
        inside = point.compare("ge", -1.0) & (point <= size)
        point = f.select(point > 0.0, point, 0.0)
        last = line.size - 1
        point = f.select(point < size - 1.0, point, size - 1.0)
        low = f.unary("floor", point)
        rest = point - low
        # NaN was made 0, so this is within
        first = f.minimum(f.convert(low, I64), last)
        second = f.minimum(first + 1, last)
        return (
            inside,
            (1.0 - rest, rest),
            (first * line.stride, second * line.stride),
        )
