"""Windows' events: what kernel32.dll has for waiting."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .windows import Windows

WAIT_OBJECT_0 = 0
WAIT_TIMEOUT = 0x102
WAIT_FAILED = 0xFFFFFFFF
INFINITE = 0xFFFFFFFF


class Event:
    """An event: set or not; ``seen`` is called by a wait that finds it set."""

    def __init__(self, manual: bool, state: bool) -> None:
        self.manual = manual
        self.state = state
        self.seen: list[Callable[[], None]] = []


class Events:
    """The handles of a process."""

    def __init__(self, windows: Windows) -> None:
        self.windows = windows
        self.open: dict[int, Event] = {}
        self._numbers = itertools.count(0x44, 4)

    def CreateEventW(
        self, attributes: int | None, manual: int, state: int, name: int | None
    ) -> int:
        with self.windows.lock:
            handle = next(self._numbers)
            self.open[handle] = Event(bool(manual), bool(state))
            return handle

    def CloseHandle(self, handle: int | None) -> int:
        with self.windows.lock:
            if self.open.pop(handle or 0, None) is None:
                self.windows.note(f"CloseHandle: {handle} is not open")
                return 0
            return 1

    def SetEvent(self, handle: int | None) -> int:
        with self.windows.lock:
            if (event := self.open.get(handle or 0)) is None:
                self.windows.note(f"SetEvent: {handle} is not open")
                return 0
            event.state = True
            self.windows.changed.notify_all()
            return 1

    def ResetEvent(self, handle: int | None) -> int:
        with self.windows.lock:
            if (event := self.open.get(handle or 0)) is None:
                self.windows.note(f"ResetEvent: {handle} is not open")
                return 0
            event.state = False
            return 1

    def WaitForSingleObject(self, handle: int | None, milliseconds: int) -> int:
        with self.windows.lock:
            if (event := self.open.get(handle or 0)) is None:
                self.windows.note(f"WaitForSingleObject: {handle} is not open")
                return WAIT_FAILED
            timeout = None if milliseconds == INFINITE else milliseconds / 1000
            if not self.windows.wait_for(lambda: event.state, timeout):
                return WAIT_TIMEOUT
            if not event.manual:
                event.state = False
            for seen in event.seen:
                seen()
            event.seen.clear()
            return WAIT_OBJECT_0
