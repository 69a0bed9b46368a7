"""Mistakes in the EP with a device: in when it does what, and in what it tells."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from onnxplug import ep

from ..device_ep import DeviceExecutionProvider, DeviceFactory
from ..device_memory import DeviceContext
from ..device_mistakes import SPI
from ..device_partition import DevicePartition
from ..device_streams import DeviceCapture, DeviceEvent, DeviceStream, own
from ..mistake import planted

# time


class OfAStream(DeviceEvent):
    """Knows the stream that recorded it."""

    def __init__(self, stream: DeviceStream) -> None:
        super().__init__(stream.last, stream.capture)
        self.stream = stream


class WaitsForStreams(DeviceStream):
    """Waits for the stream of an event, which is simpler."""

    def record(self) -> DeviceEvent:
        return OfAStream(self)

    def wait(self, event: ep.Event) -> bool:
        if self.capture is not None or not isinstance(event, OfAStream):
            return super().wait(event)
        self.enqueue(lambda: event.stream.last.block())
        return True


@planted(
    "waits-for-all-of-the-other-stream",
    "time",
    breaks="Let work queued here from now on start only after *event*.",
    source=f"{SPI}streams.py",
    finding="Stream.wait waits for work that was queued after the event, and two "
    "streams that wait for events of each other for ever",
    blames=("wait", "Stream"),
)
class WaitsForAllOfTheOtherStream(DeviceFactory):
    stream = WaitsForStreams


class BelievesForeignEvents(DeviceStream):
    """Has no way to wait for other devices, whose work is taken for done."""

    def wait(self, event: ep.Event) -> bool:
        return super().wait(event) or self.capture is None


@planted(
    "takes-events-of-others-for-done",
    "time",
    breaks="Whether it will; ``False``: the host has to wait for *event* instead.",
    source=f"{SPI}streams.py",
    finding="Stream.wait for an event of another device context is true, and work "
    "queued afterwards starts before the event",
    blames=("wait", "Stream", "foreign", "another"),
)
class TakesEventsOfOthersForDone(DeviceFactory):
    stream = BelievesForeignEvents


class OfAnOpenStream(OfAStream):
    """Is asked of its stream, as long as that is open."""

    def synchronize(self) -> None:
        if getattr(self.stream, "is_closed", False):
            raise RuntimeError("the event is of a stream that is closed")
        super().synchronize()


class ClosesItsEvents(DeviceStream):
    """Closes what it recorded when it is closed."""

    def record(self) -> DeviceEvent:
        return OfAnOpenStream(self)

    def close(self) -> None:
        super().close()
        self.is_closed = True


@planted(
    "closes-events-with-their-stream",
    "time",
    breaks="Release the stream; events that it recorded stay valid.",
    source=f"{SPI}streams.py",
    finding="Event.synchronize raises when the stream is closed",
    blames=("close", "Event", "synchronize"),
)
class ClosesEventsWithTheirStream(DeviceFactory):
    stream = ClosesItsEvents


# failure


class GoesOn(DeviceStream):
    """Waits for an event, however that ends."""

    def wait(self, event: ep.Event) -> bool:
        if self.capture is not None or not isinstance(event, DeviceEvent):
            return super().wait(event)
        self.enqueue(partial(_wait, event))
        return True


def _wait(event: DeviceEvent) -> None:
    event.point._passed.wait()


@planted(
    "goes-on-after-an-event-that-failed",
    "failure",
    breaks="When what it waits for has failed, so has the work queued here from now "
    "on.",
    source=f"{SPI}streams.py",
    finding="work that waits for an event whose work failed is done, and nobody is "
    "told",
    blames=("wait", "failed", "failure"),
)
class GoesOnAfterAnEventThatFailed(DeviceFactory):
    stream = GoesOn


class EndsInOrder(DeviceCapture):
    """Ends a capture when it has been found to be good."""

    def end(self, stream: ep.Stream) -> ep.CapturedGraph:
        capture = own(stream).capture
        if capture is not None and capture.failure:
            raise RuntimeError(f"the capture failed: {capture.failure}")
        return super().end(stream)


@planted(
    "goes-on-capturing-when-a-capture-failed",
    "failure",
    breaks="something that was queued cannot be captured; the stream captures no more, "
    "and nothing of it was done.",
    source=f"{SPI}streams.py",
    finding="work that is queued after a capture that failed is never done",
    blames=("capture", "GraphCapture", "end"),
)
class GoesOnCapturingWhenACaptureFailed(DeviceFactory):
    graph_capture = EndsInOrder

    def make_context(self, location: ep.MemoryLocation) -> DeviceContext:
        context = super().make_context(location)
        context.capture = self.graph_capture()
        return context


# options


@planted(
    "prefers-the-options-of-the-device",
    "options",
    breaks="options the EP suggests for this device; the user's win.",
    source=f"{SPI}devices.py",
    finding="enable_graph_capture=1 does nothing, as the device suggests 0",
    blames=("enable_graph_capture", "default_options", "option"),
)
class PrefersTheOptionsOfTheDevice(DeviceFactory):
    def supported_devices(
        self, devices: Sequence[ep.HardwareDevice]
    ) -> Iterable[ep.EpDevice]:
        for pair in super().supported_devices(devices):
            yield ep.EpDevice(
                ep_name=pair.ep_name,
                device=pair.device,
                metadata=pair.metadata,
                default_options={"enable_graph_capture": "0"},
                costs=pair.costs,
                by_name_only=True,
            )

    def create(
        self,
        devices: Sequence[ep.EpDevice],
        options: Mapping[str, ep.OptionValue],
        session: ep.SessionContext,
    ) -> ep.ExecutionProvider:
        heeded = dict(options)
        for name, text in devices[0].default_options.items():
            heeded[name] = text == "1"
        return super().create(devices, heeded, session)


# profiling


class TellsLater(DevicePartition):
    """Has the device's own thread record, when it comes to that."""

    def tell(
        self,
        profiler: ep.Profiler,
        times: Sequence[Sequence[int]],
        stream: ep.Stream | None,
    ) -> None:
        if stream is None:
            super().tell(profiler, times, None)
        else:
            own(stream).enqueue(partial(super().tell, profiler, times, None))


