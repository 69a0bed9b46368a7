"""What mistakes in memory, time and all else do, and the EPs without them do not."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import onnxplug
from onnxplug import ep

from .device_memory import LIMIT, SPACE, DeviceArray
from .device_streams import DeviceStream
from .exhibit import (
    F,
    Run,
    X,
    contexts_of,
    is_wrong,
    made_by,
    model_of,
    on_device,
    session_of,
    shows,
)

# memory


@shows("writes-to-inputs")
def _(factory: ep.EpFactory) -> bool:
    text = """g (float[4,3] x) => (float[4,3] y, float[4,3] z)
        { y = Relu (x) z = Neg (x) }"""
    return is_wrong(factory, text, {"x": X})


@shows("returns-views-of-inputs")
def _(factory: ep.EpFactory) -> bool:
    text = """g (float[4,3] x) => (float[2,6] y)
        <int64[2] s = {2, -1}> { y = Reshape (x, s) }"""
    with session_of(factory, text) as session:
        x = on_device(X)
        binding = session.io_binding()
        binding.bind_ortvalue_input("x", x)
        binding.bind_output("y", SPACE, 0)
        session.run_with_iobinding(binding)
        (y,) = binding.get_outputs()
        before = y.numpy().copy()
        x.update_inplace(X + 1)
        return not np.array_equal(before, y.numpy())


@shows("ignores-bound-outputs")
def _(factory: ep.EpFactory) -> bool:
    text = "g (float[4,3] x) => (float[4,3] y) { y = Neg (x) }"
    with session_of(factory, text) as session:
        y = on_device(np.zeros_like(X))
        binding = session.io_binding()
        binding.bind_ortvalue_input("x", on_device(X))
        binding.bind_ortvalue_output("y", y)
        try:
            session.run_with_iobinding(binding)
        except onnxplug.errors.OnnxplugError:
            return True
        return not np.array_equal(y.numpy(), -X)


@shows("hands-memory-out-too-early")
def _(factory: Any) -> bool:
    context = factory.make_context(ep.MemoryLocation(SPACE, 0))
    first = context.create_stream()
    go = threading.Event()
    first.enqueue(lambda: go.wait(60) and None)
    array = context.device.empty((3,), ep.DataType.FLOAT32, first)
    address = array.content.ctypes.data
    del array
    second = context.create_stream()
    other = context.device.empty((3,), ep.DataType.FLOAT32, second)
    early = other.content.ctypes.data == address
    go.set()
    first.synchronize()
    first.close()
    second.close()
    return early


@shows("leaves-results-on-the-host")
def _(factory: ep.EpFactory) -> bool:
    text = "g (float[n,3] x) => (int64[2] y) { y = Shape (x) }"
    made = made_by(factory)
    with session_of(factory, text):
        x = DeviceArray(X)
        (result,) = made[0].run([x], [None], None)
        return not isinstance(result, DeviceArray)


@shows("leaks-in-each-run")
def _(factory: Any) -> bool:
    text = "g (float[4,3] x) => (float[4,3] y) { y = Neg (x) }"
    contexts = contexts_of(factory)
    with session_of(factory, text) as session:
        live = []
        for _each in range(4):
            session.run(None, {"x": X})
            gc.collect()
            live.append(contexts[0].live_bytes)
    return live[-1] > live[0]


@shows("leaks-in-each-session")
def _(factory: Any) -> bool:
    text = """g (float[4,3] x) => (float[4,3] y)
        <float[3] w = {1, 2, 3}> { y = Mul (x, w) }"""
    contexts = contexts_of(factory)
    with session_of(factory, text):
        pass
    kept = getattr(factory.partition, "kept", [])
    gc.collect()
    return contexts[0].live_bytes > 0 or any(kept)


@shows("clears-results-with-the-session")
def _(factory: ep.EpFactory) -> bool:
    text = "g (float[4,3] x) => (float[4,3] y) { y = Neg (x) }"
    with session_of(factory, text) as session:
        binding = session.io_binding()
        binding.bind_ortvalue_input("x", on_device(X))
        binding.bind_output("y", SPACE, 0)
        session.run_with_iobinding(binding)
        (y,) = binding.get_outputs()
        y.wait()
        session.close()
        changed = not np.array_equal(y.numpy(), -X)
        del y, binding
    return changed


@shows("writes-to-what-it-returned")
def _(factory: ep.EpFactory) -> bool:
    text = "g (float[4,3] x) => (float[4,3] y) { y = Neg (x) }"
    with session_of(factory, text) as session:
        (before,) = session.run(None, {"x": X})
        session.run(None, {"x": X + 1})
        return not np.array_equal(before, -X)


@shows("fills-before-it-checks-all-that-is-bound")
def _(factory: ep.EpFactory) -> bool:
    text = """g (float[4,3] x) => (float[4,3] y, float[4,3] z)
        { y = Neg (x) z = Abs (x) }"""
    made = made_by(factory)
    with session_of(factory, text):
        first = np.zeros_like(X)
        try:
            made[0].run([X], [first, np.zeros(2, F)], None)
        except onnxplug.errors.OutputMismatch:
            return bool(first.any())
        return True


# time


@shows("does-not-wait-for-events")
def _(factory: Any) -> bool:
    first, second = factory.stream(), factory.stream()
    go, done = threading.Event(), []
    first.enqueue(lambda: go.wait(60) and None)
    second.wait(first.record())
    second.enqueue(lambda: done.append(1))
    time.sleep(0.05)
    early = bool(done)
    go.set()
    second.synchronize()
    first.close()
    second.close()
    return early


@shows("returns-before-copies-are-done")
def _(factory: Any) -> bool:
    transfer = factory.transfer()
    aside = getattr(transfer, "_stream", DeviceStream())
    go = threading.Event()
    aside.enqueue(lambda: go.wait(60) and None)
    target = DeviceArray(np.zeros_like(X))
    transfer.copy([(X, target)], None)
    early = not np.array_equal(target.content, X)
    go.set()
    aside.synchronize()
    aside.close()
    return early


@shows("computes-on-another-stream")
def _(factory: ep.EpFactory) -> bool:
    made = made_by(factory)
    with session_of(factory, "g (float[4,3] x) => (float[4,3] y) { y = Neg (x) }"):
        partition = made[0]
        aside = getattr(partition, "_aside", DeviceStream())
        go = threading.Event()
        aside.enqueue(lambda: go.wait(60) and None)
        run = Run(DeviceStream())
        (y,) = partition.run([DeviceArray(X.copy())], [None], run)
        run.stream.synchronize()
        early = not np.array_equal(y.content, -X)
        go.set()
        aside.synchronize()
        run.stream.close()
    return early


@shows("reads-inputs-before-the-stream-has-made-them")
def _(factory: ep.EpFactory) -> bool:
    text = "g (float[4,3] x, int64[2] i) => (float[2,3] y) { y = Gather (x, i) }"
    made = made_by(factory)
    with session_of(factory, text):
        run = Run(DeviceStream())
        indices = DeviceArray(np.zeros(2, np.int64))
        go = threading.Event()
        run.stream.enqueue(lambda: go.wait(60) and None)
        run.stream.enqueue(lambda: indices.content.fill(2))
        inputs = [DeviceArray(X.copy()), indices]
        (y,) = made[0].run(inputs, [None], run)
        go.set()
        run.stream.synchronize()
        run.stream.close()
        return not np.array_equal(y.content, X[[2, 2]])


@shows("captures-memory-that-goes")
def _(factory: ep.EpFactory) -> bool:
    text = """g (float[4,3] x) => (float[4,3] y)
        { a = Neg (x) b = Exp (a) c = Sqrt (b) y = Add (a, c) }"""
    with session_of(factory, text, enable_graph_capture=True) as session:
        binding = session.io_binding()
        x, y = on_device(X), on_device(np.zeros_like(X))
        binding.bind_ortvalue_input("x", x)
        binding.bind_ortvalue_output("y", y)
        for _each in range(3):
            session.run_with_iobinding(binding)
        y.wait()
        others = [on_device(np.ones_like(X)) for _each in range(8)]
        session.run_with_iobinding(binding)
        y.wait()
        taken = any(not (other.numpy() == 1).all() for other in others)
        del binding, x, y, others
        return taken


@shows("shares-scratch-between-runs")
def _(factory: ep.EpFactory) -> bool:
    text = "g (float[4,3] x) => (float[4,3] y) { a = Neg (x) y = Exp (a) }"
    made = made_by(factory)
    with session_of(factory, text):

        def another_run() -> Iterator[bool]:
            yield False
            made[0].run([X + 1], [None], None)
            yield False

        (y,) = made[0].run([X], [None], Run(None, another_run()))
        return not np.allclose(y, np.exp(-X))


# failure


@shows("swallows-failures-of-queued-work")
def _(factory: ep.EpFactory) -> bool:
    text = "g (float[4,3] x, int64[2] i) => (float[2,3] y) { y = Gather (x, i) }"
    with session_of(factory, text) as session:
        try:
            session.run(None, {"x": X, "i": np.array([0, 9])})
        except onnxplug.errors.OnnxplugError:
            return False
        return True


@shows("counts-memory-that-it-refused")
def _(factory: Any) -> bool:
    allocator = factory.allocator()
    for nbytes in (2 * LIMIT, 8):
        try:
            allocator.empty((nbytes // 4,), ep.DataType.FLOAT32)
        except MemoryError:
            refused = nbytes
    return refused == 8


@shows("returns-zeros-when-cancelled")
def _(factory: ep.EpFactory) -> bool:
    text = "g (float[4,3] x) => (float[4,3] y) { a = Neg (x) y = Exp (a) }"
    made = made_by(factory)
    with session_of(factory, text):
        cancelled = itertools.chain([False], itertools.repeat(True))
        try:
            made[0].run([X], [None], Run(None, cancelled))
        except onnxplug.errors.RunCancelled:
            return False
        return True


@shows("hangs-after-a-fork")
def _(factory: ep.EpFactory) -> bool:
    text = "g (float[4,3] x) => (float[4,3] y) { y = Neg (x) }"
    with session_of(factory, text) as session:
        session.run(None, {"x": X})
        with warnings.catch_warnings():
            # newer Pythons warn where there are threads, which is what this is about
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            session.run(None, {"x": X})
            os._exit(0)
        for _each in range(100):
            if os.waitpid(child, os.WNOHANG)[0]:
                return False
            time.sleep(0.02)
        os.kill(child, 9)
        os.waitpid(child, 0)
        return True


# options, EPContext


@shows("fails-at-a-bound-of-an-option")
def _(factory: ep.EpFactory) -> bool:
    text = "g (float[4,3] x) => (float[4,3] y) { y = Neg (x) }"
    try:
        with session_of(factory, text, steps_per_function=1) as session:
            return all(node.ep != factory.name for node in session.explain().nodes)
    except onnxplug.errors.OnnxplugError:
        return True


@shows("ignores-an-option-where-it-restores")
def _(factory: ep.EpFactory) -> bool:
    text = "g (float[100003] x) => (float[1] y) { y = ReduceSum (x) }"
    x = np.random.default_rng(3).normal(size=100003).astype(F) * 1e4
    with folder() as where, session_of(factory, text, accumulate="double") as session:
        (wanted,) = session.run(None, {"x": x})
        path = compile_beside(factory, text, where, accumulate="single")
        try:
            restored = onnxplug.InferenceSession(
                path, providers=[(factory.name, {"accumulate": "double"})]
            )
        except onnxplug.errors.OnnxplugError:
            return False
        with restored:
            (found,) = restored.run(None, {"x": x})
        return not np.array_equal(found, wanted)


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """A folder that is gone afterwards."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def compile_beside(
    factory: ep.EpFactory, text: str, where: Path, *, opset: int = 21, **options: Any
) -> str:
    """The path of a model that the EP, which is registered, compiled ahead."""
    path = where / "model_ctx.onnx"
    wanted = onnxplug.SessionOptions()
    wanted.add_session_config_entry("ep.context_enable", "1")
    wanted.add_session_config_entry("ep.context_file_path", str(path))
    providers = [(factory.name, options)]
    model = model_of(text, opset)
    onnxplug.InferenceSession(model, wanted, providers=providers).close()
    return str(path)


