"""Command lists that are recorded, executed once, and recorded anew."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator
from typing import Any

from onnxplug_directml.device.queue import LISTS, DmlQueue


class CommandLists:
    """The lists of a device that nobody records.  Used under its lock."""

    def __init__(self, device: DmlQueue) -> None:
        self._device = device
        self._executing: deque[tuple[int, Any, Any]] = deque()

    @contextlib.contextmanager
    def open(self) -> Iterator[Any]:
        """A list that records, which is to be closed and executed."""
        device = self._device
        allocator = commands = None
        try:
            if self._executing and device.has_done(self._executing[0][0]):
                _, allocator, commands = self._executing.popleft()
                allocator.Reset()
                commands.Reset(allocator, None)
            else:
                allocator, commands = new_list(device)
            yield commands
        except BaseException:
            # whatever it was, the next one is recorded into others
            for each in (commands, allocator):
                if each is not None:
                    device.retire(each)
            raise
        self._executing.append((device.submitted, allocator, commands))


def new_list(device: DmlQueue) -> tuple[Any, Any]:
    """A new allocator, and a list that records into it."""
    allocator = device.own(device.native.CreateCommandAllocator(LISTS))
    try:
        commands = device.own(
            device.native.CreateCommandList(0, LISTS, allocator, None)
        )
    except BaseException:
        device.retire(allocator)
        raise
    return allocator, commands
