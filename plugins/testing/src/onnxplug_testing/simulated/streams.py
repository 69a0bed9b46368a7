"""Streams whose work is done as late as possible, and in an unexpected order.

A device that is quick and idle hides missing synchronisation: work queued is done
before anyone looks.  Here nothing is done until somebody waits for it, and between
streams that do not wait for each other, what was queued last is done first.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

from onnxplug import ep


@dataclass(frozen=True, slots=True)
class _Work:
    """What is queued: its place in time, the addresses on the host that it reads, and
    how much of another stream's work must be done before."""

    serial: int
    function: Callable[[], None]
    reads: tuple[int, int] = (0, 0)
    after: tuple[SimulatedStream, int] | None = None


class Schedule:
    """The order in which a device does the work of all its streams.

    Args:
        seed: of the random choice among streams; ``None`` takes the newest work first.
    """

    def __init__(self, seed: int | None = None) -> None:
        self._random = None if seed is None else random.Random(seed)
        self._serial = 0
        self.lock = threading.RLock()
        self.open_streams: list[SimulatedStream] = []

    def next_serial(self) -> int:
        """A number greater than all before."""
        self._serial += 1
        return self._serial

    def run_until_empty(self, stream: SimulatedStream) -> None:
        """Do work, of any stream, until *stream* has none."""
        with self.lock:
            while stream.pending:
                ready = [other for other in self.open_streams if other.ready]
                if self._random is None:
                    chosen = max(ready, key=_newest)
                else:
                    chosen = self._random.choice(ready)
                chosen.step()


class SimulatedStream(ep.Stream):
    """An ordered queue of work; see :class:`Schedule` for when it is done.

    Work that raises ends the work queued on its stream, and on streams that wait for
    it; the next ``synchronize`` of each raises the error, once.
    """

    def __init__(self, schedule: Schedule, location: ep.MemoryLocation) -> None:
        self.location = location
        self.pending: deque[_Work] = deque()
        self._schedule = schedule
        self._queued = 0
        self._done = 0
        self._error: Exception | None = None
        self._failed_at = 0
        self._closed = False
        with schedule.lock:
            schedule.open_streams.append(self)

    def enqueue(
        self,
        function: Callable[[], None],
        reads: np.ndarray[Any, Any] | None = None,
    ) -> int:
        """Queue *function*, which reads the host array *reads* when it is called.

        Returns:
            Its number on this stream, for :meth:`has_done`.
        """
        return self._append(function, (0, 0) if reads is None else byte_bounds(reads))

    def has_done(self, number: int) -> bool:
        """Whether the work of this *number* is done, or was dropped after an error."""
        return self._done >= number

    def wait(self, other: ep.Stream) -> None:
        if not isinstance(other, SimulatedStream) or (
            other._schedule is not self._schedule
        ):
            raise TypeError(
                f"a stream of {self.location} cannot wait for {other!r}, which another "
                "factory made; synchronise that one instead"
            )
        with self._schedule.lock:
            self._append(_nothing, after=(other, other._queued))

    def synchronize(self) -> None:
        self._check_open("synchronised")
        self._schedule.run_until_empty(self)
        error, self._error = self._error, None
        if error is not None:
            raise error

    def close(self) -> None:
        self._check_open("closed again")
        with self._schedule.lock:
            if self.pending:
                raise RuntimeError(
                    f"a stream of {self.location} was closed with {len(self.pending)} "
                    "pieces of work to do; synchronise it first"
                )
            self._closed = True
            self._schedule.open_streams.remove(self)

    def will_read(self, array: np.ndarray[Any, Any]) -> bool:
        """Whether work queued here is still to read the host array *array*."""
        with self._schedule.lock:
            low, high = byte_bounds(array)
            ranges = [work.reads for work in tuple(self.pending)]
        return any(start < high and low < end for start, end in ranges)

    # for the schedule

    @property
    def ready(self) -> bool:
        """There is work, and it has nothing to wait for."""
        if not self.pending:
            return False
        after = self.pending[0].after
        return after is None or after[0]._done >= after[1]

    def step(self) -> None:
        """Do the first piece of work."""
        # it stays in the queue until done: an array dropped meanwhile may be read by it
        work = self.pending[0]
        try:
            if work.after is not None:
                work.after[0]._raise_up_to(work.after[1])
            work.function()
        # a device keeps what went wrong until somebody synchronises
        except Exception as error:  # noqa: BLE001
            self._error = error
            self._failed_at = self._done + 1
            self._done += len(self.pending)
            self.pending.clear()
        else:
            self._done += 1
            self.pending.popleft()

    def _raise_up_to(self, count: int) -> None:
        if self._error is not None and self._failed_at <= count:
            raise self._error

    def _append(
        self,
        function: Callable[[], None],
        reads: tuple[int, int] = (0, 0),
        after: tuple[SimulatedStream, int] | None = None,
    ) -> int:
        self._check_open("used")
        with self._schedule.lock:
            serial = self._schedule.next_serial()
            self.pending.append(_Work(serial, function, reads, after))
            self._queued += 1
            return self._queued

    def _check_open(self, verb: str) -> None:
        if self._closed:
            raise RuntimeError(
                f"a closed stream of {self.location} was {verb}; a stream is closed "
                "once, after its last use"
            )


def _newest(stream: SimulatedStream) -> tuple[bool, int]:
    # a wait that is over comes first: newer work may stand behind it
    work = stream.pending[0]
    return work.after is not None, work.serial


def _nothing() -> None:
    return None
