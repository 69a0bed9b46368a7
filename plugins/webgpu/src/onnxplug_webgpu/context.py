"""A device's memory as the host knows it: arrays, and what copies them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxplug import ep
from onnxplug.ep import DataType
from onnxplug_webgpu.device import Device, Memory


class WebGpuArray:
    """An array on a device, in C order from the beginning of its memory.

    Attributes:
        memory: where it is.
        shape: sizes.
        dtype: numpy's.
    """

    __slots__ = ("__weakref__", "dtype", "memory", "shape")

    def __init__(
        self, memory: Memory, shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> None:
        self.memory = memory
        self.shape = shape
        self.dtype = dtype

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return math.prod(self.shape) * self.dtype.itemsize


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
    device: Device, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> WebGpuArray:
    """An array of unspecified content.

    Raises:
        MemoryError: there is not enough memory.
        TypeError: its elements are no bytes.
    """
    if dtype.hasobject:
        raise TypeError(f"arrays on WebGPU hold numbers; {dtype} was asked for")
    nbytes = math.prod(shape) * dtype.itemsize
    return WebGpuArray(device.memory(nbytes), shape, dtype)


class _Transfer(ep.DataTransfer):
    def __init__(self, device: Device, location: ep.MemoryLocation) -> None:
        self._device = device
        self._location = location

    def can_copy(self, source: ep.MemoryLocation, target: ep.MemoryLocation) -> bool:
        known = (self._location, ep.HOST)
        return source in known and target in known

    def copy(self, pairs: Sequence[tuple[Any, Any]], stream: ep.Stream | None) -> None:
        downloads: list[tuple[WebGpuArray, np.ndarray[Any, Any]]] = []
        copies: list[tuple[Memory, Memory, int]] = []
        for source, target in pairs:
            if not isinstance(target, WebGpuArray):
                if isinstance(source, WebGpuArray):
                    downloads.append((source, target))
                else:
                    np.copyto(target, source)
            elif isinstance(source, WebGpuArray):
                copies.append((source.memory, target.memory, source.nbytes))
            else:  # of which some hosts make scalars
                self._device.upload(target.memory, np.asarray(source))
        if copies:
            self._device.copy(copies)
        if downloads:
            rooms = [
                target
                if target.flags.c_contiguous
                else np.empty_like(target, order="C")
                for _, target in downloads
            ]
            self._device.download(
                [
                    (s.memory, room)
                    for (s, _), room in zip(downloads, rooms, strict=True)
                ]
            )
            for (_, target), room in zip(downloads, rooms, strict=True):
                if room is not target:
                    np.copyto(target, room)


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

    def allocator(self, kind: ep.MemoryKind) -> ep.Allocator | None:
        return self._allocator if kind is ep.MemoryKind.DEVICE else None

    def close(self) -> None:
        self.device.close()
