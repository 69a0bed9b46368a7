"""A device's memory as the host knows it: what allocates arrays, and copies them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxplug import ep
from onnxplug.ep import DataType
from onnxplug_compiler.gpu.execution.array import DeviceArray, new_array
from onnxplug_compiler.gpu.execution.backend import Backend
from onnxplug_compiler.gpu.execution.copying import Copier
from onnxplug_compiler.gpu.execution.device import Copies, Device, DeviceStream, Memory


class _Allocator(ep.Allocator):
    def __init__(self, device: Device) -> None:
        self._device = device

    def empty(
        self,
        shape: Sequence[int],
        dtype: DataType,
        stream: ep.Stream | None = None,
    ) -> DeviceArray:
        assert stream is None or isinstance(stream, DeviceStream)
        return new_array(self._device, tuple(shape), dtype.numpy, stream)


class _Transfer(ep.DataTransfer):
    def __init__(self, device: Device, location: ep.MemoryLocation) -> None:
        self._device = device
        self._location = location

    def can_copy(self, source: ep.MemoryLocation, target: ep.MemoryLocation) -> bool:
        known = (self._location, ep.HOST)
        return source in known and target in known

    def copy(self, pairs: Sequence[tuple[Any, Any]], stream: ep.Stream | None) -> None:
        device = self._device
        queue = device.new_stream() if stream is None else stream
        assert isinstance(queue, DeviceStream)
        copies: list[tuple[Memory, Memory, int]] = []
        for source, target in pairs:
            for array in (source, target):
                if isinstance(array, DeviceArray):
                    array.check()
            if not isinstance(target, DeviceArray):
                if isinstance(source, DeviceArray):
                    queue.read_array(source.memory, target)
                else:
                    np.copyto(target, source)
            elif isinstance(source, DeviceArray):
                copies.append((source.memory, target.memory, source.nbytes))
            else:  # of which some hosts make scalars
                queue.upload(target.memory, np.asarray(source))
        if copies:
            queue.queue(Copies(tuple(copies)))
        if stream is None:
            queue.synchronize_readbacks()


class GpuContext(ep.DeviceContext):
    """The memory of a device.

    Args:
        backend: of copies.

    Attributes:
        device: which.
    """

    def __init__(
        self, device: Device, location: ep.MemoryLocation, backend: Backend
    ) -> None:
        self.device = device
        self.location = location
        self.transfer = _Transfer(device, location)
        self._allocator = _Allocator(device)
        self._copier = Copier(device, backend)

    @property
    def live_bytes(self) -> int:
        return self.device.used_bytes()

    def create_stream(self) -> DeviceStream:
        return self.device.new_stream()

    def allocator(self, kind: ep.MemoryKind) -> ep.Allocator | None:
        return self._allocator if kind is ep.MemoryKind.DEVICE else None

    def stack(self, arrays: Sequence[Any], axis: int, stream: ep.Stream | None) -> Any:
        first = arrays[0]
        shape = (*first.shape[:axis], len(arrays), *first.shape[axis:])
        assert stream is None or isinstance(stream, DeviceStream)
        stacked = new_array(self.device, shape, first.dtype, stream)
        for array in arrays:
            array.check()
        memories = [array.memory for array in arrays]
        self._copier.stack(memories, stacked.memory, shape, first.dtype, axis, stream)
        return stacked

    def take(self, array: Any, axis: int, index: int, stream: ep.Stream | None) -> Any:
        array.check()
        shape = (*array.shape[:axis], *array.shape[axis + 1 :])
        assert stream is None or isinstance(stream, DeviceStream)
        part = new_array(self.device, shape, array.dtype, stream)
        place = axis, index
        self._copier.take(
            array.memory, part.memory, array.shape, array.dtype, place, stream
        )
        return part

    def close(self) -> None:
        self._copier.close()
        self.device.close()
