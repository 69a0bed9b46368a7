"""Work on streams: launches, events, what is read back, captured graphs, faults."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxplug import ep
from onnxplug_compiler.gpu.execution.device import (
    Copies,
    DeviceLost,
    Launches,
)
from onnxplug_cuda import faults
from onnxplug_cuda.bench import DeviceBench
from onnxplug_cuda.device import CudaDevice
from onnxplug_cuda.driver import Driver
from onnxplug_cuda.streams import CudaCapture, CudaStream

from .additions import COUNT, added, content, placed
from .standin import CuPy, Machine


def test_launches_run_in_order_with_their_numbers(
    machine: Machine, gpu: CudaDevice
) -> None:
    stream = gpu.new_stream()
    first, second = placed(gpu, stream, 5), gpu.memory(4 * COUNT, stream)
    stream.queue(added(gpu, first, second, 7), added(gpu, second, first, 100))
    assert (content(stream, first) == 112).all()
    assert gpu.shared.launches == machine.counts["launchKernel"] == 2
    # nobody waits but who reads
    assert machine.counts["eventSynchronize"] == 1
    assert machine.counts["streamSynchronize"] == machine.counts["memsetAsync"] == 0


def test_what_is_cleared_is_cleared_before(gpu: CudaDevice) -> None:
    stream = gpu.new_stream()
    first, second = placed(gpu, stream, 5), gpu.memory(4 * COUNT, stream)
    stream.queue(added(gpu, first, second, 7, cleared=first))
    assert (content(stream, second) == 7).all()


def test_a_stream_waits_for_an_event_of_another(
    machine: Machine, gpu: CudaDevice
) -> None:
    machine.late = 30
    one, other = gpu.new_stream(), gpu.new_stream()
    first, second = placed(gpu, one, 5), gpu.memory(4 * COUNT, one)
    one.queue(added(gpu, first, second, 1))
    event = one.record()
    assert other.wait(event)
    third = gpu.memory(4 * COUNT, other)
    other.queue(added(gpu, second, third, 1))
    assert (content(other, third) == 7).all()
    assert event.done()
    one.close()
    event.synchronize()
    assert not other.wait(_Foreign())


class _Foreign(ep.Event):
    def done(self) -> bool:
        return True

    def synchronize(self) -> None:
        return None


def test_the_stand_in_sees_streams_that_do_not_wait(
    machine: Machine, gpu: CudaDevice
) -> None:
    machine.gate.clear()
    one, other = gpu.new_stream(), gpu.new_stream()
    first, second = placed(gpu, one, 5), gpu.memory(4 * COUNT, one)
    one.queue(added(gpu, first, second, 1))
    other.queue(added(gpu, second, gpu.memory(4 * COUNT, other), 1))
    machine.gate.set()
    assert any("may still be writing" in said for said in machine.violations)
    one.synchronize()
    other.synchronize()
    machine.violations.clear()


def test_events_tell_how_far_work_is_without_waiting(
    machine: Machine, gpu: CudaDevice
) -> None:
    stream = gpu.new_stream()
    machine.gate.clear()
    memory = placed(gpu, stream, 3)
    found = np.zeros(COUNT, np.uint32)
    stream.read_array(memory, found)
    event = stream.record()
    assert not event.done()
    assert (found == 0).all()
    machine.gate.set()
    event.synchronize()
    assert event.done() and (found == 3).all()


def test_pinned_memory_returns_of_a_stream_that_nobody_waits_for(
    machine: Machine, gpu: CudaDevice
) -> None:
    """When its copies are done, and not before."""
    staging = gpu.shared.staging
    stream, other = gpu.new_stream(), gpu.new_stream()
    memory = placed(gpu, stream, 3)
    stream.synchronize()
    machine.gate.clear()
    stream.read_array(memory, np.zeros(COUNT, np.uint32))
    allocated = machine.counts["hostAlloc"]
    del stream
    gc.collect()
    gpu.new_stream()  # which closes what went
    other.read_array(memory, np.zeros(COUNT, np.uint32))
    assert machine.counts["hostAlloc"] == allocated + 1  # the first is being filled
    machine.gate.set()
    other.synchronize()
    with gpu.lock, gpu.driver:
        gpu.driver.runtime.deviceSynchronize()
        staging.trim()
    assert machine.counts["freeHost"] == machine.counts["hostAlloc"]


def test_what_is_interrupted_is_read_once_more(gpu: CudaDevice) -> None:
    stream = gpu.new_stream()
    first, second = placed(gpu, stream, 3), placed(gpu, stream, 4)
    found, interrupted = [], []

    def interrupt(content: Any) -> None:
        if not interrupted:
            interrupted.append(True)
            raise KeyboardInterrupt
        found.append(int(content[0]))

    stream.read(first, 4, lambda content: found.append(int(content[0])))
    stream.read(second, 4, interrupt)
    event = stream.record()
    with pytest.raises(KeyboardInterrupt):
        event.synchronize()
    event.synchronize()
    assert found == [3, 4]
    # each room has returned once
    with gpu.lock, gpu.driver:
        rooms = [gpu.shared.staging.take(4).address for _ in range(4)]
    assert len(set(rooms)) == 4


def test_what_reads_say_is_raised_to_all_who_wait(gpu: CudaDevice) -> None:
    stream, other = gpu.new_stream(), gpu.new_stream()
    memory = placed(gpu, stream, 3)

    def fail(content: Any) -> None:
        raise ValueError(f"found {content[0]}")

    stream.read(memory, 4, fail)
    event = stream.record()
    assert other.wait(event)
    for wait in (event.synchronize, event.synchronize, other.synchronize):
        with pytest.raises(ValueError, match="found 3"):
            wait()
    with pytest.raises(ValueError, match="found 3"):
        stream.synchronize_readbacks()
    stream.synchronize()


def test_a_graph_is_launched_on_the_same_memory(
    machine: Machine, gpu: CudaDevice
) -> None:
    capture, stream = CudaCapture(), gpu.new_stream()
    first, second = placed(gpu, stream, 5), placed(gpu, stream)
    seen: list[int] = []
    capture.begin(stream)
    assert stream.is_capturing
    between = gpu.memory(4 * COUNT, stream)
    stream.queue(added(gpu, first, between, 1), added(gpu, between, second, 1))
    stream.read(second, 4, lambda content: seen.append(int(content[0])))
    place = between.address
    del between
    graph = capture.end(stream)
    gc.collect()
    assert gpu.memory(4 * COUNT, stream).address != place
    assert (content(stream, second) == 0).all() and not seen
    launched = machine.counts["launchKernel"]
    for value in (5, 6, 9):
        stream.upload(first, np.full(COUNT, value, np.uint32))
        graph.launch(stream)
        assert (content(stream, second) == value + 2).all()
    # on another stream it waits for what uses the memory
    other = gpu.new_stream()
    assert other.wait(stream.record())
    graph.launch(other)
    other.synchronize()
    assert seen == [7, 8, 11, 11]
    assert machine.counts["graphLaunch"] == 4
    assert machine.counts["launchKernel"] == launched
    graph.close()
    graph.close()
    assert machine.counts["graphExecDestroy"] == 1


@pytest.mark.parametrize(
    ("act", "what"),
    [
        (lambda stream, memory: stream.synchronize(), "is waited for"),
        (
            lambda stream, memory: stream.upload(memory, np.zeros(4, np.uint8)),
            "copies from the host",
        ),
        (
            lambda stream, memory: stream.fetch(memory, np.zeros(4, np.uint8)),
            "reads back what the host waits for",
        ),
        (lambda stream, memory: stream.record().synchronize(), "is waited for"),
    ],
)
def test_what_no_graph_has_fails_the_capture_and_no_more(
    device: CudaDevice, act: Callable[[Any, Any], Any], what: str
) -> None:
    capture, stream = CudaCapture(), device.new_stream()
    memory = placed(device, stream, 1)
    capture.begin(stream)
    with pytest.raises(RuntimeError, match=f"captured {what}; turn enable_cuda_graph"):
        act(stream, memory)
    with pytest.raises(RuntimeError, match=what):
        capture.end(stream)
    assert not stream.is_capturing
    assert (content(stream, memory) == 1).all()


def test_memory_of_a_capture_is_used_by_no_work_before(
    machine: Machine, device: CudaDevice
) -> None:
    machine.gate.clear()
    capture, stream = CudaCapture(), device.new_stream()
    memory = placed(device, stream, 1)
    address = memory.address
    del memory
    capture.begin(stream)
    taken = device.memory(4 * COUNT, stream)
    assert taken.address != address
    machine.gate.set()
    device.upload(taken, np.full(COUNT, 4, np.uint32), stream)  # a constant
    graph = capture.end(stream)
    graph.launch(stream)
    assert (content(stream, taken) == 4).all()


def test_launches_are_timed_by_events(gpu: CudaDevice) -> None:
    stream = gpu.new_stream()
    first, second = placed(gpu, stream, 5), gpu.memory(4 * COUNT, stream)
    work = added(gpu, first, second, 1)
    two = Launches((*work.steps, *added(gpu, second, first, 1).steps), None, (first,))
    times = stream.timed(two)
    assert len(times) == 2
    assert all(took >= 0 for _, took in times)
    assert times[1][0] >= times[0][0] + times[0][1]
    assert (content(stream, first) == 7).all()


def test_streams_of_the_user_are_left_open(machine: Machine, gpu: CudaDevice) -> None:
    runtime = gpu.driver.runtime
    handle = runtime.streamCreateWithFlags(1)
    stream = gpu.adopt_stream(handle)
    assert (stream.native_handle, stream.is_capturing) == (handle, False)
    memory = placed(gpu, stream, 8)
    stream.close()
    assert machine.counts["streamDestroy"] == 0
    del memory
    other = gpu.new_stream()
    assert (content(other, placed(gpu, other, 9)) == 9).all()
    runtime.streamDestroy(handle)
    with pytest.raises(LookupError, match=f"{handle} is no stream of Stand-in"):
        gpu.adopt_stream(handle)
    with pytest.raises(LookupError, match="of whichever thread uses it"):
        gpu.adopt_stream(2)


def test_memory_of_work_that_is_queued_in_part_is_in_use(
    machine: Machine, gpu: CudaDevice
) -> None:
    stream = gpu.new_stream()
    source, target = placed(gpu, stream, 5), placed(gpu, stream)
    work = added(gpu, source, target, 1)
    work = work._replace(steps=2 * work.steps)
    for queue in (stream.timed, stream.queue):
        stream.synchronize()
        machine.plan("launchKernel", 701, after=1)
        with pytest.raises(RuntimeError):
            queue(work)
        machine.gate.clear()
        for memory in (source, target):
            assert not stream.timeline.is_past(memory.uses[stream.timeline])
        machine.gate.set()
    assert (content(stream, target) == 6).all()


# faults


@pytest.mark.parametrize("status", sorted(faults.STICKY))
def test_after_a_fault_everything_says_so_and_the_remedy(
    machine: Machine, device: CudaDevice, status: int
) -> None:
    stream = device.new_stream()
    memory = placed(device, stream, 1)
    found = np.empty(COUNT, np.uint32)
    stream.read_array(memory, found)
    event = stream.record()
    machine.break_down(status)
    for use in (
        event.synchronize,
        stream.synchronize,
        lambda: stream.upload(memory, found),
        lambda: device.memory(4),
        device.new_stream,
        lambda: device.upload(memory, found),
    ):
        with pytest.raises(DeviceLost) as caught:
            use()
        assert faults.STICKY[status] in str(caught.value)
        assert "restart it" in str(caught.value)
    assert event.done()
    assert not device.has(memory)
    with pytest.raises(DeviceLost, match="restart it"):
        device.ensure()
    stream.close()
    device.close()


def test_a_kernel_that_reads_elsewhere_is_a_fault(
    machine: Machine, gpu: CudaDevice
) -> None:
    stream = gpu.new_stream()
    first, small = placed(gpu, stream, 1), gpu.memory(4, stream)
    stream.queue(added(gpu, first, small, 1))
    with pytest.raises(DeviceLost, match="where there is no memory"):
        stream.synchronize()
    (said,) = machine.violations
    assert "KernelFault" in said
    machine.violations.clear()


def test_a_fault_is_seen_by_who_only_asks(machine: Machine, device: CudaDevice) -> None:
    stream = device.new_stream()
    placed(device, stream, 1)
    machine.gate.clear()
    placed(device, stream, 1)
    event = stream.record()
    assert not event.done()
    machine.plan("eventQuery", 719)
    assert event.done()
    assert "a kernel failed" in device.driver.fault
    with pytest.raises(DeviceLost):
        event.synchronize()


@pytest.mark.parametrize(
    ("devices", "version", "ordinal", "error", "said"),
    [
        (1, 0, 0, RuntimeError, "no driver of NVIDIA's: install it"),
        (
            1,
            12080,
            0,
            RuntimeError,
            r"for CUDA 12.8, .*onnxplug-cuda\[cu12\]",
        ),
        (0, 13020, 0, RuntimeError, "CUDA has no devices: .*CUDA_VISIBLE_DEVICES"),
        (2, 13020, 2, LookupError, "sees no device 2; it sees 2"),
    ],
)
def test_a_device_that_is_not_there_is_an_error_with_its_remedy(
    machine: Machine,
    devices: int,
    version: int,
    ordinal: int,
    error: type[Exception],
    said: str,
) -> None:
    cupy = CuPy(machine, devices=devices, version=version)
    with pytest.raises(error, match=said):
        Driver(cupy, ordinal)


@pytest.mark.parametrize(
    ("function", "status", "said"),
    [
        ("getDeviceCount", 35, "update the driver"),
        ("free", 46, "another process has the GPU"),
        ("free", 804, "takes no newer CUDA"),
        ("driverGetVersion", 3, "the driver does not start"),
    ],
)
def test_a_device_that_does_not_begin_is_an_error_with_its_remedy(
    machine: Machine, function: str, status: int, said: str
) -> None:
    machine.plan(function, status)
    with pytest.raises(RuntimeError, match=said):
        Driver(CuPy(machine), 0)
    Driver(CuPy(machine), 0)


def test_no_memory_where_copies_begin_is_no_fault(
    machine: Machine, device: CudaDevice
) -> None:
    machine.plan("hostAlloc", 2)
    machine.plan("hostAlloc", 2)
    stream = device.new_stream()
    memory = device.memory(4 * COUNT, stream)
    with pytest.raises(MemoryError, match="cannot be pinned"):
        stream.upload(memory, np.zeros(COUNT, np.uint32))
    stream.upload(memory, np.full(COUNT, 2, np.uint32))
    assert (content(stream, memory) == 2).all()


def test_a_thread_gets_its_device_back(machine: Machine, kernels: Path) -> None:
    cupy = CuPy(machine, kernels, devices=2)
    gpu = CudaDevice(Driver(cupy, 1))
    cupy.cuda.runtime.setDevice(0)
    stream = gpu.new_stream()
    placed(gpu, stream, 1)
    assert cupy.cuda.runtime.getDevice() == 0
    assert isinstance(stream, CudaStream)
    stream.synchronize()


def test_a_graph_is_launched_on_two_streams_one_after_the_other(
    machine: Machine, gpu: CudaDevice
) -> None:
    machine.late = 10
    capture, streams = CudaCapture(), [gpu.new_stream() for _ in range(2)]
    first, second = placed(gpu, streams[0], 5), gpu.memory(4 * COUNT)
    streams[0].synchronize()
    seen: list[int] = []
    capture.begin(streams[0])
    streams[0].queue(added(gpu, first, second, 1), added(gpu, second, first, 1))
    streams[0].read(second, 4, lambda content: seen.append(int(content[0])))
    graph = capture.end(streams[0])
    for number in range(6):
        graph.launch(streams[number % 2])
    for stream in streams:
        stream.synchronize()
    assert sorted(seen) == [6, 8, 10, 12, 14, 16]


def test_uses_that_are_done_are_forgotten(gpu: CudaDevice) -> None:
    stream = gpu.new_stream()
    memory = placed(gpu, stream, 5)
    stream.synchronize()
    for _ in range(40):
        other = gpu.new_stream()
        assert (content(other, memory) == 5).all()
        other.synchronize()
        other.close()
    assert len(memory.uses) < 20


def test_a_graph_keeps_the_memory_that_copies_name(
    machine: Machine, device: CudaDevice
) -> None:
    capture, stream = CudaCapture(), device.new_stream()
    first, last = placed(device, stream, 5), placed(device, stream)
    nbytes = 4 * COUNT
    stream.synchronize()
    capture.begin(stream)
    between = device.memory(nbytes, stream)
    stream.queue(Copies(((first, between, nbytes),)))
    stream.queue(Copies(((between, last, nbytes),)))
    del between
    graph = capture.end(stream)
    gc.collect()
    other = device.new_stream()
    taken = [placed(device, other, 9) for _ in range(4)]
    graph.launch(stream)
    assert (content(stream, last) == 5).all()
    assert all((content(other, memory) == 9).all() for memory in taken)
    # what was named is handed out again after the launches
    machine.gate.clear()
    graph.launch(stream)
    place = last.address
    graph.close()
    del last
    assert device.memory(nbytes, other).address != place
    machine.gate.set()


def test_work_is_measured_by_the_devices_clock(
    machine: Machine, device: CudaDevice
) -> None:
    bench, runtime = DeviceBench(device), device.driver.runtime
    memory = bench.memory(4 * COUNT)
    assert memory.address % 256 == 0
    assert (content(device.new_stream(), memory) == 0).all()
    used: list[int] = []

    def queue(stream: int) -> None:
        used.append(stream)
        runtime.memsetAsync(memory.address, 1, 4 * COUNT, stream)

    assert bench.seconds(queue) >= 0
    assert len(used) == 4 and len(set(used)) == 1
    assert used[0] not in machine.streams

    def fail(stream: int) -> None:
        raise ValueError("not done")

    before = machine.counts["eventCreateWithFlags"] - machine.counts["eventDestroy"]
    with pytest.raises(ValueError, match="not done"):
        bench.seconds(fail)
    after = machine.counts["eventCreateWithFlags"] - machine.counts["eventDestroy"]
    assert after == before
