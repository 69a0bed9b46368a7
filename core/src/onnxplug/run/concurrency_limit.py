"""Limits how many runs of a partition may overlap, where its EP says so."""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from onnxplug.authoring.locks import new_rlock
from onnxplug.guard import ignoring_failures
from onnxplug.run.streams import PATIENCE

if TYPE_CHECKING:
    from onnxplug.ep import Stream
    from onnxplug.run.events import OwnedEvent


class ConcurrencyLimit:
    """Lets so many runs of a partition overlap, the work that they queue included.

    A run has a turn, any object of its own:

        turn = object()
        try:
            limit.begin(turn, stream, go_on)
            …
            limit.note(stream, event)
        finally:
            limit.running.discard(turn)
            limit.wake()

    An interrupt may come between any two steps of Python's, also before the first of
    a function.  So a turn is ended by a call of a set's, as the first thing in a
    ``finally``: a turn that nobody ended would keep later runs waiting for ever.

    Args:
        limit: how many.

    Attributes:
        running: the turns of the runs that are in the partition.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.running: set[object] = set()
        # such that Python has no step between taking one and what releases it
        self._changing = new_rlock()
        self._ordering = new_rlock()
        self._waiting: set[object] = set()
        self._ended: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._ends: deque[tuple[Stream, OwnedEvent]] = deque()

    def begin(
        self, turn: object, stream: Stream | None, go_on: Callable[[], None]
    ) -> None:
        """Wait until a run may run the partition.

        Args:
            stream: what it queues its work on.
            go_on: asked while other runs have their turn; raises to give up.
        """
        if not self._is_taken(turn):
            try:
                self._waiting.add(turn)
                while not self._is_taken(turn):
                    self._wait(go_on)
            finally:
                self._waiting.discard(turn)
        if stream is not None:
            self._order(stream)

    def note(self, stream: Stream, event: OwnedEvent) -> None:
        """Note what the run has queued on *stream*, before *event*."""
        self._ends.append((stream, event))

    def wake(self) -> None:
        """Say to runs that wait that one has ended; they look by themselves, too."""
        if self._waiting:
            self._ended.put(None)

    def _is_taken(self, turn: object) -> bool:
        with self._changing:
            if len(self.running) < self._limit:
                self.running.add(turn)
                return True
        return False

    def _wait(self, go_on: Callable[[], Any]) -> None:
        try:
            self._ended.get(timeout=PATIENCE)
        except queue.Empty:
            go_on()

    def _order(self, stream: Stream) -> None:
        """Wait for work of runs that have ended, where too many would overlap."""
        with self._ordering:
            while self._ends and len(self._ends) + len(self.running) > self._limit:
                before, event = self._ends[0]
                # on one stream the work is in order; what failed in another run is
                # none of this one's
                if before is not stream:
                    with ignoring_failures():
                        event.synchronize()
                # not before: the next run would not know of it after an interrupt
                self._ends.popleft()
