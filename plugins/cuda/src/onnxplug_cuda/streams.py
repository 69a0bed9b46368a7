"""Streams, events and captured graphs of CUDA's."""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from onnxplug import ep
from onnxplug_compiler.gpu.execution.device import (
    Consumer,
    Copies,
    DeviceStream,
    Launches,
)
from onnxplug_cuda.kernels import KernelLaunch
from onnxplug_cuda.pool import Memory
from onnxplug_cuda.readback import Readback, finish
from onnxplug_cuda.shared import Shared
from onnxplug_cuda.staging import CHUNK
from onnxplug_cuda.timeline import Point, Timeline

NON_BLOCKING: Final = 1
"""Flag of a stream that waits for no other: ``cudaStreamNonBlocking``."""

_RELAXED: Final = 2
"""What else the capturing thread may do meanwhile, which is all that queues nothing:
``cudaStreamCaptureModeRelaxed``."""

_TO_DEVICE, _TO_HOST, _ON_DEVICE = 1, 2, 3
"""Kinds of copies: ``cudaMemcpyKind``."""

_MOST_USES: Final = 16
"""Streams that memory is known to be used on, before those are forgotten whose work is
done."""

_TIMING: Final = 0
"""Flags of an event that measures time."""


class CudaEvent(ep.Event):
    """A point in a stream, with what was read back before.

    Attributes:
        points: in the stream, and in the one of its copies.
        readbacks: what the host is to be given.
    """

    def __init__(
        self, points: tuple[Point, ...], readbacks: tuple[Readback, ...]
    ) -> None:
        self.points = points
        self.readbacks = readbacks

    def done(self) -> bool:
        return all(point.done() for point in self.points) and all(
            readback.is_done() for readback in self.readbacks
        )

    def synchronize(self) -> None:
        for point in self.points:
            point.synchronize()
        finish(self.readbacks)


class _NotedEvent(ep.Event):
    """A point in work that is noted, which nobody can wait for."""

    def __init__(self, capture: _Capture) -> None:
        self._capture = capture

    def done(self) -> bool:
        self._capture.failure = "a run that is captured is asked how far it is"
        return False

    def synchronize(self) -> None:
        self._capture.fail("is waited for")


class _Capture:
    """What is noted.

    Attributes:
        memories: all that is named.
        reads: what is read back whenever it is launched.
        failure: why it cannot be captured; empty as long as it can.
    """

    def __init__(self) -> None:
        self.memories: dict[int, Memory] = {}
        self.keeps: list[object] = []
        self.reads: list[tuple[Memory, int, Consumer]] = []
        self.failure = ""

    def fail(self, what: str) -> None:
        """Note that the run does *what* cannot be captured.

        Raises:
            RuntimeError: always.
        """
        self.failure = f"a run that is captured {what}"
        raise RuntimeError(
            f"{self.failure}; turn enable_cuda_graph off, or run it with "
            "gpu_graph_id=-1"
        )


class CudaGraph(ep.CapturedGraph):
    """A graph of CUDA's, with the memory that it names.

    Args:
        native: an executable graph.
    """

    def __init__(self, shared: Shared, native: int, capture: _Capture) -> None:
        self._shared = shared
        self._native = native
        self._memories: Sequence[Memory] = tuple(capture.memories.values())
        self._keeps: Sequence[object] = tuple(capture.keeps)
        self._reads = tuple(capture.reads)
        self._last: tuple[Timeline, int] | None = None

    def launch(self, stream: ep.Stream) -> None:
        assert isinstance(stream, CudaStream)
        shared, timeline = self._shared, stream.timeline
        with shared.lock, shared.driver:
            # CUDA has a launch begin after the one before, on whatever stream, but what
            # that wrote may still be read
            for memory, _, _ in self._reads:
                stream.follow(memory)
            shared.driver.runtime.graphLaunch(self._native, timeline.handle)
            stream.used(self._memories)
            for memory, nbytes, consume in self._reads:
                stream.read(memory, nbytes, consume)

    def close(self) -> None:
        shared = self._shared
        native, self._native = self._native, 0
        self._memories, self._keeps, self._reads = (), (), ()
        if native and not shared.driver.fault:
            with shared.lock, shared.driver:
                shared.driver.runtime.graphExecDestroy(native)


