"""What is released when: by threads, after interrupts, and where memory runs out."""

from __future__ import annotations

import gc
import re
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import onnxplug
from onnxplug_directml.abi.directml import (
    DML_EXECUTION_FLAGS,
    DML_OPERATOR_TYPE,
    DML_TENSOR_DATA_TYPE,
)
from onnxplug_directml.com.errors import DeviceRemoved, error_of
from onnxplug_directml.com.signature import CHECKED, Creates, Fills, Signature
from onnxplug_directml.device import compiled
from onnxplug_directml.device.device import DmlDevice
from onnxplug_directml.device.queue import release_hung
from onnxplug_directml.device.streams import DmlStream
from onnxplug_directml.device.work import Copies, Region
from onnxplug_directml.factory import DmlFactory
from onnxplug_directml.lowering.graph import (
    Graph,
    GraphInput,
    GraphOutput,
    InputEdge,
    Node,
    Operator,
    OutputEdge,
    TensorDesc,
)
from onnxplug_directml.lowering.marshal import Marshalled

from .conftest import EP
from .standin import Windows
from .test_device import bytes_of, read
from .test_running import dense, expected


def relu() -> Graph:
    """A graph of one node."""
    tensor = TensorDesc(DML_TENSOR_DATA_TYPE.FLOAT32, (2, 3))
    fields = {"InputTensor": tensor, "OutputTensor": tensor}
    return Graph(
        [Node("relu", Operator(DML_OPERATOR_TYPE.ACTIVATION_RELU, fields))],
        [GraphInput("x", tensor)],
        [GraphOutput("y", tensor)],
        [InputEdge(0, 0, 0)],
        [],
        [OutputEdge(0, 0, 0)],
    )


def test_what_is_borrowed_of_a_device_outlives_it(
    device: DmlDevice, windows: Windows
) -> None:
    with device.borrowed(device.dml) as dml:
        device.close()
        assert dml.GetDeviceRemovedReason() == 0
        with pytest.raises(onnxplug.errors.DeviceReset, match="was closed"):
            device.own(dml.CreateCommandRecorder())
    assert not windows.alive
    with pytest.raises(onnxplug.errors.DeviceReset, match="was closed"):
        device.borrowed(device.dml)


def test_a_release_that_is_interrupted_is_not_repeated(
    device: DmlDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    fence = device.native.CreateFence(0, 0)
    other = fence.share()
    call = Signature.call

    def calls(*given: Any) -> Any:
        call(*given)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Signature, "call", calls)
        with pytest.raises(KeyboardInterrupt):
            fence.close()
    fence.close()
    assert other.GetCompletedValue() == 0
    other.close()


def test_a_closed_device_knows_how_far_it_came(device: DmlDevice) -> None:
    stream = DmlStream(device)
    stream.upload(device.memory(64), bytes_of(64))
    event = stream.record()
    device.close()
    assert event.done()
    event.synchronize()


