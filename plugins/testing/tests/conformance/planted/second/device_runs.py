"""Mistakes in the EP with a device: in when it does what, and in what it tells."""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections.abc import Iterable, Sequence
from typing import Any

from onnxplug import ep

from ..device_ep import DeviceFactory
from ..device_memory import SPACE, DeviceContext
from ..device_mistakes import SPI
from ..device_partition import DevicePartition
from ..device_streams import (
    AdoptedStream,
    DeviceCapture,
    DeviceEvent,
    DeviceStream,
    Work,
    own,
)
from ..mistake import planted

# time


class RecordsEarly(DeviceStream):
    """Has the point before the work that was queued last for the one behind it."""

    def enqueue(self, work: Work) -> None:
        self._before = self.last
        super().enqueue(work)

    def record(self) -> DeviceEvent:
        return DeviceEvent(getattr(self, "_before", self.last), self.capture)


@planted(
    "records-before-the-last-work",
    "time",
    breaks="The point after all work queued here until now.",
    source=f"{SPI}streams.py",
    finding="an event is done before the work that was queued last before it",
    blames=("record", "event", "Event"),
)
class RecordsBeforeTheLastWork(DeviceFactory):
    stream = RecordsEarly


class Polled(DeviceEvent):
    """Finds out whether it is done by waiting until it is."""

    def done(self) -> bool:
        if not super().done() and self.point.failure is None:
            self.point._passed.wait()
        return True


class RecordsPolled(DeviceStream):
    """Records events that are asked by waiting."""

    def record(self) -> DeviceEvent:
        if self.capture is not None:
            return super().record()
        return Polled(self.last)


@planted(
    "waits-where-it-is-asked",
    "time",
    breaks="Neither blocks nor raises what the work raised.",
    source=f"{SPI}streams.py",
    finding="Event.done returns when the work is done, and not before",
    blames=("done", "block"),
)
class WaitsWhereItIsAsked(DeviceFactory):
    stream = RecordsPolled


class LaunchesThere(ep.CapturedGraph):
    """Is launched on the stream that it was captured from."""

    def __init__(self, graph: ep.CapturedGraph, stream: ep.Stream) -> None:
        self._graph = graph
        self._stream = stream

    def launch(self, stream: ep.Stream) -> None:
        self._graph.launch(self._stream)

    def close(self) -> None:
        self._graph.close()


class CapturesFromOneStream(DeviceCapture):
    """Keeps the stream with what it noted."""

    def end(self, stream: ep.Stream) -> ep.CapturedGraph:
        return LaunchesThere(super().end(stream), stream)


@planted(
    "launches-on-the-stream-of-the-capture",
    "time",
    breaks="Queue the work on *stream*, of the same device context.",
    source=f"{SPI}streams.py",
    finding="CapturedGraph.launch on another stream queues nothing there",
    blames=("launch", "CapturedGraph", "capture", "replay"),
)
class LaunchesOnTheStreamOfTheCapture(DeviceFactory):
    graph_capture = CapturesFromOneStream

    def make_context(self, location: ep.MemoryLocation) -> DeviceContext:
        context = super().make_context(location)
        context.capture = self.graph_capture()
        return context


class ClosesWhatItAdopted(AdoptedStream):
    """Closes the stream that it stands for."""

    def close(self) -> None:
        self.stream.close()


class AdoptsForGood(DeviceContext):
    """Takes the user's streams as its own."""

    def adopt_stream(self, handle: int) -> ep.Stream:
        adopted = super().adopt_stream(handle)
        assert isinstance(adopted, AdoptedStream)
        return ClosesWhatItAdopted(adopted.stream)


@planted(
    "closes-the-users-stream",
    "time",
    breaks="Its ``close`` leaves the user's stream open.",
    source=f"{SPI}device_context.py",
    finding="work that the user queues on a stream of his own after the session is not "
    "done",
    blames=("adopt", "user_compute_stream", "user's"),
)
class ClosesTheUsersStream(DeviceFactory):
    def make_context(self, location: ep.MemoryLocation) -> DeviceContext:
        return AdoptsForGood(location, self.allocator(), self.transfer(), self.stream)


# failure


