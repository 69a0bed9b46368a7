"""What all streams of a device share."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from typing import Any, Final

from onnxplug.authoring.locks import new_rlock
from onnxplug_cuda.driver import Driver
from onnxplug_cuda.pool import Memory
from onnxplug_cuda.staging import Staging
from onnxplug_cuda.timeline import Events, Timeline

UNKNOWN: Final = -1
"""The handle of a stream that is not known."""


class Shared:
    """The driver, and what is taken from it for work of any stream.

    Attributes:
        lock: held while work is put together and queued.
        staging: memory for copies from and to the host.
        launches: how many kernels and libraries were called.
        streams: those that are open, by their handles.
        abandoned: of streams that went without being closed.
    """

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.lock: Final[threading.RLock] = new_rlock()
        self.events = Events(driver)
        self.staging = Staging(driver)
        self.launches = 0
        self.streams: weakref.WeakValueDictionary[int, Any] = (
            weakref.WeakValueDictionary()
        )
        self.abandoned: deque[Timeline] = deque()

    def timeline(self, handle: int) -> Timeline:
        """That of a stream which begins to be used."""
        return Timeline(self.driver, self.events, handle)

    def close_abandoned(self) -> None:
        """Destroy streams that nobody closed, whose work goes on to its end."""
        while self.abandoned:
            timeline = self.abandoned.popleft()
            timeline.close()
            self.driver.runtime.streamDestroy(timeline.handle)

    def lend(self, memory: Memory, stream: int) -> None:
        """Let others use *memory* in work on *stream* from now on, which starts after
        all that uses it.

        Args:
            stream: CUDA's handle, or :data:`UNKNOWN`.

        Raises:
            DeviceLost: the device was.
        """
        with self.lock, self.driver:
            own = self.streams.get(stream)
            for timeline, ticket in memory.uses.items():
                if timeline.handle == stream or timeline.is_past(ticket):
                    continue
                point = timeline.after(ticket)
                if point is not None and stream != UNKNOWN:
                    self.driver.runtime.streamWaitEvent(stream, point.native)
            if own is not None:
                own.timeline.has_guests = True
                own.timeline.next()
            memory.lend(None if own is None else own.timeline)
