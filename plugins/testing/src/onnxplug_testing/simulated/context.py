"""A simulated device: its memory, its streams, and what is left open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxplug import ep
from onnxplug_testing.simulated.arrays import DeviceArray, data_type
from onnxplug_testing.simulated.capture import Capture, SimulatedGraph
from onnxplug_testing.simulated.dlpack import EXTENSION_DEVICE, release_abandoned, take
from onnxplug_testing.simulated.knobs import Knobs, Stage
from onnxplug_testing.simulated.memory import PinnedAllocator, SimulatedAllocator
from onnxplug_testing.simulated.monitor import MONITOR
from onnxplug_testing.simulated.queues import Queue
from onnxplug_testing.simulated.schedule import Schedule
from onnxplug_testing.simulated.storage import Storage
from onnxplug_testing.simulated.streams import SimulatedStream
from onnxplug_testing.simulated.transfer import SimulatedDataTransfer


class SimulatedContext(ep.DeviceContext):
    """One device.

    A user's stream is one that a test made by :meth:`create_stream`: its
    ``native_handle`` is what :meth:`adopt_stream` takes.

    Attributes:
        knobs: how it behaves.
        device: what makes arrays there.
        pinned: what makes arrays of the host for its copies; ``None``: nothing does.
        open_streams: those made or adopted and not closed, in order.
        open_graphs: those captured and not closed, in order.
        is_closed: it was.
    """

    dlpack_device: tuple[int, int]
    transfer: SimulatedDataTransfer

    def __init__(
        self,
        location: ep.MemoryLocation,
        knobs: Knobs,
        schedule: Schedule,
        transfer: SimulatedDataTransfer,
    ) -> None:
        self.location = location
        self.native_handle = 0xC0 + location.ordinal
        self.dlpack_device = (EXTENSION_DEVICE, location.ordinal)
        self.captures = knobs.captures
        self.transfer = transfer
        self.knobs = knobs
        self.device = SimulatedAllocator(self, str(location), knobs.memory_limit)
        self.pinned = (
            PinnedAllocator(self, f"pinned memory of {location}")
            if knobs.pinned
            else None
        )
        self.open_streams: list[SimulatedStream] = []
        self.open_graphs: list[SimulatedGraph] = []
        self.is_closed = False
        self._schedule = schedule
        self._queues: dict[int, Queue] = {}

    def allocator(self, kind: ep.MemoryKind) -> ep.Allocator | None:
        return self.device if kind is ep.MemoryKind.DEVICE else self.pinned

    @property
    def live_bytes(self) -> int:
        return self.device.live_bytes

    def create_stream(self) -> SimulatedStream | None:
        self.check_open()
        if not self.knobs.streams:
            return None
        queue = Queue(self._schedule, self.location)
        self._schedule.opened(queue)
        with MONITOR:
            self._queues[queue.handle] = queue
        return self._opened(SimulatedStream(self, queue))

    def adopt_stream(self, handle: int) -> SimulatedStream:
        self.check_open()
        queue = self.queue(handle)
        with MONITOR:
            queue.adopted += 1
        return self._opened(SimulatedStream(self, queue, adopted=True))

    def data_type(self, array: Any) -> ep.DataType:
        return data_type(array)

    def from_dlpack(self, capsule: Any) -> DeviceArray:
        self.check_open()
        content, release = take(capsule, self.dlpack_device)
        return DeviceArray(Storage(content, release=release), self)

    def stack(self, arrays: Sequence[Any], axis: int, stream: ep.Stream | None) -> Any:
        if not self.knobs.stacks:
            return NotImplemented
        parts = [array.storage for array in arrays]
        shape = list(parts[0].shape)
        shape.insert(axis, len(parts))
        result = self.device.empty(shape, data_type(arrays[0]), stream)
        target = result.storage
        self._do(
            lambda: target.write(np.stack([part.read() for part in parts], axis)),
            stream,
        )
        return result

    def take(self, array: Any, axis: int, index: int, stream: ep.Stream | None) -> Any:
        if not self.knobs.stacks:
            return NotImplemented
        source = array.storage
        shape = list(source.shape)
        del shape[axis]
        result = self.device.empty(shape, data_type(array), stream)
        target = result.storage
        self._do(lambda: target.write(source.read().take(index, axis)), stream)
        return result

    def close(self) -> None:
        self.check_open()
        release_abandoned()
        with MONITOR:
            for kind, left in (
                ("streams", len(self.open_streams)),
                ("captured graphs", len(self.open_graphs)),
            ):
                if left:
                    raise RuntimeError(
                        f"the context of {self.location} was closed before {left} of "
                        f"its {kind}; close those first"
                    )
            self.is_closed = True

    # for what works here

    def check_open(self) -> None:
        """Raises ``RuntimeError`` if the context is closed."""
        if self.is_closed:
            raise RuntimeError(
                f"the context of {self.location} was used after it was closed"
            )

    def own(self, stream: ep.Stream) -> SimulatedStream:
        """*stream*, which is one of this context.

        Raises:
            RuntimeError: it is not, or is closed.
        """
        if not isinstance(stream, SimulatedStream):
            raise RuntimeError(
                f"a {type(stream).__name__} was used for work of {self.location}'s "
                "context; use a stream that this made"
            )
        stream.check_of(self)
        return stream

    def queue(self, handle: int) -> Queue:
        """What a stream of that native *handle* queues on.

        Raises:
            LookupError: no stream that is open has it.
        """
        with MONITOR:
            if handle not in self._queues:
                raise LookupError(
                    f"{self.location} has no stream {handle:#x}; pass the "
                    "native_handle of one that is open"
                )
            return self._queues[handle]

    def closed(self, stream: SimulatedStream) -> None:
        """*stream* was closed: its queue is, too, if it was not adopted."""
        queue = stream.queue
        if not stream.adopted:
            while not queue.close():
                # what is left is memory to poison
                queue.schedule.run_until(queue, queue.queued)
            queue.schedule.closed(queue)
        with MONITOR:
            self.open_streams.remove(stream)
            if not stream.adopted:
                del self._queues[queue.handle]

    def end(self, capture: Capture) -> SimulatedGraph:
        """The graph of *capture*.

        Raises:
            RuntimeError: the capture failed.
            SimulatedFailure: it is to fail.
        """
        if self.knobs.fail_at is Stage.CAPTURE:
            capture.fail("Knobs.fail_at says so")
        capture.end()
        return SimulatedGraph(self, capture)

    def _opened(self, stream: SimulatedStream) -> SimulatedStream:
        with MONITOR:
            self.open_streams.append(stream)
        return stream

    def _do(self, function: Any, stream: ep.Stream | None) -> None:
        if stream is None:
            function()
        else:
            self.own(stream).enqueue(function)