class EndsWhereWorkFails(DeviceStream):
    """Has its thread end with work that raises; nobody tells who waits for it."""

    def _start(self) -> None:
        self._process = os.getpid()
        self._works = queue.SimpleQueue()
        threading.Thread(
            target=_serve, args=(self._works,), name="device", daemon=True
        ).start()


def _serve(works: Any) -> None:
    while (item := works.get()) is not None:
        work, point = item
        try:
            work()
        except Exception as error:
            logging.getLogger(__name__).debug("the work failed", exc_info=error)
            return
        del work, item
        point.reach()


@planted(
    "hangs-after-work-that-failed",
    "failure",
    breaks="Block the calling thread until all work queued here is done. Raises what "
    "the work raised.",
    source=f"{SPI}streams.py",
    finding="who waits for queued work that failed, such as Gather with an index out "
    "of range, waits for ever",
    blames=("synchronize", "hang", "Gather", "never", "not end"),
)
class HangsAfterWorkThatFailed(DeviceFactory):
    stream = EndsWhereWorkFails


class TellsOnce(DeviceEvent):
    """Has told of a failure when it has raised it."""

    _told = False

    def synchronize(self) -> None:
        if self._told:
            return
        try:
            super().synchronize()
        except Exception:
            self._told = True
            raise


class RecordsWhatTellsOnce(DeviceStream):
    """Records events that raise once."""

    def record(self) -> DeviceEvent:
        return TellsOnce(self.last, self.capture)


@planted(
    "tells-of-a-failure-once",
    "failure",
    breaks="Raises what the work raised, however often it is called.",
    source=f"{SPI}streams.py",
    finding="Event.synchronize of work that failed raises, and the next time does not",
    blames=("synchronize", "Event", "however often", "again", "twice"),
)
class TellsOfAFailureOnce(DeviceFactory):
    stream = RecordsWhatTellsOnce


# profiling


class TellsOfAllBesides(DevicePartition):
    """Records each kernel, and then all of them at once."""

    def tell(
        self,
        profiler: ep.Profiler,
        times: Sequence[Sequence[int]],
        stream: ep.Stream | None,
    ) -> None:
        super().tell(profiler, times, stream)
        start, end = times[0][0], times[-1][-1]
        profiler.record(
            "partition_kernel_time",
            category="Node",
            start_ns=start,
            duration_ns=end - start,
            details={"op_name": self.calls[-1].node.op_type},
        )


@planted(
    "profiles-kernels-twice",
    "profiling",
    breaks="``Node`` for what computes a node, or several at once; for all else any "
    "other word.",
    source=f"{SPI}profiler.py",
    finding="times of nodes add up to twice what the run took, as the partition is "
    "told of as one more node",
    blames=("twice", "duration", "add up", "sum of", "longer than"),
)
class ProfilesKernelsTwice(DeviceFactory):
    partition = TellsOfAllBesides


# speed


class UploadsInRuns(DevicePartition):
    """Copies its weights to the device whenever it runs."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._weights = [
            (self.partition.constant(name), array)
            for name, array in self.constants.items()
        ]

    def run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: ep.RunContext | None,
    ) -> Sequence[Any]:
        if self._weights:
            stream = None if context is None else context.stream
            self.context.transfer.copy(self._weights, stream)
        return super().run(inputs, outputs, context)


@planted(
    "uploads-weights-in-each-run",
    "speed",
    breaks="the EP copies what it needs of constants in ``compile``",
    source=f"{SPI}capability.py",
    finding="each run copies the constants to the device",
    blames=("constant", "weight", "copies", "copy"),
)
class UploadsWeightsInEachRun(DeviceFactory):
    partition = UploadsInRuns


# factory


@planted(
    "starts-the-device-to-look",
    "factory",
    breaks="Looks, does not initialise: no driver is loaded, no context made.",
    source=f"{SPI}factory.py",
    finding="supported_devices makes a context",
    blames=("supported_devices", "context", "initialis"),
)
class StartsTheDeviceToLook(DeviceFactory):
    def supported_devices(
        self, devices: Sequence[ep.HardwareDevice]
    ) -> Iterable[ep.EpDevice]:
        # to see that it answers
        assert self.memory_spaces is not None
        there = self.memory_spaces.create_context(ep.MemoryLocation(SPACE, 0))
        stream = own(there.create_stream())  # type: ignore[arg-type]
        stream.synchronize()
        stream.close()
        there.close()
        yield from super().supported_devices(devices)
