"""The streams of a session's runs: who has them, and what their work still uses."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from onnxplug.ep.locks import new_lock, new_rlock
from onnxplug.errors import EpError
from onnxplug.guard import FAILURES, blaming

if TYPE_CHECKING:
    from onnxplug.ep import Event, MemoryLocation, Stream
    from onnxplug.run.memory import Memory


class Streams:
    """One stream per location, for runs one after the other.

    Made when they are first needed, and kept for later runs, whose work is in order
    with that of those before.

    Attributes:
        lock: held by the run that uses them.
    """

    def __init__(self, memory: Memory) -> None:
        # a thread may drop a binding while it runs another one
        self.lock = new_rlock()
        self._memory = memory
        self._streams: dict[MemoryLocation, Stream | None] = {}
        # arrays that queued work uses and that no stream keeps in order
        self._kept: deque[tuple[Sequence[Event], list[Any]]] = deque()
        self._has_failed = False

    def at(self, location: MemoryLocation) -> Stream | None:
        """The stream on *location*; ``None`` if its work is never queued."""
        try:
            return self._streams[location]
        except KeyError:
            pass
        device = self._memory.device(location)
        handle = self._memory.user_streams.get(location)
        if device is None:
            stream = None
        elif handle is not None:
            stream = device.adopt_stream(handle)
        else:
            stream = device.create_stream()
        self._streams[location] = stream
        return stream

    def keep(self, arrays: list[Any], events: Sequence[Event]) -> None:
        """Keep *arrays* until *events* are done, and no more of those before that
        are done."""
        self.release_done()
        self._kept.append((events, arrays))

    def release_done(self) -> None:
        """Drop the arrays that no queued work uses any more."""
        while self._kept and all(event.done() for event in self._kept[0][0]):
            events, _ = self._kept.popleft()
            for event in events:
                try:
                    event.synchronize()
                except FAILURES:
                    self._has_failed = True

    def renew(self) -> None:
        """Make streams anew, when they are next needed, on which a run has failed.

        Raises:
            EpError: one cannot be closed.
        """
        self.release_done()
        if self._has_failed:
            self.close()

    def synchronize(self) -> None:
        """Wait for all work, whose failures are those of who waits for its results."""
        with self.lock:
            _wait_for(self._streams)
            self._kept.clear()

    def close(self) -> None:
        """Wait for all work, as :meth:`synchronize`, and release the streams.

        Raises:
            EpError: one cannot be closed; the others are.
        """
        with self.lock, contextlib.ExitStack() as ends:
            made, self._streams = self._streams, {}
            self._has_failed = False
            for location, stream in made.items():
                if stream is not None:
                    ends.callback(_close, self._memory.ep_at(location), stream)
            _wait_for(made)
            self._kept.clear()


def _wait_for(streams: Mapping[MemoryLocation, Stream | None]) -> None:
    """Wait for all work, whose failures are those of who waits for its results."""
    for stream in streams.values():
        if stream is not None:
            with contextlib.suppress(*FAILURES):
                stream.synchronize()


def _close(ep: str, stream: Stream) -> None:
    with blaming(ep, "close"):
        stream.close()


class StreamPool:
    """The streams of one session: each run has some of its own.

    Those of a user are used by one run at a time.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._lock = new_lock()
        self._idle: list[Streams] = []
        self._all: list[Streams] = []

    def take(self, go_on: Callable[[], None]) -> Streams:
        """Streams for one run, until it gives them back.

        Args:
            go_on: asked while others use them; raises to give up.
        """
        with self._lock:
            if self._memory.user_streams and self._all:
                streams = self._all[0]
            elif self._idle:
                streams = self._idle.pop()
            else:
                streams = self._new()
        acquire(streams.lock, go_on)
        return streams

    def give_back(self, streams: Streams) -> None:
        """End what :meth:`take` began."""
        streams.lock.release()
        with self._lock:
            if streams in self._all and not self._memory.user_streams:
                self._idle.append(streams)

    def own(self) -> Streams:
        """Streams for runs that always have the same, until they are dropped."""
        with self._lock:
            if self._memory.user_streams and self._all:
                return self._all[0]
            return self._new()

    def drop(self, streams: Streams) -> None:
        """Close streams that no run uses any more, unless they are a user's.

        Raises:
            EpError: one cannot be closed.
        """
        with self._lock:
            if self._memory.user_streams or streams not in self._all:
                return
            self._all.remove(streams)
        streams.close()

    def discard(self, streams: Streams) -> None:
        """Close streams of a run that failed, which others are not to meet in them.

        They may be used again, and are made anew then.
        """
        # the failure of the run matters more
        with contextlib.suppress(EpError):
            streams.close()

    def close(self) -> None:
        """Close all streams; no run uses them.

        Raises:
            EpError: one cannot be closed; the others are.
        """
        with self._lock:
            every, self._all, self._idle = self._all, [], []
        with contextlib.ExitStack() as ends:
            for streams in every:
                ends.callback(streams.close)

    def _new(self) -> Streams:
        streams = Streams(self._memory)
        self._all.append(streams)
        return streams


_PATIENCE: Final = 0.1
"""Seconds to wait for another run before looking whether this one is cancelled."""


def acquire(
    lock: threading.RLock | threading.Semaphore, go_on: Callable[[], None]
) -> None:
    """Acquire *lock*, unless *go_on*, asked now and then, raises."""
    while not lock.acquire(timeout=_PATIENCE):
        go_on()
