"""Ten mistakes of the EP with a device: in what is queued, waited for, and told."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final

from onnxplug import ep

from ..device_ep import DeviceFactory
from ..device_memory import SPACE, DeviceAllocator, DeviceTransfer
from ..device_partition import DevicePartition
from ..device_streams import Capture, DeviceEvent, DeviceStream, Point, Work
from ..mistake import planted
from ..operators import Array
from .device_results import DEVICE, SPI

MEMORY: Final = "docs/explanation/memory-and-streams.md"

LOGGER: Final = logging.getLogger("onnxplug.plugin.planted")

# time


class EngineTransfer(DeviceTransfer):
    """Has the device's copy engine copy, which has a queue of its own."""

    def __init__(self) -> None:
        self._engine = DeviceStream()

    def copy(self, pairs: Sequence[tuple[Any, Any]], stream: ep.Stream | None) -> None:
        super().copy(pairs, None if stream is None else self._engine)

    def __del__(self) -> None:
        self._engine.close()


@planted(
    "copies-on-another-queue",
    "time",
    breaks="With a *stream* the copies are queued on it, and the arrays may be used "
    "before it is synchronised only by work on that stream",
    source=SPI + "memory.py",
    finding="copies do not wait for work that was queued before them, nor work behind "
    "them, nor who synchronises the stream, for the copies",
    blames=("copy", "copies", "DataTransfer"),
)
class CopiesOnAnotherQueue(DeviceFactory):
    transfer = EngineTransfer


class SuccessEvent(DeviceEvent):
    """Is done when the work has succeeded."""

    def done(self) -> bool:
        return super().done() and self.point.failure is None


class SuccessStream(DeviceStream):
    def record(self) -> DeviceEvent:
        return SuccessEvent(self.last, self.capture)


@planted(
    "never-has-done-what-failed",
    "time",
    breaks="Whether the work before the point is done, or has failed.",
    source=SPI + "streams.py",
    finding="an event behind work that failed is never done",
    blames=("Event.done", "done()", "never done", "not done", "has failed"),
)
class NeverHasDoneWhatFailed(DeviceFactory):
    stream = SuccessStream


class BorrowingEvent(DeviceEvent):
    """Asks its stream."""

    def __init__(
        self, point: Point, capture: Capture | None, stream: ClosingStream
    ) -> None:
        super().__init__(point, capture)
        self._stream = stream

    def synchronize(self) -> None:
        if self._stream.is_closed:
            raise RuntimeError("the event's stream is closed")
        super().synchronize()


class ClosingStream(DeviceStream):
    is_closed = False

    def record(self) -> DeviceEvent:
        return BorrowingEvent(self.last, self.capture, self)

    def close(self) -> None:
        self.is_closed = True
        super().close()


@planted(
    "again-closes-events-with-their-stream",
    "time",
    breaks="Release the stream; events that it recorded stay valid.",
    source=SPI + "streams.py",
    finding="to wait for an event raises once its stream is closed",
    blames=("closed", "Stream.close", "stay valid", "Event.synchronize"),
)
class ClosesEventsWithTheirStream(DeviceFactory):
    stream = ClosingStream


# failure


class DriverError(RuntimeError):
    """The driver returned a status."""


class StatusAllocator(DeviceAllocator):
    """Raises what the driver says."""

    def memory(self, nbytes: int, stream: ep.Stream | None) -> Array:
        try:
            return super().memory(nbytes, stream)
        except MemoryError:
            raise DriverError(f"status -4: could not allocate {nbytes} bytes") from None


@planted(
    "says-in-its-own-words-that-memory-is-full",
    "failure",
    breaks="MemoryError: there is not enough memory.",
    source=SPI + "memory.py",
    finding="empty raises an error of its own, and no MemoryError, if memory is full",
    blames=("MemoryError", "OutOfMemory", "DriverError"),
)
class SaysInItsOwnWordsThatMemoryIsFull(DeviceFactory):
    allocator = StatusAllocator


def _logged(work: Work) -> None:
    try:
        work()
    except Exception:
        LOGGER.exception("a kernel failed")


class LoggingStream(DeviceStream):
    """Logs what fails, and goes on."""

    def enqueue(self, work: Work) -> None:
        super().enqueue(partial(_logged, work))


@planted(
    "logs-what-queued-work-raised",
    "failure",
    breaks="Raises what the work raised. The host then queues nothing more here.",
    source=SPI + "streams.py",
    finding="a failure of queued work, such as an index of Gather that is out of "
    "range, is not raised to who waits: the run gives a result",
    blames=("synchronize", "queued work", "what the work raised", "Gather", "range"),
)
class LogsWhatQueuedWorkRaised(DeviceFactory):
    stream = LoggingStream


