"""A GPU's memory and streams as the host knows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from onnxplug import ep
from onnxplug.ep import DataType
from onnxplug_compiler.gpu.execution.backend import Backend
from onnxplug_compiler.gpu.execution.context import GpuContext
from onnxplug_compiler.gpu.execution.device import Copies
from onnxplug_cuda.array import CudaArray, imported
from onnxplug_cuda.device import CudaDevice
from onnxplug_cuda.pool import Memory
from onnxplug_cuda.staging import pinned_array
from onnxplug_cuda.streams import CudaCapture, CudaStream


class _PinnedAllocator(ep.Allocator):
    """numpy's arrays in memory that the device copies to and from by itself."""

    def __init__(self, device: CudaDevice) -> None:
        self._device = device

    def empty(
        self,
        shape: Sequence[int],
        dtype: DataType,
        stream: ep.Stream | None = None,
    ) -> np.ndarray[Any, Any]:
        device = self._device
        with device.lock, device.driver:
            return pinned_array(device.shared.staging, tuple(shape), dtype.numpy)


class _Transfer(ep.DataTransfer):
    def __init__(self, device: CudaDevice, location: ep.MemoryLocation) -> None:
        self._device = device
        self._location = location

    def can_copy(self, source: ep.MemoryLocation, target: ep.MemoryLocation) -> bool:
        known = (self._location, ep.HOST)
        return source in known and target in known

    def copy(self, pairs: Sequence[tuple[Any, Any]], stream: ep.Stream | None) -> None:
        for pair in pairs:
            for array in pair:
                if isinstance(array, CudaArray):
                    array.check()
        if stream is not None:
            assert isinstance(stream, CudaStream)
            for source, target in pairs:
                _queue_copy(stream, source, target)
            return
        with self._device.at_once() as own:
            for source, target in pairs:
                for array in (source, target):
                    if isinstance(array, CudaArray):
                        own.follow(cast("Memory", array.memory))
                _queue_copy(own, source, target)


def _queue_copy(stream: CudaStream, source: Any, target: Any) -> None:
    """Queue a copy, for which arrays of the host are kept as they are."""
    if not isinstance(target, CudaArray):
        if isinstance(source, CudaArray):
            stream.read_array(source.memory, target)
        else:
            np.copyto(target, source)
    elif isinstance(source, CudaArray):
        stream.queue(Copies(((source.memory, target.memory, source.nbytes),)))
    else:  # of which some hosts make scalars
        stream.upload_pinned(cast("Memory", target.memory), np.asarray(source))


class CudaContext(GpuContext):
    """The memory of a GPU."""

    device: CudaDevice

    def __init__(
        self, device: CudaDevice, location: ep.MemoryLocation, backend: Backend
    ) -> None:
        super().__init__(device, location, backend)
        self.transfer = _Transfer(device, location)
        self.capture = CudaCapture()
        self.dlpack_device = 2, location.ordinal
        self._pinned = _PinnedAllocator(device)
        with device.driver:
            self.native_handle = int(device.driver.driver.ctxGetCurrent())

    def allocator(self, kind: ep.MemoryKind) -> ep.Allocator | None:
        if kind is ep.MemoryKind.PINNED:
            return self._pinned
        return super().allocator(kind)

    def adopt_stream(self, handle: int) -> CudaStream:
        return self.device.adopt_stream(handle)

    def from_dlpack(self, capsule: Any) -> CudaArray:
        return imported(self.device, capsule)
