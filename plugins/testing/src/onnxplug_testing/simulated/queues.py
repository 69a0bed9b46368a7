"""What a device has of a stream: work in order, what is done, and what went wrong."""

from __future__ import annotations

import copy
import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxplug import ep
from onnxplug.authoring.record import Record
from onnxplug_testing.simulated.monitor import MONITOR

if TYPE_CHECKING:
    from onnxplug_testing.simulated.capture import Capture
    from onnxplug_testing.simulated.schedule import Schedule


class Point(Record):
    """A place in a queue, and how far others were when work before it was done.

    Attributes:
        queue: of what.
        position: how many pieces of work stand before.
        clock: of other queues, by handle, the work that is done before too.
    """

    queue: Queue
    position: int
    clock: Mapping[int, int]

    @property
    def passed(self) -> bool:
        """The work before is done, or was dropped after a failure."""
        with MONITOR:
            return self.queue.done >= self.position

    def comes_after(self, queue: Queue, position: int) -> bool:
        """Whether work of this *position* is done when the point is reached."""
        own = self.position if queue is self.queue else 0
        return max(own, self.clock.get(queue.handle, 0)) >= position

    def block(self) -> None:
        """Wait until it is passed."""
        self.queue.schedule.run_until(self.queue, self.position)
        MONITOR.settle()

    def raise_failure(self) -> None:
        """Raise what work before the point raised."""
        with MONITOR:
            failure = self.queue.failure
            failed = failure is not None and self.queue.failed_at <= self.position
        if failure is not None and failed:
            raise _again(failure)


@dataclass(frozen=True, slots=True)
class Work:
    """A piece of work: its place in time, the addresses on the host that it reads, and
    the point of another queue that must be passed before."""

    function: Callable[[], None]
    serial: int = 0
    reads: tuple[int, int] = (0, 0)
    after: Point | None = None


class Queue:
    """Work of one stream, in order.  All is changed under :data:`MONITOR`.

    What a piece of work raises is kept for good: the work behind it is dropped, and so
    is what is queued later.

    Attributes:
        handle: what a user calls the stream.
        done: how many pieces of work are done or dropped.
        failure: what the first piece that failed raised; *failed_at* is its position.
        capture: what notes the work instead.
        adopted: how many streams that adopted it are open.
        changed: is notified of work that is queued or done.
    """

    def __init__(self, schedule: Schedule, location: ep.MemoryLocation) -> None:
        self.handle = next(_HANDLES)
        self.schedule = schedule
        self.location = location
        self.pending: deque[Work] = deque()
        self.done = 0
        self.failure: BaseException | None = None
        self.failed_at = 0
        self.closed = False
        self.capture: Capture | None = None
        self.adopted = 0
        self.changed = MONITOR.condition()
        self._clock: dict[int, int] = {}
        self._user = 0
        self._uses = 0

    @property
    def queued(self) -> int:
        """How many pieces of work were queued."""
        with MONITOR:
            return self.done + len(self.pending)

    def push(
        self,
        function: Callable[[], None],
        reads: tuple[int, int] = (0, 0),
        after: Point | None = None,
    ) -> int:
        """Queue *function*; returns its position."""
        MONITOR.settle()
        with MONITOR:
            if after is not None:
                for handle, position in after.clock.items():
                    self._learn(handle, position)
                self._learn(after.queue.handle, after.position)
            if self.failure is not None:
                self.done += 1
            else:
                self.pending.append(Work(function, next(_SERIALS), reads, after))
                self.schedule.queued(self)
            return self.queued

    def close(self) -> bool:
        """Take no more work; returns whether all is done, which it must be."""
        with MONITOR:
            self.closed = not self.pending
            return self.closed

    def here(self) -> Point:
        """The point after all work queued until now."""
        with MONITOR:
            return Point(self, self.queued, dict(self._clock))

    def work(self) -> None:
        """Do the first piece of work, whose wait is over."""
        # it stays in the queue until done: an array dropped meanwhile may be read by it
        work = self.pending[0]
        _EXECUTING.at = self, self.done + 1
        failure: BaseException | None = None
        try:
            if work.after is not None:
                work.after.raise_failure()
            work.function()
        # a device keeps what went wrong until somebody synchronises
        except Exception as error:  # noqa: BLE001
            ep.raise_interruption(error)
            # frames keep the arrays in them
            failure = error.with_traceback(None)
        finally:
            _EXECUTING.at = None
        with MONITOR:
            self.done += 1
            self.pending.popleft()
            if failure is not None:
                self.failure, self.failed_at = failure, self.done
                self.done += len(self.pending)
                self.pending.clear()
            self.changed.notify_all()

    @contextmanager
    def used(self) -> Iterator[None]:
        """This thread uses the stream.

        Raises:
            RuntimeError: another does.
        """
        thread = threading.get_ident()
        with MONITOR:
            if self._uses and self._user != thread:
                raise RuntimeError(
                    f"a stream of {self.location} is used by two threads at once; a "
                    "stream is used by one at a time"
                )
            self._user = thread
            self._uses += 1
        try:
            yield
        finally:
            with MONITOR:
                self._uses -= 1

    def _learn(self, handle: int, position: int) -> None:
        self._clock[handle] = max(self._clock.get(handle, 0), position)


def executing() -> tuple[Queue, int] | None:
    """Whose work this thread does, and the position of it; ``None`` on the host."""
    return getattr(_EXECUTING, "at", None)


def _again(failure: BaseException) -> BaseException:
    """A copy to raise: one raised twice would collect the frames of both."""
    try:
        return copy.copy(failure)
    except Exception:  # noqa: BLE001 - a class that cannot be copied
        return failure


_EXECUTING = threading.local()
_SERIALS = itertools.count(1)
_HANDLES = itertools.count(0x5100, 0x10)