# options


@planted(
    "has-handles-of-32-bits",
    "options",
    breaks="A stream of the user's, given to an EP by its option "
    "`user_compute_stream`, is used for all runs of the session, one after the other, "
    "and stays open.",
    source=MEMORY,
    finding="user_compute_stream refuses handles beyond 32 bits, as addresses are",
    blames=("user_compute_stream", "native_handle", "2147483647"),
)
class HasHandlesOf32Bits(DeviceFactory):
    options: ClassVar[Mapping[str, ep.Option]] = {
        **DeviceFactory.options,
        "user_compute_stream": ep.Option(
            default=0,
            doc="The native handle of the stream to work on; 0: the host's own.",
            minimum=0,
            maximum=2**31 - 1,
            compiled_in=False,
        ),
    }


# costs


@planted(
    "again-states-costs-in-microseconds",
    "costs",
    breaks="seconds_per_copy: of each copy, whatever its size.",
    source=SPI + "costs.py",
    finding="a copy is stated to take 10 s, which takes microseconds, so that no "
    "island is ever worth its copies",
    blames=("Costs", "costs", "seconds_per_copy", "seconds_per_byte"),
)
class StatesCostsInMicroseconds(DeviceFactory):
    def supported_devices(
        self, devices: Sequence[ep.HardwareDevice]
    ) -> Iterable[ep.EpDevice]:
        for pair in super().supported_devices(devices):
            yield ep.EpDevice(
                ep_name=pair.ep_name,
                device=pair.device,
                metadata=pair.metadata,
                costs=ep.Costs(seconds_per_copy=10, seconds_per_byte=1e-4),
                by_name_only=pair.by_name_only,
            )


# profiling


class HostTimedPartition(DevicePartition):
    """Records how long a run takes."""

    def run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: ep.RunContext | None,
    ) -> Sequence[Any]:
        start = time.perf_counter_ns()
        results = super().run(inputs, outputs, context)
        if context is not None and context.profiler is not None:
            operators = "+".join(call.node.op_type for call in self.calls)
            context.profiler.record(
                f"{operators}_kernel_time",
                category="Node",
                start_ns=start,
                duration_ns=time.perf_counter_ns() - start,
                details={"op_name": operators},
            )
        return results

    def _profiler(self, context: ep.RunContext | None) -> ep.Profiler | None:
        return None


@planted(
    "records-how-long-queueing-takes",
    "profiling",
    breaks="The times are the device's own: what queueing takes says nothing.",
    source=DEVICE,
    finding="events of nodes tell when work was queued, not when the device did it",
    blames=("queueing", "queued", "duration", "kernel_time", "profiler"),
)
class RecordsHowLongQueueingTakes(DeviceFactory):
    partition = HostTimedPartition


# speed


class WaitingPartition(DevicePartition):
    """Returns results that are there."""

    def run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: ep.RunContext | None,
    ) -> Sequence[Any]:
        results = super().run(inputs, outputs, context)
        if (
            context is not None
            and context.stream is not None
            and context.capture is not ep.CapturePhase.CAPTURE
        ):
            context.stream.synchronize()
        return results


@planted(
    "waits-at-the-end-of-each-run",
    "speed",
    breaks="`run` queues kernels on the stream that it is given, and returns arrays "
    "that are filled later. It waits for nothing:",
    source=DEVICE,
    finding="run returns only when the device has done its work",
    blames=("waits", "synchronises", "synchronize", "blocks", "asynchronous"),
)
class WaitsAtTheEndOfEachRun(DeviceFactory):
    partition = WaitingPartition


# factory


@planted(
    "opens-the-device-to-see-whether-it-is-there",
    "factory",
    breaks="Looks, does not initialise: no driver is loaded, no context made.",
    source=SPI + "factory.py",
    finding="supported_devices makes a context and a stream, which starts a thread",
    blames=("supported_devices", "initialise", "no context made"),
)
class OpensTheDeviceToSeeWhetherItIsThere(DeviceFactory):
    def supported_devices(
        self, devices: Sequence[ep.HardwareDevice]
    ) -> Iterable[ep.EpDevice]:
        assert self.memory_spaces is not None
        context = self.memory_spaces.create_context(ep.MemoryLocation(SPACE, 0))
        stream = context.create_stream()
        if stream is None:
            return
        stream.synchronize()
        stream.close()
        yield from super().supported_devices(devices)
