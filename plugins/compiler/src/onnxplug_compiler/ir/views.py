"""Views: arrays somewhere in a buffer, none of whose elements lies outside."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from onnxplug.authoring.bounds import OutOfBounds, sizes
from onnxplug.authoring.bounds import permutation as checked_permutation
from onnxplug_compiler.ir.buffers import Address, Buffer


@functools.cache
def _name_of(dtype: np.dtype[Any]) -> str:
    return dtype.name  # which numpy puts together each time


class View:
    """An array somewhere in a buffer, none of whose elements lies outside.

    That is checked whenever a view is made, so no command that addresses elements of
    its views leaves their buffers, whatever a model asks for.

    Attributes:
        buffer: the memory.
        offset: bytes from its start to element 0.
        dtype: the elements' numpy dtype (``ml_dtypes`` included).
        shape: sizes.
        strides: in elements, 0 where the array is broadcast.

    Raises:
        OutOfBounds: a size is negative, or an element lies outside the buffer.
    """

    __slots__ = ("buffer", "dtype", "offset", "shape", "strides")

    def __init__(
        self,
        buffer: Buffer,
        offset: int,
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
        strides: tuple[int, ...],
    ) -> None:
        self.buffer: Final = buffer
        self.offset: Final = offset
        self.dtype: Final = dtype
        self.shape: Final = shape
        self.strides: Final = strides
        low = high = 0  # the first and the last element, in elements from element 0
        for size, stride in zip(self.shape, self.strides, strict=True):
            if size < 1:
                sizes(self.shape)
                return  # no elements, which are nowhere
            if stride > 0:
                high += (size - 1) * stride
            elif stride:
                low += (size - 1) * stride
        itemsize = self.dtype.itemsize
        first = self.offset + low * itemsize
        if first < 0 or self.offset + (high + 1) * itemsize > self.buffer.nbytes:
            raise OutOfBounds(
                f"elements of shape {list(self.shape)} and strides "
                f"{list(self.strides)} from byte {self.offset} on lie outside "
                f"a buffer of {self.buffer.nbytes} bytes"
            )

    @classmethod
    def contiguous(
        cls,
        buffer: Buffer,
        dtype: np.dtype[Any],
        shape: Sequence[int],
        offset: int = 0,
    ) -> View:
        """A whole array in C order."""
        shape = tuple(shape)
        return cls(buffer, offset, dtype, shape, c_strides(shape))

    @property
    def size(self) -> int:
        """How many elements."""
        return math.prod(self.shape)

    @property
    def dtype_name(self) -> str:
        """numpy's name of the dtype."""
        return _name_of(self.dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements, each counted once."""
        return self.size * self.dtype.itemsize

    @property
    def address(self) -> Address:
        """The address of element 0."""
        return Address(self.buffer, self.offset)

    @property
    def is_contiguous(self) -> bool:
        """Whether elements follow each other in C order."""
        expected = 1
        for size, stride in zip(
            reversed(self.shape), reversed(self.strides), strict=True
        ):
            if size != 1:
                if stride != expected:
                    return self.size == 0
                expected *= size
        return True

    def transpose(self, permutation: Sequence[int]) -> View:
        """The axes in another order.

        Raises:
            OutOfBounds: it is no permutation of the axes.
        """
        order = checked_permutation(permutation, len(self.shape))
        return self._with(
            tuple(self.shape[axis] for axis in order),
            tuple(self.strides[axis] for axis in order),
        )

    def broadcast_to(self, shape: Sequence[int]) -> View:
        """The view repeated, as numpy does.

        Raises:
            ValueError: the shape does not allow it.
        """
        shape = tuple(shape)
        if shape == self.shape:
            return self
        lead = len(shape) - len(self.shape)
        if lead < 0 or any(
            size not in (1, wanted)
            for size, wanted in zip(self.shape, shape[lead:], strict=True)
        ):
            raise ValueError(f"{self.shape} does not broadcast to {shape}")
        strides = [0] * lead + [
            0 if size == 1 and wanted != 1 else stride
            for size, wanted, stride in zip(
                self.shape, shape[lead:], self.strides, strict=True
            )
        ]
        return self._with(shape, tuple(strides))

    def reshape(self, shape: Sequence[int]) -> View | None:
        """The same elements in another shape; ``None`` if that needs a copy.

        Raises:
            OutOfBounds: the shape has more elements, or fewer.
        """
        shape = tuple(shape)
        if math.prod(shape) != self.size:
            raise OutOfBounds(f"{self.shape} does not reshape to {shape}")
        if self.is_contiguous:
            return self._with(shape, c_strides(shape))
        strides = _reshaped_strides(self.shape, self.strides, shape)
        return None if strides is None else self._with(shape, strides)

    def slice(
        self,
        starts: Sequence[int],
        sizes: Sequence[int],
        steps: Sequence[int] | None = None,
    ) -> View:
        """Along each axis *sizes* elements from *starts* by *steps* (not 0).

        Raises:
            OutOfBounds: they are not all elements of this view.
        """
        steps = steps or [1] * len(self.shape)
        for start, size, step, extent in zip(
            starts, sizes, steps, self.shape, strict=True
        ):
            last = start + (size - 1) * step
            if size and not (0 <= start < extent and 0 <= last < extent):
                raise OutOfBounds(
                    f"{size} elements from {start} by {step} are not among {extent}"
                )
        begin = sum(a * s for a, s in zip(starts, self.strides, strict=True))
        return View(
            self.buffer,
            self.offset + begin * self.dtype.itemsize,
            self.dtype,
            tuple(sizes),
            tuple(s * step for s, step in zip(self.strides, steps, strict=True)),
        )

    def rows(self, first: int, count: int) -> View:
        """From *first* on *count* places of the first axis.

        Raises:
            OutOfBounds: there are fewer.
        """
        within = self.shape[1:]
        return self.slice((first, *(0 for _ in within)), (count, *within))

    def place(self, index: int) -> View:
        """One place of the first axis, which is left out.

        Raises:
            OutOfBounds: there is no such place.
        """
        row, within = self.rows(index, 1), self.shape[1:]
        return View(row.buffer, row.offset, row.dtype, within, row.strides[1:])

    def cut(self, axis: int, each: int) -> list[View]:
        """The view in parts of *each* places of an axis, and one of what is left.

        Returns:
            Views with one more axis, the first, along which there are parts of one
            size.
        """
        size, stride = self.shape[axis], self.strides[axis]
        whole = size // each
        parts = []
        for start, many, length in ((0, whole, each), (whole * each, 1, size % each)):
            if many and length:
                starts, sizes = [0] * len(self.shape), list(self.shape)
                starts[axis], sizes[axis] = start, length
                one = self.slice(starts, sizes)
                shape, strides = (many, *sizes), (stride * length, *one.strides)
                parts.append(View(one.buffer, one.offset, one.dtype, shape, strides))
        return parts

    def _with(self, shape: tuple[int, ...], strides: tuple[int, ...]) -> View:
        return View(self.buffer, self.offset, self.dtype, shape, strides)


def with_line(view: View) -> View:
    """Matrices with at most two batch axes as single lines of rows of two batches."""
    lead = (1,) * (4 - len(view.shape))
    shape = (*lead, *view.shape[:-2], 1, *view.shape[-2:])
    zeros = (0,) * len(lead)
    strides = (*zeros, *view.strides[:-2], 0, *view.strides[-2:])
    return View(view.buffer, view.offset, view.dtype, shape, strides)


def c_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides in elements of an array in C order."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * max(shape[axis + 1], 1)
    return tuple(strides)


def _reshaped_strides(
    shape: tuple[int, ...], strides: tuple[int, ...], wanted: tuple[int, ...]
) -> tuple[int, ...] | None:
    """Strides of *wanted* over the elements of a strided array, if there are any.

    Both shapes are cut into the shortest groups of axes of equal size; within a group
    of the old axes the elements must be evenly spaced.
    """
    old = [(n, s) for n, s in zip(shape, strides, strict=True) if n != 1]
    result: list[int] = []
    position = axis = 0
    while axis < len(wanted):
        if wanted[axis] == 1:
            result.append(0)
            axis += 1
            continue
        if position == len(old):
            return None
        first, last = position, axis
        have, want = old[position][0], wanted[axis]
        while have != want:
            if have < want:
                position += 1
                if position == len(old):
                    return None
                have *= old[position][0]
            else:
                last += 1
                if last == len(wanted):
                    return None
                want *= wanted[last]
        for before in range(first, position):
            size, stride = old[before + 1]
            if old[before][1] != size * stride:
                return None
        stride = old[position][1]
        group: list[int] = []
        for size in reversed(wanted[axis : last + 1]):
            group.append(stride)
            stride *= size
        result.extend(reversed(group))
        position += 1
        axis = last + 1
    return tuple(result)
