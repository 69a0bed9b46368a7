"""Command lists that are recorded, executed once, and recorded anew."""

from __future__ import annotations

from collections import deque
from typing import Any

from onnxplug_directml.device.queue import LISTS, DmlQueue


class CommandLists:
    """The lists of a device that nobody records.  Used under its lock."""

    def __init__(self, device: DmlQueue) -> None:
        self._device = device
        self._executing: deque[tuple[int, Any, Any]] = deque()

    def open(self) -> tuple[Any, Any]:
        """An allocator, and a list that records into it."""
        device = self._device
        if self._executing and device.has_done(self._executing[0][0]):
            _, allocator, commands = self._executing.popleft()
            allocator.Reset()
            commands.Reset(allocator, None)
            return allocator, commands
        return new_list(device)

    def executed(self, number: int, allocator: Any, commands: Any) -> None:
        """Note that a list that was opened is executed by work *number*."""
        self._executing.append((number, allocator, commands))


def new_list(device: DmlQueue) -> tuple[Any, Any]:
    """A new allocator, and a list that records into it."""
    allocator = device.own(device.native.CreateCommandAllocator(LISTS))
    commands = device.own(device.native.CreateCommandList(0, LISTS, allocator, None))
    return allocator, commands
