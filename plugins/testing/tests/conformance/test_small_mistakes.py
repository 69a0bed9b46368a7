"""What the kit asks of values between edges, of runs that end in their midst, of points
and of who restores, finds small mistakes, each by the check that is for it."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pytest

from onnxplug import ep
from onnxplug.plugins import registry
from onnxplug_testing import Knobs, SimulatedFactory
from onnxplug_testing.conformance import Finding, Settings, examine
from onnxplug_testing.conformance.groups import in_the_midst, keeping, points

from .planted import compile_ep, device_memory, device_streams, program
from .planted.compile_ep import GeneratedFactory, GeneratedPartition
from .planted.device_ep import DeviceFactory
from .planted.device_partition import DevicePartition

# profiling


class KeepsTheFirstProfiler(GeneratedFactory):
    class partition(GeneratedPartition):
        first: Any = None

        def _profiled(self, values: list[Any], context: Any, profiler: Any) -> None:
            self.first = self.first or profiler
            super()._profiled(values, context, self.first)


class ComputesOtherwiseWhenProfiled(GeneratedFactory):
    class partition(GeneratedPartition):
        def _profiled(self, values: list[Any], context: Any, profiler: Any) -> None:
            super()._profiled(values, context, profiler)
            values[self.program.outputs[-1]] = -values[self.program.outputs[-1]]


class RecordsFractions(GeneratedFactory):
    class partition(GeneratedPartition):
        def _profiled(self, values: list[Any], context: Any, profiler: Any) -> None:
            super()._profiled(values, context, profiler)
            profiler.record(
                "a", category="Node", start_ns=time.perf_counter_ns(),
                duration_ns=0.5, details={},
            )  # fmt: skip


class WaitsInCaptures(DeviceFactory):
    class partition(DevicePartition):
        def _profiler(self, context: Any) -> Any:
            return None if context is None else context.profiler


class TellsOfTheLatestRun(DeviceFactory):
    class partition(DevicePartition):
        latest: Any = ()

        def tell(self, profiler: Any, times: Any, stream: Any) -> None:
            self.latest = times
            profiler.when_done(lambda: DevicePartition.tell(
                self, profiler, self.latest, stream
            ))  # fmt: skip


class BeginsWhenItIsQueued(DeviceFactory):
    class partition(DevicePartition):
        def tell(self, profiler: Any, times: Any, stream: Any) -> None:
            queued = time.perf_counter_ns()

            def report() -> None:
                for _, (start, end) in zip(self.calls, times, strict=True):
                    profiler.record(
                        "a", category="Node", start_ns=queued,
                        duration_ns=end - start, details={},
                    )  # fmt: skip

            profiler.when_done(report)


# EPContext


class Evaluates(GeneratedFactory):
    class make_serialiser(compile_ep.GeneratedSerialiser):
        def serialise(self, compiled: Any) -> bytes:
            return repr(super().serialise(compiled)).encode()

        def restore(self, partition: Any, data: memoryview) -> Any:
            try:
                content = memoryview(eval(bytes(data).decode()))
            except Exception as error:
                reason = ep.Reason(ep.RefusalCode.OTHER, "damaged")
                raise ep.Declined(reason) from error
            return super().restore(partition, content)


class SerialisesTheLatest(GeneratedFactory):
    class provider(compile_ep.GeneratedExecutionProvider):
        def make(self, made: Any) -> Any:
            self.latest = made
            return super().make(made)

    class make_serialiser(compile_ep.GeneratedSerialiser):
        def serialise(self, compiled: Any) -> bytes:
            return program.write(self._provider.latest)  # type: ignore[attr-defined]


class BelievesNames(GeneratedFactory):
    class make_serialiser(compile_ep.GeneratedSerialiser):
        def restore(self, partition: Any, data: memoryview) -> Any:
            begin = data.tobytes().find(b"{")
            facts, _ = json.JSONDecoder().raw_decode(
                data.tobytes().decode("latin-1")[max(begin, 0) :]
            )
            for name, *_ in facts["steps"]:
                assert self._provider.operators[name]
            return super().restore(partition, data)


class RestoresTheSame(GeneratedFactory):
    class make_serialiser(compile_ep.GeneratedSerialiser):
        kept: ClassVar[dict[bytes, Any]] = {}

        def restore(self, partition: Any, data: memoryview) -> Any:
            found = self.kept.get(bytes(data))
            if found is None:
                found = self.kept[bytes(data)] = super().restore(partition, data)
            return found


class WritesSixDigits(GeneratedFactory):
    class make_serialiser(compile_ep.GeneratedSerialiser):
        def serialise(self, compiled: Any) -> bytes:
            made = compiled.program
            constants = [
                each.astype(np.float32).astype(each.dtype) for each in made.constants
            ]
            return program.write(made._replace(constants=constants))


class SharesWhatItRestores(GeneratedFactory):
    class make_serialiser(compile_ep.GeneratedSerialiser):
        def restore(self, partition: Any, data: memoryview) -> Any:
            provider: Any = self._provider
            provider.data = data
            time.sleep(1e-4)
            return super().restore(partition, provider.data)


class IsOfItsProcess(GeneratedFactory):
    def engine_versions(self, device: ep.EpDevice) -> dict[str, str]:
        return {"engine": str(os.getpid())}


# options


class KeepsTheLargestPrecision(GeneratedFactory):
    class provider(compile_ep.GeneratedExecutionProvider):
        double: ClassVar[list[str]] = []

        def make(self, made: Any) -> Any:
            if self.options["accumulate"] == "double" or self.double:
                self.double.append("double")
            double, limit = bool(self.double), self.options["steps_per_function"]
            return self.factory.partition(made, self.operators, double, limit)  # type: ignore[arg-type]


class HeedsNoPrecision(GeneratedFactory):
    class partition(GeneratedPartition):
        def __init__(self, made: Any, operators: Any, _: bool, limit: int) -> None:
            super().__init__(made, operators, False, limit)


class CountsStepsInBytes(GeneratedFactory):
    class partition(GeneratedPartition):
        def __init__(self, made: Any, operators: Any, double: bool, limit: int) -> None:
            super().__init__(made, operators, double, limit % 256)


class AlwaysCaptures(DeviceFactory):
    def create(self, devices: Any, options: Any, session: Any) -> Any:
        wanted = {**options, "enable_graph_capture": True}
        return super().create(devices, wanted, session)


class TakesFromItsOptions(GeneratedFactory):
    def create(self, devices: Any, options: Any, session: Any) -> Any:
        made = super().create(devices, dict(options), session)
        options.pop("accumulate")
        return made


class ReadsNoRunOption(GeneratedFactory):
    run_options: ClassVar[dict[str, ep.Option]] = {
        "generated.level": ep.Option(default=1, minimum=0, maximum=3, doc="A level.")
    }


# failure


class KeepsItsLock(GeneratedFactory):
    class partition(GeneratedPartition):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            self._lock = threading.Lock()

        def run(self, *args: Any) -> Any:
            if not self._lock.acquire(timeout=3):
                raise RuntimeError("the lock is taken")
            found = super().run(*args)
            self._lock.release()
            return found


class FailsAtDeadlines(GeneratedFactory):
    class partition(GeneratedPartition):
        def run(self, inputs: Any, outputs: Any, context: Any) -> Any:
            deadline = None if context is None else context.deadline
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError("too late")
            return super().run(inputs, outputs, context)


class RunsOnceMore(GeneratedFactory):
    class partition(GeneratedPartition):
        def run(self, inputs: Any, outputs: Any, context: Any) -> Any:
            try:
                return super().run(inputs, outputs, context)
            except ep.RunCancelled:
                raise
            except Exception:  # noqa: BLE001 (which is the mistake)
                return super().run(inputs, outputs, None)


class LocksAllRuns(GeneratedFactory):
    class partition(GeneratedPartition):
        lock: ClassVar[Any] = threading.RLock()

        def run(self, *args: Any) -> Any:
            with self.lock:
                return super().run(*args)


class ClosesOnce(GeneratedFactory):
    class partition(GeneratedPartition):
        def close(self) -> None:
            del self.functions


class LeavesAThread(GeneratedFactory):
    def create(self, devices: Any, options: Any, session: Any) -> Any:
        threading.Thread(target=time.sleep, args=(6,)).start()
        return super().create(devices, options, session)


# factory


class MakesAContextToTell(DeviceFactory):
    def engine_versions(self, device: ep.EpDevice) -> dict[str, str]:
        self.memory_spaces.create_context(ep.MemoryLocation("threaded", 0))
        return {}


class HasEachDevice(DeviceFactory):
    def __init__(self) -> None:
        self.memory_spaces = _Any(self.make_context)


class _Any(device_memory.DeviceSpaces):
    def create_context(self, location: ep.MemoryLocation) -> Any:
        return self._make(location)


class IsOfOneThread(GeneratedFactory):
    def __init__(self) -> None:
        self._of = threading.local()
        self._of.there = True

    def create(self, devices: Any, options: Any, session: Any) -> Any:
        assert self._of.there
        return super().create(devices, options, session)


# time


class _NeverReached(device_streams.DeviceStream):
    def __init__(self) -> None:
        super().__init__()
        self.last = device_streams.Point()


class IsNotDoneBeforeWork(DeviceFactory):
    stream = _NeverReached


class _RaisesWhenAsked(device_streams.DeviceEvent):
    def done(self) -> bool:
        if self.point.failure is not None:
            raise self.point.failure
        return super().done()


class _AskedForFailures(device_streams.DeviceStream):
    def record(self) -> Any:
        return _RaisesWhenAsked(self.last, self.capture)


class RaisesWhereItIsAsked(DeviceFactory):
    stream = _AskedForFailures


class _WaitsForTheLast(device_streams.DeviceStream):
    awaited: Any = None

    def wait(self, event: ep.Event) -> bool:
        if self.capture or not isinstance(event, device_streams.DeviceEvent):
            return super().wait(event)
        self.awaited = event
        return True

    def enqueue(self, work: Any) -> None:
        if self.awaited is not None:
            awaited, self.awaited = self.awaited, None
            super().enqueue(awaited.synchronize)
        super().enqueue(work)


class WaitsForTheLastOnly(DeviceFactory):
    stream = _WaitsForTheLast


class _StaysOpen(device_streams.DeviceStream):
    def close(self) -> None:
        return None


class LeavesThreadsOfStreams(DeviceFactory):
    stream = _StaysOpen


class _KeepsNotes(device_streams.DeviceCapture):
    def __init__(self) -> None:
        self._noted: list[Any] = []

    def end(self, stream: ep.Stream) -> Any:
        capture = device_streams.own(stream).capture
        assert capture is not None
        self._noted += capture.noted
        capture.noted = list(self._noted)
        return super().end(stream)


class CapturesWhatItCaptured(DeviceFactory):
    graph_capture = _KeepsNotes


class _NeverLetsGo(device_streams.DeviceGraph):
    def close(self) -> None:
        return None


class _CapturesForGood(device_streams.DeviceCapture):
    graph = _NeverLetsGo  # type: ignore[misc]


class KeepsMemoryOfGraphs(DeviceFactory):
    graph_capture = _CapturesForGood


class _EventsOfAnyTime(device_streams.DeviceStream):
    def record(self) -> Any:
        return device_streams.DeviceEvent(self.last)


class WaitsWithinCaptures(DeviceFactory):
    stream = _EventsOfAnyTime


# memory


class _LocksItsGarbage(device_memory.DeviceAllocator):
    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()  # type: ignore[assignment]

    def _give_back(self, memory: Any, stream: Any) -> None:
        with self._lock:
            super()._give_back(memory, stream)


class LocksWhereArraysGo(DeviceFactory):
    allocator = _LocksItsGarbage


class _CopiesTheLast(device_memory.DeviceTransfer):
    def copy(self, pairs: Sequence[Any], stream: ep.Stream | None) -> None:
        for source, target in pairs:
            device_memory.do(
                lambda: np.copyto(
                    device_memory.content(target),  # noqa: B023
                    device_memory.content(source),  # noqa: B023
                ),
                stream,
            )


class CopiesTheLastPair(DeviceFactory):
    transfer = _CopiesTheLast


class _NeedsNone(device_memory.DeviceTransfer):
    def needs_copy(self, source: ep.MemoryLocation, target: ep.MemoryLocation) -> bool:
        return source.space != target.space


class TakesDevicesForOne(DeviceFactory):
    transfer = _NeedsNone


class ReturnsTwins(DeviceFactory):
    class partition(DevicePartition):
        def run(self, inputs: Any, outputs: Any, context: Any) -> Any:
            found = list(super().run(inputs, outputs, context))
            is_free = all(each is None for each in outputs)
            if is_free and len({call.inputs for call in self.calls}) == 1:
                found[1:] = found[:1] * len(found[1:])
            return found


MISTAKES = {
    KeepsTheFirstProfiler: "profiling/records",
    ComputesOtherwiseWhenProfiled: "profiling/records",
    RecordsFractions: "profiling/records",
    WaitsInCaptures: "profiling/captured-runs",
    TellsOfTheLatestRun: "profiling/records",
    BeginsWhenItIsQueued: "profiling/records",
    Evaluates: "epcontext/hostile",
    SerialisesTheLatest: "epcontext/round-trips",
    BelievesNames: "epcontext/hostile",
    RestoresTheSame: "epcontext/restored-anywhere",
    WritesSixDigits: "epcontext/constants",
    SharesWhatItRestores: "epcontext/several-at-once",
    IsOfItsProcess: "epcontext/compatibility",
    KeepsTheLargestPrecision: "options/one-after-the-other",
    HeedsNoPrecision: "options/precisions",
    CountsStepsInBytes: "options/values",
    AlwaysCaptures: "options/captures-as-asked",
    TakesFromItsOptions: "options/one-after-the-other",
    ReadsNoRunOption: "options/of-runs",
    KeepsItsLock: "failure/cancelled-midway",
    FailsAtDeadlines: "failure/cancelled-midway",
    RunsOnceMore: "failure/signals-midway",
    LocksAllRuns: "failure/forks-midway",
    ClosesOnce: "failure/closed-again",
    LeavesAThread: "failure/exits",
    MakesAContextToTell: "factory/looks",
    HasEachDevice: "factory/spaces",
    IsOfOneThread: "factory/made-anywhere",
    IsNotDoneBeforeWork: "time/points",
    RaisesWhereItIsAsked: "time/failed-points",
    WaitsForTheLastOnly: "time/points",
    LeavesThreadsOfStreams: "time/strangers",
    CapturesWhatItCaptured: "time/noted",
    KeepsMemoryOfGraphs: "time/noted",
    WaitsWithinCaptures: "failure/failed-captures",
    LocksWhereArraysGo: "memory/garbage",
    CopiesTheLastPair: "memory/queued-pairs",
    TakesDevicesForOne: "memory/needs-of-places",
    ReturnsTwins: "memory/alike",
}
CHECKS = sorted({*MISTAKES.values(), "memory/counting", "failure/behind-failures"})


@pytest.fixture
def found_of() -> Iterator[Callable[..., Sequence[Finding]]]:
    """What checks find of an EP, each in a process of its own."""
    known: list[str] = []

    def ask(factory: ep.EpFactory, *checks: str) -> Sequence[Finding]:
        registry.add(factory)
        known.append(factory.name)
        settings = Settings(budget=4.0 * len(checks))
        return examine(factory.name, only=checks, settings=settings).findings

    yield ask
    for name in known:
        registry.remove(name)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits for ever is not waited for long."""
    for name in ("_PATIENCE", "_END"):
        monkeypatch.setattr(in_the_midst, name, 5.0)
    for module in (keeping, points):
        monkeypatch.setattr(module, "_LONG", 2.0)


SLOW = {KeepsItsLock}
"""Who examines them waits for seconds."""


@pytest.mark.parametrize(
    "factory",
    [
        pytest.param(
            each,
            id=each.__name__,
            marks=[pytest.mark.exhaustive] if each in SLOW else [],
        )
        for each in MISTAKES
    ],
)
def test_a_small_mistake_is_found(
    found_of: Callable[..., Sequence[Finding]], factory: type[ep.EpFactory]
) -> None:
    assert found_of(factory(), MISTAKES[factory])


@pytest.mark.parametrize(
    "factory",
    [
        pytest.param(DeviceFactory, id="threads"),
        pytest.param(GeneratedFactory, id="generated"),
        pytest.param(
            partial(SimulatedFactory, Knobs(captures=True)),
            id="late",
            marks=pytest.mark.exhaustive,
        ),
        pytest.param(
            partial(SimulatedFactory, Knobs(captures=True, schedule="threaded")),
            id="threaded",
            marks=pytest.mark.exhaustive,
        ),
    ],
)
def test_nothing_is_found_where_there_is_no_mistake(
    found_of: Callable[..., Sequence[Finding]], factory: Callable[[], ep.EpFactory]
) -> None:
    assert found_of(factory(), *CHECKS) == []
