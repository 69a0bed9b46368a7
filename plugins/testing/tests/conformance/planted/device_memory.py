"""The device's memory: its arrays, what makes them, what copies them, its context."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np

from onnxplug import ep
from onnxplug.authoring.locks import new_lock

from .device_streams import (
    AdoptedStream,
    DeviceCapture,
    DeviceStream,
    Point,
    do,
    own,
)
from .operators import Array

SPACE: Final = "threaded"
"""What the memory is called."""

LIMIT: Final = 1 << 30
"""Bytes that the device has."""


class DeviceArray:
    """An array on the device, into which the host does not look.

    Attributes:
        content: for the device's work, which uses memory and keeps no array.
        shape: sizes.
        dtype: numpy's.
    """

    def __init__(self, content: Array) -> None:
        self.content = content
        self.shape: tuple[int, ...] = content.shape
        self.dtype = content.dtype


class Free(NamedTuple):
    """Memory that is free when *stream*, if it is of one, has come to *point*."""

    memory: Array
    stream: weakref.ref[DeviceStream] | None
    point: Point | None


class DeviceAllocator(ep.Allocator):
    """Makes arrays, in memory that is handed out again in the order of its stream."""

    def __init__(self) -> None:
        self._lock = new_lock()
        self._live = 0
        self._free: list[Free] = []
        # arrays go at any time, even while this thread has the lock
        self._returned: deque[Free] = deque()

    @property
    def live_bytes(self) -> int:
        """Bytes of arrays that are not gone, and of captured graphs."""
        with self._lock:
            self._take_back()
            return self._live

    def empty(
        self, shape: Sequence[int], dtype: ep.DataType, stream: ep.Stream | None = None
    ) -> DeviceArray:
        if dtype is ep.DataType.STRING:
            raise TypeError("the device holds no texts; keep them on the host")
        nbytes = dtype.numpy.itemsize
        for size in shape:
            nbytes *= size
        memory = self.memory(nbytes, stream)
        array = DeviceArray(memory.view(dtype.numpy).reshape(tuple(shape)))
        queue = None if stream is None else own(stream)
        if queue is not None and queue.capture is not None:
            # the graph's, until that is closed
            release = Release(self, memory)
            queue.capture.memory.append(release)
        else:
            of = None if queue is None else weakref.ref(queue)
            weakref.finalize(array, self._give_back, memory, of).atexit = False
        return array

    def memory(self, nbytes: int, stream: ep.Stream | None) -> Array:
        """Bytes that nobody else uses, as *stream* sees it.

        Raises:
            MemoryError: there are not so many left.
        """
        with self._lock:
            self._take_back()
            if self._live + nbytes > LIMIT:
                raise MemoryError(
                    f"the device has {LIMIT - self._live} bytes left, not {nbytes}"
                )
            self._live += nbytes
            for index, free in enumerate(self._free):
                if free.memory.nbytes == nbytes and self.is_free(free, stream):
                    del self._free[index]
                    return free.memory
        return np.empty(nbytes, np.uint8)

    def is_free(self, free: Free, stream: ep.Stream | None) -> bool:
        """Whether work queued on *stream* from now on may use the memory."""
        if free.point is None or free.point.passed():
            return True
        is_own = free.stream is not None and free.stream() is stream
        return is_own and own(stream).capture is None

    def _give_back(
        self, memory: Array, stream: weakref.ref[DeviceStream] | None
    ) -> None:
        queue = None if stream is None else stream()
        point = None if queue is None else queue.last
        self._returned.append(Free(memory, stream, point))

    def _take_back(self) -> None:
        while self._returned:
            free = self._returned.popleft()
            self._live -= free.memory.nbytes
            self._free.append(free)
        # what was free for longest goes to the system
        while sum(free.memory.nbytes for free in self._free) > LIMIT // 16:
            del self._free[0]


class Release:
    """Memory of a captured graph; it is free again when this is gone."""

    def __init__(self, allocator: DeviceAllocator, memory: Array) -> None:
        give_back = allocator._give_back
        weakref.finalize(self, give_back, memory, None).atexit = False


class DeviceTransfer(ep.DataTransfer):
    """Copies from the device, to it, and within."""

    def can_copy(self, source: ep.MemoryLocation, target: ep.MemoryLocation) -> bool:
        spaces = {source.space, target.space}
        return SPACE in spaces and spaces <= {SPACE, ep.HOST.space}

    def copy(self, pairs: Sequence[tuple[Any, Any]], stream: ep.Stream | None) -> None:
        for source, target in pairs:
            if source.shape != target.shape or source.dtype != target.dtype:
                raise ValueError(
                    f"cannot copy {source.dtype}{list(source.shape)} to "
                    f"{target.dtype}{list(target.shape)}; make the target alike"
                )
        for source, target in pairs:
            do(partial(np.copyto, content(target), content(source)), stream)


def content(array: Any) -> Array:
    """The memory of an array of the device or of the host."""
    found: Array = array.content if isinstance(array, DeviceArray) else array
    return found


class DeviceContext(ep.DeviceContext):
    """The device, as all sessions share it.

    Attributes:
        device: what makes arrays there.
    """

    def __init__(
        self,
        location: ep.MemoryLocation,
        allocator: DeviceAllocator,
        transfer: DeviceTransfer,
        stream: type[DeviceStream],
    ) -> None:
        self.location = location
        self.native_handle = id(self)
        self.transfer = transfer
        self.capture = DeviceCapture()
        self.device = allocator
        self._stream = stream
        self._streams: weakref.WeakValueDictionary[int, DeviceStream] = (
            weakref.WeakValueDictionary()
        )

    @property
    def live_bytes(self) -> int:
        """Bytes of arrays that are not gone, and of captured graphs."""
        return self.device.live_bytes

    def allocator(self, kind: ep.MemoryKind) -> ep.Allocator | None:
        return self.device if kind is ep.MemoryKind.DEVICE else None

    def create_stream(self) -> DeviceStream:
        stream = self._stream()
        self._streams[stream.native_handle] = stream
        return stream

    def adopt_stream(self, handle: int) -> ep.Stream:
        stream = self._streams.get(handle)
        if stream is None:
            raise LookupError(f"the device has no stream {handle:#x}")
        return AdoptedStream(stream)

    def stack(self, arrays: Sequence[Any], axis: int, stream: ep.Stream | None) -> Any:
        shape = list(arrays[0].shape)
        shape.insert(axis, len(arrays))
        result = self.device.empty(shape, self.data_type(arrays[0]), stream)
        parts = [array.content for array in arrays]
        do(partial(np.stack, parts, axis, out=result.content), stream)
        return result

    def take(self, array: Any, axis: int, index: int, stream: ep.Stream | None) -> Any:
        shape = list(array.shape)
        del shape[axis]
        result = self.device.empty(shape, self.data_type(array), stream)
        part = np.moveaxis(array.content, axis, 0)[index, ...]
        do(partial(np.copyto, result.content, part), stream)
        return result


class DeviceSpaces(ep.MemorySpaces):
    """The memory of the one device.

    Args:
        make: makes its context.
    """

    owned = frozenset({SPACE})

    def __init__(self, make: Any) -> None:
        self._make = make

    def create_context(self, location: ep.MemoryLocation) -> ep.DeviceContext:
        if location != ep.MemoryLocation(SPACE, 0):
            raise LookupError(f"there is no device {location}; there is {SPACE}:0")
        context: ep.DeviceContext = self._make(location)
        return context
