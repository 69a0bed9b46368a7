"""Waiting for a fence, with an end to patience."""

from __future__ import annotations

import time
from collections import deque
from typing import Final

from onnxplug_directml.com.d3d12 import ID3D12Fence
from onnxplug_directml.com.libraries import Libraries

_SLICE: Final = 100
"""Milliseconds after which who sleeps looks up: an interrupt is seen then."""


class Waiter:
    """Lets threads wait for values of a fence.

    Args:
        libraries: Windows', for events.
    """

    def __init__(self, libraries: Libraries) -> None:
        self._libraries = libraries
        # events that a fence is to set for threads that wait no more
        self._left: deque[tuple[int, int]] = deque()

    def wait(
        self, fence: ID3D12Fence, value: int, patience: float, *, spins: bool
    ) -> bool:
        """Wait until *fence* has come to *value*, or its device was removed.

        Args:
            fence: always the same; open until this returns.
            patience: seconds in which the fence has to get on.

        Returns:
            Whether it has.
        """
        self._close_left(fence)
        event = 0
        try:
            seen = fence.GetCompletedValue()
            since = time.monotonic()
            while seen < value:
                if not spins:
                    event = event or self._new_event(fence, value)
                    self._libraries.WaitForSingleObject(event, _SLICE)
                found = fence.GetCompletedValue()
                now = time.monotonic()
                if found > seen:
                    seen, since = found, now
                elif now - since > patience:
                    return False
            return True
        finally:
            if event:
                self._left.append((value, event))
                self._close_left(fence)

    def _new_event(self, fence: ID3D12Fence, value: int) -> int:
        event = self._libraries.CreateEventW(None, False, False, None)
        if not event:
            raise MemoryError("Windows has no event to wait with")
        try:
            fence.SetEventOnCompletion(value, event)
        except BaseException:
            self._libraries.CloseHandle(event)
            raise
        return int(event)

    def _close_left(self, fence: ID3D12Fence) -> None:
        """Close the events that are set, or soon will be: the fence is past them."""
        for _ in range(len(self._left)):
            try:
                value, event = self._left.popleft()
            except IndexError:  # another thread has closed them
                return
            is_past = False
            try:
                is_past = fence.GetCompletedValue() >= value
            finally:  # an interrupt leaves it for the next one
                if not is_past:
                    self._left.append((value, event))
            if is_past:
                self._libraries.CloseHandle(event)

    def close(self) -> None:
        """Close all events; the fence sets none any more."""
        while self._left:
            self._libraries.CloseHandle(self._left.pop()[1])
