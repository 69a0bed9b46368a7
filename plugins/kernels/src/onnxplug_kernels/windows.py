"""Windows that slide over the spatial axes of an array: convolution, pooling, folding.

Everything here counts spatial axes only: an array of shape [..., *spatial] has
``len(spatial)`` of them at its end.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from onnxplug.authoring.bounds import per_axis, sizes, split_pads


@dataclass(frozen=True, slots=True)
class Windows:
    """Where windows lie over an input; each field has one number for each spatial axis.

    Attributes:
        kernel: elements of a window.
        strides: distance between the starts of neighbouring windows.
        dilations: distance between neighbouring elements of a window.
        begin: padding before the input.
        end: padding after the input.
        count: how many windows there are.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begin: tuple[int, ...]
    end: tuple[int, ...]
    count: tuple[int, ...]

    @property
    def extents(self) -> tuple[int, ...]:
        """How many input positions one window spans, gaps included."""
        return tuple(
            (size - 1) * dilation + 1
            for size, dilation in zip(self.kernel, self.dilations, strict=True)
        )

    @property
    def spans(self) -> tuple[int, ...]:
        """How many positions all windows span together, from the first's start."""
        return tuple(
            (count - 1) * stride + extent if count else 0
            for count, stride, extent in zip(
                self.count, self.strides, self.extents, strict=True
            )
        )

    def tap(self, axis: int, index: int) -> slice:
        """Where element *index* of all windows lies along *axis* of a padded input.

        There is one window at least.
        """
        first = index * self.dilations[axis]
        stride = self.strides[axis]
        return slice(first, first + (self.count[axis] - 1) * stride + 1, stride)

    def taps(self) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
        """(index in the kernel, where it lies for all windows), in row-major order."""
        for index in itertools.product(*map(range, self.kernel)):
            yield index, tuple(self.tap(axis, i) for axis, i in enumerate(index))


def place_windows(
    spatial_shape: Sequence[int],
    kernel_shape: Sequence[int],
    *,
    strides: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
) -> Windows:
    """The windows that ONNX's Conv and pool attributes describe over an input.

    Raises:
        ValueError: an attribute has the wrong length or value, or no window fits.
    """
    rank = len(spatial_shape)
    if not rank:
        raise ValueError("windows need an input of shape [N, C, ...] with spatial axes")
    kernel = per_axis("kernel_shape", kernel_shape, rank)
    strides = per_axis("strides", strides, rank)
    dilations = per_axis("dilations", dilations, rank)
    begin, end = split_pads(pads, rank)
    check_auto_pad(auto_pad)
    placed = [
        _place(*numbers, auto_pad=auto_pad, ceil_mode=bool(ceil_mode))
        for numbers in zip(
            spatial_shape, kernel, strides, dilations, begin, end, strict=True
        )
    ]
    count, begin, end = (tuple(column) for column in zip(*placed, strict=True))
    return Windows(kernel, strides, dilations, begin, end, count)


def check_auto_pad(auto_pad: str) -> None:
    """Raise :class:`ValueError` where ONNX has no such padding."""
    if auto_pad not in ("NOTSET", "", "VALID", "SAME_UPPER", "SAME_LOWER"):
        raise ValueError(
            f"auto_pad is {auto_pad!r}, "
            f"expected NOTSET, SAME_UPPER, SAME_LOWER or VALID"
        )


def split_padding(total: int, auto_pad: str) -> tuple[int, int]:
    """Halves of *total*; the odd one comes last, for SAME_LOWER first."""
    smaller = total // 2
    larger = total - smaller
    return (larger, smaller) if auto_pad == "SAME_LOWER" else (smaller, larger)


