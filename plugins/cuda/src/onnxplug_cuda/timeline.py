"""How far the work of a stream is, told by events that are recorded in between."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from onnxplug import ep

if TYPE_CHECKING:
    from onnxplug_cuda.driver import Driver

_PLAIN: Final = 2
"""Flags of an event that measures no time: ``cudaEventDisableTiming``."""

_LOOKED_AT: Final = 8
"""Points that are looked at, at once, for whether they are done."""


class Events:
    """Events of CUDA's that nobody uses, to be recorded again."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.idle: list[int] = []

    def take(self) -> int:
        """One, with the driver's context entered."""
        try:
            return self.idle.pop()
        except IndexError:
            return int(self._driver.runtime.eventCreateWithFlags(_PLAIN))

    def close(self) -> None:
        """Destroy them."""
        while self.idle:
            self._driver.runtime.eventDestroy(self.idle.pop())


class Point:
    """A point in the work of a stream, which outlives that.

    Attributes:
        native: the event that was recorded there.
        ticket: how much was queued on the stream before.
    """

    __slots__ = ("__weakref__", "_driver", "_idle", "is_done", "native", "ticket")

    def __init__(self, driver: Driver, events: Events, native: int, ticket: int):
        self._driver = driver
        self._idle = events.idle
        self.native = native
        self.ticket = ticket
        self.is_done = False

    def __del__(self) -> None:
        # in whatever thread: one that others wait for on the device may be recorded
        # again, as they wait for what it was when they were told to
        self._idle.append(self.native)

    def done(self) -> bool:
        """Whether the work before is done, or has failed; neither waits nor raises."""
        if not self.is_done and not self._driver.fault:
            try:
                with self._driver:
                    self.is_done = self._driver.has_passed(self.native)
            # whatever went wrong, nothing is left to wait for
            except Exception as error:  # noqa: BLE001
                ep.raise_interruption(error)
                return True
        return self.is_done or bool(self._driver.fault)

    def synchronize(self) -> None:
        """Wait until the work before is done.

        Raises:
            DeviceLost: a kernel failed, with all that CUDA has in this process.
        """
        if not self.is_done:
            with self._driver:
                self._driver.runtime.eventSynchronize(self.native)
            self.is_done = True


class Timeline:
    """How much was queued on a stream, and how much of that is known to be done.

    Used under the device's lock, and within the driver's context.

    Attributes:
        handle: the stream.
        submitted: how often something was queued.
        completed: up to which of that all is done.
        is_noting: the stream captures, so that no event of it tells of work.
        has_guests: others queue work there, too, of which no ticket tells: after each
            point there may be some.
        is_closed: nothing is recorded there any more.
    """

    __slots__ = (
        "_driver",
        "_events",
        "_points",
        "completed",
        "handle",
        "has_guests",
        "is_closed",
        "is_noting",
        "submitted",
    )

    def __init__(self, driver: Driver, events: Events, handle: int) -> None:
        self._driver = driver
        self._events = events
        self._points: deque[Point] = deque()
        self.is_closed = False
        self.handle = handle
        self.submitted = 0
        self.completed = 0
        self.is_noting = False
        self.has_guests = False

    def next(self) -> int:
        """The ticket of what has just been queued."""
        self.submitted += 1
        return self.submitted

    def mark(self) -> Point:
        """The point after what is queued; recorded now, unless that was done."""
        self._look()
        last = self._points[-1] if self._points else None
        if last is not None and last.ticket == self.submitted:
            return last
        native = self._events.take()
        try:
            self._driver.runtime.eventRecord(native, self.handle)
        except BaseException:
            self._events.idle.append(native)
            raise
        point = Point(self._driver, self._events, native, self.submitted)
        self._points.append(point)
        if self.has_guests:
            self.submitted += 1
        return point

    def after(self, ticket: int) -> Point | None:
        """A point after what was queued as *ticket*; ``None``: none can be had."""
        for point in self._points:
            if point.ticket >= ticket:
                return point
        return None if self.is_closed or self.is_noting else self.mark()

    def is_past(self, ticket: int) -> bool:
        """Whether what was queued as *ticket* is done, asked of the driver."""
        if self.completed < ticket:
            self._look()
        return self.completed >= ticket

    def _look(self) -> None:
        for _ in range(_LOOKED_AT):
            if not self._points:
                return
            point = self._points[0]
            if not point.is_done:
                point.is_done = self._driver.has_passed(point.native)
            if not point.is_done:
                return
            self.completed = max(self.completed, point.ticket)
            self._points.popleft()

    def wait_for(self, other: Timeline, ticket: int) -> bool:
        """Let what is queued from now on start after what *other* has as *ticket*;
        whether it can be told to."""
        if other is self or other.is_past(ticket):
            return True
        if self.is_noting or (point := other.after(ticket)) is None:
            return False
        self.wait(point)
        return True

    def wait(self, point: Point) -> None:
        """Let what is queued from now on start after *point*, of whatever stream."""
        if not point.is_done:
            self._driver.runtime.streamWaitEvent(self.handle, point.native)
            self.next()

    def synchronize(self, ticket: int) -> bool:
        """Wait until what was queued as *ticket* is done; whether it can be."""
        if self.is_past(ticket):
            return True
        point = self.after(ticket)
        if point is None:
            return False
        point.synchronize()
        self.completed = max(self.completed, point.ticket)
        return True

    def close(self) -> None:
        """Record nothing more: the stream is gone, or another's again."""
        if not self.is_noting and not self.is_past(self.submitted):
            self.mark()
        self.is_closed = True
