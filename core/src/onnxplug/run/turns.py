"""Turns at a partition whose EP limits how many of its runs may overlap."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from onnxplug.guard import FAILURES
from onnxplug.run.streams import acquire

if TYPE_CHECKING:
    from onnxplug.ep import Event, Stream


class Turns:
    """Lets so many runs of a partition overlap, the work that they queue included.

    Args:
        limit: how many.
    """

    def __init__(self, limit: int) -> None:
        self._semaphore = threading.Semaphore(limit)
        self._limit = limit
        self._ends: deque[tuple[Stream, Event]] = deque()

    @contextlib.contextmanager
    def take(
        self,
        stream: Stream | None,
        record: Callable[[], Event],
        go_on: Callable[[], None],
    ) -> Iterator[None]:
        """A context in which one run may run the partition.

        Args:
            stream: what it queues its work on.
            record: gives the event after that work.
            go_on: asked while other runs have their turn; raises to give up.
        """
        acquire(self._semaphore, go_on)
        try:
            if stream is not None and len(self._ends) >= self._limit:
                before, event = self._ends.popleft()
                # on one stream the work is in order; what failed in another run is
                # none of this one's
                if before is not stream:
                    with contextlib.suppress(*FAILURES):
                        event.synchronize()
            yield
            if stream is not None:
                self._ends.append((stream, record()))
        finally:
            self._semaphore.release()
