"""One run of a session: its streams, its queued copies, and its cancellation."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from onnxplug.authoring.locks import has_lock
from onnxplug.authoring.record import Record
from onnxplug.ep import HOST, MemoryLocation
from onnxplug.errors import RunCancelled
from onnxplug.guard import blaming
from onnxplug.options import RunOptions
from onnxplug.run.aliasing import overlap, parts
from onnxplug.run.memory import Hop, Memory
from onnxplug.run.profiling import Profile
from onnxplug.run.streams import StreamPool, Streams, acquire

if TYPE_CHECKING:
    from onnxplug.ep import CapturePhase, Stream
    from onnxplug.run.device import Device
    from onnxplug.run.entries import OptionsByEp
    from onnxplug.run.events import OwnedEvent


class _Copying(Record):
    """A queued copy, until it is done.

    Attributes:
        source, target: the arrays that it reads and fills, which are to live until
            then; ``None`` for those of the device, whose memory is reused in the order
            of its stream.
    """

    device: Device
    event: OwnedEvent
    source: Any
    target: Any


def deadline_of(given: RunOptions | None) -> float | None:
    """The ``time.monotonic()`` after which a run with these options is cancelled that
    starts now."""
    timeout = None if given is None else given.timeout
    return None if timeout is None else time.monotonic() + timeout


def why_cancelled(given: RunOptions | None, deadline: float | None) -> str:
    """Why a run with these options should go no further; empty if it should."""
    if deadline is not None and time.monotonic() > deadline:
        return "the run's timeout passed before it finished"
    if given is not None and given.is_terminated:
        return (
            "Exiting due to terminate flag being set to true: the run was cancelled "
            "before it finished"
        )
    return ""


class Run:
    """One run of a session, shared by the plans of its graph and bodies.

    Attributes:
        options: what the run's config entries say to each EP.
        deadline: ``time.monotonic()`` after which the run is cancelled.
        profile: the session's trace, if there is one.
        capture: see :class:`onnxplug.ep.CapturePhase`.
    """

    def __init__(
        self,
        memory: Memory,
        pool: StreamPool,
        options: OptionsByEp,
        given: RunOptions | None = None,
        profile: Profile | None = None,
        *,
        streams: Callable[[], Streams] | None = None,
        capture: CapturePhase | None = None,
    ) -> None:
        """*streams* gives those to use; by default they are some of the *pool*'s."""
        self.memory = memory
        self.profile = profile
        self.capture = capture
        self.options = options
        self._given = given
        self.deadline = deadline_of(given)
        self._pool = pool
        self._own = streams
        self._streams: Streams | None = None
        self._used: dict[MemoryLocation, Stream] = {}
        self._copying: deque[_Copying] = deque()
        # host arrays that queued work fills, by their addresses in CPython
        self._pending: dict[int, _Copying] = {}
        self._is_left = False

    def stream(self, location: MemoryLocation) -> Stream | None:
        """The run's stream on *location*, made when first asked for."""
        if location is HOST:
            return None
        found = self._used.get(location)
        if found is not None or self.memory.device(location) is None:
            return found
        stream = self._taken().at(location)
        if stream is not None:
            self._used[location] = stream
        return stream

    def _taken(self) -> Streams:
        """The streams, which the run has to itself until it ends."""
        if self._streams is None:
            # before it is acquired, as an interrupt may come right after that
            self._streams = self._pool.take() if self._own is None else self._own()
            acquire(self._streams.lock, self.check)
            self._streams.renew()
        return self._streams

    def check(self) -> None:
        """Raise :class:`RunCancelled` when the run should go no further."""
        if self._given is not None:
            why = why_cancelled(self._given, self.deadline)
            if why:
                raise RunCancelled(why)

    @property
    def cancelled(self) -> bool:
        """Whether the run's options say to terminate it."""
        return self._given is not None and self._given.is_terminated

    @property
    def is_capturing(self) -> bool:
        """Whether streams note what is queued instead of doing it."""
        if self.capture is None:
            return False
        from onnxplug.ep import CapturePhase  # which few sessions need

        return self.capture is CapturePhase.CAPTURE

    # copies

    def copy(
        self, value: Any, hop: Hop, into: Any = None, *, pinned: bool = True
    ) -> Any:
        """*value* at the hop's target; lists element by element.

        Args:
            into: an array there to copy to; by default a new one is made.
            pinned: a new one on the host is of memory that the device reaches.
        """
        if value is None:
            return None
        if isinstance(value, list):
            return [self.copy(item, hop, pinned=pinned) for item in value]
        device = hop.device
        stream = self.stream(device.location)
        filling = self._pending.get(id(value))
        if filling is not None and (stream is None or filling.device is not device):
            # another device's copy to the host may still be filling it
            self.wait_for(value)
        if stream is not None:
            self._order(hop, stream)
        if into is None:
            target = self.memory.empty_like(value, hop, stream, pinned=pinned)
        else:
            self.memory.check_bound(value, into, hop)
            target = into
        device.copy(value, target, stream)
        # what is on the device itself is reused in the order of its stream
        if stream is not None and not hop.source == hop.target == device.location:
            self._release_copied()
            copying = _Copying(
                device,
                device.record(stream),
                None if hop.source == device.location else value,
                None if hop.target == device.location else target,
            )
            self._copying.append(copying)
            if hop.target.host_accessible:
                self._pending[id(target)] = copying
        return target

    def fills(self, arrays: Sequence[Any], location: MemoryLocation) -> None:
        """Let readers on the host wait for what is queued at *location* to fill."""
        device, stream = self.memory.device(location), self._used.get(location)
        if device is None or stream is None:
            return
        event = device.record(stream)
        for array in (part for value in arrays for part in parts(value)):
            copying = _Copying(device, event, None, array)
            self._copying.append(copying)
            self._pending[id(array)] = copying

    def _order(self, hop: Hop, stream: Stream) -> None:
        """Let the copy see what earlier work on the other device has made."""
        other = hop.source if hop.device.location == hop.target else hop.target
        before = self._used.get(other)
        if before is None or before is stream:
            return
        maker = self.memory.device(other)
        assert maker is not None
        hop.device.wait(stream, maker.record(before))

    def record_at(self, location: MemoryLocation) -> OwnedEvent:
        """The event after the run's work at *location*, which has a stream."""
        device = self.memory.device(location)
        assert device is not None
        return device.record(self._used[location])

    def after(self, location: MemoryLocation, event: OwnedEvent) -> None:
        """Let the run's work at *location* start after *event*."""
        stream, device = self.stream(location), self.memory.device(location)
        if stream is None or device is None:
            event.synchronize()
        else:
            device.wait(stream, event)

    def wait_for(self, value: Any) -> Any:
        """*value*, waited for when queued work still fills it."""
        if self._pending and value is not None:
            if isinstance(value, list):
                return [self.wait_for(item) for item in value]
            copying = self._pending.pop(id(value), None)
            if copying is not None:
                with self._waiting(copying.device.location):
                    copying.event.synchronize()
                self._release_copied()
        return value

    def _release_copied(self) -> None:
        while self._copying and self._copying[0].event.done():
            self._copying.popleft()

    def synchronize(self, location: MemoryLocation) -> None:
        """Wait for the work queued at *location*, whose failure is the EP's."""
        stream = self._used.get(location)
        if stream is None:
            return
        ep = self.memory.ep_at(location)
        with self._waiting(location), blaming(ep, "run", "Stream.synchronize"):
            stream.synchronize()
        self._release_copied()

    def _waiting(self, location: MemoryLocation) -> AbstractContextManager[None]:
        if self.profile is None:
            return contextlib.nullcontext()
        return self.profile.stage(f"wait for {location}", "Wait")

    # the end

    def leave_queued(
        self, read: Sequence[Any], held: Sequence[Any]
    ) -> dict[MemoryLocation, OwnedEvent]:
        """Let the run end while its work is queued.

        Args:
            read: host arrays that are the caller's, who may write to them then.
            held: arrays that are to live until the work is done.

        Returns:
            For each location with a stream the event after the run's work there.
        """
        kept = list(held)
        for copying in self._copying:
            # what is copied may be a view of it, or in a list
            if copying.source is not None and any(
                overlap(copying.source, value) for value in read
            ):
                copying.event.synchronize()
            else:
                kept += [copying.source, copying.target]
        events = {}
        for location, stream in self._used.items():
            device = self.memory.device(location)
            assert device is not None
            events[location] = device.record(stream)
        if events:
            assert self._streams is not None
            self._streams.keep(kept, list(events.values()))
        self._is_left = True
        return events

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, kind: object, error: BaseException | None, trace: object
    ) -> None:
        streams, self._streams = self._streams, None
        if streams is None:
            return
        if not has_lock(streams.lock):  # the run ended while it waited for them
            self._end(streams)
            return
        try:
            if error is None and not self._is_left:
                self._synchronize_all()
        except BaseException:
            self._pool.discard(streams)
            raise
        else:
            if error is not None:
                self._pool.discard(streams)
        finally:
            streams.lock.release()
            self._end(streams)

    def _end(self, streams: Streams) -> None:
        self._used.clear()
        self._pending.clear()
        self._copying.clear()
        if self._own is None:
            self._pool.give_back(streams)

    def _synchronize_all(self) -> None:
        # every stream is waited for, even if an earlier one failed
        with contextlib.ExitStack() as ends:
            for location in reversed(self._used):
                ends.callback(self.synchronize, location)