def test_a_graph_is_compiled_while_another_thread_closes_the_device(
    device: DmlDevice, windows: Windows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one does that finds it lost."""

    class Closing(Marshalled):
        def graph(self, addresses: Sequence[int]) -> Any:
            device.lose("something went wrong")
            device.close()
            return super().graph(addresses)

    monkeypatch.setattr(compiled, "Marshalled", Closing)
    with pytest.raises(onnxplug.errors.DeviceReset, match="something went wrong"):
        compiled.CompiledGraph(device, relu(), DML_EXECUTION_FLAGS.NONE)
    gc.collect()
    assert not windows.alive


def test_who_waits_is_told_that_another_thread_closes_the_device(
    device: DmlDevice, windows: Windows
) -> None:
    windows.faults.stall_at_signal = windows.counts.signals + 1
    memory = device.memory(64)
    device.upload(memory, bytes_of(64))
    found: list[object] = []

    def wait() -> None:
        try:
            device.wait(device.submitted)
        except Exception as error:  # noqa: BLE001 (whatever it is)
            found.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    while not windows.events.open:
        time.sleep(0.001)
    (native,) = windows.devices.values()
    with windows.lock:
        native.remove(windows.faults.removed_reason)
        device.close()
    thread.join()
    assert [type(error) for error in found] == [DeviceRemoved]
    assert not windows.alive and not windows.events.open


def test_what_a_hung_queue_may_use_is_not_released(
    device: DmlDevice, windows: Windows
) -> None:
    device.patience = 0.05
    memory = device.memory(64)
    windows.faults.stall_at_signal = windows.counts.signals + 1
    device.upload(memory, bytes_of(64))
    with pytest.raises(onnxplug.errors.DeviceReset, match="has not done"):
        device.wait(device.submitted)
    device.retire(memory.resource)
    device.collect()
    assert not memory.resource.is_closed
    for _ in range(2):
        device.close()
    windows.resume()
    while windows.alive:
        release_hung()
        time.sleep(0.001)
    release_hung()


def test_garbage_is_collected_while_what_is_retired_is_looked_at(
    device: DmlDevice, windows: Windows
) -> None:
    kept = [device.memory(64) for _ in range(2)]
    device.retire(kept[0].resource)
    device.upload(kept[1], bytes_of(64))
    device.wait(device.submitted)
    windows.faults.stall_at_signal = windows.counts.signals + 1
    device.upload(kept[1], bytes_of(64))
    device.retire(kept[1].resource)
    ask = device._fence.GetCompletedValue
    device.completed = -1

    def asks() -> Any:
        device._fence.GetCompletedValue = ask
        device.collect()
        return ask()

    device._fence.GetCompletedValue = asks  # type: ignore[method-assign]
    device.collect()
    assert kept[0].resource.is_closed and not kept[1].resource.is_closed
    while not windows.stalled:
        time.sleep(0.001)
    windows.resume()


def test_a_readback_that_is_interrupted_has_its_room_to_the_end(
    device: DmlDevice,
) -> None:
    given, others = bytes_of(1000), bytes_of(1000)
    memory, other = device.memory(1000), device.memory(1000)
    device.upload(memory, given)
    device.upload(other, others)
    taken: list[bytes] = []

    def consume(content: np.ndarray[Any, Any]) -> None:
        taken.append(content.tobytes())
        if len(taken) == 1:
            raise KeyboardInterrupt

    readback = device.read(memory, 1000, consume)
    with pytest.raises(KeyboardInterrupt):
        readback.finish()
    np.testing.assert_array_equal(read(device, other, 1000), others)
    readback.finish()
    assert taken == [given.tobytes()] * 2


def test_rooms_of_what_nobody_waits_for_come_back(
    device: DmlDevice, windows: Windows
) -> None:
    memory, target = device.memory(64), np.zeros(64, np.uint8)
    before = windows.counts.allocations
    for _ in range(5):
        device.read_array(memory, target)
        device.wait(device.submitted)
    assert windows.counts.allocations == before + 1


def test_memory_may_run_out_at_any_call(
    device: DmlDevice, windows: Windows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was begun is released, and the same works afterwards."""
    given = bytes_of(100)
    call, left = Signature.call, [0]

    def calls(self: Any, function: Any, values: Any, subject: str, *more: Any) -> Any:
        if self.result is CHECKED or isinstance(self.result, Creates | Fills):
            left[0] -= 1
            if left[0] == 0 and "Signal" not in subject:
                raise error_of(0x8007000E, subject)
        return call(self, function, values, subject, *more)

    def work() -> None:
        memory, target = device.memory(100), np.zeros(100, np.uint8)
        device.upload(memory, given)
        device.submit([Copies((Region(memory, device.memory(100), 100),))])
        device.read_array(memory, target).finish()
        np.testing.assert_array_equal(target, given)

    monkeypatch.setattr(Signature, "call", calls)
    failed = 0
    for _ in range(3):
        for number in range(1, 40):
            left[0] = number
            try:
                work()
            except (MemoryError, onnxplug.errors.OutOfMemory):
                failed += 1
            left[0] = 0
            work()
    assert failed > 20
    device.wait(device.submitted)
    device.collect()
    assert len(windows.alive) < 30


def test_threads_go_on_with_new_devices_as_theirs_are_removed(
    windows: Windows, factory: DmlFactory
) -> None:
    """What one of them closes the others do not use any more, or are told."""
    wrong: list[str] = []
    end = time.monotonic() + 1.5

    def work(columns: int) -> None:
        x = np.full((2, 3), columns, np.float32)
        while time.monotonic() < end:
            try:
                session = onnxplug.InferenceSession(dense(columns), providers=[EP])
                for _ in range(3):
                    found = session.run(None, {"x": x})[0]
                    np.testing.assert_allclose(found, expected(x, columns), 1e-5)
                session.close()
            except onnxplug.errors.OnnxplugError as error:
                if not re.search("DEVICE|was lost", str(error)):
                    wrong.append(str(error))
            except Exception as error:  # noqa: BLE001 (whatever is wrong)
                wrong.append(repr(error))

    threads = [threading.Thread(target=work, args=(2 + n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    while time.monotonic() < end:
        time.sleep(0.05)
        with windows.lock:
            for native in list(windows.devices.values()):
                native.remove(windows.faults.removed_reason)
    for thread in threads:
        thread.join()
    assert wrong == []
