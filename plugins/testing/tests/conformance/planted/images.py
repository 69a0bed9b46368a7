"""Operators on images, as numpy computes them: windows and what is made of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

Array: TypeAlias = np.ndarray[Any, Any]
Kernel: TypeAlias = Callable[..., Any]
Pairs: TypeAlias = Sequence[tuple[int, int]]

PADDINGS: Final = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")


class Windows(NamedTuple):
    """Where windows lie on the axes of an image.

    Attributes:
        sizes: of a window, by axis.
        strides: from one to the next.
        dilations: from one element of a window to the next.
        auto_pad: how much is padded, in ONNX's words.
        pads: how much is, before and behind each axis, where *auto_pad* does not say.
    """

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    auto_pad: str
    pads: tuple[tuple[int, int], ...]

    def padding(self, shape: Sequence[int]) -> Pairs:
        """How much is padded before and behind each axis of an image of *shape*."""
        if self.auto_pad == "NOTSET":
            return self.pads
        if self.auto_pad == "VALID":
            return [(0, 0)] * len(self.sizes)
        pairs = []
        for length, size, stride, dilation in zip(
            shape, self.sizes, self.strides, self.dilations, strict=True
        ):
            last = (-(-length // stride) - 1) * stride
            missing = max(last + (size - 1) * dilation + 1 - length, 0)
            less, more = missing // 2, missing - missing // 2
            is_upper = self.auto_pad == "SAME_UPPER"
            pairs.append((less, more) if is_upper else (more, less))
        return pairs

    def of(self, x: Array, first: int, fill: float) -> Array:
        """The windows of *x*, padded with *fill*: their axes follow its own.

        Args:
            first: of the image's axes.
        """
        axes = range(first, first + len(self.sizes))
        pairs = [(0, 0)] * x.ndim
        pairs[first : axes.stop] = self.padding(x.shape[first : axes.stop])
        if any(map(any, pairs)):
            x = np.pad(x, pairs, constant_values=fill)
        reach = [
            (size - 1) * dilation + 1
            for size, dilation in zip(self.sizes, self.dilations, strict=True)
        ]
        lacking = [max(r - x.shape[a], 0) for a, r in zip(axes, reach, strict=True)]
        if any(lacking):  # no window has room, and numpy would raise
            pairs[first : axes.stop] = [(0, each) for each in lacking]
            x = np.pad(x, pairs)
        found = sliding_window_view(x, reach, axis=tuple(axes))
        index: list[Any] = [slice(None)] * x.ndim
        index[first : axes.stop] = [
            slice(0, 0) if each else slice(None, None, stride)
            for each, stride in zip(lacking, self.strides, strict=True)
        ]
        index += [slice(None, None, each) for each in self.dilations]
        windows: Array = found[tuple(index)]
        return windows


def windows_of(attributes: Any, sizes: Sequence[int]) -> Windows:
    """The windows that a node's attributes say.

    Raises:
        ValueError: they say what ONNX does not allow.
    """
    rank = len(sizes)
    strides = _positive(attributes.get("strides", (1,) * rank), rank)
    dilations = _positive(attributes.get("dilations", (1,) * rank), rank)
    auto_pad = attributes.get("auto_pad", "NOTSET")
    if auto_pad not in PADDINGS:
        raise ValueError(f"auto_pad is {auto_pad!r}; expected one of {PADDINGS}")
    pads = tuple(map(int, attributes.get("pads", (0,) * 2 * rank)))
    if len(pads) != 2 * rank or any(pad < 0 for pad in pads):
        raise ValueError(f"pads are {pads}; expected {2 * rank}, none less than 0")
    pairs = tuple(zip(pads[:rank], pads[rank:], strict=True))
    return Windows(_positive(sizes, rank), strides, dilations, auto_pad, pairs)


def _positive(numbers: Sequence[Any], rank: int) -> tuple[int, ...]:
    found = tuple(map(int, numbers))
    if len(found) != rank or any(number < 1 for number in found):
        raise ValueError(f"found {found}; expected {rank} numbers greater than 0")
    return found


def _of_image(windows: Windows, x: Array, first: int, fill: float) -> Array:
    """The windows of a pool, each of which has some of *x*."""
    reach = zip(windows.sizes, windows.dilations, windows.pads, strict=True)
    if windows.auto_pad == "NOTSET" and any(
        max(pads) > (size - 1) * dilation for size, dilation, pads in reach
    ):
        raise ValueError(
            f"pads are {windows.pads}, and windows of {windows.sizes}; expected less "
            "padding than a window spans"
        )
    return windows.of(x, first, fill)


def max_pool(first: int, make: Any = windows_of) -> Callable[[Any, int], Kernel]:
    """``MaxPool``.

    Args:
        first: of the image's axes.
        make: makes windows, as `windows_of` does.
    """

    def of(attributes: Any, version: int) -> Kernel:
        windows = make(attributes, attributes["kernel_shape"])

        def pool(x: Array) -> Any:
            along = tuple(range(x.ndim, x.ndim + len(windows.sizes)))
            return _of_image(windows, x, first, -np.inf).max(axis=along)

        return pool

    return of


def average_pool(first: int, make: Any = windows_of) -> Callable[[Any, int], Kernel]:
    """``AveragePool``; the parameters are those of `max_pool`."""

    def of(attributes: Any, version: int) -> Kernel:
        windows = make(attributes, attributes["kernel_shape"])
        counts_all = attributes.get("count_include_pad", 0)

        def pool(x: Array) -> Any:
            along = tuple(range(x.ndim, x.ndim + len(windows.sizes)))
            total = _of_image(windows, x, first, 0).sum(axis=along)
            if counts_all:
                return total / x.dtype.type(np.prod(windows.sizes))
            sizes = [1] * x.ndim
            stop = first + len(windows.sizes)
            sizes[first:stop] = x.shape[first:stop]
            there = np.ones(sizes, x.dtype)
            return total / windows.of(there, first, 0).sum(axis=along)

        return pool

    return of


def convolution(make: Any = windows_of) -> Callable[[Any, int], Kernel]:
    """``Conv``.

    Args:
        make: makes windows, as `windows_of` does.
    """

    def of(attributes: Any, version: int) -> Kernel:
        group = int(attributes.get("group", 1))

        def convolve(x: Array, w: Array, b: Array | None = None) -> Any:
            if x.shape[1] != w.shape[1] * group or w.shape[0] % group:
                raise ValueError(
                    f"{x.shape[1]} channels are convolved with weights "
                    f"{list(w.shape)} in {group} groups; they do not go together"
                )
            rank = x.ndim - 2
            windows = make(attributes, w.shape[2:]).of(x, 2, 0)
            parts = [
                # batch, place on each axis, channel of the result
                np.tensordot(
                    windows[:, begin : begin + w.shape[1]],
                    kernels,
                    axes=(
                        [1, *range(2 + rank, 2 + 2 * rank)],
                        [1, *range(2, 2 + rank)],
                    ),
                )
                for begin, kernels in zip(
                    range(0, x.shape[1], w.shape[1]), np.split(w, group), strict=True
                )
            ]
            result = np.moveaxis(np.concatenate(parts, axis=-1), -1, 1)
            return result if b is None else result + b.reshape(-1, *(1,) * rank)

        return convolve

    return of
