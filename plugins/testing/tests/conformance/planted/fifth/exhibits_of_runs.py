"""What mistakes in runs do, and the EPs without mistakes do not."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

import onnxplug
from onnxplug import ep

from .. import program
from ..device_memory import SPACE
from ..exhibit import F, Run, X, differ, made_by, session_of, shows
from .exhibits_of_results import seen_by

TWO = "g (float[4,3] x) => (float[4,3] y) { a = Neg (x) y = Mul (a, x) }"

# of the EP that compiles


@shows("shares-slots-among-runs")
def _(factory: ep.EpFactory) -> bool:
    made = made_by(factory)
    with session_of(factory, TWO):
        (compiled,) = made

        def another_run_between() -> Iterator[bool]:
            yield False
            compiled.run([X + 1], [None], None)
            yield from itertools.repeat(False)

        (y,) = compiled.run([X], [None], Run(None, another_run_between()))
    return differ(y, -X * X)


@shows("returns-what-it-has-when-cancelled")
def _(factory: ep.EpFactory) -> bool:
    made = made_by(factory)
    with session_of(factory, TWO):
        cancelled = itertools.chain([False], itertools.repeat(True))
        try:
            made[0].run([X], [None], Run(None, cancelled))
        except ep.RunCancelled:
            return False
    return True


@shows("fills-bound-arrays-of-any-shape")
def _(factory: ep.EpFactory) -> bool:
    made = made_by(factory)
    with session_of(factory, TWO):
        try:
            made[0].run([X], [np.empty((2, 4, 3), np.float64)], None)
        except ep.OutputMismatch:
            return False
    return True


@shows("stays-busy-after-a-failure")
def _(factory: ep.EpFactory) -> bool:
    text = "g (float[4,3] x, int64[1] i) => (float[1,3] y) { y = Gather (x, i) }"
    with session_of(factory, text) as session:
        for index in (7, 1):
            try:
                session.run(None, {"x": X, "i": np.array([index])})
            except onnxplug.errors.OnnxplugError:
                failed = index
    return failed == 1


@shows("raises-what-parsing-raises")
def _(factory: ep.EpFactory) -> bool:
    seen = seen_by(factory)
    with session_of(factory, TWO):
        ((provider, partition, compiled),) = seen
        data = memoryview(provider.serialiser.serialise(compiled))
        try:
            provider.serialiser.restore(partition, data[: len(data) // 2])
        except ep.Declined:
            return False
        except ValueError:
            return True
    return False


@shows("keeps-options-on-the-factory")
def _(factory: Any) -> bool:
    seen = seen_by(factory)
    with session_of(factory, TWO, steps_per_function=1):
        ((provider, partition, _compiled),) = seen
        others = {"steps_per_function": 32, "accumulate": "single"}
        factory.create([], others, None)  # another session's
        functions = provider.compile(partition).report.counts["functions"]
    return bool(functions != 2)


@shows("counts-unknown-sizes-as-minus-one")
def _(factory: Any) -> bool:
    estimates = []

    class Estimating(factory.provider):  # type: ignore[misc]
        def get_capability(self, graph: ep.Graph) -> ep.CapabilityReport:
            estimates.append(self.cost_model.estimate(graph, graph.nodes))
            report: ep.CapabilityReport = super().get_capability(graph)
            return report

    factory.provider = Estimating
    with session_of(factory, TWO.replace("4", "n")):
        return any(estimate is not None for estimate in estimates)


class Events(list[Any]):
    """A profiler that notes when what is recorded began."""

    def record(self, name: str, *, start_ns: int, **others: Any) -> None:
        self.append(start_ns)


@shows("times-by-the-wall-clock")
def _(factory: ep.EpFactory) -> bool:
    made = made_by(factory)
    with session_of(factory, TWO):
        run = Run(None)
        run.profiler = Events()
        before = time.perf_counter_ns()
        made[0].run([X], [None], run)
        after = time.perf_counter_ns()
    assert run.profiler
    return not all(before <= start <= after for start in run.profiler)


@shows("generates-functions-in-each-run")
def _(factory: ep.EpFactory) -> bool:
    generated = []
    generate = program.generate

    def noting(source: str) -> Any:
        generated.append(source)
        return generate(source)

    program.generate = noting
    try:
        with session_of(factory, TWO) as session:
            session.run(None, {"x": X})
            before = len(generated)
            session.run(None, {"x": X})
            return len(generated) > before
    finally:
        program.generate = generate


@shows("drives-whatever-is-there")
def _(factory: ep.EpFactory) -> bool:
    devices = [ep.HardwareDevice(type=ep.DeviceType.GPU, vendor="Nobody")]
    return bool(list(factory.supported_devices(devices)))


# of the EP with a device


class Held:
    """A device, and a stream of it whose work waits until *open* is called."""

    def __init__(self, factory: Any) -> None:
        self.context = factory.make_context(ep.MemoryLocation(SPACE, 0))
        self.stream = self.context.create_stream()
        self._gate = threading.Event()
        self.opened: list[int] = []
        self.hold()

    def hold(self) -> None:
        """Hold what is queued from now on."""
        self.stream.enqueue(self._pass)

    def open(self) -> None:
        """Let the work be done, and wait for it."""
        self._gate.set()
        self.stream.synchronize()

    def _pass(self) -> None:
        self._gate.wait()
        self.opened.append(time.perf_counter_ns())

    def array(self, fill: float = 0, stream: ep.Stream | None = None) -> Any:
        """A new array of 64 elements."""
        array = self.context.device.empty([64], ep.DataType.FLOAT32, stream)
        array.content[:] = fill
        return array


@shows("hands-out-memory-that-work-uses")
def _(factory: ep.EpFactory) -> bool:
    held = Held(factory)
    array = held.array(stream=held.stream)
    memory = array.content
    del array  # while its stream has work
    other = held.array()
    held.open()
    return np.shares_memory(other.content, memory)


@shows("copies-at-once")
def _(factory: ep.EpFactory) -> bool:
    held = Held(factory)
    array, host = held.array(1), np.zeros(64, F)
    memory = array.content
    held.stream.enqueue(lambda: memory.fill(2))
    held.context.transfer.copy([(array, host)], held.stream)
    held.open()
    return bool(host[0] != 2)


@shows("launches-where-it-captured")
def _(factory: ep.EpFactory) -> bool:
    held = Held(factory)
    done: list[int] = []
    other = held.context.create_stream()
    held.context.capture.begin(held.stream)
    held.stream.enqueue(lambda: done.append(1))
    graph = held.context.capture.end(held.stream)
    graph.launch(other)
    other.synchronize()
    found = list(done)
    held.open()
    return not found


class Never(ep.Event):
    """An event of another context, whose work is not done."""

    def done(self) -> bool:
        return False

    def synchronize(self) -> None:
        raise AssertionError("nobody waits for it here")


@shows("promises-to-wait-for-events-of-others")
def _(factory: Any) -> bool:
    stream = factory.make_context(ep.MemoryLocation(SPACE, 0)).create_stream()
    is_promised = stream.wait(Never())
    return bool(is_promised and stream.record().done())


@shows("raises-of-a-failure-once")
def _(factory: Any) -> bool:
    stream = factory.make_context(ep.MemoryLocation(SPACE, 0)).create_stream()
    stream.enqueue(lambda: 1 // 0)
    event = stream.record()
    told = 0
    for _time in range(2):
        try:
            event.synchronize()
        except ZeroDivisionError:
            told += 1
    return told == 1


@shows("compares-options-with-texts")
def _(factory: ep.EpFactory) -> bool:
    seen = seen_by(factory)
    with session_of(factory, TWO, enable_graph_capture=True):
        ((provider, _partition, _compiled),) = seen
        return provider.capture is None


@shows("states-costs-in-microseconds")
def _(factory: ep.EpFactory) -> bool:
    text = """g (float[4,3] x) => (float[4,3] y)
        { a = Sin (x) b = Neg (a) y = Sin (b) }"""
    with session_of(factory, text) as session:
        return all(node.ep != factory.name for node in session.explain().nodes)


@shows("times-what-queueing-takes")
def _(factory: ep.EpFactory) -> bool:
    made = made_by(factory)
    with session_of(factory, "g (float[64] x) => (float[64] y) { y = Neg (x) }"):
        held = Held(factory)
        run = Run(held.stream)
        run.profiler = Events()
        x = held.array()
        threading.Timer(0.3, held.open).start()
        made[0].run([x], [None], run)
        held.open()
    assert run.profiler
    return any(start < held.opened[0] for start in run.profiler)


@shows("copies-constants-in-each-run")
def _(factory: ep.EpFactory) -> bool:
    text = "g (float[3] x) => (float[3] y) <float[3] w = {1, 2, 3}> { y = Mul (x, w) }"
    made = made_by(factory)
    with session_of(factory, text) as session:
        transfer = made[0].context.transfer
        copied: list[Any] = []
        copy = transfer.copy

        def noting(pairs: Any, stream: Any) -> None:
            copied.extend(source for source, _target in pairs)
            copy(pairs, stream)

        transfer.copy = noting
        session.run(None, {"x": X[0]})
        del transfer.copy
    return len(copied) > 2  # x and y
