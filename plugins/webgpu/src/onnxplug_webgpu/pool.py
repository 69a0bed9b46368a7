"""Memory of a device, which is handed out again in the order of the device's queue.

All that is queued runs in order, so memory may be handed out again as soon as nothing
that is queued later refers to it.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from typing import Any, Final

ALIGNMENT: Final = 256
"""Sizes of memory are multiples of it."""

CACHE_MODES: Final = ("disabled", "lazyRelease", "simple", "bucket")
"""What becomes of memory that nobody uses any more: the first two give it back to the
driver, which frees it when what is queued is done; ``simple`` keeps it for requests of
the same size, ``bucket`` for those of about the same size."""

_MOST_IDLE: Final = 1 << 28
"""Bytes that are kept of what nobody uses."""

_STEPS: Final = 3
"""Buckets are apart by an eighth of a power of two."""

_serials: Final = itertools.count()


class Memory:
    """Bytes on a device; they return to the pool when this object goes.

    Attributes:
        buffer: wgpu's.
        nbytes: how many there are, at least as many as were asked for.
        serial: tells it from all others, also from those before.
        generation: of the device; what was there is gone if that has another.
        is_kept: whether it is kept when it returns.
    """

    __slots__ = (
        "__weakref__",
        "_returned",
        "buffer",
        "generation",
        "is_kept",
        "nbytes",
        "serial",
    )

    def __init__(
        self,
        returned: deque[Any],
        buffer: Any,
        nbytes: int,
        generation: int,
        serial: int,
        *,
        is_kept: bool = True,
    ) -> None:
        self._returned = returned
        self.buffer = buffer
        self.nbytes = nbytes
        self.generation = generation
        self.serial = serial
        self.is_kept = is_kept

    def __del__(self) -> None:
        # in whatever thread, maybe as garbage is collected: no lock may be taken
        self._returned.append((self.serial, self.nbytes, self.is_kept))


def of_its_own(buffer: Any, nbytes: int, generation: int) -> Memory:
    """Memory of no pool, for a use that no other has."""
    return Memory(deque(maxlen=0), buffer, nbytes, generation, next(_serials))


class Pool:
    """What nobody uses, by size.  Used under the device's lock.

    Args:
        largest: bytes of a buffer, at most; a multiple of :data:`ALIGNMENT`.
        forget: called when buffers are given up.

    Attributes:
        idle: bytes that are kept.
        total: bytes of all buffers, those in use included.
    """

    def __init__(
        self,
        largest: int,
        generation: int,
        forget: Callable[[], None],
    ) -> None:
        self._largest = largest
        self._generation = generation
        self._forget = forget
        # all of them, so that none is collected as garbage together with a memory
        self._buffers: dict[int, Any] = {}
        self._free: dict[int, list[int]] = {}
        self._returned: deque[tuple[int, int, bool]] = deque()
        self.idle = 0
        self.total = 0

    def take(
        self, nbytes: int, create: Callable[[int], Any], mode: str = "bucket"
    ) -> Memory:
        """Memory of unspecified content.

        Args:
            nbytes: no more than the largest buffer has.
            create: makes a buffer of so many bytes; ``MemoryError`` if there are none.
            mode: one of :data:`CACHE_MODES`.

        Raises:
            MemoryError: there is none.
        """
        self.collect()
        size = self._rounded(nbytes, mode)
        is_kept = mode in ("simple", "bucket")
        free = self._free.get(size)
        if free:
            serial = free.pop()
            self.idle -= size
        else:
            buffer = create(size)
            serial = next(_serials)
            self._buffers[serial] = buffer
            self.total += size
        return Memory(
            self._returned,
            self._buffers[serial],
            size,
            self._generation,
            serial,
            is_kept=is_kept,
        )

    def _rounded(self, nbytes: int, mode: str) -> int:
        nbytes = max(nbytes, 1)
        step = ALIGNMENT
        if mode == "bucket":
            step = max(step, 1 << max(0, nbytes.bit_length() - 1 - _STEPS))
        size = -(-nbytes // step) * step
        return size if size <= self._largest else -(-nbytes // ALIGNMENT) * ALIGNMENT

    def collect(self) -> None:
        """Take back what nobody uses any more."""
        forgotten = False
        while self._returned:
            serial, size, is_kept = self._returned.popleft()
            if is_kept:
                self._free.setdefault(size, []).append(serial)
                self.idle += size
            else:
                if self._buffers.pop(serial, None) is not None:
                    self.total -= size
                forgotten = True
        if forgotten:
            self._forget()
        if self.idle > _MOST_IDLE:
            self.trim(_MOST_IDLE // 2)

    def trim(self, most: int = 0) -> None:
        """Give up memory that nobody uses, the largest pieces first."""
        for size in sorted(self._free, reverse=True):
            while self._free[size] and self.idle > most:
                self._buffers.pop(self._free[size].pop())
                self.idle -= size
                self.total -= size
        self._forget()