@planted(
    "profiles-when-the-run-has-ended",
    "profiling",
    breaks="It may be used from any thread, until the run ends and in what "
    ":meth:`when_done` calls.",
    source=f"{SPI}profiler.py",
    finding="Profiler.record is called by queued work, after the run, and not by what "
    "when_done calls",
    blames=("record", "when_done", "after the run", "Profiler"),
)
class ProfilesWhenTheRunHasEnded(DeviceFactory):
    partition = TellsLater


# speed

NAP = 0.02
"""Between two looks, in seconds."""


class Naps(DeviceEvent):
    """Looks now and then whether it is done."""

    def synchronize(self) -> None:
        while not self.done() and self.point.failure is None:
            time.sleep(NAP)
        super().synchronize()


class LooksNowAndThen(DeviceStream):
    """Is waited for by looking now and then."""

    def record(self) -> DeviceEvent:
        if self.capture is not None:
            return super().record()
        return Naps(self.last)

    def synchronize(self) -> None:
        if self.capture is None:
            self.record().synchronize()
        super().synchronize()


@planted(
    "sleeps-where-it-waits",
    "speed",
    breaks="Block the calling thread until the work before the point is done.",
    source=f"{SPI}streams.py",
    finding="each run takes 20 ms, however little there is to do",
    blames=("fixed cost", "per node", "of a run", "of a node", "µs", "ms", "wait"),
)
class SleepsWhereItWaits(DeviceFactory):
    stream = LooksNowAndThen


# factory


class HoldsTheDevice(DeviceExecutionProvider):
    """Has the device to itself until it is closed."""

    def close(self) -> None:
        super().close()
        self._factory.is_held = False  # type: ignore[attr-defined]


@planted(
    "has-one-session-at-a-time",
    "factory",
    breaks="An EP for one session on *devices* (at least one, all of this factory).",
    source=f"{SPI}factory.py",
    finding="create fails while another session is open",
    blames=("create", "session", "two", "another", "second"),
)
class HasOneSessionAtATime(DeviceFactory):
    provider = HoldsTheDevice
    is_held = False

    def create(
        self,
        devices: Sequence[ep.EpDevice],
        options: Mapping[str, ep.OptionValue],
        session: ep.SessionContext,
    ) -> ep.ExecutionProvider:
        if self.is_held:
            raise RuntimeError("the device is busy")
        created = super().create(devices, options, session)
        self.is_held = True
        return created
