"""What mistakes in runs do, and the EPs without mistakes do not."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

import onnxplug
from onnxplug import ep

from ..device_memory import SPACE
from ..exhibit import (
    F,
    Run,
    X,
    contexts_of,
    differ,
    made_by,
    model_of,
    session_of,
    shows,
)

# the EP that compiles


def compiled_with(factory: Any) -> list[tuple[Any, Any, Any]]:
    """The providers, partitions and what is compiled from now on, in order."""
    made: list[tuple[Any, Any, Any]] = []

    class Noting(factory.provider):  # type: ignore[misc]
        def compile(self, partition: ep.Partition) -> ep.CompiledPartition:
            compiled: ep.CompiledPartition = super().compile(partition)
            made.append((self, partition, compiled))
            return compiled

    factory.provider = Noting
    return made


TWO_STEPS = "g (float[4,3] x) => (float[4,3] y) { a = Abs (x) y = Neg (a) }"


@shows("keeps-values-of-runs-in-the-partition")
def _(factory: ep.EpFactory) -> bool:
    made = made_by(factory)
    with session_of(factory, TWO_STEPS):
        (partition,) = made

        def between() -> Iterator[bool]:
            yield False
            other = threading.Thread(
                target=partition.run, args=([X * 10], [None], None)
            )
            other.start()
            other.join()
            while True:
                yield False

        (y,) = partition.run([X], [None], Run(None, between()))
        return differ(y, -np.abs(X))


@shows("says-that-cancelled-runs-failed")
def _(factory: ep.EpFactory) -> bool:
    made = made_by(factory)
    with session_of(factory, TWO_STEPS):
        try:
            made[0].run([X], [None], Run(None, iter([False, True])))
        except ep.RunCancelled:
            return False
        except Exception:  # noqa: BLE001 - any other is the mistake
            return True
        return False


@shows("gathers-beyond-the-end")
def _(factory: ep.EpFactory) -> bool:
    text = "g (float[4,3] x, int64[2] i) => (float[2,3] y) { y = Gather (x, i) }"
    with session_of(factory, text) as session:
        try:
            session.run(None, {"x": X, "i": np.array([1, 4])})
        except onnxplug.errors.OnnxplugError:
            return False
        return True


@shows("again-fills-one-output-before-it-looks-at-the-next")
def _(factory: ep.EpFactory) -> bool:
    text = """g (float[4,3] x) => (float[4,3] y, float[4,3] z)
        { y = Abs (x) z = Neg (x) }"""
    made = made_by(factory)
    with session_of(factory, text):
        first, second = np.full((4, 3), 77, F), np.zeros((3, 3), F)
        try:
            made[0].run([X], [first, second], None)
        except ep.OutputMismatch:
            return bool((first != 77).any())
        return False


@shows("keeps-options-in-the-factory")
def _(factory: ep.EpFactory) -> bool:
    text = "g (float[n,3] x) => (float[n,3] y) { a = Abs (x) y = Neg (a) }"
    made = made_by(factory)
    with (
        session_of(factory, text, steps_per_function=1) as session,
        onnxplug.InferenceSession(
            model_of(TWO_STEPS), providers=[(factory.name, {"steps_per_function": 2})]
        ),
    ):
        session.run(None, {"x": X})
    return [len(each.functions) for each in made] != [1, 2]


@shows("cannot-serialise-what-it-restored")
def _(factory: ep.EpFactory) -> bool:
    made = compiled_with(factory)
    with session_of(factory, TWO_STEPS):
        ((provider, partition, compiled),) = made
        data = bytes(provider.serialiser.serialise(compiled))
        restored = provider.serialiser.restore(partition, memoryview(data))
        try:
            return bytes(provider.serialiser.serialise(restored)) != data
        except Exception:  # noqa: BLE001 - whichever
            return True


@shows("parses-whatever-info-there-is")
def _(factory: Any) -> bool:
    hardware = ep.HardwareDevice(type=ep.DeviceType.CPU)
    (device,) = factory.supported_devices([hardware])
    for info in ("", "ort_version=1.20", "{}", "[1]"):
        try:
            answer, _ = factory.compatibility.check(device, info)
        except Exception:  # noqa: BLE001 - whichever
            return True
        assert answer is not ep.Compatibility.OPTIMAL
    return False


@shows("declines-in-runs-what-it-could-have-before")
def _(factory: ep.EpFactory) -> bool:
    text = "g (double[n,3] x) => (double[n,3] y) { y = Neg (x) }"
    with session_of(factory, text) as session:
        try:
            session.run(None, {"x": X.astype(np.float64)})
        except onnxplug.errors.OnnxplugError:
            return True
        return False


@shows("multiplies-names-of-sizes")
def _(factory: Any) -> bool:
    text = "g (float[n,3] x) => (float[n,3] y) { y = Neg (x) }"
    failures: list[Exception] = []

    class Asking(factory.provider):  # type: ignore[misc]
        def get_capability(self, graph: ep.Graph) -> ep.CapabilityReport:
            try:
                self.cost_model.estimate(graph, graph.nodes)
            except Exception as error:  # noqa: BLE001 - whichever
                failures.append(error)
            report: ep.CapabilityReport = super().get_capability(graph)
            return report

    factory.provider = Asking
    with session_of(factory, text):
        return bool(failures)


class Records:
    """A profiler that keeps what it is told."""

    def __init__(self) -> None:
        self.events: list[tuple[int, int, Any]] = []

    def record(
        self, name: str, *, category: str, start_ns: int, duration_ns: int, details: Any
    ) -> None:
        self.events.append((start_ns, start_ns + duration_ns, details))

    def when_done(self, report: Any) -> None:
        report()


@shows("records-dtypes-of-numpy")
def _(factory: ep.EpFactory) -> bool:
    made = made_by(factory)
    with session_of(factory, TWO_STEPS):
        run = Run(None)
        run.profiler = Records()
        made[0].run([X], [None], run)
        assert run.profiler.events
        try:
            json.dumps([details for *_, details in run.profiler.events])
        except TypeError:
            return True
        return False


# the EP with a device


def context_of(factory: Any) -> Any:
    """A context that no session uses."""
    return factory.memory_spaces.create_context(ep.MemoryLocation(SPACE, 0))


def _fail() -> None:
    raise ValueError("this is meant to fail")


@shows("copies-on-another-queue")
def _(factory: ep.EpFactory) -> bool:
    context = context_of(factory)
    there, back = context.device.empty(X.shape, ep.DataType.FLOAT32), np.empty_like(X)
    context.transfer.copy([(np.zeros_like(X), there)], None)
    stream = context.create_stream()
    stream.enqueue(lambda: time.sleep(0.2))
    stream.enqueue(lambda content=there.content: np.copyto(content, X))
    context.transfer.copy([(there, back)], stream)
    stream.synchronize()
    stream.close()
    return differ(back, X)


@shows("never-has-done-what-failed")
def _(factory: ep.EpFactory) -> bool:
    stream = context_of(factory).create_stream()
    stream.enqueue(_fail)
    event = stream.record()
    try:
        event.synchronize()
    except ValueError:
        return not event.done()
    finally:
        stream.close()
    raise AssertionError("it has not failed")


@shows("again-closes-events-with-their-stream")
def _(factory: ep.EpFactory) -> bool:
    stream = context_of(factory).create_stream()
    stream.enqueue(lambda: None)
    event = stream.record()
    stream.synchronize()
    stream.close()
    try:
        event.synchronize()
    except RuntimeError:
        return True
    return False


@shows("says-in-its-own-words-that-memory-is-full")
def _(factory: ep.EpFactory) -> bool:
    try:
        context_of(factory).device.empty((1 << 30,), ep.DataType.FLOAT32)
    except MemoryError:
        return False
    except Exception:  # noqa: BLE001 - any other is the mistake
        return True
    raise AssertionError("the device has so much")


@shows("logs-what-queued-work-raised")
def _(factory: ep.EpFactory) -> bool:
    stream = context_of(factory).create_stream()
    stream.enqueue(_fail)
    try:
        stream.synchronize()
    except ValueError:
        return False
    finally:
        stream.close()
    return True


@shows("has-handles-of-32-bits")
def _(factory: ep.EpFactory) -> bool:
    made = contexts_of(factory)
    with session_of(factory, TWO_STEPS):
        stream = made[0].create_stream()
        assert stream.native_handle > 2**31
        chosen = {"user_compute_stream": stream.native_handle}
        try:
            with onnxplug.InferenceSession(
                model_of(TWO_STEPS), providers=[(factory.name, chosen)]
            ) as session:
                session.run(None, {"x": X})
        except ep.OptionError:
            return True
        finally:
            stream.close()
        return False


@shows("again-states-costs-in-microseconds")
def _(factory: ep.EpFactory) -> bool:
    text = """g (float[40,30] x) => (float[40,30] y)
        { a = Sin (x) b = Mul (a, a) y = Sin (b) }"""
    with session_of(factory, text) as session:
        return all(node.ep != factory.name for node in session.explain().nodes)


@shows("records-how-long-queueing-takes")
def _(factory: ep.EpFactory) -> bool:
    made = made_by(factory)
    with session_of(factory, TWO_STEPS):
        context = made[0].context
        there = context.device.empty(X.shape, ep.DataType.FLOAT32)
        stream, ends = context.create_stream(), []
        context.transfer.copy([(X, there)], None)
        stream.enqueue(lambda: time.sleep(0.1))
        stream.enqueue(lambda: ends.append(time.perf_counter_ns()))
        run = Run(stream)
        run.profiler = Records()
        made[0].run([there], [None], run)
        stream.synchronize()
        stream.close()
        assert run.profiler.events
        return any(start < ends[0] for start, *_ in run.profiler.events)


@shows("waits-at-the-end-of-each-run")
def _(factory: ep.EpFactory) -> bool:
    made = made_by(factory)
    with session_of(factory, TWO_STEPS):
        context, gate = made[0].context, threading.Event()
        there = context.device.empty(X.shape, ep.DataType.FLOAT32)
        context.transfer.copy([(X, there)], None)
        stream = context.create_stream()
        stream.enqueue(gate.wait)
        running = threading.Thread(
            target=made[0].run, args=([there], [None], Run(stream))
        )
        running.start()
        running.join(1)
        has_waited = running.is_alive()
        gate.set()
        running.join()
        stream.synchronize()
        stream.close()
        return has_waited


@shows("opens-the-device-to-see-whether-it-is-there")
def _(factory: ep.EpFactory) -> bool:
    made = contexts_of(factory)
    assert list(factory.supported_devices([]))
    return bool(made)
