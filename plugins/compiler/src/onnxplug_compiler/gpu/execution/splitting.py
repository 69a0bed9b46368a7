"""Launches over arrays that are larger than what a kernel binds of a buffer.

Those of chains and copies are split into launches over parts, each of which binds no
more; the others are refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from onnxplug.authoring.record import Record
from onnxplug_compiler.gpu.command import Launch
from onnxplug_compiler.gpu.families.elementwise import LANES, ChainKernel


class Part(Record):
    """An array, or a part of one.

    Attributes:
        start: bytes from the beginning of the buffer to its first element.
        strides: in elements.
        itemsize: bytes of an element.
    """

    start: int
    strides: tuple[int, ...]
    itemsize: int

    def span(self, shape: Sequence[int]) -> tuple[int, int]:
        """The bytes from its lowest element of *shape* to behind its highest."""
        ends = [(n - 1) * s for n, s in zip(shape, self.strides, strict=True)]
        low = self.start + sum(end for end in ends if end < 0) * self.itemsize
        high = self.start + sum(end for end in ends if end > 0) * self.itemsize
        return low, high + self.itemsize

    def window(self, shape: Sequence[int], alignment: int) -> tuple[int, int]:
        """What is bound of the buffer: where that begins, and bytes, both multiples of
        *alignment*."""
        low, high = self.span(shape)
        low = low // alignment * alignment
        return low, -(-(high - low) // alignment) * alignment


def can_be_split(launch: Launch) -> bool:
    """Whether elements of a launch have nothing to do with each other."""
    return isinstance(launch.kernel, ChainKernel) and launch.views[0].size > 0


def split(
    launch: Launch, starts: Sequence[int], most: int, alignment: int
) -> Iterator[tuple[Launch, list[Part]]]:
    """The launches that *launch* is split into, and the parts of its arrays.

    Args:
        starts: bytes from the beginnings of buffers to the first elements.
        most: bytes that are bound of a buffer, at most.
        alignment: of what is bound.
    """
    views = launch.views
    whole = [
        Part(start, view.strides, view.dtype.itemsize)
        for view, start in zip(views, starts, strict=True)
    ]
    for shape, parts in _pieces(tuple(views[0].shape), whole, most - alignment):
        size = math.prod(shape)
        groups = math.ceil(size / LANES)
        yield launch._replace(sizes=(size, *shape), groups=groups), parts


def _pieces(
    shape: tuple[int, ...], parts: list[Part], most: int
) -> Iterator[tuple[tuple[int, ...], list[Part]]]:
    """Halve axes until every part spans no more than *most* bytes."""
    spans = [high - low for low, high in (part.span(shape) for part in parts)]
    if max(spans) <= most:
        yield shape, parts
        return
    widest = parts[spans.index(max(spans))]
    reach = [(n - 1) * abs(s) for n, s in zip(shape, widest.strides, strict=True)]
    axis = reach.index(max(reach))
    half = shape[axis] // 2
    for begin, size in ((0, half), (half, shape[axis] - half)):
        moved = [
            part._replace(start=part.start + begin * part.strides[axis] * part.itemsize)
            for part in parts
        ]
        yield from _pieces((*shape[:axis], size, *shape[axis + 1 :]), moved, most)
