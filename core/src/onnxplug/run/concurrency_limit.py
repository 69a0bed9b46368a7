"""Limits how many runs of a partition may overlap, where its EP says so."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from onnxplug.authoring.locks import new_rlock
from onnxplug.guard import ignoring_failures
from onnxplug.run.streams import PATIENCE

if TYPE_CHECKING:
    from onnxplug.ep import Stream
    from onnxplug.run.events import OwnedEvent


class ConcurrencyLimit:
    """Lets so many runs of a partition overlap, the work that they queue included.

    Args:
        limit: how many.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._changed = threading.Condition(new_rlock())
        self._running: set[object] = set()
        self._ends: deque[tuple[Stream, OwnedEvent]] = deque()

    @contextlib.contextmanager
    def take(
        self,
        stream: Stream | None,
        record: Callable[[], OwnedEvent],
        go_on: Callable[[], None],
    ) -> Iterator[None]:
        """A context in which one run may run the partition.

        Args:
            stream: what it queues its work on.
            record: gives the event after that work.
            go_on: asked while other runs have their turn; raises to give up.
        """
        turn = object()
        try:  # from here on, as an interrupt may come right after it is taken
            with self._changed:
                while len(self._running) >= self._limit:
                    if not self._changed.wait(PATIENCE):
                        go_on()
                self._running.add(turn)
            if stream is not None and len(self._ends) >= self._limit:
                before, event = self._ends.popleft()
                # on one stream the work is in order; what failed in another run is
                # none of this one's
                if before is not stream:
                    with ignoring_failures():
                        event.synchronize()
            yield
            if stream is not None:
                self._ends.append((stream, record()))
        finally:
            with self._changed:
                self._running.discard(turn)
                self._changed.notify()
