"""Memory that numpy cannot read, poisoned until it is written."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NoReturn

import numpy as np

from onnxplug import ep
from onnxplug_testing.simulated.streams import Schedule, SimulatedStream

HostArray = np.ndarray[Any, Any]


class Storage:
    """The bytes behind a :class:`DeviceArray`: what work on a stream holds.

    Once the array is destroyed others may write here, in the order of the stream it
    was made on; so it is poisoned then, and work on other streams had better be done.
    """

    __slots__ = ("_content",)

    def __init__(self, content: HostArray) -> None:
        self._content = content

    def read(self) -> HostArray:
        """The content, poison if nothing was written yet."""
        return self._content

    def write(self, content: HostArray) -> None:
        """Replace the content."""
        np.copyto(self._content, content, casting="no")

    def poison(self) -> None:
        """Make the content useless."""
        poison(self._content)


class DeviceArray:
    """An array in the memory of a simulated device.

    Attributes:
        shape: sizes.
        dtype: the numpy dtype.
        location: where it is.
        storage: its bytes, for work on streams.
    """

    __slots__ = ("__weakref__", "dtype", "location", "shape", "storage")

    def __init__(self, content: HostArray, location: ep.MemoryLocation) -> None:
        self.shape: Final[tuple[int, ...]] = content.shape
        self.dtype: Final[np.dtype[Any]] = content.dtype
        self.location: Final = location
        self.storage: Final = Storage(content)

    def __repr__(self) -> str:
        return f"DeviceArray({self.dtype}{list(self.shape)} on {self.location})"

    def _refuse(self, *_args: object, **_kwargs: object) -> NoReturn:
        raise TypeError(
            f"{self!r} is not in host memory; copy it to the host with the data "
            "transfer of its EP"
        )

    __array__ = __array_ufunc__ = __array_function__ = _refuse
    __len__ = __iter__ = __getitem__ = __setitem__ = __contains__ = _refuse
    __bool__ = __int__ = __float__ = __index__ = _refuse
    __buffer__ = __dlpack__ = __dlpack_device__ = _refuse


def poison(array: HostArray) -> None:
    """Fill *array* with what no test expects: NaN; for integers, 0xA5 bytes."""
    if array.dtype.kind == "O":
        array.fill("poison: read before it was written")
    elif array.dtype.kind == "b":
        array.fill(True)
    else:
        # all bits set is NaN for every float that has one, ml_dtypes' (kind V) too
        byte = b"\xa5" if array.dtype.kind in "iu" else b"\xff"
        array[...] = np.frombuffer(byte * array.dtype.itemsize, array.dtype)[0]


class SimulatedAllocator(ep.Allocator):
    """Makes device arrays, and counts their bytes.

    Attributes:
        live_bytes: of arrays that are not garbage.
        peak_bytes: the most that was live at once.
        allocations: how many arrays were made.
    """

    def __init__(
        self,
        location: ep.MemoryLocation,
        schedule: Schedule,
        limit: int | None = None,
    ) -> None:
        self.location = location
        self.live_bytes = 0
        self.peak_bytes = 0
        self.allocations = 0
        self._limit = limit
        # the schedule's, as any thread may release an array at any point in its work
        self._lock = schedule.lock

    def empty(
        self,
        shape: Sequence[int],
        dtype: ep.DataType,
        stream: ep.Stream | None = None,
    ) -> DeviceArray:
        if dtype is ep.DataType.STRING:
            raise TypeError(f"{self.location} holds no strings; keep them on the host")
        content = np.empty(tuple(shape), dtype.numpy)
        with self._lock:
            live = self.live_bytes + content.nbytes
            if self._limit is not None and live > self._limit:
                raise MemoryError(
                    f"{self.location} has {self.live_bytes} of {self._limit} bytes in "
                    f"use; {content.nbytes} more, for {dtype}{list(shape)}, do not "
                    "fit; drop arrays, or raise Knobs.memory_limit"
                )
            self.live_bytes = live
            self.peak_bytes = max(self.peak_bytes, live)
            self.allocations += 1
        array = DeviceArray(content, self.location)
        array.storage.poison()
        release = partial(self._release, array.storage, content.nbytes, stream)
        weakref.finalize(array, release).atexit = False
        return array

    def _release(self, storage: Storage, nbytes: int, stream: ep.Stream | None) -> None:
        with self._lock:
            self.live_bytes -= nbytes
            if isinstance(stream, SimulatedStream) and stream.pending:
                stream.enqueue(storage.poison)
            else:
                storage.poison()


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A copy that the data transfer was asked for.

    Attributes:
        source, target: where from and where to.
        dtype, shape: of what.
        nbytes: how much.
        queued: it was queued on a stream.
    """

    source: ep.MemoryLocation
    target: ep.MemoryLocation
    dtype: ep.DataType
    shape: tuple[int, ...]
    nbytes: int
    queued: bool


class SimulatedDataTransfer(ep.DataTransfer):
    """Copies between the host and the devices of one factory.

    Attributes:
        copies: each copy asked for, in order; a test may clear it.
    """

    def __init__(self, space: str) -> None:
        self.copies: list[Copy] = []
        self._space = space

    def can_copy(self, source: ep.MemoryLocation, target: ep.MemoryLocation) -> bool:
        spaces = {source.space, target.space}
        return self._space in spaces and spaces <= {self._space, ep.HOST.space}

    def copy(
        self, pairs: Sequence[tuple[Any, Any]], stream: ep.Stream | None = None
    ) -> None:
        for source, target in pairs:
            if source.shape != target.shape or source.dtype != target.dtype:
                raise ValueError(
                    f"cannot copy {source.dtype}{list(source.shape)} to "
                    f"{target.dtype}{list(target.shape)}; make the target alike"
                )
            self.copies.append(
                Copy(
                    source=_location(source),
                    target=_location(target),
                    dtype=ep.DataType.from_numpy(target.dtype),
                    shape=target.shape,
                    nbytes=int(np.prod(target.shape)) * target.dtype.itemsize,
                    queued=stream is not None,
                )
            )
            self._copy(source, target, stream)

    def _copy(self, source: Any, target: Any, stream: ep.Stream | None) -> None:
        if not isinstance(stream, SimulatedStream):
            np.copyto(_content(target)(), _content(source)(), casting="no")
            return
        # who reads a host target too early gets poison, unless work queued before on
        # this stream is to read it, as when an output is bound to an input's array
        if isinstance(target, np.ndarray) and not stream.will_read(target):
            poison(target)
        read, write_to = _content(source), _content(target)
        stream.enqueue(
            lambda: np.copyto(write_to(), read(), casting="no"),
            reads=source if isinstance(source, np.ndarray) else None,
        )


def _location(array: Any) -> ep.MemoryLocation:
    return array.location if isinstance(array, DeviceArray) else ep.HOST


def _content(array: Any) -> Callable[[], HostArray]:
    """What gives the content of *array* when a copy comes to it."""
    if isinstance(array, DeviceArray):
        return array.storage.read
    host: HostArray = array
    if host.base is not None:  # a view; it need not outlive the copy, its memory must
        return lambda: host
    # the queue keeps no host array alive, and no more does a real one
    reference = weakref.ref(host)
    description = f"{host.dtype}{list(host.shape)}"

    def content() -> HostArray:
        found = reference()
        if found is None:
            raise RuntimeError(
                f"a host array, {description}, was dropped before the copy that needs "
                "it was done; keep it until the stream is synchronised"
            )
        return found

    return content
