"""An adapter's memory as the host knows it: what allocates arrays, and copies them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from onnxplug import ep
from onnxplug.authoring.locks import new_rlock
from onnxplug_directml.com.errors import DeviceRemoved
from onnxplug_directml.device.array import DmlArray
from onnxplug_directml.device.device import DmlDevice
from onnxplug_directml.device.loss import REMEDY
from onnxplug_directml.device.pool import Memory
from onnxplug_directml.device.streams import DmlStream
from onnxplug_directml.device.work import Copies, Region

_MOST_REGIONS: Final = 4096
"""Copies that a stack or a part is worth; beyond, the host does it."""


class DmlContext(ep.DeviceContext):
    """The memory of an adapter.

    Args:
        open_device: makes a device of the adapter.
    """

    def __init__(
        self, location: ep.MemoryLocation, open_device: Callable[[], DmlDevice]
    ) -> None:
        self.location = location
        self._open_device = open_device
        self._lock = new_rlock()
        self._device: DmlDevice | None = open_device()
        self.transfer = _Transfer(self)
        self._allocator = _Allocator(self)

    @property
    def device(self) -> DmlDevice:
        """The device, which is made anew if the one before was lost.

        Raises:
            RuntimeError: there is none any more.
        """
        with self._lock:
            found = self._device
            if found is None:
                raise RuntimeError(f"the memory {self.location} was closed")
            if found.is_lost:
                # Direct3D makes no other while anything of the lost one is held
                found.close()
                found = self._device = self._open_device()
            return found

    @property
    def live_bytes(self) -> int:
        return self.device.used_bytes()

    def create_stream(self) -> DmlStream:
        return DmlStream(self.device)

    def allocator(self, kind: ep.MemoryKind) -> ep.Allocator | None:
        return self._allocator if kind is ep.MemoryKind.DEVICE else None

    def stack(self, arrays: Sequence[Any], axis: int, stream: ep.Stream | None) -> Any:
        first = arrays[0]
        shape = (*first.shape[:axis], len(arrays), *first.shape[axis:])
        rows, nbytes = _rows(first, axis)
        if rows * len(arrays) > _MOST_REGIONS:
            return NotImplemented
        stacked = self.new_array(shape, first.dtype, stream)
        regions = [
            Region(
                source=self.memory_of(array),
                target=stacked.memory,
                nbytes=nbytes,
                source_begin=row * nbytes,
                target_begin=(row * len(arrays) + place) * nbytes,
            )
            for place, array in enumerate(arrays)
            for row in range(rows)
        ]
        self._copy(regions, stream)
        return stacked

    def take(self, array: Any, axis: int, index: int, stream: ep.Stream | None) -> Any:
        shape = (*array.shape[:axis], *array.shape[axis + 1 :])
        rows, nbytes = _rows(array, axis + 1)
        rows //= array.shape[axis]
        if rows > _MOST_REGIONS:
            return NotImplemented
        part = self.new_array(shape, array.dtype, stream)
        regions = [
            Region(
                source=self.memory_of(array),
                target=part.memory,
                nbytes=nbytes,
                source_begin=(row * array.shape[axis] + index) * nbytes,
                target_begin=row * nbytes,
            )
            for row in range(rows)
        ]
        self._copy(regions, stream)
        return part

    def new_array(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], stream: ep.Stream | None
    ) -> DmlArray:
        """An array of unspecified content.

        Raises:
            MemoryError: there is not enough memory.
            TypeError: its elements are no bytes.
        """
        if dtype.hasobject:
            raise TypeError(f"arrays at {self.location} hold numbers, and no {dtype}")
        memory = self.device.memory(math.prod(shape) * dtype.itemsize)
        if stream is not None:
            assert isinstance(stream, DmlStream)
            stream.keep(memory)
        return DmlArray(memory, shape, dtype)

    def _copy(self, regions: Sequence[Region], stream: ep.Stream | None) -> None:
        queue = self.stream_or_own(stream)
        queue.queue(Copies(tuple(each for each in regions if each.nbytes)))
        if stream is None:
            queue.synchronize()

    def stream_or_own(self, stream: ep.Stream | None) -> DmlStream:
        """*stream*, or one of its own."""
        if stream is None:
            return DmlStream(self.device)
        assert isinstance(stream, DmlStream)
        return stream

    def memory_of(self, array: DmlArray) -> Memory:
        """The memory of an array that is here.

        Raises:
            DeviceRemoved: it went with a device that was lost.
        """
        memory = array.memory
        if memory.device.is_lost or memory.device is not self.device:
            raise DeviceRemoved(
                f"an array was in the memory of {memory.device}, which was lost: "
                f"{REMEDY}"
            )
        return memory

    def close(self) -> None:
        with self._lock:
            device, self._device = self._device, None
        if device is not None:
            device.close()


class _Allocator(ep.Allocator):
    def __init__(self, context: DmlContext) -> None:
        self._context = context

    def empty(
        self, shape: Sequence[int], dtype: ep.DataType, stream: ep.Stream | None = None
    ) -> DmlArray:
        return self._context.new_array(tuple(shape), dtype.numpy, stream)


class _Transfer(ep.DataTransfer):
    def __init__(self, context: DmlContext) -> None:
        self._context = context

    def can_copy(self, source: ep.MemoryLocation, target: ep.MemoryLocation) -> bool:
        known = (self._context.location, ep.HOST)
        return source in known and target in known

    def copy(self, pairs: Sequence[tuple[Any, Any]], stream: ep.Stream | None) -> None:
        context = self._context
        queue = context.stream_or_own(stream)
        regions: list[Region] = []
        for source, target in pairs:
            if not isinstance(target, DmlArray):
                if isinstance(source, DmlArray):
                    queue.read(context.memory_of(source), target)
                else:
                    np.copyto(target, source)
            elif isinstance(source, DmlArray):
                if source is not target and source.nbytes:
                    regions.append(
                        Region(
                            context.memory_of(source),
                            context.memory_of(target),
                            source.nbytes,
                        )
                    )
            else:  # of which some hosts make scalars
                queue.upload(context.memory_of(target), np.asarray(source))
        if regions:
            queue.queue(Copies(tuple(regions)))
        if stream is None:
            queue.synchronize()


def _rows(array: DmlArray, axis: int) -> tuple[int, int]:
    """How many parts before *axis* there are, and how many bytes each has."""
    rows = math.prod(array.shape[:axis])
    return rows, math.prod(array.shape[axis:]) * array.dtype.itemsize
