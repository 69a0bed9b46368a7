"""The device's memory: its arrays, what makes and copies them, and its context."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np

from onnxplug import ep

from .streams import AcmeStream, do

Array: TypeAlias = np.ndarray[Any, Any]

SPACE: Final = "acme"
"""What the memory is called."""


class DeviceArray:
    """An array on the device, which the host does not look into.

    Attributes:
        content: for the device's work, and no other.
        shape: sizes.
        dtype: numpy's.
    """

    def __init__(self, content: Array) -> None:
        self.content = content
        self.shape: tuple[int, ...] = content.shape
        self.dtype = content.dtype


class AcmeAllocator(ep.Allocator):
    """Makes arrays on the device.

    Work that is queued holds its arrays, so their memory is free when nobody needs it.

    Attributes:
        arrays: those that somebody has.
    """

    def __init__(self) -> None:
        self.arrays: weakref.WeakSet[DeviceArray] = weakref.WeakSet()

    def empty(
        self,
        shape: Sequence[int],
        dtype: ep.DataType,
        stream: ep.Stream | None = None,
    ) -> DeviceArray:
        """An array of any content.

        Raises:
            TypeError: of texts.
            MemoryError: there is not enough memory.
        """
        if dtype is ep.DataType.STRING:
            raise TypeError("the device holds no texts; keep them on the host")
        array = DeviceArray(np.empty(tuple(shape), dtype.numpy))
        self.arrays.add(array)
        return array


class AcmeTransfer(ep.DataTransfer):
    """Copies from the device, to it, and within."""

    def can_copy(self, source: ep.MemoryLocation, target: ep.MemoryLocation) -> bool:
        """Between the device and the host."""
        spaces = {source.space, target.space}
        return SPACE in spaces and spaces <= {SPACE, ep.HOST.space}

    def copy(self, pairs: Sequence[tuple[Any, Any]], stream: ep.Stream | None) -> None:
        """Copy the first of each pair to the second, now or on *stream*.

        Raises:
            ValueError: they are not of one shape and element type; nothing is copied.
        """
        for source, target in pairs:
            if source.shape != target.shape or source.dtype != target.dtype:
                raise ValueError(
                    f"cannot copy {source.dtype}{list(source.shape)} to "
                    f"{target.dtype}{list(target.shape)}; make the target alike"
                )
        for source, target in pairs:
            do(partial(np.copyto, _content(target), _content(source)), stream)


def _content(array: Any) -> Array:
    """The content of an array of the device or of the host."""
    content: Array = array.content if isinstance(array, DeviceArray) else array
    return content


class AcmeContext(ep.DeviceContext):
    """The device, as all sessions share it."""

    def __init__(self, location: ep.MemoryLocation) -> None:
        self.location = location
        self.transfer = AcmeTransfer()
        self.device_memory = AcmeAllocator()

    def allocator(self, kind: ep.MemoryKind) -> ep.Allocator | None:
        """What makes arrays on the device; there is no pinned memory."""
        return self.device_memory if kind is ep.MemoryKind.DEVICE else None

    @property
    def live_bytes(self) -> int:
        """Of arrays that somebody has: a session that leaks shows here."""
        return sum(array.content.nbytes for array in list(self.device_memory.arrays))

    def create_stream(self) -> AcmeStream:
        """A thread that does work in order."""
        return AcmeStream()


class AcmeSpaces(ep.MemorySpaces):
    """The memory of the one device."""

    owned = frozenset({SPACE})

    def create_context(self, location: ep.MemoryLocation) -> AcmeContext:
        """The context of the device.

        Raises:
            LookupError: there is no such device.
        """
        if location.space != SPACE or location.ordinal != 0:
            raise LookupError(f"there is no device {location}; there is {SPACE}:0")
        return AcmeContext(location)
