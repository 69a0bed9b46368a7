"""What mistakes in runs do, and the EPs without mistakes do not."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

import onnxplug
from onnxplug import ep

from ..device_memory import LIMIT, SPACE
from ..exhibit import F, Run, X, made_by, model_of, session_of, shows
from .exhibits_of_results import asked_of, fails

TWO: Final = "g (float[4,3] x) => (float[4,3] y) { a = Neg (x) y = Mul (a, x) }"


@contextlib.contextmanager
def compiled(factory: ep.EpFactory, text: str = TWO, **options: Any) -> Iterator[Any]:
    """The partition that the EP compiles of *text*, while its session is open."""
    made = made_by(factory)
    with session_of(factory, text, **options):
        yield made[0]


@contextlib.contextmanager
def context_of(factory: Any) -> Iterator[Any]:
    """A context of the device."""
    context = factory.make_context(ep.MemoryLocation(SPACE, 0))
    yield context
    context.close()


@contextlib.contextmanager
def held(stream: Any) -> Iterator[threading.Event]:
    """While *stream* does nothing of what is queued."""
    gate = threading.Event()
    stream.enqueue(gate.wait)
    try:
        yield gate
    finally:
        gate.set()


def moved(context: Any, array: Any) -> Any:
    """A copy of *array* on the device."""
    result = context.device.empty(array.shape, ep.DataType.FLOAT32)
    context.transfer.copy([(array, result)], None)
    return result


def stops(work: Any) -> bool:
    """Whether *work* is done within three seconds."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(3)
    return not thread.is_alive()


# of the EP that compiles


@shows("the-next-run-overwrites-results")
def _(factory: ep.EpFactory) -> bool:
    with session_of(factory, TWO) as session:
        (first,) = session.run(None, {"x": X})
        session.run(None, {"x": X + 1})
    return not np.array_equal(first, -X * X)


@shows("takes-inputs-as-they-lie-in-memory")
def _(factory: ep.EpFactory) -> bool:
    x = np.asfortranarray(X)
    with compiled(factory) as partition:
        (y,) = partition.run([x], [None], None)
    return not np.array_equal(y, -X * X)


@shows("runs-share-their-values")
def _(factory: ep.EpFactory) -> bool:
    with compiled(factory) as partition:

        def answers() -> Iterator[bool]:
            yield False
            # between two operators of the one run, all of another
            partition.run([X + 1], [None], None)
            yield from itertools.repeat(False)

        (y,) = partition.run([X], [None], Run(None, answers()))
    return not np.array_equal(y, -X * X)


@shows("a-cancelled-run-is-a-failure")
def _(factory: ep.EpFactory) -> bool:
    with compiled(factory) as partition:
        try:
            partition.run([X], [None], Run(None, itertools.repeat(True)))
        except ep.RunCancelled:
            return False
        except Exception:  # noqa: BLE001 - whichever it is
            return True
    return False


@shows("fills-one-output-before-it-looks-at-the-next")
def _(factory: ep.EpFactory) -> bool:
    text = """g (float[4,3] x) => (float[4,3] y, float[4,3] z)
        { y = Neg (x) z = Abs (x) }"""
    bound = np.zeros((4, 3), F)
    with compiled(factory, text) as partition, contextlib.suppress(ep.OutputMismatch):
        partition.run([X], [bound, np.zeros((1, 1), F)], None)
    return bool(bound.any())


@shows("bytes-that-are-no-use-are-a-failure")
def _(factory: Any) -> bool:
    made = made_by(factory)
    asked = asked_of(factory)
    partitions = partitions_of(factory)
    with session_of(factory, TWO):
        serialiser = asked[0][0].serialiser
        data = serialiser.serialise(made[0])
        try:
            serialiser.restore(partitions[0], memoryview(data[:-9]))
        except ep.Declined:
            return False
        except Exception:  # noqa: BLE001 - whichever it is
            return True
    return False


@shows("what-was-restored-cannot-be-serialised")
def _(factory: Any) -> bool:
    made = made_by(factory)
    asked = asked_of(factory)
    partitions = partitions_of(factory)
    with session_of(factory, TWO):
        serialiser = asked[0][0].serialiser
        data = serialiser.serialise(made[0])
        restored = serialiser.restore(partitions[0], memoryview(data))
        try:
            return bool(serialiser.serialise(restored) != data)
        except Exception:  # noqa: BLE001 - whichever it is
            return True


def partitions_of(factory: Any) -> list[ep.Partition]:
    """The partitions that the EP is given from now on."""
    given: list[ep.Partition] = []

    class Noting(factory.provider):  # type: ignore[misc]
        def compile(self, partition: ep.Partition) -> ep.CompiledPartition:
            given.append(partition)
            made: ep.CompiledPartition = super().compile(partition)
            return made

    factory.provider = Noting
    return given


class Recording:
    """A profiler that keeps what is recorded: when each event began, in ns."""

    def __init__(self) -> None:
        self.begins: list[int] = []

    def record(self, name: str, *, start_ns: int, **facts: Any) -> None:
        self.begins.append(start_ns)


@shows("events-begin-by-the-wall-clock")
def _(factory: ep.EpFactory) -> bool:
    run = Run(None)
    run.profiler = Recording()
    with compiled(factory) as partition:
        before = time.perf_counter_ns()
        partition.run([X], [None], run)
        after = time.perf_counter_ns()
    return not all(before <= begin <= after for begin in run.profiler.begins)


@shows("runs-wait-for-a-lock")
def _(factory: ep.EpFactory) -> bool:
    gate, under_way = threading.Event(), threading.Event()

    def answers() -> Iterator[bool]:
        under_way.set()
        gate.wait()
        yield from itertools.repeat(False)

    with compiled(factory) as partition:
        run = Run(None, answers())
        first = threading.Thread(target=partition.run, args=([X], [None], run))
        first.start()
        under_way.wait()
        found = stops(lambda: partition.run([X], [None], None))
        gate.set()
        first.join()
    return not found and partition.max_concurrent_runs is None


