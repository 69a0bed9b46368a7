"""Memory of the host that a device copies to and from by itself."""

from __future__ import annotations

import bisect
import ctypes
from collections import Counter, deque
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from onnxplug_cuda.driver import Driver
    from onnxplug_cuda.timeline import Timeline

_PORTABLE: Final = 1
"""Flag of memory that is pinned for all contexts: ``cudaHostAllocPortable``."""

_LEAST: Final = 1 << 12
_MOST_IDLE: Final = 1 << 28
"""Bytes that are kept of what nobody uses."""

CHUNK: Final = 1 << 23
"""Bytes that are uploaded at once; more go in several steps."""

_MOST_PENDING: Final = 1 << 26
"""Bytes of a stream's uploads that are under way, before the next waits for the first
of them."""


class Room:
    """Pinned memory.

    Attributes:
        address: where it begins.
        nbytes: how many there are.
        bytes: the same as an array.
    """

    __slots__ = ("address", "bytes", "nbytes")

    def __init__(self, address: int, nbytes: int) -> None:
        self.address = address
        self.nbytes = nbytes
        memory = memoryview((ctypes.c_uint8 * nbytes).from_address(address))
        self.bytes: np.ndarray[Any, np.dtype[np.uint8]] = np.frombuffer(
            memory, np.uint8
        )


class Staging:
    """Pinned memory, by size.  Used under the device's lock, and within the driver's
    context.

    Attributes:
        idle: bytes that are kept of what nobody uses.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._free: dict[int, list[Room]] = {}
        # by the stream, as one does not wait for another's work
        self._pending: dict[Timeline, deque[tuple[int, Room]]] = {}
        self._pending_bytes: Counter[Timeline] = Counter()
        self._returned: deque[tuple[Room, Timeline | None]] = deque()
        self._starts: list[int] = []
        self._ends: dict[int, int] = {}
        self.idle = 0

    def take(self, nbytes: int) -> Room:
        """A room of at least so many bytes.

        Raises:
            MemoryError: the system pins no more.
        """
        self._collect()
        size = max(_LEAST, 1 << (nbytes - 1).bit_length())
        free = self._free.get(size)
        if free:
            self.idle -= size
            return free.pop()
        try:
            address = self._allocated(size)
        except MemoryError:
            self.trim()
            address = self._allocated(size)
        bisect.insort(self._starts, address)
        self._ends[address] = address + size
        return Room(address, size)

    def _allocated(self, size: int) -> int:
        try:
            with self._driver:  # which tells that there is no memory
                return int(self._driver.runtime.hostAlloc(size, _PORTABLE))
        except MemoryError as error:
            raise MemoryError(
                f"{size} bytes of the host's memory cannot be pinned for copies: "
                f"{error}; feed less at once, or raise the limit of locked memory"
            ) from error

    def has(self, address: int, nbytes: int) -> bool:
        """Whether a device copies to and from this memory by itself."""
        place = bisect.bisect_right(self._starts, address) - 1
        return place >= 0 and address + nbytes <= self._ends[self._starts[place]]

    def give_back(self, room: Room) -> None:
        """Take a room back that nothing uses any more."""
        if self.idle + room.nbytes > _MOST_IDLE:
            self._release(room)
            return
        self._free.setdefault(room.nbytes, []).append(room)
        self.idle += room.nbytes

    def give_back_after(self, room: Room, timeline: Timeline, ticket: int) -> None:
        """Take a room back when what was queued as *ticket* is done."""
        pending = self._pending.setdefault(timeline, deque())
        pending.append((ticket, room))
        self._pending_bytes[timeline] += room.nbytes
        while self._pending_bytes[timeline] > _MOST_PENDING:
            if not timeline.synchronize(pending[0][0]):
                break
            self._collect()

    def return_soon(self, room: Room) -> None:
        """Take a room back, from whatever thread, maybe as garbage is collected."""
        self._returned.append((room, None))

    def return_after(self, room: Room, timeline: Timeline) -> None:
        """The same, of a room that what is queued on *timeline* may still fill."""
        self._returned.append((room, timeline))

    def _collect(self) -> None:
        while self._returned:
            room, timeline = self._returned.popleft()
            if timeline is None:
                self.give_back(room)
            else:
                pending = self._pending.setdefault(timeline, deque())
                pending.append((timeline.submitted, room))
                self._pending_bytes[timeline] += room.nbytes
        for timeline, pending in list(self._pending.items()):
            while pending and timeline.is_past(pending[0][0]):
                _, room = pending.popleft()
                self._pending_bytes[timeline] -= room.nbytes
                self.give_back(room)
            if not pending:
                del self._pending[timeline], self._pending_bytes[timeline]

    def _release(self, room: Room) -> None:
        self._starts.remove(room.address)
        del self._ends[room.address]
        self._driver.runtime.freeHost(room.address)

    def trim(self) -> None:
        """Give up what nobody uses."""
        self._collect()
        for rooms in self._free.values():
            while rooms:
                self._release(rooms.pop())
        self.idle = 0


class _Pinned:
    """Keeps a room for an array of numpy's, which is a view of it."""

    def __init__(self, staging: Staging, room: Room, nbytes: int) -> None:
        self._staging = staging
        self._room = room
        self.__array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (room.address, False),
            "version": 3,
        }

    def __del__(self) -> None:
        self._staging.return_soon(self._room)


def pinned_array(
    staging: Staging, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> np.ndarray[Any, Any]:
    """An array of numpy's in pinned memory, which returns when it and its views go.

    Raises:
        MemoryError: the system pins no more.
    """
    nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    room = staging.take(max(nbytes, 1))
    content = np.asarray(_Pinned(staging, room, nbytes))
    found: np.ndarray[Any, Any] = content.view(dtype).reshape(shape)
    return found
