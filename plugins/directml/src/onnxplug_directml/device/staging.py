"""Memory of the host that an adapter copies from and to, in a few sizes."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np

from onnxplug_directml.abi.d3d12 import D3D12_HEAP_TYPE
from onnxplug_directml.device.buffers import mapped
from onnxplug_directml.device.loss import driving
from onnxplug_directml.device.pool import PAGE
from onnxplug_directml.device.queue import DmlQueue

CHUNK: Final = 1 << 24
"""Bytes that are uploaded at once, at most: larger arrays go in several."""

_MOST_AHEAD: Final = 1 << 27
"""Bytes of uploads that wait for the queue, before who uploads waits, too."""

_LARGEST_KEPT: Final = CHUNK
"""Bytes of the largest room that is kept for others."""

_MOST_KEPT: Final = 8
"""Rooms that are kept, of each kind."""


Consumer: TypeAlias = Callable[[np.ndarray[Any, Any]], None]
"""Takes bytes that the host has read; they are there for as long as the call."""


class Room:
    """A buffer on an upload or a read-back heap.

    Attributes:
        resource: Direct3D's.
        nbytes: how many there are.
        kind: of heap.
    """

    __slots__ = ("kind", "nbytes", "resource")

    def __init__(self, resource: Any, nbytes: int, kind: D3D12_HEAP_TYPE) -> None:
        self.resource = resource
        self.nbytes = nbytes
        self.kind = kind


class Staging:
    """The rooms of a device.  Used under its lock, but for :meth:`read`.

    Args:
        create: makes a buffer on a heap of a kind; ``MemoryError`` if there is none.
        retire: releases a buffer once what is queued is done.
    """

    def __init__(
        self,
        device: DmlQueue,
        create: Callable[[int, D3D12_HEAP_TYPE], Any],
        retire: Callable[[Any], None],
    ) -> None:
        self._device = device
        self._create = create
        self._retire = retire
        self._free: dict[D3D12_HEAP_TYPE, list[Room]] = {}
        self._ahead: deque[tuple[int, Room]] = deque()
        self._left: deque[tuple[int, Room]] = deque()

    def filled(self, content: np.ndarray[Any, Any]) -> Room:
        """A room on an upload heap that begins with *content*, bytes, and goes on with
        zeros up to a multiple of 4.

        Raises:
            MemoryError: there is none.
        """
        self._catch_up()
        padded = -(-content.size // 4) * 4
        room = self._take(padded, D3D12_HEAP_TYPE.UPLOAD)
        try:
            with (
                driving(self._device),
                mapped(room.resource, reads=0, writes=padded) as address,
            ):
                ctypes.memset(address + padded - 4, 0, 4)
                ctypes.memmove(address, content.ctypes.data, content.size)
        except BaseException:
            self.unused(room)
            raise
        return room

    def sent(self, number: int, room: Room) -> None:
        """Note that work *number* is the last that reads *room*."""
        self._ahead.append((number, room))

    def for_reading(self, nbytes: int) -> Room:
        """A room on a read-back heap.

        Raises:
            MemoryError: there is none.
        """
        return self._take(nbytes, D3D12_HEAP_TYPE.READBACK)

    def read(self, room: Room, nbytes: int, consume: Consumer) -> None:
        """Have the first *nbytes* of *room*, into which nothing is copied any more,
        consumed.

        Raises:
            DeviceRemoved: the device is lost.
            Exception: what *consume* raises.
        """
        with (
            driving(self._device),
            self._device.borrowed(room.resource) as resource,
            mapped(resource, reads=nbytes, writes=0) as address,
        ):
            found: Any = (ctypes.c_uint8 * nbytes).from_address(address)
            consume(np.frombuffer(found, np.uint8))

    def unused(self, room: Room) -> None:
        """Let others have *room*, which no work that is queued uses."""
        self.leave(0, room)

    def leave(self, number: int, room: Room) -> None:
        """Let others have *room* when work *number* is done.

        From any thread, maybe as garbage is collected: no lock is taken.
        """
        self._left.append((number, room))

    def _take(self, nbytes: int, kind: D3D12_HEAP_TYPE) -> Room:
        self._collect()
        size = max(PAGE, 1 << (nbytes - 1).bit_length())
        if size > _LARGEST_KEPT:
            size = -(-nbytes // PAGE) * PAGE
        free = self._free.setdefault(kind, [])
        for place, room in enumerate(free):
            if room.nbytes == size:
                return free.pop(place)
        return Room(self._create(size, kind), size, kind)

    def _catch_up(self) -> None:
        """Take back rooms that are read no more, and wait where too many are not."""
        waiting = sum(room.nbytes for _, room in self._ahead)
        while self._ahead:
            number, room = self._ahead[0]
            if waiting > _MOST_AHEAD:
                self._device.wait(number)
            elif not self._device.has_done(number):
                return
            self._ahead.popleft()
            waiting -= room.nbytes
            self._give_back(room)

    def _collect(self) -> None:
        """Take back what was left, as far as the queue is done with it."""
        for _ in range(len(self._left)):
            number, room = self._left.popleft()
            if self._device.has_done(number):
                self._give_back(room)
            else:
                self._left.append((number, room))

    def _give_back(self, room: Room) -> None:
        free = self._free.setdefault(room.kind, [])
        if room.nbytes > _LARGEST_KEPT or len(free) >= _MOST_KEPT:
            self._retire(room.resource)
        else:
            free.append(room)

    def trim(self) -> None:
        """Give up rooms that nobody uses."""
        self._collect()
        for free in self._free.values():
            for room in free:
                self._retire(room.resource)
            free.clear()

    def close(self) -> None:
        """Give up all rooms, but those that are being read back."""
        self.trim()
        while self._ahead:
            self._retire(self._ahead.popleft()[1].resource)