@shows("all-sessions-have-the-first-ones-ep")
def _(factory: ep.EpFactory) -> bool:
    asked = asked_of(factory)
    with session_of(factory, TWO):
        onnxplug.InferenceSession(model_of(TWO), providers=[factory.name]).close()
    return asked[0][0] is asked[-1][0]


# of the EP with a device


@shows("has-no-memory-for-no-elements")
def _(factory: ep.EpFactory) -> bool:
    text = "g (float[n,3] x) => (float[n,3] y) { y = Relu (x) }"
    return fails(factory, text, {"x": X[:0]})


@shows("memory-of-a-captured-graph-is-handed-out")
def _(factory: ep.EpFactory) -> bool:
    with compiled(factory) as partition:
        context = partition.context
        run: Any = Run(context.create_stream())
        x, y = moved(context, X), moved(context, X)
        run.capture = ep.CapturePhase.CAPTURE
        context.capture.begin(run.stream)
        partition.run([x], [y], run)
        graph = context.capture.end(run.stream)
        mine, found = moved(context, X), np.zeros_like(X)
        graph.launch(run.stream)
        run.stream.synchronize()
        graph.close()
        context.transfer.copy([(mine, found)], None)
    return not np.array_equal(found, X)


@shows("runs-share-what-is-between-nodes")
def _(factory: Any) -> bool:
    streams: list[Any] = []

    class Held(factory.partition):  # type: ignore[misc]
        """The first run waits between its two nodes."""

        def work(self, call: Any, arguments: Any, result: Any) -> Any:
            work = super().work(call, arguments, result)
            if call is not self.calls[1] or len(streams) > 1:
                return work
            return lambda: (is_between.set(), gate.wait(), work())

    gate, is_between = threading.Event(), threading.Event()
    factory.partition = Held
    with compiled(factory) as partition:
        context = partition.context
        arrays = [moved(context, X), moved(context, X + 1)]
        results = []
        for array in arrays:
            streams.append(context.create_stream())
            results += partition.run([array], [None], Run(streams[-1]))
            is_between.wait()
        streams[1].synchronize()
        gate.set()
        streams[0].synchronize()
        found = np.zeros_like(X)
        context.transfer.copy([(results[0], found)], None)
    return not np.array_equal(found, -X * X)


@shows("uploads-before-what-is-queued")
def _(factory: ep.EpFactory) -> bool:
    found = np.zeros_like(X)
    with context_of(factory) as context:
        array, stream = moved(context, X), context.create_stream()
        with held(stream):
            context.transfer.copy([(array, found)], stream)
            context.transfer.copy([(X + 1, array)], stream)
        stream.synchronize()
        stream.close()
    return not np.array_equal(found, X)


@shows("an-event-is-the-end-of-its-stream")
def _(factory: ep.EpFactory) -> bool:
    with context_of(factory) as context:
        stream = context.create_stream()
        event = stream.record()
        with held(stream):
            return not event.done() or not stops(event.synchronize)


class Foreign(ep.Event):
    """Of another device, and not done yet."""

    def done(self) -> bool:
        return False

    def synchronize(self) -> None:
        raise RuntimeError("nobody is to wait for this")


@shows("says-that-it-waits-for-events-of-others")
def _(factory: ep.EpFactory) -> bool:
    with context_of(factory) as context:
        stream = context.create_stream()
        if not stream.wait(Foreign()):
            return False
        end = stream.record()
        return stops(end.synchronize)


@shows("what-fails-on-the-device-is-logged")
def _(factory: ep.EpFactory) -> bool:
    text = "g (float[4,3] x, int64[2] i) => (float[2,3] y) { y = Gather (x, i) }"
    return not fails(factory, text, {"x": X, "i": np.array([1, 9], np.int64)})


@shows("work-goes-on-behind-what-failed")
def _(factory: ep.EpFactory) -> bool:
    def fail() -> None:
        raise ValueError("it cannot be done")

    with context_of(factory) as context:
        first, second = context.create_stream(), context.create_stream()
        first.enqueue(fail)
        assert second.wait(first.record())
        done: list[int] = []
        second.enqueue(lambda: done.append(1))
        with contextlib.suppress(ValueError):
            second.synchronize()
    return bool(done)


@shows("no-memory-left-is-any-error")
def _(factory: ep.EpFactory) -> bool:
    with context_of(factory) as context:
        try:
            context.device.empty((LIMIT,), ep.DataType.FLOAT32)
        except MemoryError:
            return False
        except Exception:  # noqa: BLE001 - whichever it is
            return True
    return False


@shows("events-say-how-long-queueing-takes")
def _(factory: ep.EpFactory) -> bool:
    ends: list[int] = []

    def slow() -> None:
        time.sleep(0.1)
        ends.append(time.perf_counter_ns())

    with compiled(factory) as partition:
        array = moved(partition.context, X)
        run = Run(partition.context.create_stream())
        run.profiler = Recording()
        run.stream.enqueue(slow)  # before which the device begins nothing
        partition.run([array], [None], run)
        run.stream.synchronize()
    return not all(begin >= ends[0] for begin in run.profiler.begins)


@shows("a-run-waits-for-the-device")
def _(factory: ep.EpFactory) -> bool:
    with compiled(factory) as partition:
        array = moved(partition.context, X)
        run = Run(partition.context.create_stream())
        with held(run.stream):
            found = stops(lambda: partition.run([array], [None], run))
        run.stream.synchronize()
    return not found
