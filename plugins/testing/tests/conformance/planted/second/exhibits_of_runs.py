"""What the second set's other mistakes do, and the EPs without them do not."""

from __future__ import annotations

import gc
import itertools
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import onnxplug
from onnxplug import ep

from .. import program
from ..device_memory import DeviceArray
from ..device_streams import DeviceStream
from ..exhibit import (
    F,
    Run,
    X,
    contexts_of,
    made_by,
    session_of,
    shows,
)
from ..exhibits_of_runs import compile_beside, folder

NEG = "g (float[4,3] x) => (float[4,3] y) { y = Neg (x) }"


def held(stream: Any) -> threading.Event:
    """What lets *stream* go on with what is queued from now on."""
    go = threading.Event()
    stream.enqueue(lambda: go.wait(60) and None)
    return go


def within(seconds: float, asked: Callable[[], bool]) -> bool:
    """Whether it is so before the time is over."""
    until = time.monotonic() + seconds
    while not asked():
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


# time


@shows("records-before-the-last-work")
def _(factory: Any) -> bool:
    stream = factory.stream()
    go = held(stream)
    early = within(0.05, stream.record().done)
    go.set()
    stream.synchronize()
    stream.close()
    return early


@shows("waits-where-it-is-asked")
def _(factory: Any) -> bool:
    stream = factory.stream()
    go, answers = held(stream), []
    event = stream.record()
    asks = threading.Thread(target=lambda: answers.append(event.done()))
    asks.start()
    asks.join(0.1)
    blocked = not answers
    go.set()
    asks.join()
    stream.synchronize()
    stream.close()
    return blocked


@shows("launches-on-the-stream-of-the-capture")
def _(factory: Any) -> bool:
    capture, first, second = factory.graph_capture(), DeviceStream(), DeviceStream()
    done: list[int] = []
    capture.begin(first)
    first.enqueue(lambda: done.append(1))
    graph = capture.end(first)
    go = held(first)
    graph.launch(second)
    second.synchronize()
    late = not done
    go.set()
    first.synchronize()
    first.close()
    second.close()
    return late


@shows("closes-the-users-stream")
def _(factory: Any) -> bool:
    contexts = contexts_of(factory)
    with session_of(factory, NEG):
        context = contexts[0]
        users = context.create_stream()
        context.adopt_stream(users.native_handle).close()
        done: list[int] = []
        users.enqueue(lambda: done.append(1))
        lost = not within(0.3, lambda: bool(done))
    return lost


@shows("is-ready-before-it-is")
def _(factory: ep.EpFactory) -> bool:
    made = made_by(factory)
    go, generate, results = threading.Event(), program.generate, []

    def slow(source: str) -> Any:
        go.wait(60)
        return generate(source)

    with session_of(factory, NEG), pytest.MonkeyPatch.context() as patch:
        patch.setattr(program, "generate", slow)
        first = threading.Thread(target=made[0].run, args=([X], [None], None))
        first.start()
        first.join(0.1)
        results = made[0].run([X], [None], None)
        go.set()
        first.join()
    return not np.array_equal(results[0], -X)


# failure


def fail() -> None:
    """What work may do."""
    raise ValueError("planted")


@shows("hangs-after-work-that-failed")
def _(factory: Any) -> bool:
    stream = factory.stream()
    stream.enqueue(fail)
    return not within(0.3, stream.record().done)


@shows("tells-of-a-failure-once")
def _(factory: Any) -> bool:
    stream = factory.stream()
    stream.enqueue(fail)
    event = stream.record()
    stream.close()
    raised = 0
    for _each in range(2):
        try:
            event.synchronize()
        except ValueError:
            raised += 1
    return raised == 1


@shows("fails-if-it-is-cancelled")
def _(factory: ep.EpFactory) -> bool:
    made = made_by(factory)
    with session_of(factory, NEG):
        try:
            made[0].run([X], [None], Run(None, itertools.repeat(True)))
        except onnxplug.errors.RunCancelled:
            return False
        except RuntimeError:
            return True
    raise AssertionError("it was cancelled")


@shows("fails-if-it-is-closed-again")
def _(factory: ep.EpFactory) -> bool:
    made = made_by(factory)
    with session_of(factory, NEG):
        pass
    try:
        made[0].close()
        made[0].close()
    except AttributeError:
        return True
    return False


# options, EPContext


@shows("keeps-the-options-of-the-first-session")
def _(factory: ep.EpFactory) -> bool:
    text = "g (float[4,3] x) => (float[4,3] y) { a = Neg (x) y = Exp (a) }"
    made = made_by(factory)
    counts = []
    for limit in (32, 1):
        with session_of(factory, text, steps_per_function=limit):
            counts.append(len(made[-1].functions))
    return counts != [1, 2]


def compiled(factory: Any, text: str) -> Any:
    """A partition that the EP compiled; its session is closed."""
    made = made_by(factory)
    with session_of(factory, text):
        return made[-1]


def serialiser_of(factory: Any) -> Any:
    """What writes and reads for a session with the defaults."""
    options = {"accumulate": "single", "steps_per_function": 32}
    return factory.provider(factory, options).serialiser


