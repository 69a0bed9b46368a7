"""Streams of a device, which are all of its one queue, and what they read back.

Work is in order across all streams, so one waits for another without doing anything.
A stream remembers what is read back for whom: outputs on the host, and the flags of
kernels that may find an error.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from onnxplug import ep
from onnxplug_compiler.gpu.execution.device import (
    Consumer,
    Copies,
    DeviceStream,
    Launches,
)
from onnxplug_webgpu.loss import lost
from onnxplug_webgpu.readback import LARGEST, Readback, has_done, wait_until_done

if TYPE_CHECKING:
    from onnxplug_webgpu.pool import Memory
    from onnxplug_webgpu.queue import Queue

_WAITED: Final = (
    "something waited for work of a capture, which nobody does before launch"
)


class WebGpuEvent(ep.Event):
    """A point in the queue.

    Args:
        number: how often work was queued until then.
        readbacks: what the stream had to read back then.
        capture: the capture that it was recorded in, if any.
    """

    def __init__(
        self,
        device: Queue,
        number: int,
        readbacks: tuple[Readback, ...],
        capture: _Capture | None,
    ) -> None:
        self.device = device
        self.readbacks = readbacks
        self._number = number
        self._capture = capture

    def done(self) -> bool:
        if self._capture is not None:
            self._capture.failure = _WAITED
            return False
        done = [readback.is_done() for readback in self.readbacks]
        return all(done) and has_done(self.device, self._number)

    def synchronize(self) -> None:
        if self._capture is not None:
            self._capture.failure = _WAITED
            raise RuntimeError(_WAITED)
        finish(self.readbacks)
        wait_until_done(self.device, self._number)


class _Read:
    """What a captured run reads back.

    Attributes:
        memory, nbytes, consume: see :meth:`Readback.add`.
    """

    def __init__(self, memory: Memory, nbytes: int, consume: Consumer) -> None:
        self.memory = memory
        self.nbytes = nbytes
        self.consume = consume


class _Capture:
    """Work that is noted, in order.

    Attributes:
        failure: why it cannot be captured; empty as long as it can.
    """

    def __init__(self) -> None:
        self.work: list[Launches | Copies] = []
        self.reads: list[_Read] = []
        self.failure = ""


class WebGpuGraph(ep.CapturedGraph):
    """Captured work, with the groups of buffers that it binds."""

    def __init__(self, device: Queue, capture: _Capture) -> None:
        self._device = device
        self._generation = device.generation
        self._work = tuple(capture.work)
        self._reads = tuple(capture.reads)

    def launch(self, stream: ep.Stream) -> None:
        assert isinstance(stream, WebGpuStream)
        if self._generation != self._device.generation:
            raise lost(self._device)
        stream.queue(*self._work)
        for read in self._reads:
            stream.read(read.memory, read.nbytes, read.consume)

    def close(self) -> None:
        self._work = ()
        self._reads = ()


class WebGpuStream(DeviceStream):
    """A stream of a device."""

    def __init__(self, device: Queue) -> None:
        self._device = device
        self._readbacks: deque[Readback] = deque()
        self._capture: _Capture | None = None

    @property
    def is_capturing(self) -> bool:
        return self._capture is not None

    def queue(self, *work: Launches | Copies) -> None:
        if self._capture is not None:
            self._capture.work += work
            return
        self._close_readback()
        self._device.submit(work)

    def read(self, memory: Memory, nbytes: int, consume: Consumer) -> None:
        if self._capture is not None:
            self._capture.reads.append(_Read(memory, nbytes, consume))
        else:
            while not self._open_readback().add(memory, nbytes, consume):
                pass  # another thread, which waits for it, has just closed it

    def upload(self, memory: Memory, array: np.ndarray[Any, Any]) -> None:
        self.check_not_capturing("copies from the host")
        self._close_readback()
        self._device.upload(memory, array)

    def timed(self, work: Launches) -> Sequence[tuple[int, int]]:
        """The time of a step is what the host waits for it, the way to the device and
        back included, which a run that is not timed has once for all."""
        device = self._device
        wait_until_done(device, device.submitted)
        cleared = work.cleared
        times = []
        for step in work.steps:
            started = time.perf_counter_ns()
            self.queue(Launches((step,), cleared, work.memories))
            wait_until_done(device, device.submitted)
            cleared = None
            times.append((started, time.perf_counter_ns() - started))
        return times

    def check_not_capturing(self, what: str) -> None:
        if self._capture is not None:
            self._capture.failure = f"a run that is captured {what}"
            raise RuntimeError(
                f"{self._capture.failure}; turn enableGraphCapture off, or run it with "
                "gpu_graph_id=-1"
            )

    def _open_readback(self) -> Readback:
        last = self._readbacks[-1] if self._readbacks else None
        if last is None or not last.is_open or last.nbytes >= LARGEST:
            self._close_readback()
            last = Readback(self._device)
            self._readbacks.append(last)
        return last

    def _close_readback(self) -> None:
        """Read what is to be read before more is queued."""
        while self._readbacks and _is_fine(self._readbacks[0]):
            self._readbacks.popleft()
        if self._readbacks:
            self._readbacks[-1].seal()

    def record(self) -> WebGpuEvent:
        readbacks = tuple(self._readbacks)
        return WebGpuEvent(
            self._device, self._device.submitted, readbacks, self._capture
        )

    def wait(self, event: ep.Event) -> bool:
        if not isinstance(event, WebGpuEvent) or event.device is not self._device:
            return False
        self.check_not_capturing("waits for an event")
        for readback in event.readbacks:
            # what failed there fails here, too
            if readback not in self._readbacks:
                readback.seal()
                self._readbacks.appendleft(readback)
        return True

    def synchronize(self) -> None:
        self.check_not_capturing("is waited for")
        self.synchronize_readbacks()
        wait_until_done(self._device, self._device.submitted)

    def synchronize_readbacks(self) -> None:
        finish(tuple(self._readbacks))
        self._readbacks.clear()

    def begin_capture(self) -> None:
        """Note work from here on."""
        self._close_readback()
        self._capture = _Capture()

    def end_capture(self) -> WebGpuGraph:
        """What was noted.

        Raises:
            RuntimeError: some of it cannot be captured.
        """
        capture, self._capture = self._capture, None
        assert capture is not None
        if capture.failure:
            raise RuntimeError(capture.failure)
        return WebGpuGraph(self._device, capture)


class WebGpuCapture(ep.GraphCapture):
    """Captures what is queued on streams of a device."""

    def begin(self, stream: ep.Stream) -> None:
        assert isinstance(stream, WebGpuStream)
        stream.begin_capture()

    def end(self, stream: ep.Stream) -> WebGpuGraph:
        assert isinstance(stream, WebGpuStream)
        return stream.end_capture()


def _is_fine(readback: Readback) -> bool:
    """Whether it is done, and nobody has to be told of a failure."""
    return not readback.is_open and readback.is_done() and not readback.has_failed


def finish(readbacks: tuple[Readback, ...]) -> None:
    """Wait for all, whatever goes wrong in one of them.

    Raises:
        Exception: what the first raised that failed.
    """
    first: Exception | None = None
    for readback in readbacks:
        try:
            readback.finish()
        except Exception as error:  # noqa: BLE001
            ep.raise_interruption(error)
            first = first or error
    if first is not None:
        raise first
