"""The memory of devices, reached by name outside any session."""

from __future__ import annotations

from typing import Any

from onnxplug.ep import (
    HOST,
    Allocator,
    DataTransfer,
    DataType,
    EpFactory,
    MemoryLocation,
)
from onnxplug.errors import InvalidArgument, OnnxplugError
from onnxplug.guard import blaming
from onnxplug.plugins import PluginRegistry
from onnxplug.plugins import registry as registry_of_process


class DeviceMemory:
    """One device's memory, with what allocates and copies there.

    Everything is done when a call returns; no stream is involved.  What fails in one is
    the EP's failure, an ``EpError``.
    """

    def __init__(
        self,
        ep: str,
        location: MemoryLocation,
        allocator: Allocator,
        transfer: DataTransfer,
    ) -> None:
        self.location = location
        self._ep = ep
        self._allocator = allocator
        self._transfer = transfer

    def empty(self, shape: tuple[int, ...], dtype: DataType) -> Any:
        """A new array of unspecified content."""
        with blaming(self._ep, "run"):
            return self._allocator.empty(shape, dtype)

    def from_host(self, array: Any) -> Any:
        """A copy of a numpy array."""
        target = self.empty(array.shape, DataType.from_numpy(array.dtype))
        self.write(array, target)
        return target

    def duplicate(self, array: Any) -> Any:
        """A copy of an array of this memory."""
        target = self.empty(tuple(array.shape), DataType.from_numpy(array.dtype))
        self.write(array, target)
        return target

    def write(self, array: Any, target: Any) -> None:
        """Copy an array of the host, or of this memory, into one of this memory."""
        with blaming(self._ep, "run"):
            self._transfer.copy([(array, target)], None)

    def to_host(self, array: Any) -> Any:
        """A numpy copy of an array of this memory."""
        import numpy as np

        target = np.empty(array.shape, array.dtype)
        with blaming(self._ep, "run"):
            self._transfer.copy([(array, target)], None)
        return target


def find_memory(
    device_type: str,
    device_id: int = 0,
    registry: PluginRegistry = registry_of_process,
) -> DeviceMemory:
    """The memory named *device_type*, such as ``cuda``, of device *device_id*.

    Args:
        registry: its EPs are asked.

    Raises:
        InvalidArgument: no EP that can be loaded has memory of that name.
    """
    location = MemoryLocation(device_type.lower(), device_id)
    for record in registry.records():
        try:
            factory = registry.factory(record.name)
        except OnnxplugError:
            continue  # the registry keeps why, and another may have the memory
        memory = memory_of(factory, location)
        if memory is not None:
            return memory
    raise InvalidArgument(
        f"no installed EP has memory named {device_type!r} (device {device_id}); "
        "`onnxplug eps` lists the EPs, and 'cpu' is the host's memory"
    )


def memory_of(factory: EpFactory, location: MemoryLocation) -> DeviceMemory | None:
    """The memory at *location*, if *factory* has it."""
    if location == HOST:
        return None
    with blaming(factory.name, "create"):
        allocator = factory.create_allocator(location)
        transfer = factory.create_data_transfer()
        if allocator is None or transfer is None:
            return None
        if not transfer.can_copy(HOST, location):
            return None
    return DeviceMemory(factory.name, location, allocator, transfer)
