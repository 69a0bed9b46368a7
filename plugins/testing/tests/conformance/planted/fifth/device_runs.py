"""Nine mistakes in the EP with a device: when it works, and what it says of that."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from onnxplug import ep

from ..device_ep import DeviceExecutionProvider, DeviceFactory
from ..device_memory import (
    DeviceAllocator,
    DeviceArray,
    DeviceContext,
    DeviceTransfer,
    Free,
)
from ..device_partition import DevicePartition
from ..device_streams import DeviceCapture, DeviceEvent, DeviceStream
from ..mistake import planted
from ..operators import Operator

SPI: Final = "core/src/onnxplug/ep/"
DEVICES: Final = "docs/tutorials/write-a-device-ep.md"


# memory


class HandingOut(DeviceAllocator):
    def is_free(self, free: Free, stream: ep.Stream | None) -> bool:
        return True  # nobody has the array any more


@planted(
    "hands-out-memory-that-work-uses",
    "memory",
    breaks="That may be before work queued on *its* stream has run, so memory is "
    "handed out again in the order of that stream",
    source=SPI + "memory.py",
    finding="memory of an array that is gone is handed out for another stream, or for "
    "none, while queued work still uses it",
    blames=("empty", "Allocator", "allocator", "handed out", "reused"),
)
class HandsOutMemoryInUse(DeviceFactory):
    allocator = HandingOut


# time


class CopyingAtOnce(DeviceTransfer):
    def copy(self, pairs: Sequence[tuple[Any, Any]], stream: ep.Stream | None) -> None:
        super().copy(pairs, None)


@planted(
    "copies-at-once",
    "time",
    breaks="With a *stream* the copies are queued on it",
    source=SPI + "memory.py",
    finding="copies do not wait for what was queued on their stream before",
    blames=("copy", "copies", "transfer"),
)
class CopiesAtOnce(DeviceFactory):
    transfer = CopyingAtOnce


class GraphOfAStream(ep.CapturedGraph):
    def __init__(self, graph: ep.CapturedGraph, stream: ep.Stream) -> None:
        self._graph = graph
        self._stream = stream

    def launch(self, stream: ep.Stream) -> None:
        self._graph.launch(self._stream)

    def close(self) -> None:
        self._graph.close()


class CaptureOfAStream(DeviceCapture):
    def end(self, stream: ep.Stream) -> ep.CapturedGraph:
        return GraphOfAStream(super().end(stream), stream)


@planted(
    "launches-where-it-captured",
    "time",
    breaks="Queue the work on *stream*, of the same device context.",
    source=SPI + "streams.py",
    finding="a captured graph is launched on the stream that captured it, not on the "
    "one that is given",
    blames=("launch", "captured graph", "CapturedGraph"),
)
class LaunchesWhereItCaptured(DeviceFactory):
    graph_capture = CaptureOfAStream

    def make_context(self, location: ep.MemoryLocation) -> DeviceContext:
        context = super().make_context(location)
        context.capture = self.graph_capture()
        return context


class Promising(DeviceStream):
    def wait(self, event: ep.Event) -> bool:
        if isinstance(event, DeviceEvent):
            super().wait(event)
        return True


@planted(
    "promises-to-wait-for-events-of-others",
    "time",
    breaks="Whether it will; ``False``: the host has to wait for *event* instead.",
    source=SPI + "streams.py",
    finding="Stream.wait is True for an event of another context, for which it does "
    "not wait",
    blames=("wait(", ".wait", "another context", "other contexts", "foreign"),
)
class PromisesToWait(DeviceFactory):
    stream = Promising


# failure


class OnceTold(DeviceEvent):
    def synchronize(self) -> None:
        try:
            super().synchronize()
        finally:
            self.point.failure = None  # it is told, and done with


class TellingOnce(DeviceStream):
    def record(self) -> DeviceEvent:
        return OnceTold(self.last, self.capture)

    def synchronize(self) -> None:
        try:
            super().synchronize()
        finally:
            self.last.failure = None


@planted(
    "raises-of-a-failure-once",
    "failure",
    breaks="Raises what the work raised, however often it is called.",
    source=SPI + "streams.py",
    finding="an event of work that failed raises when it is waited for, and not when "
    "it is again",
    blames=("synchronize", "however often", "second time", "twice", "once"),
)
class TellsOfAFailureOnce(DeviceFactory):
    stream = TellingOnce


# options


@planted(
    "compares-options-with-texts",
    "options",
    breaks="*options* has every option of :attr:`options`, typed and validated.",
    source=SPI + "factory.py",
    finding="enable_graph_capture does nothing: it is compared with a text, and is "
    "true or false",
    blames=("enable_graph_capture", "capture"),
)
class ComparesOptionsWithTexts(DeviceFactory):
    def create(
        self,
        devices: Sequence[ep.EpDevice],
        options: Mapping[str, ep.OptionValue],
        session: ep.SessionContext,
    ) -> ep.ExecutionProvider:
        plain = {**options, "enable_graph_capture": False}
        provider = super().create(devices, plain, session)
        if options["enable_graph_capture"] == "1":
            assert isinstance(provider, DeviceExecutionProvider)
            provider.capture = self.graph_capture()
        return provider


# costs


@planted(
    "states-costs-in-microseconds",
    "costs",
    breaks="What work on an EP's device is taken to cost.",
    source=SPI + "costs.py",
    finding="a copy is stated to take 2 seconds, so nodes amid others are given back; "
    "it takes microseconds",
    blames=("Costs", "costs", "seconds_per_copy", "seconds_per_byte", "given back"),
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
                # a copy takes 2 µs, and 0.1 ns for each byte
                costs=ep.Costs(seconds_per_copy=2, seconds_per_byte=1e-4),
                by_name_only=True,
            )


# profiling


class TimingItself(DevicePartition):
    def run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: ep.RunContext | None,
    ) -> Sequence[Any]:
        start = time.perf_counter_ns()
        results = super().run(inputs, outputs, context)
        if context is not None and context.profiler is not None:
            operators = [call.node.op_type for call in self.calls]
            context.profiler.record(
                "partition_kernel_time",
                category="Node",
                start_ns=start,
                duration_ns=time.perf_counter_ns() - start,
                details={"op_name": ", ".join(operators)},
            )
        return results

    def _profiler(self, context: ep.RunContext | None) -> ep.Profiler | None:
        return None


@planted(
    "times-what-queueing-takes",
    "profiling",
    breaks="The times are the device's own: what queueing takes says nothing.",
    source=DEVICES,
    finding="events of a trace have the time that queueing takes, not that of the work",
    blames=("duration", "queueing", "trace", "profil", "kernel_time", "too short"),
)
class TimesWhatQueueingTakes(DeviceFactory):
    partition = TimingItself


# speed


class SendingConstants(DevicePartition):
    def __init__(
        self,
        partition: ep.Partition,
        context: DeviceContext,
        operators: Mapping[str, Operator],
    ) -> None:
        super().__init__(partition, context, operators)
        # the host may drop its own
        self._kept = {
            name: np.array(partition.constant(name)) for name in self.constants
        }

    def run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: ep.RunContext | None,
    ) -> Sequence[Any]:
        stream = None if context is None else context.stream
        once = copy.copy(self)
        once.constants = {
            name: self._sent(content, stream) for name, content in self._kept.items()
        }
        return super(SendingConstants, once).run(inputs, outputs, context)

    def _sent(self, content: Any, stream: ep.Stream | None) -> DeviceArray:
        dtype = ep.DataType.from_numpy(content.dtype)
        array = self.context.device.empty(content.shape, dtype, stream)
        self.context.transfer.copy([(content, array)], stream)
        return array


@planted(
    "copies-constants-in-each-run",
    "speed",
    breaks="the EP copies what it needs of constants in ``compile``",
    source=SPI + "capability.py",
    finding="each run copies the constants to the device again",
    blames=("constant", "weight", "each run", "every run", "per run"),
)
class CopiesConstantsInEachRun(DeviceFactory):
    partition = SendingConstants
