"""Streams of an adapter, which are all of its one queue, and what is captured of them.

Work is in order across all streams, so one waits for another without doing anything.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from onnxplug import ep
from onnxplug_directml.device.device import DmlDevice
from onnxplug_directml.device.pool import Memory
from onnxplug_directml.device.readback import Readback
from onnxplug_directml.device.staging import Consumer
from onnxplug_directml.device.work import Work

_WAITED: Final = (
    "something waited for work of a capture, which nobody does before launch"
)


class DmlEvent(ep.Event):
    """A point in the queue.

    Args:
        capture: the capture that it was recorded in, if any.

    Attributes:
        device: of the stream.
        number: of the last work before it.
        readbacks: what the stream had to read back then.
    """

    def __init__(
        self,
        device: DmlDevice,
        number: int,
        readbacks: tuple[Readback, ...],
        capture: _Capture | None,
    ) -> None:
        self.device = device
        self.readbacks = readbacks
        self.number = number
        self._capture = capture

    def done(self) -> bool:
        if self._capture is not None:
            self._capture.failure = _WAITED
            return False
        done = [readback.is_done() for readback in self.readbacks]
        return all(done) and self.device.has_done(self.number)

    def synchronize(self) -> None:
        if self._capture is not None:
            self._capture.failure = _WAITED
            raise RuntimeError(_WAITED)
        self.device.wait(self.number)
        finish(self.readbacks)


class _Capture:
    """Work that is noted, in order.

    Attributes:
        memories: all that were handed out or used meanwhile.
        failure: why it cannot be captured; empty as long as it can.
    """

    def __init__(self) -> None:
        self.work: list[Work] = []
        self.reads: list[tuple[Memory, int, Consumer]] = []
        self.memories: list[Memory] = []
        self.failure = ""


class DmlGraph(ep.CapturedGraph):
    """Recorded command lists, with the memory that they name."""

    def __init__(self, device: DmlDevice, capture: _Capture) -> None:
        self._device = device
        self._work = tuple(capture.work)
        self._reads = tuple(capture.reads)
        self._memories = tuple(capture.memories)

    def launch(self, stream: ep.Stream) -> None:
        assert isinstance(stream, DmlStream)
        stream.queue(*self._work)
        for memory, nbytes, consume in self._reads:
            stream.read_when_done(memory, nbytes, consume)

    def close(self) -> None:
        self._work = ()
        self._reads = ()
        self._memories = ()


class DmlStream(ep.Stream):
    """A stream of a device."""

    def __init__(self, device: DmlDevice) -> None:
        self.device = device
        self._last = 0
        self._readbacks: deque[Readback] = deque()
        self._capture: _Capture | None = None

    def queue(self, *work: Work) -> None:
        """Queue *work*, in order, or note it.

        Raises:
            DeviceRemoved: the device is.
        """
        if self._capture is not None:
            self._capture.work += work
        elif work:
            self._last = self.device.submit(work)

    def keep(self, memory: Memory) -> None:
        """Let *memory*, which work of this stream uses, belong to what is captured."""
        if self._capture is not None:
            self._capture.memories.append(memory)

    def upload(self, memory: Memory, array: np.ndarray[Any, Any]) -> None:
        """Queue that *memory* is filled from *array*, which may change afterwards."""
        self._check_not_capturing("copies from the host")
        self._last = self.device.upload(memory, array)

    def read(self, memory: Memory, target: np.ndarray[Any, Any]) -> None:
        """Queue that *target* is filled from *memory*; it is once this or an event
        that is recorded from now on was waited for."""
        self._check_not_capturing("reads back what the host waits for")
        self._reads(self.device.read_array(memory, target))

    def read_when_done(self, memory: Memory, nbytes: int, consume: Consumer) -> None:
        """Queue that *consume* takes bytes of *memory*, whenever this is launched; what
        it raises is raised to whoever waits."""
        if self._capture is not None:
            self._capture.reads.append((memory, nbytes, consume))
        else:
            self._reads(self.device.read(memory, nbytes, consume))

    def _reads(self, readback: Readback) -> None:
        while self._readbacks and self._readbacks[0].is_fine():
            self._readbacks.popleft()
        self._readbacks.append(readback)
        self._last = readback.number

    def record(self) -> DmlEvent:
        return DmlEvent(self.device, self._last, tuple(self._readbacks), self._capture)

    def wait(self, event: ep.Event) -> bool:
        if not isinstance(event, DmlEvent) or event.device is not self.device:
            return False
        self._check_not_capturing("waits for an event")
        self._last = max(self._last, event.number)
        self._readbacks += (
            each for each in event.readbacks if each not in self._readbacks
        )
        return True

    def synchronize(self) -> None:
        self._check_not_capturing("is waited for")
        self.device.wait(self._last)
        readbacks = tuple(self._readbacks)
        self._readbacks.clear()
        finish(readbacks)

    def begin_capture(self) -> None:
        """Note work from here on."""
        self._capture = _Capture()

    def end_capture(self) -> DmlGraph:
        """What was noted.

        Raises:
            RuntimeError: some of it cannot be captured.
        """
        capture, self._capture = self._capture, None
        assert capture is not None
        if capture.failure:
            raise RuntimeError(capture.failure)
        return DmlGraph(self.device, capture)

    def _check_not_capturing(self, what: str) -> None:
        if self._capture is not None:
            self._capture.failure = f"a run that is captured {what}"
            raise RuntimeError(
                f"{self._capture.failure}; turn enable_graph_capture off, or run it "
                "with gpu_graph_id=-1"
            )


class DmlCapture(ep.GraphCapture):
    """Captures what is queued on streams of a device."""

    def begin(self, stream: ep.Stream) -> None:
        assert isinstance(stream, DmlStream)
        stream.begin_capture()

    def end(self, stream: ep.Stream) -> DmlGraph:
        assert isinstance(stream, DmlStream)
        return stream.end_capture()


def finish(readbacks: Sequence[Readback]) -> None:
    """Wait for all, whatever goes wrong in one of them.

    Raises:
        OnnxplugError: what the first raised that failed.
    """
    first: ep.OnnxplugError | None = None
    for readback in readbacks:
        try:
            readback.finish()
        except ep.OnnxplugError as error:
            first = first or error
    if first is not None:
        raise first
