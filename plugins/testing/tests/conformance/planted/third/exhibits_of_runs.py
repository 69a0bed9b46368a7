"""What the third set's other mistakes do, and the EPs without them do not."""

from __future__ import annotations

import contextlib
import json
import math
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

import onnxplug
from onnxplug import ep

from ..device_memory import DeviceArray
from ..device_streams import DeviceStream
from ..exhibit import (
    Run,
    X,
    differ,
    made_by,
    model_of,
    session_of,
    shows,
)
from ..exhibits_of_runs import compile_beside, folder
from ..second.exhibits_of_runs import NEG, fail, held, within

TWO = "g (float[4,3] x) => (float[4,3] y) { a = Neg (x) y = Exp (a) }"


# time


@shows("waits-for-all-of-the-other-stream")
def _(factory: Any) -> bool:
    first, second = factory.stream(), factory.stream()
    before = held(first)
    event = first.record()
    after = held(first)
    second.wait(event)
    before.set()
    late = not within(0.3, second.record().done)
    after.set()
    for stream in (first, second):
        stream.synchronize()
        stream.close()
    return late


class Foreign(ep.Event):
    """An event of another device, whose work is not done."""

    def done(self) -> bool:
        return False

    def synchronize(self) -> None:
        raise AssertionError("nobody is to wait for it here")


@shows("takes-events-of-others-for-done")
def _(factory: Any) -> bool:
    stream = factory.stream()
    waits = stream.wait(Foreign())
    early = waits and within(0.3, stream.record().done)
    stream.close()
    return bool(early)


@shows("closes-events-with-their-stream")
def _(factory: Any) -> bool:
    stream = factory.stream()
    event = stream.record()
    stream.synchronize()
    stream.close()
    try:
        event.synchronize()
    except RuntimeError:
        return True
    return False


@shows("shares-scratch-between-sessions")
def _(factory: ep.EpFactory) -> bool:
    made = made_by(factory)
    with session_of(factory, TWO):
        other = onnxplug.InferenceSession(model_of(TWO), providers=[factory.name])

        def another_run() -> Iterator[bool]:
            yield False
            other.run(None, {"x": X + 1})
            yield False

        (y,) = made[0].run([X], [None], Run(None, another_run()))
        other.close()
    return differ(y, np.exp(-X))


@shows("compares-deadlines-with-the-calendar")
def _(factory: ep.EpFactory) -> bool:
    with session_of(factory, NEG) as session:
        options = onnxplug.RunOptions()
        options.timeout = 60
        try:
            session.run(None, {"x": X}, options)
        except onnxplug.errors.RunCancelled:
            return True
    return False


# failure


@shows("goes-on-after-an-event-that-failed")
def _(factory: Any) -> bool:
    first, second = factory.stream(), factory.stream()
    first.enqueue(fail)
    second.wait(first.record())
    done: list[int] = []
    second.enqueue(lambda: done.append(1))
    within(1, second.record().done)
    for stream in (first, second):
        stream.close()
    return bool(done)


@shows("goes-on-capturing-when-a-capture-failed")
def _(factory: Any) -> bool:
    capture, stream = factory.graph_capture(), DeviceStream()
    capture.begin(stream)
    with contextlib.suppress(RuntimeError):
        stream.record().synchronize()
    with contextlib.suppress(RuntimeError):
        capture.end(stream)
    done: list[int] = []
    stream.enqueue(lambda: done.append(1))
    lost = not within(0.3, lambda: bool(done))
    stream.close()
    return lost


@shows("keeps-its-lock-when-a-run-fails")
def _(factory: ep.EpFactory) -> bool:
    made = made_by(factory)
    with session_of(factory, NEG):
        with contextlib.suppress(onnxplug.errors.RunCancelled):
            made[0].run([X], [None], Run(None, iter([True])))
        next_run = threading.Thread(
            target=made[0].run, args=([X], [None], None), daemon=True
        )
        next_run.start()
        next_run.join(0.5)
        hangs = next_run.is_alive()
        if hangs:
            made[0]._lock.release()
            next_run.join()
    return hangs


# options


@shows("prefers-the-options-of-the-device")
def _(factory: Any) -> bool:
    captures = []

    class Noting(factory.provider):  # type: ignore[misc]
        def get_capability(self, graph: ep.Graph) -> ep.CapabilityReport:
            captures.append(self.capture)
            return super().get_capability(graph)  # type: ignore[no-any-return]

    factory.provider = Noting
    with session_of(factory, NEG, enable_graph_capture=True):
        return captures[0] is None


@shows("reads-the-options-of-the-latest-session")
def _(factory: ep.EpFactory) -> bool:
    text = "g (float[n,3] x) => (float[n,3] y) { a = Neg (x) y = Exp (a) }"
    made = made_by(factory)
    with session_of(factory, text, steps_per_function=1) as session:
        onnxplug.InferenceSession(model_of(text), providers=[factory.name]).close()
        session.run(None, {"x": X})
    return len(made[-1].functions) != 2