@shows("restores-what-any-version-compiled")
def _(factory: ep.EpFactory) -> bool:
    hardware = ep.HardwareDevice(type=ep.DeviceType.CPU)
    device = ep.EpDevice(ep_name=factory.name, device=hardware)
    assert factory.compatibility is not None
    verdict, _why = factory.compatibility.check(device, "{damaged")
    return verdict is ep.Compatibility.OPTIMAL


@shows("unpickles-what-it-restores")
def _(factory: Any) -> bool:
    made = made_by(factory)
    with session_of(factory, "g (float[4,3] x) => (float[4,3] y) { y = Neg (x) }"):
        provider = factory.provider(
            factory, {"accumulate": "single", "steps_per_function": 9}
        )
        data = bytes(provider.serialiser.serialise(made[0]))
        try:
            provider.serialiser.restore(None, memoryview(data[:-3]))
        except ep.Declined:
            return False
        except Exception:  # noqa: BLE001 - which is the mistake
            return True
        return True


# costs, profiling, speed


@shows("estimates-less-than-no-time")
def _(factory: Any) -> bool:
    text = "g (float[4,3] x) => (float[4,3] y) { y = Neg (x) }"
    seen = []
    model = factory.provider.cost_model

    class Noting(factory.provider):  # type: ignore[misc,name-defined]
        def get_capability(self, graph: ep.Graph) -> ep.CapabilityReport:
            seen.append(model.estimate(graph, graph.nodes))
            return super().get_capability(graph)  # type: ignore[no-any-return]

    factory.provider = Noting
    with session_of(factory, text):
        return min(seen) < 0


class Recorder:
    """A profiler that keeps how long what took, in ns."""

    def __init__(self) -> None:
        self.durations: list[int] = []

    def record(self, name: str, *, duration_ns: int, **_facts: Any) -> None:
        self.durations.append(duration_ns)


@shows("profiles-the-time-of-the-host")
def _(factory: ep.EpFactory) -> bool:
    text = "g (float[n] x) => (float[n] y) { y = Exp (x) }"
    made = made_by(factory)
    with session_of(factory, text):
        run = Run(DeviceStream())
        run.profiler = Recorder()
        x = DeviceArray(np.ones(3_000_000, F))
        made[0].run([x], [None], run)
        run.stream.synchronize()
        run.stream.close()
        return max(run.profiler.durations) < 100_000


@shows("compiles-in-each-run")
def _(factory: ep.EpFactory) -> bool:
    text = "g (float[4,3] x) => (float[4,3] y) { y = Neg (x) }"
    made = made_by(factory)
    with session_of(factory, text):
        partition = made[0]
        before = partition.functions
        partition.run([X], [None], None)
        return partition.functions is not before