class CudaStream(DeviceStream):
    """A stream of CUDA's.

    Args:
        handle: CUDA's.
        is_own: it is destroyed with this.

    Attributes:
        timeline: how far its work is.
        copies_beside: copies from and to the host are queued on a stream of their own,
            which waits for this one, and this one for it, only where it has to.
    """

    def __init__(self, shared: Shared, handle: int, *, is_own: bool = True) -> None:
        self._shared = shared
        self._is_own = is_own
        self._readbacks: deque[Readback] = deque()
        self._capture: _Capture | None = None
        self._copies: Timeline | None = None
        self.timeline = shared.timeline(handle)
        self.native_handle = handle
        self.copies_beside = False

    @property
    def is_capturing(self) -> bool:
        return self._capture is not None

    def queue(self, *work: Launches | Copies) -> None:
        shared, handle = self._shared, self.timeline.handle
        runtime = shared.driver.runtime
        with shared.lock, shared.driver:
            for part in work:
                if isinstance(part, Copies):
                    for source, target, nbytes in part.pairs:
                        if nbytes and source is not target:
                            runtime.memcpyAsync(
                                target.address,
                                source.address,
                                nbytes,
                                _ON_DEVICE,
                                handle,
                            )
                        self.used((source, target))
                    continue
                cleared = part.cleared
                try:
                    if cleared is not None:
                        runtime.memsetAsync(cleared.address, 0, cleared.nbytes, handle)
                    self._launch(part.steps)
                finally:  # where one fails, those before it are queued
                    self.used(part.memories)
                if self._capture is not None:
                    self._capture.keeps.append(part)

    def _launch(self, steps: Sequence[Any]) -> None:
        launch, handle = self._shared.driver.driver.launchKernel, self.timeline.handle
        for step in steps:
            if type(step) is KernelLaunch:
                function, x, y, lanes, shared, address, _ = step
                launch(function, x, y, 1, lanes, 1, 1, shared, handle, address, 0)
            else:
                step.queue(handle)
        self._shared.launches += len(steps)

    def used(
        self, memories: Sequence[Memory], timeline: Timeline | None = None
    ) -> None:
        """Note that what was just queued, here or on *timeline*, uses *memories*."""
        if self._capture is not None:
            self._capture.memories.update((each.serial, each) for each in memories)
            return
        timeline = timeline or self.timeline
        ticket = timeline.next()
        for memory in memories:
            uses = memory.uses
            uses[timeline] = ticket
            if len(uses) > _MOST_USES:  # as of weights, by one session after another
                for other in [each for each in uses if each.is_past(uses[each])]:
                    del uses[other]

    def follow(self, memory: Memory) -> None:
        """Let what is queued from now on start after all that uses *memory*."""
        shared = self._shared
        with shared.lock, shared.driver:
            for timeline, ticket in memory.uses.items():
                self.timeline.wait_for(timeline, ticket)

    # copies from and to the host

    def _beside(self) -> Timeline:
        """The stream for copies: this one, or one of its own."""
        if not self.copies_beside:
            return self.timeline
        if self._copies is None:
            shared = self._shared
            handle = shared.driver.runtime.streamCreateWithFlags(NON_BLOCKING)
            self._copies = shared.timeline(handle)
        return self._copies

    def read(self, memory: Any, nbytes: int, consume: Consumer) -> None:
        if self._capture is not None:
            self._capture.reads.append((memory, nbytes, consume))
            self._capture.memories[memory.serial] = memory
            return
        shared = self._shared
        with shared.lock, shared.driver:
            room = shared.staging.take(nbytes)
            self._copy_to_host(room.address, memory, nbytes)
            self._open_readback().add(room, nbytes, consume)

    def _copy_to_host(self, address: int, memory: Memory, nbytes: int) -> None:
        copies = self._beside()
        copies.wait_for(self.timeline, self.timeline.submitted)
        self._shared.driver.runtime.memcpyAsync(
            address, memory.address, nbytes, _TO_HOST, copies.handle
        )
        self.used((memory,), copies)

    def read_array(self, memory: Any, array: np.ndarray[Any, Any]) -> None:
        """Also into pinned memory, which needs no copy in between."""
        self.check_not_capturing("reads back what the host waits for")
        shared, nbytes = self._shared, array.nbytes
        if not nbytes:
            return
        with shared.lock, shared.driver:
            if array.flags.c_contiguous and shared.staging.has(
                array.ctypes.data, nbytes
            ):
                self._copy_to_host(array.ctypes.data, memory, nbytes)
                self._open_readback()
                return
        super().read_array(memory, array)

    def upload(self, memory: Any, array: np.ndarray[Any, Any]) -> None:
        self.check_not_capturing("copies from the host")
        content = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        shared = self._shared
        with shared.lock, shared.driver:
            copies = self._beside()
            for timeline, ticket in memory.uses.items():
                copies.wait_for(timeline, ticket)
            for begin in range(0, content.size, CHUNK):
                part = content[begin : begin + CHUNK]
                room = shared.staging.take(part.size)
                room.bytes[: part.size] = part
                self._copy_to_device(memory.address + begin, room.address, part.size)
                ticket = copies.next()
                memory.uses[copies] = ticket
                shared.staging.give_back_after(room, copies, ticket)
            self.timeline.wait_for(copies, copies.submitted)

    def upload_pinned(self, memory: Memory, array: np.ndarray[Any, Any]) -> None:
        """Queue that *array*, which does not change before the stream is waited for,
        is written to *memory*; directly where a device reads it by itself."""
        shared = self._shared
        self.check_not_capturing("copies from the host")
        with shared.lock, shared.driver:
            address = array.ctypes.data
            if array.flags.c_contiguous and shared.staging.has(address, array.nbytes):
                copies = self._beside()
                for timeline, ticket in memory.uses.items():
                    copies.wait_for(timeline, ticket)
                self._copy_to_device(memory.address, address, array.nbytes)
                self.used((memory,), copies)
                self.timeline.wait_for(copies, copies.submitted)
                return
        self.upload(memory, array)

    def _copy_to_device(self, target: int, source: int, nbytes: int) -> None:
        if nbytes:
            self._shared.driver.runtime.memcpyAsync(
                target, source, nbytes, _TO_DEVICE, self._beside().handle
            )

    def _open_readback(self) -> Readback:
        last = self._readbacks[-1] if self._readbacks else None
        if last is None or not last.is_open:
            while self._readbacks and _is_fine(self._readbacks[0]):
                self._readbacks.popleft()
            last = Readback(self._shared.staging, self._beside())
            self._readbacks.append(last)
        return last

    def _sealed(self) -> tuple[Point, ...]:
        """Points after all that is queued here; what is read is read before them."""
        points = [self.timeline.mark()]
        if self._copies is not None and self._copies.submitted:
            points.append(self._copies.mark())
        found = tuple(points)
        if self._readbacks and self._readbacks[-1].is_open:
            self._readbacks[-1].seal(found)
        return found

    def record(self) -> ep.Event:
        if self._capture is not None:
            return _NotedEvent(self._capture)
        shared = self._shared
        with shared.lock, shared.driver:
            points = self._sealed()
        return CudaEvent(points, tuple(self._readbacks))

    def wait(self, event: ep.Event) -> bool:
        if not isinstance(event, CudaEvent):
            return False
        self.check_not_capturing("waits for an event")
        shared = self._shared
        with shared.lock, shared.driver:
            for point in event.points:
                self.timeline.wait(point)
            for readback in event.readbacks:
                # what failed there fails here, too
                if readback not in self._readbacks:
                    self._readbacks.appendleft(readback)
        return True

    def synchronize(self) -> None:
        self.check_not_capturing("is waited for")
        shared = self._shared
        with shared.lock, shared.driver:
            points = self._sealed()
        for point in points:
            point.synchronize()
        self._finish()

    def synchronize_readbacks(self) -> None:
        """Wait for what is read back, which raises what kernels found."""
        shared = self._shared
        if self._readbacks and self._readbacks[-1].is_open:
            with shared.lock, shared.driver:
                self._sealed()
        self._finish()

    def _finish(self) -> None:
        readbacks = tuple(self._readbacks)
        self._readbacks.clear()
        finish(readbacks)

    def check_not_capturing(self, what: str) -> None:
        if self._capture is not None:
            self._capture.fail(what)

    def timed(self, work: Launches) -> Sequence[tuple[int, int]]:
        shared = self._shared
        runtime, handle = shared.driver.runtime, self.timeline.handle
        with shared.lock, shared.driver:
            marks = [
                runtime.eventCreateWithFlags(_TIMING)
                for _ in range(len(work.steps) + 1)
            ]
            try:
                if work.cleared is not None:
                    runtime.memsetAsync(
                        work.cleared.address, 0, work.cleared.nbytes, handle
                    )
                runtime.streamSynchronize(handle)
                began = time.perf_counter_ns()
                runtime.eventRecord(marks[0], handle)
                for step, mark in zip(work.steps, marks[1:], strict=True):
                    self._launch((step,))
                    runtime.eventRecord(mark, handle)
                runtime.eventSynchronize(marks[-1])
                ends = [
                    int(1e6 * runtime.eventElapsedTime(marks[0], mark))
                    for mark in marks
                ]
            finally:
                self.used(work.memories)
                if not shared.driver.fault:
                    for mark in marks:
                        runtime.eventDestroy(mark)
        return [(began + start, end - start) for start, end in itertools.pairwise(ends)]

    # captures

    def begin_capture(self) -> None:
        """Note work from here on."""
        shared = self._shared
        with shared.lock, shared.driver:
            self._sealed()
            shared.driver.runtime.streamBeginCapture(self.timeline.handle, _RELAXED)
            self.timeline.is_noting = True
            self._capture = _Capture()

    def end_capture(self) -> CudaGraph:
        """What was noted.

        Raises:
            RuntimeError: some of it cannot be captured.
        """
        shared, runtime = self._shared, self._shared.driver.runtime
        capture, self._capture = self._capture, None
        assert capture is not None
        with shared.lock, shared.driver:
            try:
                graph = runtime.streamEndCapture(self.timeline.handle)
            finally:
                self.timeline.is_noting = False
            try:
                if capture.failure:
                    raise RuntimeError(capture.failure)
                native = runtime.graphInstantiate(graph)
            finally:
                runtime.graphDestroy(graph)
        return CudaGraph(shared, native, capture)

    def close(self) -> None:
        shared = self._shared
        if shared.driver.fault:
            return
        with shared.lock, shared.driver:
            if shared.streams.get(self.native_handle) is self:
                del shared.streams[self.native_handle]
            self.timeline.close()
            if self._is_own:
                shared.driver.runtime.streamDestroy(self.timeline.handle)
            if self._copies is not None:
                self._copies.close()
                shared.driver.runtime.streamDestroy(self._copies.handle)

    def __del__(self) -> None:
        # in whatever thread, maybe as garbage is collected: no lock may be taken
        if self._is_own and not self.timeline.is_closed:
            self._shared.abandoned.append(self.timeline)
        if self._copies is not None and not self._copies.is_closed:
            self._shared.abandoned.append(self._copies)


class CudaCapture(ep.GraphCapture):
    """Captures what is queued on streams of a device."""

    def begin(self, stream: ep.Stream) -> None:
        assert isinstance(stream, CudaStream)
        stream.begin_capture()

    def end(self, stream: ep.Stream) -> CudaGraph:
        assert isinstance(stream, CudaStream)
        return stream.end_capture()


def _is_fine(readback: Readback) -> bool:
    """Whether it is done, and nobody has to be told of a failure."""
    return not readback.is_open and readback.is_done() and not readback.has_failed
