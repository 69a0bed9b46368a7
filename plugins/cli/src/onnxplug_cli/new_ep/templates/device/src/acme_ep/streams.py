"""Queues of work on the device, and points in them.

A stream is a thread that does one piece of work after the other. What a piece raises
drops all that is queued behind it, and is raised to whoever waits.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from onnxplug import ep


class AcmeEvent(ep.Event):
    """The point behind a piece of work.

    Attributes:
        work: what is before it.
    """

    def __init__(self, work: Future[None]) -> None:
        self.work = work

    def done(self) -> bool:
        """Whether the work is done, or has failed."""
        return self.work.done()

    def synchronize(self) -> None:
        """Wait for the work; raises what it raised."""
        self.work.result()


class AcmeStream(ep.Stream):
    """Work that is done in order, while the host goes on."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="acme")
        self._last: Future[None] = Future()
        self._last.set_result(None)

    def enqueue(self, work: Callable[[], None]) -> None:
        """Queue *work*, which holds the arrays that it needs."""
        before = self._last

        def do() -> None:
            before.result()  # done already; raises what it raised
            work()

        self._last = self._thread.submit(do)

    def record(self) -> AcmeEvent:
        """The point behind all that is queued."""
        return AcmeEvent(self._last)

    def wait(self, event: ep.Event) -> bool:
        """Let what is queued from now on wait; not for other devices' events."""
        if not isinstance(event, AcmeEvent):
            return False
        self.enqueue(event.synchronize)
        return True

    def synchronize(self) -> None:
        """Wait for all that is queued; raises what it raised."""
        self._last.result()

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown()


def do(work: Callable[[], None], stream: ep.Stream | None) -> None:
    """Queue *work* on *stream*, or, without one, do it now.

    Raises:
        TypeError: the stream is another device's.
    """
    if stream is None:
        work()
    elif isinstance(stream, AcmeStream):
        stream.enqueue(work)
    else:
        raise TypeError(f"a {type(stream).__name__} is no stream of this device")