def pad(xp: Any, x: Any, windows: Windows, fill: Any = 0) -> Any:
    """*x* with *fill* around its spatial axes, so that all windows lie inside it.

    Position 0 of the result is where the first window starts.  Padding that no window
    reaches is left out; *x* itself comes back when nothing is to add.
    """
    rank = len(windows.kernel)
    shape = x.shape[-rank:]
    after = [
        max(span - begin - size, 0)
        for span, begin, size in zip(windows.spans, windows.begin, shape, strict=True)
    ]
    if not any(windows.begin) and not any(after):
        return x
    outer = (
        first + size + last
        for first, size, last in zip(windows.begin, shape, after, strict=True)
    )
    padded_shape = sizes(
        (*x.shape[:-rank], *outer), itemsize=xp.itemsize(x), what="the padded shape"
    )
    padded = xp.full(padded_shape, fill, dtype=x.dtype)
    inner = (
        slice(first, first + size)
        for first, size in zip(windows.begin, shape, strict=True)
    )
    padded[(..., *inner)] = x
    return padded


def patches(xp: Any, padded: Any, windows: Windows) -> Any:
    """A view [..., *kernel, *count] of the elements of all windows over *padded*.

    Elements are shared between windows: read only.

    Raises:
        ValueError: a window reaches beyond *padded*.
    """
    rank = len(windows.kernel)
    sizes(
        (*padded.shape[:-rank], *windows.kernel, *windows.count),
        itemsize=xp.itemsize(padded),
        what="the shape of all windows",
    )
    steps = (*windows.dilations, *windows.strides)
    # with these the span of an axis is from its first to its last element
    if min(windows.kernel) < 1 or min(steps) < 1:
        raise ValueError(f"no elements can be addressed by {windows}")
    if any(map(operator.gt, windows.spans, padded.shape[-rank:])):
        raise ValueError(
            f"windows span {windows.spans} positions of an input padded to "
            f"{padded.shape[-rank:]}"
        )
    return xp.windows(
        padded, windows.kernel, windows.dilations, windows.strides, windows.count
    )


def fold(xp: Any, elements: Any, windows: Windows, spatial_shape: Sequence[int]) -> Any:
    """Add window elements back up where they lie: the adjoint of :func:`patches`.

    Args:
        elements: [..., *kernel, *count].
        spatial_shape: what the windows slide over, padding excluded.

    Returns:
        [..., *spatial_shape]; positions that no window reaches are zero.
    """
    rank = len(windows.kernel)
    outer = elements.shape[: elements.ndim - 2 * rank]
    canvas = [
        max(span, first + size)
        for span, first, size in zip(
            windows.spans, windows.begin, spatial_shape, strict=True
        )
    ]
    shape = sizes(
        (*outer, *canvas), itemsize=xp.itemsize(elements), what="the folded shape"
    )
    folded = xp.zeros(shape, dtype=elements.dtype)
    if math.prod(windows.count):
        whole = (slice(None),) * len(outer)
        for index, positions in windows.taps():
            folded[(..., *positions)] += elements[(*whole, *index, ...)]
    kept = (
        slice(first, first + size)
        for first, size in zip(windows.begin, spatial_shape, strict=True)
    )
    return xp.compact(folded[(..., *kept)])


def _place(
    size: int,
    kernel: int,
    stride: int,
    dilation: int,
    begin: int,
    end: int,
    *,
    auto_pad: str,
    ceil_mode: bool,
) -> tuple[int, int, int]:
    """(count, begin, end) of the windows along one axis."""
    extent = (kernel - 1) * dilation + 1
    if auto_pad.startswith("SAME"):
        count = -(-size // stride)
        total = max((count - 1) * stride + extent - size, 0)
        return count, *split_padding(total, auto_pad)
    if auto_pad == "VALID":
        begin = end = 0
    room = size + begin + end - extent
    if ceil_mode and auto_pad != "VALID":
        count = -(-room // stride) + 1
        # no window may start in the padding after the input (PyTorch's rule)
        if (count - 1) * stride >= size + begin:
            count -= 1
    else:
        count = room // stride + 1
    if count < 1 and size:
        raise ValueError(
            f"a window of {kernel} elements with dilation {dilation} spans {extent} "
            f"positions, but there are {size + begin + end}: {size} and padding "
            f"{begin} + {end}"
        )
    return max(count, 0), begin, end
