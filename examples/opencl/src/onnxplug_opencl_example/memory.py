"""The device's memory: its arrays, and what makes and copies them."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyopencl as cl

from onnxplug import ep
from onnxplug.authoring.locks import new_lock

from .streams import OpenClStream

if TYPE_CHECKING:
    from .context import OpenClContext

Array: TypeAlias = np.ndarray[Any, Any]

SPACE: Final = "opencl"
"""What the memory is called; the ordinal says which device's it is."""


class OpenClArray:
    """An array on the device, in C order.

    OpenCL keeps a buffer that is released until the commands that use it are done, so
    work that is queued needs no reference to an array.

    Attributes:
        buffer: where it is; one byte, if the array has no elements.
        shape: sizes.
        dtype: numpy's.
    """

    __slots__ = ("__weakref__", "buffer", "dtype", "shape")

    def __init__(
        self, buffer: cl.Buffer, shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> None:
        self.buffer = buffer
        self.shape: Final = shape
        self.dtype: Final = dtype

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        nbytes = self.dtype.itemsize
        for size in self.shape:
            nbytes *= size
        return nbytes

    def __repr__(self) -> str:
        return f"OpenClArray({self.dtype}{list(self.shape)})"


class OpenClAllocator(ep.Allocator):
    """Makes arrays on one device, and counts their bytes."""

    def __init__(self, context: cl.Context, location: ep.MemoryLocation) -> None:
        self._context = context
        self._location = location
        self._lock = new_lock()
        self._live_bytes = 0
        # an array goes at any time, also while this thread has the lock
        self._gone: deque[int] = deque()

    @property
    def live_bytes(self) -> int:
        """Bytes of arrays that are not gone."""
        with self._lock:
            while self._gone:
                self._live_bytes -= self._gone.popleft()
            return self._live_bytes

    def empty(
        self, shape: Sequence[int], dtype: ep.DataType, stream: ep.Stream | None = None
    ) -> OpenClArray:
        """An array of any content.

        A buffer is nobody else's, so it does not matter on which stream it is used.

        Raises:
            TypeError: of texts.
            MemoryError: the device has not so much.
        """
        if dtype is ep.DataType.STRING:
            raise TypeError(f"{self._location} holds no texts; keep them on the host")
        nbytes = dtype.numpy.itemsize
        for size in shape:
            nbytes *= size
        try:
            # there are no buffers of nothing
            buffer = cl.Buffer(self._context, cl.mem_flags.READ_WRITE, max(nbytes, 1))
        except (cl.Error, OverflowError, TypeError) as error:
            raise MemoryError(
                f"{self._location} has no {nbytes} bytes for {dtype}{list(shape)}: "
                f"{error}"
            ) from error
        array = OpenClArray(buffer, tuple(shape), dtype.numpy)
        weakref.finalize(array, self._gone.append, nbytes).atexit = False
        with self._lock:
            self._live_bytes += nbytes
        return array


class OpenClTransfer(ep.DataTransfer):
    """Copies from one device, to it, and within."""

    def __init__(self, context: OpenClContext) -> None:
        # the context refers to this
        self._context = weakref.proxy(context)
        self._location = context.location

    def can_copy(self, source: ep.MemoryLocation, target: ep.MemoryLocation) -> bool:
        """Between the device and the host; not to other devices."""
        places = {source, target}
        return self._location in places and places <= {self._location, ep.HOST}

    def copy(self, pairs: Sequence[tuple[Any, Any]], stream: ep.Stream | None) -> None:
        """Queue the copies on *stream*, or, without one, copy now.

        Raises:
            ValueError: arrays of a pair are not alike; nothing is copied.
        """
        for source, target in pairs:
            if source.shape != target.shape or source.dtype != target.dtype:
                raise ValueError(
                    f"cannot copy {source.dtype}{list(source.shape)} to "
                    f"{target.dtype}{list(target.shape)}; make the target alike"
                )
        with nullcontext(stream) if stream else self._context.borrowed_stream() as used:
            own = self._context.own(used)
            for source, target in pairs:
                _copy(source, target, own)
            if stream is None:
                own.synchronize()


def _copy(source: Any, target: Any, stream: OpenClStream) -> None:
    """Queue one copy."""
    if 0 in source.shape:
        return
    if isinstance(source, OpenClArray) and isinstance(target, OpenClArray):
        cl.enqueue_copy(
            stream.queue, target.buffer, source.buffer, byte_count=source.nbytes
        )
    elif isinstance(target, OpenClArray):
        content = _bytes(np.ascontiguousarray(source))
        stream.keep(
            cl.enqueue_copy(stream.queue, target.buffer, content, is_blocking=False)
        )
    elif target.flags.c_contiguous:
        content = _bytes(target)
        stream.keep(
            cl.enqueue_copy(stream.queue, content, source.buffer, is_blocking=False)
        )
    else:
        # OpenCL writes in one order; the rest has to be done when it has
        content = np.empty(target.shape, target.dtype)
        cl.enqueue_copy(stream.queue, _bytes(content), source.buffer)
        target[...] = content


def _bytes(array: Array) -> Array:
    """The bytes of *array*, which is in C order, whatever its element type."""
    return array.reshape(-1).view(np.uint8)
