"""A device's memory as the host knows it: arrays, and what copies them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxplug import ep
from onnxplug.ep import DataType
from onnxplug_webgpu.copying import Copier
from onnxplug_webgpu.device import Copies, Device
from onnxplug_webgpu.loss import lost
from onnxplug_webgpu.pool import Memory
from onnxplug_webgpu.streams import WebGpuStream


class WebGpuArray:
    """An array on a device, in C order from the beginning of its memory.

    Attributes:
        memory: where it is.
        shape: sizes.
        dtype: numpy's.
    """

    __slots__ = ("__weakref__", "_device", "dtype", "memory", "shape")

    def __init__(
        self,
        device: Device,
        memory: Memory,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
    ) -> None:
        self._device = device
        self.memory = memory
        self.shape = shape
        self.dtype = dtype

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return math.prod(self.shape) * self.dtype.itemsize

    def check(self) -> None:
        """Check that its content is there.

        Raises:
            DeviceLost: it was in a device that was lost.
        """
        if not self._device.has(self.memory):
            raise lost(self._device)


class _Allocator(ep.Allocator):
    def __init__(self, device: Device) -> None:
        self._device = device

    def empty(
        self,
        shape: Sequence[int],
        dtype: DataType,
        stream: ep.Stream | None = None,
    ) -> WebGpuArray:
        return new_array(self._device, tuple(shape), dtype.numpy)


def new_array(
    device: Device,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    mode: str = "bucket",
) -> WebGpuArray:
    """An array of unspecified content.

    Args:
        mode: what becomes of its memory; see :class:`~.pool.Pool`.

    Raises:
        MemoryError: there is not enough memory.
        TypeError: its elements are no bytes.
    """
    if dtype.hasobject:
        raise TypeError(f"arrays on WebGPU hold numbers; {dtype} was asked for")
    nbytes = math.prod(shape) * dtype.itemsize
    return WebGpuArray(device, device.memory(nbytes, mode), shape, dtype)


class _Transfer(ep.DataTransfer):
    def __init__(self, device: Device, location: ep.MemoryLocation) -> None:
        self._device = device
        self._location = location

    def can_copy(self, source: ep.MemoryLocation, target: ep.MemoryLocation) -> bool:
        known = (self._location, ep.HOST)
        return source in known and target in known

    def copy(self, pairs: Sequence[tuple[Any, Any]], stream: ep.Stream | None) -> None:
        device = self._device
        queue = WebGpuStream(device) if stream is None else stream
        assert isinstance(queue, WebGpuStream)
        copies: list[tuple[Memory, Memory, int]] = []
        for source, target in pairs:
            for array in (source, target):
                if isinstance(array, WebGpuArray):
                    array.check()
            if not isinstance(target, WebGpuArray):
                if isinstance(source, WebGpuArray):
                    queue.read_array(source.memory, target)
                else:
                    np.copyto(target, source)
            elif isinstance(source, WebGpuArray):
                copies.append((source.memory, target.memory, source.nbytes))
            else:  # of which some hosts make scalars
                queue.upload(target.memory, np.asarray(source))
        if copies:
            queue.queue(Copies(tuple(copies)))
        if stream is None:
            queue.synchronize_readbacks()


class WebGpuContext(ep.DeviceContext):
    """The memory of a device.

    Attributes:
        device: which.
    """

    def __init__(self, device: Device, location: ep.MemoryLocation) -> None:
        self.device = device
        self.location = location
        self.transfer = _Transfer(device, location)
        self._allocator = _Allocator(device)
        self._copier = Copier(device)

    def create_stream(self) -> WebGpuStream:
        return WebGpuStream(self.device)

    def allocator(self, kind: ep.MemoryKind) -> ep.Allocator | None:
        return self._allocator if kind is ep.MemoryKind.DEVICE else None

    def stack(self, arrays: Sequence[Any], axis: int, stream: ep.Stream | None) -> Any:
        first = arrays[0]
        shape = (*first.shape[:axis], len(arrays), *first.shape[axis:])
        stacked = new_array(self.device, shape, first.dtype)
        for array in arrays:
            array.check()
        memories = [array.memory for array in arrays]
        self._copier.stack(memories, stacked.memory, shape, first.dtype, axis, stream)
        return stacked

    def take(self, array: Any, axis: int, index: int, stream: ep.Stream | None) -> Any:
        array.check()
        shape = (*array.shape[:axis], *array.shape[axis + 1 :])
        part = new_array(self.device, shape, array.dtype)
        place = axis, index
        self._copier.take(
            array.memory, part.memory, array.shape, array.dtype, place, stream
        )
        return part

    def close(self) -> None:
        self._copier.close()
        self.device.close()
