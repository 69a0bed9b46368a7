"""Measures work on a device, by the device's own clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from onnxplug_cuda.device import CudaDevice
from onnxplug_cuda.pool import Memory

_ROUNDS: Final = 3
"""How often something is measured, of which the least counts."""

_TIMING: Final = 0
"""Flags of an event that measures time."""


class DeviceBench:
    """A :class:`onnxplug_cuda.engines.choices.Bench`."""

    def __init__(self, device: CudaDevice) -> None:
        self._device = device

    def memory(self, nbytes: int) -> Memory:
        """Memory filled with zeros.

        Raises:
            MemoryError: there is none.
        """
        device = self._device
        memory = device.memory(nbytes)
        stream = device.new_stream()
        try:
            with device.lock, device.driver:
                runtime = device.driver.runtime
                runtime.memsetAsync(
                    memory.address, 0, memory.nbytes, stream.native_handle
                )
                stream.used((memory,))
            stream.synchronize()
        finally:
            stream.close()
        return memory

    def seconds(self, queue: Callable[[int], None]) -> float:
        """How long what *queue* puts on a stream takes: the least of a few rounds, as
        others use the device, too.  The first is to have all loaded.

        Raises:
            Exception: what *queue* raises.
        """
        device = self._device
        runtime = device.driver.runtime
        stream = device.new_stream()
        handle = stream.native_handle
        try:
            with device.driver:
                begin, end = (runtime.eventCreateWithFlags(_TIMING) for _ in range(2))
                try:
                    queue(handle)
                    times = []
                    for _ in range(_ROUNDS):
                        runtime.eventRecord(begin, handle)
                        queue(handle)
                        runtime.eventRecord(end, handle)
                        runtime.eventSynchronize(end)
                        times.append(runtime.eventElapsedTime(begin, end) / 1000)
                finally:
                    if not device.driver.fault:
                        runtime.streamSynchronize(handle)
                        runtime.eventDestroy(begin)
                        runtime.eventDestroy(end)
        finally:
            stream.close()
        return float(min(times))