@shows("leaves-weights-in-memory")
def _(factory: ep.EpFactory) -> bool:
    text = """g (float[4,3] x) => (float[4,3] y)
        <float[3] w = {{{}, 2, 3}}> {{ y = Mul (x, w) }}"""
    with folder() as where, session_of(factory, text.format(1)):
        path = compile_beside(factory, text.format(1), where)
        with folder() as other:
            compile_beside(factory, text.format(7), other)
        with onnxplug.InferenceSession(path, providers=[factory.name]) as restored:
            (y,) = restored.run(None, {"x": X})
    return not np.array_equal(y, X * np.array([1, 2, 3], F))


@shows("serialises-only-what-it-compiled")
def _(factory: Any) -> bool:
    made, writer = made_by(factory), serialiser_of(factory)
    partitions: list[ep.Partition] = []

    class Noting(factory.provider):  # type: ignore[misc]
        def compile(self, partition: ep.Partition) -> ep.CompiledPartition:
            partitions.append(partition)
            return super().compile(partition)  # type: ignore[no-any-return]

    factory.provider = Noting
    with session_of(factory, NEG):
        written = writer.serialise(made[0])
        restored = writer.restore(partitions[0], memoryview(written))
        try:
            return bool(writer.serialise(restored) != written)
        except AttributeError:
            return True


# costs, profiling, speed, factory


@shows("estimates-microseconds")
def _(factory: Any) -> bool:
    seen = []
    model = factory.provider.cost_model

    class Noting(factory.provider):  # type: ignore[misc]
        def get_capability(self, graph: ep.Graph) -> ep.CapabilityReport:
            seen.append(model.estimate(graph, graph.nodes))
            return super().get_capability(graph)  # type: ignore[no-any-return]

    factory.provider = Noting
    with session_of(factory, NEG):
        return bool(max(seen) > 1)  # of twelve elements


class Recorder:
    """A profiler that keeps when what began and how long it took, in ns."""

    def __init__(self) -> None:
        self.spans: list[tuple[int, int]] = []

    def record(
        self,
        name: str,
        *,
        category: str,
        start_ns: int,
        duration_ns: int,
        **_facts: Any,
    ) -> None:
        assert category == "Node"
        self.spans.append((start_ns, duration_ns))


@shows("profiles-kernels-twice")
def _(factory: ep.EpFactory) -> bool:
    text = "g (float[n] x) => (float[n] y) { a = Exp (x) y = Neg (a) }"
    made = made_by(factory)
    with session_of(factory, text):
        run = Run(DeviceStream())
        run.profiler = Recorder()
        begin = time.perf_counter_ns()
        made[0].run([DeviceArray(np.ones(1_000_000, F))], [None], run)
        run.stream.synchronize()
        took = time.perf_counter_ns() - begin
        run.stream.close()
        return (
            len(run.profiler.spans) > 2
            or sum(each for _, each in run.profiler.spans) > took
        )


@shows("profiles-by-another-clock")
def _(factory: ep.EpFactory) -> bool:
    made = made_by(factory)
    with session_of(factory, NEG):
        run = Run(None)
        run.profiler = Recorder()
        begin = time.perf_counter_ns()
        made[0].run([X], [None], run)
        end = time.perf_counter_ns()
        return any(not begin <= start <= end for start, _ in run.profiler.spans)


@shows("uploads-weights-in-each-run")
def _(factory: Any) -> bool:
    text = """g (float[4,3] x) => (float[4,3] y)
        <float[3] w = {1, 2, 3}> { y = Mul (x, w) }"""
    copied = []

    class Counting(factory.transfer):  # type: ignore[misc]
        def copy(self, pairs: Any, stream: Any) -> None:
            copied.extend(pairs)
            super().copy(pairs, stream)

    factory.transfer = Counting
    made = made_by(factory)
    with session_of(factory, text):
        copied.clear()
        made[0].run([DeviceArray(X)], [None], None)
    return bool(copied)


@shows("collects-garbage-in-each-run")
def _(factory: ep.EpFactory) -> bool:
    made, collected = made_by(factory), []
    with session_of(factory, NEG), pytest.MonkeyPatch.context() as patch:
        patch.setattr(gc, "collect", lambda: collected.append(1))
        made[0].run([X], [None], None)
    return bool(collected)


@shows("starts-the-device-to-look")
def _(factory: Any) -> bool:
    contexts = contexts_of(factory)
    list(factory.supported_devices([]))
    return bool(contexts)


@shows("lists-versions-that-it-refuses")
def _(factory: ep.EpFactory) -> bool:
    text = """g (float[4,3] x) => (float[1,1] y) { y = ReduceMean (x) }"""
    support = factory.operators()
    assert support is not None
    listed = any(
        each.op_type == "ReduceMean" and each.since <= 13 <= (each.until or 13)
        for each in support
        if not each.domain
    )
    with session_of(factory, text, opset=13) as session:
        refused = all(node.ep != factory.name for node in session.explain().nodes)
    return listed and refused
