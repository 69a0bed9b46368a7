"""Work that a stream noted instead of doing it, and graphs to launch it again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from onnxplug import ep
from onnxplug_testing.simulated.monitor import MONITOR
from onnxplug_testing.simulated.queues import Point

if TYPE_CHECKING:
    from onnxplug_testing.simulated.context import SimulatedContext

Noted = tuple[Callable[[], None], tuple[int, int], Callable[[], None] | None]


class Capture:
    """What a stream notes from ``begin_capture`` to ``end_capture``.

    Attributes:
        noted: the work, the host addresses that it reads, and what spoils its target.
        memory: what gives back the memory that was made meanwhile.
        failure: why it cannot be launched; empty: it can.
    """

    def __init__(self, location: ep.MemoryLocation) -> None:
        self.noted: list[Noted] = []
        self.memory: list[Callable[[], None]] = []
        self.failure = ""
        self.ended = False
        self._location = location

    def note(
        self,
        function: Callable[[], None],
        reads: tuple[int, int] = (0, 0),
        spoils: Callable[[], None] | None = None,
    ) -> None:
        """Add a piece of work."""
        self.noted.append((function, reads, spoils))

    def fail(self, why: str) -> RuntimeError:
        """Make it useless; returns what to raise."""
        self.failure = self.failure or why
        return RuntimeError(
            f"a capture on {self._location} failed: {why}; work is noted and not done "
            "until it ends, so wait before it begins, or for a launch"
        )

    def end(self) -> None:
        """It notes no more.

        Raises:
            RuntimeError: it failed; its memory is free again.
        """
        self.ended = True
        if self.failure:
            self.release()
            raise self.fail(self.failure)

    def release(self) -> None:
        """Give its memory back."""
        memory, self.memory = self.memory, []
        for give_back in memory:
            give_back()


class SimulatedGraph(ep.CapturedGraph):
    """Captured work; it keeps its memory and reads and writes the same whenever it is
    launched.

    Attributes:
        launches: how many times it was launched.
        closed: it was.
    """

    def __init__(self, context: SimulatedContext, capture: Capture) -> None:
        self.launches = 0
        self.closed = False
        self._context = context
        self._capture = capture
        self._last: Point | None = None
        with MONITOR:
            context.open_graphs.append(self)

    def launch(self, stream: ep.Stream) -> None:
        if self.closed:
            raise RuntimeError(
                f"a captured graph of {self._context.location} was launched after it "
                "was closed"
            )
        own = self._context.own(stream)
        with own.queue.used():
            if own.queue.capture is not None:
                raise own.queue.capture.fail("a captured graph was launched in it")
            last = self._last
            if last is not None and not (
                last.passed or own.queue.here().comes_after(last.queue, last.position)
            ):
                raise RuntimeError(
                    f"two launches of a captured graph of {self._context.location} "
                    "overlap; they write the same memory, so let the stream wait for "
                    "the launch before"
                )
            for work in self._capture.noted:
                own.enqueue(*work)
            self._last = own.queue.here()
            self.launches += 1

    def close(self) -> None:
        if self.closed:
            raise RuntimeError(
                f"a captured graph of {self._context.location} was closed twice"
            )
        if self._last is not None and not self._last.passed:
            raise RuntimeError(
                f"a captured graph of {self._context.location} was closed before work "
                "that it launched was done; wait for that first"
            )
        self.closed = True
        self._capture.noted.clear()
        self._capture.release()
        with MONITOR:
            self._context.open_graphs.remove(self)
