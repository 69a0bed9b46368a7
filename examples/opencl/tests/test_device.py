"""The device does work in order while the host goes on."""

from __future__ import annotations

import functools
import gc
import multiprocessing
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
import pytest

import onnxplug
from onnxplug.ep import DataType, MemoryKind, MemoryLocation

cl = pytest.importorskip("pyopencl")

HERE = MemoryLocation("opencl", 0)

NEGATION = """
    <ir_version: 10, opset_import: ["": 21]>
    g (float[n] x) => (float[n] y) { y = Neg (x) }
"""


@pytest.fixture
def context() -> Iterator[Any]:
    from onnxplug_opencl_example.context import OpenClSpaces

    made = OpenClSpaces().create_context(HERE)
    yield made
    made.close()


@pytest.fixture
def gate(context: Any) -> Iterator[Any]:
    """What a queue waits for until a test says so."""
    event = cl.UserEvent(context.create_stream().queue.context)
    yield event
    if event.command_execution_status > cl.command_execution_status.COMPLETE:
        event.set_status(cl.command_execution_status.COMPLETE)


def test_there_are_no_other_devices() -> None:
    from onnxplug_opencl_example.context import OpenClSpaces, found_devices

    beyond = MemoryLocation("opencl", len(found_devices()))
    with pytest.raises(LookupError, match="is none of them"):
        OpenClSpaces().create_context(beyond)
    model = onnx.parser.parse_model(NEGATION)
    with pytest.raises(onnxplug.errors.OnnxplugError, match="is none of them"):
        onnxplug.InferenceSession(model, providers=[("opencl", {"device": 200})])


@pytest.mark.parametrize("dtype", [DataType.FLOAT32, DataType.BFLOAT16, DataType.BOOL])
def test_copies_there_and_back_are_queued(
    context: Any, gate: Any, dtype: DataType
) -> None:
    allocator = context.allocator(MemoryKind.DEVICE)
    stream = context.create_stream()
    source = np.arange(6).reshape(2, 3).astype(dtype.numpy)
    there = allocator.empty((2, 3), dtype, stream)
    assert context.data_type(there) is dtype
    back = np.zeros_like(source)
    cl.enqueue_barrier(stream.queue, wait_for=[gate])
    context.transfer.copy([(source, there), (there, back)], stream)
    end = stream.record()
    assert not end.done()
    assert not back.any()
    gate.set_status(cl.command_execution_status.COMPLETE)
    end.synchronize()
    assert end.done()
    np.testing.assert_array_equal(back, source)
    stream.close()


def test_arrays_of_the_host_may_have_any_strides(context: Any) -> None:
    source = np.arange(12, dtype=np.float32).reshape(3, 4).T[::2]
    there = context.memory.empty(source.shape, DataType.FLOAT32)
    back = np.zeros((3, 2), np.float32).T
    context.transfer.copy([(source, there), (there, back)], None)
    np.testing.assert_array_equal(back, source)


def test_arrays_that_differ_are_not_copied(context: Any) -> None:
    there = context.memory.empty((2,), DataType.FLOAT32)
    with pytest.raises(ValueError, match=r"cannot copy float64\[2\] to float32\[2\]"):
        context.transfer.copy([(np.ones(2), there)], None)


def test_a_stream_waits_for_another(context: Any, gate: Any) -> None:
    first, second = context.create_stream(), context.create_stream()
    cl.enqueue_barrier(first.queue, wait_for=[gate])
    assert second.wait(first.record())
    end = second.record()
    assert not end.done()
    gate.set_status(cl.command_execution_status.COMPLETE)
    end.synchronize()
    first.close()
    second.close()


def test_a_stream_does_not_wait_for_what_is_not_its_context_s(context: Any) -> None:
    from onnxplug_opencl_example.context import OpenClSpaces

    other = OpenClSpaces().create_context(HERE)
    stream = context.create_stream()
    assert not stream.wait(other.create_stream().record())
    with pytest.raises(TypeError, match="is no stream of opencl:0"):
        other.own(stream)


def test_memory_is_counted_and_has_an_end(context: Any) -> None:
    arrays = [context.memory.empty((10,), DataType.FLOAT32) for _ in range(3)]
    assert context.live_bytes == 120
    for huge in ((1 << 50,), (1 << 62, 1 << 62)):
        with pytest.raises(MemoryError, match=r"has no \d+ bytes for float32"):
            context.memory.empty(huge, DataType.FLOAT32)
    del arrays
    gc.collect()
    assert context.live_bytes == 0


def test_a_bound_run_returns_while_the_device_works() -> None:
    model = onnx.parser.parse_model(NEGATION)
    x = np.ones(1 << 20, np.float32)
    with onnxplug.InferenceSession(model, providers=["opencl"]) as session:
        there = onnxplug.OrtValue.ortvalue_from_numpy(x, "opencl", 0)
        binding = session.io_binding()
        binding.bind_ortvalue_input("x", there)
        binding.bind_output("y", "opencl", 0)
        for _ in range(3):
            session.run_with_iobinding(binding)
        (y,) = binding.get_outputs()
        np.testing.assert_array_equal(y.numpy(), -x)


def test_traces_have_the_device_s_times(tmp_path: Any) -> None:
    import json

    options = onnxplug.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "trace")
    model = onnx.parser.parse_model(NEGATION)
    with onnxplug.InferenceSession(model, options, providers=["opencl"]) as session:
        session.run(None, {"x": np.ones(1 << 21, np.float32)})
        with open(session.end_profiling()) as file:
            events = json.load(file)
    (kernel,) = (each for each in events if each["cat"] == "Node")
    assert kernel["args"]["op_name"] == "Neg"
    assert kernel["name"] == "y_kernel_time"
    assert kernel["dur"] > 50  # µs, for 16 MiB


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_child_of_a_fork_is_told_to_be_started_otherwise() -> None:
    model = onnx.parser.parse_model(NEGATION)
    with onnxplug.InferenceSession(model, providers=["opencl"]) as session:
        session.run(None, {"x": np.ones(3, np.float32)})
        assert "does not outlive" in said_after_fork(lambda: session)
    gc.collect()
    # the context was closed with its last session, and is made anew
    new = functools.partial(onnxplug.InferenceSession, model, providers=["opencl"])
    assert "does not outlive" in said_after_fork(new)


def said_after_fork(make: Callable[[], onnxplug.InferenceSession]) -> str:
    fork = multiprocessing.get_context("fork")
    told, tells = fork.Pipe(duplex=False)
    child = fork.Process(target=use_after_fork, args=(make, tells))
    child.start()
    try:
        assert told.poll(30)
        return str(told.recv())
    finally:
        child.kill()  # what ends it in order waits for OpenCL
        child.join()


def use_after_fork(make: Callable[[], onnxplug.InferenceSession], tells: Any) -> None:
    try:
        make().run(None, {"x": np.ones(3, np.float32)})
    except onnxplug.errors.OnnxplugError as error:
        tells.send(str(error))
    else:
        tells.send("nothing was said")
