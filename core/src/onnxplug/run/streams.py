"""The streams of a session's runs: who has them, and what their work still uses."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from onnxplug.authoring.locks import has_lock, new_rlock
from onnxplug.errors import EpError
from onnxplug.guard import FAILURES
from onnxplug.interruption import raise_interruption
from onnxplug.plugins.contexts import close_stream

if TYPE_CHECKING:
    from onnxplug.ep import MemoryLocation, Stream
    from onnxplug.run.events import OwnedEvent
    from onnxplug.run.memory import Memory


class Streams:
    """One stream per location, for runs one after the other.

    Made when they are first needed, and kept for later runs, whose work is in order
    with that of those before.

    Attributes:
        lock: held by the run that uses them.
    """

    def __init__(self, memory: Memory) -> None:
        # one that a thread may hold twice, as it may drop a binding in another's run
        self.lock = _lock_of(memory.user_streams)
        self._memory = memory
        self._streams: dict[MemoryLocation, Stream | None] = {}
        # arrays that queued work uses and that no stream keeps in order
        self._kept: deque[tuple[Sequence[OwnedEvent], list[Any]]] = deque()
        self._has_failed = False
        self._ends: list[Callable[[], None]] = []

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

    def keep(self, arrays: list[Any], events: Sequence[OwnedEvent]) -> None:
        """Keep *arrays* until *events* are done."""
        self.release_done()
        self._kept.append((events, arrays))

    def release_done(self) -> None:
        """Drop the arrays that no queued work uses any more."""
        while self._kept and all(event.done() for event in self._kept[0][0]):
            events, _ = self._kept.popleft()
            for event in events:
                try:
                    event.synchronize()
                except FAILURES as error:
                    raise_interruption(error)
                    self._has_failed = True

    def when_idle(self, end: Callable[[], None]) -> None:
        """Call *end* once all work is done: now, or after the run of this thread.

        It may be garbage that is collected in the middle of a run.
        """
        if has_lock(self.lock):
            self._ends.append(end)
            return
        with self.lock:
            self.synchronize()
            end()

    def renew(self) -> None:
        """Make streams anew, when they are next needed, on which a run has failed.

        Raises:
            EpError: one cannot be closed.
        """
        self.release_done()
        if self._ends:
            self.synchronize()
        if self._has_failed:
            self.close()

    def synchronize(self) -> None:
        """Wait for all work, whose failures are those of who waits for its results."""
        with self.lock:
            self._has_failed |= _wait_for(self._streams)
            self._kept.clear()
            while self._ends:
                self._ends.pop()()

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
                    ends.callback(close_stream, self._memory.ep_at(location), stream)
            _wait_for(made)
            self._kept.clear()
            while self._ends:
                self._ends.pop()()


def _wait_for(streams: Mapping[MemoryLocation, Stream | None]) -> bool:
    """Wait for all work, whose failures are those of who waits for its results.

    Returns:
        Whether any failed.
    """
    has_failed = False
    for stream in streams.values():
        if stream is not None:
            try:
                stream.synchronize()
            except FAILURES as error:
                raise_interruption(error)
                has_failed = True
    return has_failed


_user_locks: Final[weakref.WeakValueDictionary[Any, Any]] = (
    weakref.WeakValueDictionary()
)
_looking: Final = new_rlock()


def _lock_of(user_streams: Mapping[MemoryLocation, int]) -> threading.RLock:
    """The lock of streams, the same for all sessions that have the same of a user's."""
    if not user_streams:
        return new_rlock()
    with _looking:
        key = frozenset(user_streams.items())
        lock: threading.RLock | None = _user_locks.get(key)
        if lock is None:
            lock = _user_locks[key] = new_rlock()
        return lock


class StreamPool:
    """The streams of one session: each run has some of its own.

    Those of a user are used by one run at a time.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        # one that a thread may hold twice, as garbage may be collected in here
        self._lock = new_rlock()
        self._idle: list[Streams] = []
        self._all: list[Streams] = []

    def take(self) -> Streams:
        """Streams for one run, which holds their lock, until it gives them back."""
        with self._lock:
            if self._memory.user_streams and self._all:
                return self._all[0]
            return self._idle.pop() if self._idle else self._new()

    def give_back(self, streams: Streams) -> None:
        """End what :meth:`take` began."""
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
        """Close streams of a run that failed, so that no later one raises its failure.

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


PATIENCE: Final = 0.1
"""Seconds to wait for another run before looking whether this one is cancelled."""


def acquire(lock: threading.RLock, go_on: Callable[[], None]) -> None:
    """Acquire *lock*, unless *go_on*, asked now and then, raises."""
    while not lock.acquire(timeout=PATIENCE):
        go_on()
