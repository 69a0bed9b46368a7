"""Mistakes in when the EP with a device works, and in what it does of failures."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from onnxplug import ep

from ..device_ep import DeviceFactory
from ..device_memory import DeviceAllocator, DeviceArray, DeviceContext, DeviceTransfer
from ..device_partition import Call, DevicePartition
from ..device_streams import Capture, DeviceEvent, DeviceStream, Work
from ..mistake import planted
from ..operators import Operator

SPI: Final = "core/src/onnxplug/ep/"
DEVICE: Final = "docs/tutorials/write-a-device-ep.md"


# memory


class _WithoutNothing(DeviceAllocator):
    def empty(
        self, shape: Sequence[int], dtype: ep.DataType, stream: ep.Stream | None = None
    ) -> DeviceArray:
        if 0 in shape:
            raise MemoryError("the device allocates one byte at least, not 0")
        return super().empty(shape, dtype, stream)


@planted(
    "has-no-memory-for-no-elements",
    "memory",
    breaks="A new array of unspecified content, usable by work queued on *stream*.",
    source=SPI + "memory.py",
    finding="empty raises MemoryError for arrays without elements",
    blames=("empty", "no elements", "without elements", "MemoryError", "OutOfMemory"),
)
class HasNoMemoryForNoElements(DeviceFactory):
    allocator = _WithoutNothing


class _OfNoGraph(DeviceAllocator):
    def empty(
        self, shape: Sequence[int], dtype: ep.DataType, stream: ep.Stream | None = None
    ) -> DeviceArray:
        if isinstance(stream, DeviceStream) and stream.capture is not None:
            stream = None  # which does nothing now, so there is no order to keep
        return super().empty(shape, dtype, stream)


@planted(
    "memory-of-a-captured-graph-is-handed-out",
    "memory",
    breaks="If it is capturing, the memory belongs to the captured graph until that is "
    "closed.",
    source=SPI + "memory.py",
    finding="what is allocated after a capture is overwritten by launching the graph",
    blames=("captured", "capture", "capturing", "graph", "launch", "launched"),
)
class MemoryOfACapturedGraph(DeviceFactory):
    allocator = _OfNoGraph


# time


class _WithScratch(DevicePartition):
    """What is between the nodes is in arrays that are kept for the next run."""

    def __init__(
        self,
        partition: ep.Partition,
        context: DeviceContext,
        operators: Mapping[str, Operator],
    ) -> None:
        super().__init__(partition, context, operators)
        self._scratch: dict[tuple[str, tuple[int, ...]], DeviceArray] = {}

    def result(
        self,
        call: Call,
        facts: ep.TensorFacts,
        bound: Mapping[str, Any],
        stream: ep.Stream | None,
    ) -> Any:
        if call.output in self.partition.outputs:
            return super().result(call, facts, bound, stream)
        key = call.output, facts.shape
        if key not in self._scratch:
            assert facts.dtype is not None
            self._scratch[key] = self.context.device.empty(facts.shape, facts.dtype)
        return self._scratch[key]

    def close(self) -> None:
        super().close()
        self._scratch = {}


@planted(
    "runs-share-what-is-between-nodes",
    "time",
    breaks="What differs from run to run is in local variables, and what is kept "
    "(constants, calls by shapes) is never changed once it is made.",
    source=DEVICE,
    finding="runs on two streams at once write to the same arrays between nodes",
    blames=("at once", "streams", "concurrent", "overlap", "max_concurrent_runs"),
)
class RunsShareWhatIsBetween(DeviceFactory):
    partition = _WithScratch


class _Uploading(DeviceTransfer):
    """Copies from the host while the call lasts: nothing has to be kept for them."""

    def copy(self, pairs: Sequence[tuple[Any, Any]], stream: ep.Stream | None) -> None:
        is_captured = isinstance(stream, DeviceStream) and stream.capture is not None
        for source, target in pairs:
            is_upload = not isinstance(source, DeviceArray)
            at_once = is_upload and not is_captured
            super().copy([(source, target)], None if at_once else stream)


@planted(
    "uploads-before-what-is-queued",
    "time",
    breaks="With a *stream* the copies are queued on it",
    source=SPI + "memory.py",
    finding="copies from the host write to memory that work queued on the stream "
    "before still uses",
    blames=("copy", "copies", "transfer", "DataTransfer", "upload"),
)
class UploadsBefore(DeviceFactory):
    transfer = _Uploading


class _OfStream(DeviceEvent):
    """Asks the stream, whose last work it takes for its own."""

    def __init__(self, stream: DeviceStream, capture: Capture | None) -> None:
        super().__init__(stream.last, capture)
        self._stream = stream

    def done(self) -> bool:
        return super().done() and self._stream.last.passed()

    def synchronize(self) -> None:
        super().synchronize()
        self._stream.last.block()


class _RecordingItself(DeviceStream):
    def record(self) -> DeviceEvent:
        return _OfStream(self, self.capture)

    def wait(self, event: ep.Event) -> bool:
        if isinstance(event, _OfStream) and self.capture is None:
            self.enqueue(event.point.block)
            return True
        return super().wait(event)


@planted(
    "an-event-is-the-end-of-its-stream",
    "time",
    breaks="The point after all work queued here until now.",
    source=SPI + "streams.py",
    finding="an event is done only when work is that was queued after it",
    blames=("record", "event", "Event", "done", "synchronize"),
)
class AnEventIsTheEnd(DeviceFactory):
    stream = _RecordingItself


class _Agreeing(DeviceStream):
    def wait(self, event: ep.Event) -> bool:
        if not isinstance(event, DeviceEvent):
            return True  # not of this device, and nothing to wait for here
        return super().wait(event)


@planted(
    "says-that-it-waits-for-events-of-others",
    "time",
    breaks="Whether it will; ``False``: the host has to wait for *event* instead.",
    source=SPI + "streams.py",
    finding="wait gives True for an event of another device, and does not wait",
    blames=("wait", "waits", "waited"),
)
class SaysThatItWaits(DeviceFactory):
    stream = _Agreeing


# failure


def _logged(work: Work) -> None:
    try:
        work()
    except Exception:
        logging.getLogger(__name__).debug("work on the device failed", exc_info=True)


class _GoingOn(DeviceStream):
    def enqueue(self, work: Work) -> None:
        super().enqueue(partial(_logged, work))


@planted(
    "what-fails-on-the-device-is-logged",
    "failure",
    breaks="Raises what the work raised. The host then queues nothing more here.",
    source=SPI + "streams.py",
    finding="nobody is told of what work on the device raises; Gather beyond its data "
    "gives anything",
    blames=("Gather", "synchronize", "failed", "failure", "fails", "swallows"),
)
class WhatFailsIsLogged(DeviceFactory):
    stream = _GoingOn


def _awaited(event: ep.Event) -> None:
    with contextlib.suppress(Exception):  # it is raised to who reads that stream
        event.synchronize()


class _WaitingForTheEnd(DeviceStream):
    def wait(self, event: ep.Event) -> bool:
        if isinstance(event, DeviceEvent) and self.capture is None:
            self.enqueue(partial(_awaited, event))
            return True
        return super().wait(event)


@planted(
    "work-goes-on-behind-what-failed",
    "failure",
    breaks="When what it waits for has failed, so has the work queued here from now "
    "on.",
    source=SPI + "streams.py",
    finding="a stream that waits for an event whose work failed goes on",
    blames=("wait", "waits", "waited", "event", "failed"),
)
class WorkGoesOn(DeviceFactory):
    stream = _WaitingForTheEnd


class _OfCodes(DeviceAllocator):
    def empty(
        self, shape: Sequence[int], dtype: ep.DataType, stream: ep.Stream | None = None
    ) -> DeviceArray:
        try:
            return super().empty(shape, dtype, stream)
        except MemoryError as error:
            raise RuntimeError(f"error 2 of the device: {error}") from error


@planted(
    "no-memory-left-is-any-error",
    "failure",
    breaks="MemoryError: there is not enough memory.",
    source=SPI + "memory.py",
    finding="empty raises RuntimeError, and not MemoryError, where memory is used up",
    blames=("MemoryError", "OutOfMemory", "empty", "RuntimeError"),
)
class NoMemoryLeft(DeviceFactory):
    allocator = _OfCodes


# profiling


class _Unprofiled:
    """A run as it is, but for its profiler."""

    profiler = None

    def __init__(self, context: ep.RunContext) -> None:
        self._context = context

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)


class _TimedOnTheHost(DevicePartition):
    def run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: ep.RunContext | None,
    ) -> Sequence[Any]:
        profiler = self._profiler(context)
        if context is None or profiler is None:
            return super().run(inputs, outputs, context)
        unprofiled: Any = _Unprofiled(context)
        start = time.perf_counter_ns()
        results = super().run(inputs, outputs, unprofiled)
        operators = [call.node.op_type for call in self.calls]
        profiler.record(
            "partition_kernel_time",
            category="Node",
            start_ns=start,
            duration_ns=time.perf_counter_ns() - start,
            details={"op_name": "+".join(operators)},
        )
        return results


@planted(
    "events-say-how-long-queueing-takes",
    "profiling",
    breaks="The times are the device's own: what queueing takes says nothing.",
    source=DEVICE,
    finding="a profiled run records what queueing took, not what the device did",
    blames=("duration_ns", "start_ns", "queueing", "queued", "began"),
)
class EventsOfQueueing(DeviceFactory):
    partition = _TimedOnTheHost


# speed


class _Waiting(DevicePartition):
    def run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: ep.RunContext | None,
    ) -> Sequence[Any]:
        results = super().run(inputs, outputs, context)
        if context is None or context.capture is ep.CapturePhase.CAPTURE:
            return results
        if context.stream is not None:
            context.stream.synchronize()
        return results


@planted(
    "a-run-waits-for-the-device",
    "speed",
    breaks="`run` queues kernels on the stream that it is given, and returns arrays "
    "that are filled later. It waits for nothing:",
    source=DEVICE,
    finding="a run returns only when the device is done",
    blames=("waits", "wait", "waited", "synchronize", "early", "blocks"),
)
class ARunWaits(DeviceFactory):
    partition = _Waiting
