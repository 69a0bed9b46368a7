"""Streams and events: how the host and EPs queue work, wait for it, and capture it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

from onnxplug import ep
from onnxplug_testing.simulated.capture import Capture, SimulatedGraph
from onnxplug_testing.simulated.monitor import MONITOR
from onnxplug_testing.simulated.queues import Point, Queue

if TYPE_CHECKING:
    from onnxplug_testing.simulated.context import SimulatedContext


class SimulatedEvent(ep.Event):
    """A point in the work of a stream, or of a capture, which nobody can wait for."""

    def __init__(
        self, point: Point, context: SimulatedContext, capture: Capture | None
    ) -> None:
        self.point = point
        self.context = context
        self.capture = capture

    def done(self) -> bool:
        if self.capture is not None:
            self.capture.fail("an event that it recorded was asked for")
            return False
        return self.point.passed

    def synchronize(self) -> None:
        if self.capture is not None:
            raise self.capture.fail("an event that it recorded was waited for")
        self.point.block()
        self.point.raise_failure()


class SimulatedStream(ep.Stream):
    """An ordered queue of work; see the schedules for when it is done.

    Work that raises ends the work queued on its stream for good, and that queued on
    streams which wait for it.
    """

    def __init__(
        self, context: SimulatedContext, queue: Queue, *, adopted: bool = False
    ) -> None:
        self.context = context
        self.queue = queue
        self.adopted = adopted
        self.native_handle = queue.handle
        self._last = 0
        self._closed = False
        self._reported = False

    @property
    def location(self) -> ep.MemoryLocation:
        """Of its device."""
        return self.queue.location

    @property
    def capturing(self) -> bool:
        """Work is noted, not done."""
        return self.queue.capture is not None

    def enqueue(
        self,
        function: Callable[[], None],
        reads: tuple[int, int] = (0, 0),
        spoils: Callable[[], None] | None = None,
    ) -> int:
        """Queue *function*.

        Args:
            reads: the first and the last address on the host that it reads.
            spoils: what makes that useless which the function will write on the host;
                called now, or when the captured work is launched.

        Returns:
            Its position in the queue; 0 while capturing.
        """
        with self.queue.used():
            self._check_may_queue()
            if self.queue.capture is not None:
                self.queue.capture.note(function, reads, spoils)
                return 0
            if spoils is not None:
                spoils()
            self._last = self.queue.push(function, reads)
            return self._last

    def record(self) -> SimulatedEvent:
        self._check_open("used")
        with self.queue.used():
            return SimulatedEvent(self.queue.here(), self.context, self.queue.capture)

    def wait(self, event: ep.Event) -> bool:
        with self.queue.used():
            self._check_may_queue()
            if not isinstance(event, SimulatedEvent):
                return False
            if event.capture is not None:
                raise event.capture.fail("a stream waited for an event of it")
            if self.queue.capture is not None:
                raise self.queue.capture.fail("its stream waited for an event")
            foreign = event.context is not self.context
            if foreign and not self.context.knobs.foreign_events:
                return False
            self._last = self.queue.push(_nothing, after=event.point)
            return True

    def synchronize(self) -> None:
        self._check_open("synchronised")
        with self.queue.used():
            if self.queue.capture is not None:
                raise self.queue.capture.fail("its stream was synchronised")
            here = self.queue.here()
            here.block()
            try:
                here.raise_failure()
            except BaseException:
                self._reported = True
                raise

    def begin_capture(self) -> None:
        with self.queue.used():
            self._check_may_queue()
            if not self.context.captures:
                raise RuntimeError(
                    f"a capture was begun on a stream of {self.location}, whose "
                    "context does not capture"
                )
            if self.queue.capture is not None:
                raise self.queue.capture.fail("another was begun on its stream")
            self.queue.capture = Capture(self.location)

    def end_capture(self) -> SimulatedGraph:
        with self.queue.used():
            capture = self.queue.capture
            if capture is None:
                raise RuntimeError(
                    f"a capture was ended on a stream of {self.location} that has "
                    "none; begin it first"
                )
            self.queue.capture = None
            return self.context.end(capture)

    def close(self) -> None:
        self._check_open("closed again")
        with self.queue.used(), MONITOR:
            self._check_may_close()
            self._closed = True
            if self.adopted:
                self.queue.adopted -= 1
        self.context.closed(self)

    def will_read(self, array: np.ndarray[Any, Any]) -> bool:
        """Whether work queued here is still to read the host array *array*."""
        low, high = byte_bounds(array)
        with MONITOR:
            ranges = [work.reads for work in self.queue.pending]
        return any(start < high and low < end for start, end in ranges)

    def check_of(self, context: SimulatedContext) -> None:
        """Raises ``RuntimeError`` if it is not a stream of *context*, or is closed."""
        self._check_open("used")
        if self.context is not context:
            raise RuntimeError(
                f"a stream of {self.location} was used for work of "
                f"{context.location}'s context; use one that this made"
            )

    def _check_may_queue(self) -> None:
        self._check_open("used")
        if self._reported:
            raise RuntimeError(
                f"work was queued on a stream of {self.location} that has failed; "
                "after its synchronize raised, close it and make another"
            )

    def _check_may_close(self) -> None:
        if self.queue.capture is not None:
            raise RuntimeError(
                f"a stream of {self.location} was closed while it captures; end the "
                "capture first"
            )
        left = self._last - self.queue.done
        if left > 0 and not self.adopted:
            raise RuntimeError(
                f"a stream of {self.location} was closed with {left} pieces of work to "
                "do; synchronise it first"
            )
        if not self.adopted and self.queue.adopted:
            raise RuntimeError(
                f"a stream of {self.location} was closed that others have adopted; "
                "only who made it closes it, after those"
            )

    def _check_open(self, verb: str) -> None:
        if self._closed:
            raise RuntimeError(
                f"a closed stream of {self.location} was {verb}; a stream is closed "
                "once, after its last use"
            )
        if self.queue.closed:
            raise RuntimeError(
                f"an adopted stream of {self.location} was {verb} after who made it "
                "had closed it"
            )


def _nothing() -> None:
    return None
