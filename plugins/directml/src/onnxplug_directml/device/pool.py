"""Memory of an adapter, which is handed out again in the order of its queue.

All that is queued runs in order, so memory may be handed out again as soon as nothing
that is queued later refers to it.  Each piece is a committed resource of its own, as
Direct3D 12 gives every one pages of 64 KiB, and its content begins where that does,
which suits every alignment that DirectML asks for.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from onnxplug_directml.device.queue import DmlQueue

PAGE: Final = 1 << 16
"""Sizes of memory are multiples of it: ``D3D12_DEFAULT_RESOURCE_PLACEMENT_ALIGNMENT``,
by which a resource's size is rounded up anyway."""

_MOST_IDLE: Final = 1 << 28
"""Bytes that are kept of what nobody uses."""

_STEPS: Final = 3
"""Sizes are apart by an eighth of a power of two."""

_serials: Final = itertools.count(1)


class Memory:
    """Bytes on an adapter; they return to the pool when this object goes.

    Attributes:
        device: the one that they are of.
        resource: Direct3D's buffer.
        nbytes: how many there are, at least as many as were asked for.
        serial: tells it from all others, also from those before.
    """

    __slots__ = ("__weakref__", "_returned", "device", "nbytes", "resource", "serial")

    def __init__(
        self,
        returned: deque[tuple[int, int]],
        device: DmlQueue,
        resource: Any,
        nbytes: int,
        serial: int,
    ) -> None:
        self._returned = returned
        self.device = device
        self.resource = resource
        self.nbytes = nbytes
        self.serial = serial

    def __del__(self) -> None:
        # in whatever thread, maybe as garbage is collected: no lock may be taken
        self._returned.append((self.serial, self.nbytes))


class Pool:
    """What nobody uses, by size.  Used under the device's lock.

    Args:
        create: makes a buffer of so many bytes; ``MemoryError`` if there are none.
        retire: releases a buffer once what is queued is done.

    Attributes:
        idle: bytes that are kept.
        total: bytes of all buffers, those in use included.
    """

    def __init__(
        self, create: Callable[[int], Any], retire: Callable[[Any], None]
    ) -> None:
        self._create = create
        self._retire = retire
        # all of them, so that none is collected as garbage together with a memory
        self._buffers: dict[int, Any] = {}
        self._free: dict[int, list[int]] = {}
        self._returned: deque[tuple[int, int]] = deque()
        self.idle = 0
        self.total = 0

    def take(self, nbytes: int, device: DmlQueue) -> Memory:
        """Memory of unspecified content.

        Raises:
            MemoryError: there is none.
        """
        self.collect()
        size = _rounded(nbytes)
        free = self._free.get(size)
        if free:
            serial = free.pop()
            self.idle -= size
        else:
            resource = self._create(size)
            serial = next(_serials)
            self._buffers[serial] = resource
            self.total += size
        return Memory(self._returned, device, self._buffers[serial], size, serial)

    def collect(self) -> None:
        """Take back what nobody uses any more."""
        while self._returned:
            serial, size = self._returned.popleft()
            if serial in self._buffers:
                self._free.setdefault(size, []).append(serial)
                self.idle += size
        if self.idle > _MOST_IDLE:
            self.trim(_MOST_IDLE // 2)

    def trim(self, most: int = 0) -> None:
        """Give up memory that nobody uses, the largest pieces first, until no more than
        *most* bytes are idle."""
        for size in sorted(self._free, reverse=True):
            while self._free[size] and self.idle > most:
                self._retire(self._buffers.pop(self._free[size].pop()))
                self.idle -= size
                self.total -= size

    def close(self) -> None:
        """Give up all buffers, also those of memory that somebody refers to still."""
        buffers, self._buffers = self._buffers, {}
        self._free.clear()
        self.idle = self.total = 0
        for resource in buffers.values():
            self._retire(resource)


def _rounded(nbytes: int) -> int:
    nbytes = max(nbytes, 1)
    step = max(PAGE, 1 << max(0, nbytes.bit_length() - 1 - _STEPS))
    return -(-nbytes // step) * step