# EPContext


def differs_if_restored(factory: ep.EpFactory, text: str, opset: int = 21) -> bool:
    """Whether what was compiled ahead gives another result for `X`."""
    with folder() as where, session_of(factory, text, opset=opset) as session:
        (wanted,) = session.run(None, {"x": X})
        path = compile_beside(factory, text, where, opset=opset)
        with onnxplug.InferenceSession(path, providers=[factory.name]) as restored:
            (found,) = restored.run(None, {"x": X})
    return differ(found, wanted)


@shows("rounds-the-attributes-that-it-writes")
def _(factory: ep.EpFactory) -> bool:
    text = """g (float[4,3] x) => (float[4,3] y)
        { y = LeakyRelu <alpha = 0.00123> (x) }"""
    return differs_if_restored(factory, text)


@shows("restores-operators-in-their-newest-version")
def _(factory: ep.EpFactory) -> bool:
    text = """g (float[4,3] x) => (float[4,3] y)
        { y = Softmax <axis = 0> (x) }"""
    return differs_if_restored(factory, text, opset=11)


# costs


@shows("takes-forever-by-its-costs")
def _(factory: ep.EpFactory) -> bool:
    (pair,) = factory.supported_devices([])
    assert isinstance(pair, ep.EpDevice)
    assert pair.costs is not None
    return not math.isfinite(pair.costs.seconds_per_byte)


@shows("fails-to-estimate-sizes-with-names")
def _(factory: Any) -> bool:
    text = "g (float[n,3] x) => (float[n,3] y) { y = Neg (x) }"
    seen: list[float | Exception | None] = []
    model = factory.provider.cost_model

    class Noting(factory.provider):  # type: ignore[misc]
        def get_capability(self, graph: ep.Graph) -> ep.CapabilityReport:
            try:
                seen.append(model.estimate(graph, graph.nodes))
            except TypeError as error:
                seen.append(error)
            return super().get_capability(graph)  # type: ignore[no-any-return]

    factory.provider = Noting
    with session_of(factory, text):
        return isinstance(seen[0], TypeError)


# profiling


class Recorder:
    """A profiler that keeps the details, and whether the run had ended."""

    def __init__(self) -> None:
        self.details: list[Any] = []
        self.has_ended = False
        self.late = 0

    def record(self, name: str, *, details: Any, **_facts: Any) -> None:
        self.details.append(details)
        self.late += self.has_ended


@shows("profiles-when-the-run-has-ended")
def _(factory: ep.EpFactory) -> bool:
    made = made_by(factory)
    with session_of(factory, NEG):
        run = Run(DeviceStream())
        run.profiler = Recorder()
        run.stream.enqueue(lambda: time.sleep(0.1))
        made[0].run([DeviceArray(X)], [None], run)
        run.profiler.has_ended = True
        run.stream.synchronize()
        run.stream.close()
        return bool(run.profiler.late)


@shows("records-what-JSON-cannot-hold")
def _(factory: ep.EpFactory) -> bool:
    made = made_by(factory)
    with session_of(factory, NEG):
        run = Run(None)
        run.profiler = Recorder()
        made[0].run([X], [None], run)
    try:
        json.dumps(run.profiler.details)
    except TypeError:
        return True
    return False


# speed, factory


@shows("sleeps-where-it-waits")
def _(factory: Any) -> bool:
    stream = factory.stream()
    least = math.inf
    for _each in range(5):
        stream.enqueue(lambda: time.sleep(0.001))
        begin = time.perf_counter()
        stream.synchronize()
        least = min(least, time.perf_counter() - begin)
    stream.close()
    return least > 0.015


@shows("walks-all-ways-through-a-graph")
def _(factory: Any) -> bool:
    steps = " ".join(f"x{i + 1} = Add (x{i}, x{i})" for i in range(12))
    text = f"g (float[3] x0) => (float[3] x12) {{ {steps} }}"
    read = []

    class Counting:
        """A partition whose nodes tell when their inputs are read."""

        def __init__(self, inner: Any) -> None:
            self._inner = inner

        def __getattr__(self, name: str) -> Any:
            if name == "inputs":
                read.append(self._inner)
            found = getattr(self._inner, name)
            return [Counting(node) for node in found] if name == "nodes" else found

    class Noting(factory.provider):  # type: ignore[misc]
        def compile(self, partition: ep.Partition) -> ep.CompiledPartition:
            return super().compile(Counting(partition))  # type: ignore[no-any-return]

    factory.provider = Noting
    with session_of(factory, text):
        return len(read) > 1000


@shows("has-one-session-at-a-time")
def _(factory: ep.EpFactory) -> bool:
    with session_of(factory, NEG):
        try:
            onnxplug.InferenceSession(model_of(NEG), providers=[factory.name]).close()
        except onnxplug.errors.OnnxplugError:
            return True
    return False
