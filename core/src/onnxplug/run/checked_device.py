"""A device whose owner's answers are tried: whether work is done when they say so.

For sessions that ask for it (``session.check_results``).  The host waits for all that
it queues here, and looks.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from onnxplug.ep import DataType
from onnxplug.errors import EpError, OnnxplugError
from onnxplug.plugins.contexts import close_stream
from onnxplug.run.device import Device
from onnxplug.run.events import OwnedEvent

if TYPE_CHECKING:
    from onnxplug.ep import CapturedGraph, Stream


TRIAL_BYTES: Final = 1 << 22
"""Of a copy to try waits with: a device is to be busy while the host goes on."""


class CheckedEvent(OwnedEvent):
    """As :class:`OwnedEvent`, and an error if it says that it is not done when it was
    waited for."""

    __slots__ = ()

    def synchronize(self) -> None:
        super().synchronize()
        if not self.done():
            raise EpError(
                f"{self.ep} failed in Event.synchronize: it returned before "
                "Event.done() is True; it is to block until the work before the event "
                "is done",
                ep=self.ep,
                stage="run",
            )


class CheckedDevice(Device):
    """As :class:`Device`, and an error if a wait or a copy did not do what it should.

    What is noted while a stream captures is not looked at.
    """

    def __init__(self, device: Device) -> None:
        assert device._owned is not None
        super().__init__(device._owned, device.location)
        self._capturing: list[Stream] = []
        self._try_waits()

    def _try_waits(self) -> None:
        """Let one stream wait for a copy of another that takes a while.

        In the runs of the session there may be nothing to wait for any more.  Where
        there is no memory for that, or none of this element type, it is not tried.
        """
        with contextlib.ExitStack() as ends:
            streams = []
            for _ in range(2):
                stream = self.create_stream()
                if stream is None:
                    return
                streams.append(stream)
                ends.callback(close_stream, self.ep, stream)
                ends.callback(self.synchronize, stream)
            first, second = streams
            shape, dtype = (TRIAL_BYTES,), DataType.UINT8
            try:
                there = self.empty(shape, dtype)
                source, target = (
                    self.empty_on_host(shape, dtype, None) for _ in range(2)
                )
            except OnnxplugError:  # runs find whether it is a mistake
                return
            source[:], target[:] = 1, 0
            super().copy(target, there)
            super().copy(source, there, first)
            self.wait(second, self.record(first))
            super().copy(there, target, second)
            self.synchronize(second)
            if not target.all():
                raise self._error(
                    "what was queued on a stream after Stream.wait() returned True was "
                    "done before the event that it was to wait for"
                )

    def record(self, stream: Stream) -> CheckedEvent:
        event = super().record(stream)
        return CheckedEvent(event.event, event.ep)

    def wait(self, stream: Stream, event: OwnedEvent) -> None:
        super().wait(stream, event)
        if self._is_capturing(stream) or event.done():
            return
        # later work is done after it, and here nothing stands between the two
        self.record(stream).synchronize()
        if not event.done():
            raise self._error(
                "Stream.wait() returned True, and what was queued on the stream after "
                "it was done before the event that it was to wait for"
            )

    def copy(self, source: Any, target: Any, stream: Stream | None = None) -> None:
        super().copy(source, target, stream)
        if stream is None or self._is_capturing(stream):
            return
        self.record(stream).synchronize()
        found, given = self._content(target), self._content(source)
        if found != given:
            raise self._error(
                "what DataTransfer.copy() was to copy on a stream was not there when "
                "an event recorded behind it was done; queue copies on the stream that "
                "is given, and record() events behind all that is queued there"
            )

    def begin_capture(self, stream: Stream) -> None:
        super().begin_capture(stream)
        self._capturing.append(stream)

    def end_capture(self, stream: Stream) -> CapturedGraph:
        self._capturing = [other for other in self._capturing if other is not stream]
        return super().end_capture(stream)

    def _is_capturing(self, stream: Stream) -> bool:
        return any(stream is other for other in self._capturing)

    def _content(self, array: Any) -> bytes:
        if isinstance(array, np.ndarray):
            return array.tobytes()
        return bytes(self.to_host(array).tobytes())

    def _error(self, what: str) -> EpError:
        return EpError(f"{self.ep} failed in run: {what}", ep=self.ep, stage="run")
