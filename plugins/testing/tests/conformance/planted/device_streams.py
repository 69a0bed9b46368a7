"""Queues of work on the device: a thread for each, points in them, and captures."""

from __future__ import annotations

import copy
import os
import queue
import threading
from collections.abc import Callable
from typing import Any, Final

from onnxplug import ep

Work = Callable[[], None]


class Point:
    """The place behind a piece of work.

    Attributes:
        failure: what the work, or work before it, raised.
    """

    def __init__(self) -> None:
        self.failure: Exception | None = None
        self._passed = threading.Event()
        self._process = os.getpid()

    def passed(self) -> bool:
        """Whether the work is done, or has failed."""
        return self._passed.is_set()

    def reach(self, failure: Exception | None = None) -> None:
        """The work is done."""
        self.failure = failure
        self._passed.set()

    def block(self) -> None:
        """Wait for the work; raises what it raised."""
        if not self.passed() and os.getpid() != self._process:
            raise RuntimeError(
                "work was queued on the device before a fork, and is not done in the "
                "child; wait for it before the fork"
            )
        self._passed.wait()
        if self.failure is not None:
            # a copy: one raised twice would collect the frames of both
            raise copy.copy(self.failure)


class DeviceEvent(ep.Event):
    """A point in the work of a stream, or in a capture, for which nobody can wait."""

    def __init__(self, point: Point, capture: Capture | None = None) -> None:
        self.point = point
        self._capture = capture

    def done(self) -> bool:
        if self._capture is not None:
            self._capture.fail("an event that it recorded was asked for")
            return False
        return self.point.passed()

    def synchronize(self) -> None:
        if self._capture is not None:
            raise self._capture.fail("an event that it recorded was waited for")
        self.point.block()


class Capture:
    """What a stream notes instead of doing it.

    Attributes:
        noted: the work.
        memory: what the work uses, which the graph keeps.
        failure: why it cannot be launched; empty: it can.
    """

    def __init__(self) -> None:
        self.noted: list[Work] = []
        self.memory: list[Any] = []
        self.failure = ""

    def fail(self, why: str) -> RuntimeError:
        """Make it useless; returns what to raise."""
        self.failure = why
        return RuntimeError(f"the capture failed: {why}; nothing may be waited for")


class DeviceStream(ep.Stream):
    """Work that a thread of its own does in order.

    What a piece raises drops all that is behind it, and is raised to whoever waits.

    Attributes:
        last: the point behind all that is queued.
        capture: what notes the work; ``None``: it is done.
    """

    def __init__(self) -> None:
        self.last = Point()
        self.last.reach()
        self.capture: Capture | None = None
        self.native_handle = id(self)
        self._start()

    def enqueue(self, work: Work) -> None:
        """Queue *work*."""
        if self.capture is not None:
            self.capture.noted.append(work)
            return
        if os.getpid() != self._process:
            self._start()  # the thread is the parent's
        point = Point()
        self._works.put((work, point))
        self.last = point

    def record(self) -> DeviceEvent:
        return DeviceEvent(self.last, self.capture)

    def wait(self, event: ep.Event) -> bool:
        if not isinstance(event, DeviceEvent):
            return False
        if self.capture is not None:
            raise self.capture.fail("its stream waited for an event")
        self.enqueue(event.synchronize)
        return True

    def synchronize(self) -> None:
        if self.capture is not None:
            raise self.capture.fail("its stream was synchronised")
        self.last.block()

    def close(self) -> None:
        self._works.put(None)

    def _start(self) -> None:
        self._process = os.getpid()
        self._works: queue.SimpleQueue[tuple[Work, Point] | None] = queue.SimpleQueue()
        failure = self.last.failure if self.last.passed() else None
        threading.Thread(
            target=serve, args=(self._works, failure), name="device", daemon=True
        ).start()


class AdoptedStream(DeviceStream):
    """A stream of the user's, used as it is and left open."""

    def __init__(self, stream: DeviceStream) -> None:
        self.stream = stream
        self.native_handle = stream.native_handle

    @property
    def last(self) -> Point:  # type: ignore[override]
        return self.stream.last

    @property
    def capture(self) -> Capture | None:  # type: ignore[override]
        return self.stream.capture

    @capture.setter
    def capture(self, capture: Capture | None) -> None:
        self.stream.capture = capture

    def enqueue(self, work: Work) -> None:
        self.stream.enqueue(work)

    def close(self) -> None:
        return None


def serve(works: Any, failure: Exception | None) -> None:
    """Do the work of one stream until it is closed."""
    while (item := works.get()) is not None:
        work, point = item
        if failure is None:
            try:
                work()
            except Exception as error:  # noqa: BLE001 - it is raised to who waits
                failure = error.with_traceback(None)
        # what the work used is free before anybody learns that it is done
        del work, item
        point.reach(failure)


class DeviceGraph(ep.CapturedGraph):
    """Captured work, and the memory that it uses."""

    def __init__(self, capture: Capture) -> None:
        self._works = tuple(capture.noted)
        self._memory = capture.memory

    def launch(self, stream: ep.Stream) -> None:
        for work in self._works:
            own(stream).enqueue(work)

    def close(self) -> None:
        self._works = ()
        self._memory = []


class DeviceCapture(ep.GraphCapture):
    """Has streams note work."""

    graph: Final = DeviceGraph

    def begin(self, stream: ep.Stream) -> None:
        if own(stream).capture is not None:
            raise RuntimeError("the stream captures already; end that first")
        own(stream).capture = Capture()

    def end(self, stream: ep.Stream) -> ep.CapturedGraph:
        capture, own(stream).capture = own(stream).capture, None
        if capture is None:
            raise RuntimeError("the stream captures nothing; begin first")
        if capture.failure:
            raise RuntimeError(f"the capture failed: {capture.failure}")
        return self.graph(capture)


def own(stream: ep.Stream) -> DeviceStream:
    """*stream*, which is the device's.

    Raises:
        TypeError: it is not.
    """
    if not isinstance(stream, DeviceStream):
        raise TypeError(f"a {type(stream).__name__} is no stream of this device")
    return stream


def do(work: Work, stream: ep.Stream | None) -> None:
    """Queue *work* on *stream*, or, without one, do it now."""
    if stream is None:
        work()
    else:
        own(stream).enqueue(work)
