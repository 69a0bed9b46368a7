"""Memory, copies and work on a device, and what is left of them."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import onnxplug
from onnxplug_directml.com.libraries import Libraries
from onnxplug_directml.device import pool, staging
from onnxplug_directml.device.adapters import find_adapters
from onnxplug_directml.device.device import DmlDevice
from onnxplug_directml.device.queue import release_hung
from onnxplug_directml.device.streams import DmlStream
from onnxplug_directml.device.work import Copies, Region

from .standin import GPU, AdapterDescription, Windows

RNG = np.random.default_rng(3)


@pytest.fixture
def open_device(
    make_windows: Callable[..., Windows],
) -> Iterator[Callable[..., tuple[Windows, DmlDevice]]]:
    """Makes a device of a machine with these settings."""
    made: list[DmlDevice] = []

    def make(**settings: Any) -> tuple[Windows, DmlDevice]:
        windows = make_windows(**settings)
        libraries = Libraries()
        made.append(DmlDevice(libraries, find_adapters(libraries)[0]))
        return windows, made[-1]

    yield make
    for device in made:
        device.close()


def bytes_of(count: int) -> np.ndarray[Any, Any]:
    return RNG.integers(0, 255, count, np.uint8)


def read(device: DmlDevice, memory: pool.Memory, count: int) -> np.ndarray[Any, Any]:
    found = np.zeros(count, np.uint8)
    device.read_array(memory, found).finish()
    return found


@pytest.mark.parametrize("dtype", ["bool", "int8", "float16", "int32", "uint64"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 5), (0, 4)])
def test_elements_of_all_sizes_come_back(
    device: DmlDevice, dtype: str, shape: tuple[int, ...]
) -> None:
    given = RNG.integers(0, 2, shape).astype(dtype)
    memory = device.memory(given.nbytes)
    device.upload(memory, given)
    found = np.zeros(shape, dtype)
    device.read_array(memory, found).finish()
    np.testing.assert_array_equal(found, given)


def test_arrays_of_any_strides_are_read_and_filled(device: DmlDevice) -> None:
    given = RNG.standard_normal((4, 6)).astype(np.float32)
    memory = device.memory(given.nbytes)
    device.upload(memory, given.T)
    target = np.zeros((4, 6), np.float32).T
    device.read_array(memory, target).finish()
    np.testing.assert_array_equal(target, given.T)


def test_large_arrays_go_in_pieces_through_little_memory(
    device: DmlDevice, windows: Windows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onnxplug_directml.device.device.CHUNK", 1 << 16)
    monkeypatch.setattr(staging, "_MOST_AHEAD", 1 << 17)
    given = bytes_of((1 << 20) + 3)
    memory = device.memory(given.nbytes)
    device.upload(memory, given)
    np.testing.assert_array_equal(read(device, memory, given.size), given)
    rooms = windows.memory_used[GPU.luid] - memory.nbytes
    assert rooms <= (1 << 21) + (1 << 18)  # what is read back, and a few pieces


def test_memory_is_handed_out_again_in_the_order_of_the_queue(
    device: DmlDevice, windows: Windows
) -> None:
    before = windows.counts.allocations
    first = device.memory(1000)
    serial = first.serial
    device.upload(first, bytes_of(1000))
    del first
    gc.collect()
    second = device.memory(60_000)
    assert second.serial == serial and second.nbytes == pool.PAGE
    assert windows.counts.allocations == before + 2  # with what is uploaded from


def test_copies_that_depend_on_each_other_are_in_order(device: DmlDevice) -> None:
    """Within one list a buffer cannot be both read and written."""
    given = bytes_of(64)
    memories = [device.memory(64) for _ in range(4)]
    device.upload(memories[0], given)
    chain = [Region(memories[place], memories[place + 1], 64) for place in (0, 1, 2)]
    device.submit([Copies((*chain, Region(memories[3], memories[0], 32, 32)))])
    np.testing.assert_array_equal(read(device, memories[3], 64), given)
    found = read(device, memories[0], 64)
    np.testing.assert_array_equal(found, [*given[32:], *given[32:]])


def test_idle_memory_is_given_back(
    device: DmlDevice, windows: Windows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "_MOST_IDLE", 1 << 20)
    kept = [device.memory(1 << 19) for _ in range(8)]
    kept.clear()
    gc.collect()
    device.memory(1)
    device.wait(device.submitted)
    device.collect()
    assert windows.memory_used[GPU.luid] <= 1 << 20


SMALL = AdapterDescription("Small", "gpu", 0x77, 0x1002, 1, memory=1 << 20)


def test_what_nobody_uses_makes_room(
    open_device: Callable[..., tuple[Windows, DmlDevice]],
) -> None:
    windows, device = open_device(adapters=(SMALL,))
    for size in (1 << 19, 3 << 17, 5 << 17, 1 << 16):
        memory = device.memory(size)
        device.upload(memory, bytes_of(10))
        del memory
    assert windows.memory_used[SMALL.luid] <= 1 << 20


def test_too_little_memory_is_said_with_what_helps(
    open_device: Callable[..., tuple[Windows, DmlDevice]],
) -> None:
    _, device = open_device(adapters=(SMALL,))
    kept = device.memory(1 << 19)
    with pytest.raises(MemoryError, match=r"Small has not enough .* close sessions"):
        device.memory(1 << 20)
    given = bytes_of(100)
    device.upload(kept, given)
    np.testing.assert_array_equal(read(device, kept, 100), given)


def test_an_event_tells_how_far_its_stream_is(device: DmlDevice) -> None:
    stream, other = DmlStream(device), DmlStream(device)
    memory, target = device.memory(64), np.zeros(64, np.uint8)
    given = bytes_of(64)
    assert stream.record().done()
    stream.upload(memory, given)
    stream.read(memory, target)
    event = stream.record()
    assert other.wait(event)
    behind = other.record()
    while not behind.done():
        time.sleep(0.0005)
    assert event.done()
    np.testing.assert_array_equal(target, given)
    stream.synchronize()
    event.synchronize()


def test_who_spins_gets_the_same(device: DmlDevice, windows: Windows) -> None:
    device.spins = True
    memory, given = device.memory(64), bytes_of(64)
    device.upload(memory, given)
    np.testing.assert_array_equal(read(device, memory, 64), given)
    assert not windows.events.open


def test_many_threads_wait_at_once(device: DmlDevice) -> None:
    wrong: list[object] = []

    def work(seed: int) -> None:
        given = np.random.default_rng(seed).integers(0, 255, 5000, np.uint8)
        for _ in range(10):
            memory = device.memory(given.nbytes)
            device.upload(memory, given)
            if (read(device, memory, given.size) != given).any():
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


# loss


def test_a_queue_that_does_not_get_on_is_told_and_kept_until_it_does(
    device: DmlDevice, windows: Windows
) -> None:
    memory = device.memory(64)
    device.patience = 0.05
    windows.faults.stall_at_signal = windows.counts.signals + 1
    device.upload(memory, bytes_of(64))
    with pytest.raises(onnxplug.errors.DeviceReset, match=r"for 0\.05 s .* anew"):
        device.wait(device.submitted)
    with pytest.raises(onnxplug.errors.DeviceReset):
        device.memory(1)
    device.close()
    release_hung()
    assert windows.alive  # the GPU may still write there
    windows.resume()
    while windows.alive:
        release_hung()
        time.sleep(0.001)


def test_work_that_removes_the_device_says_so_with_the_reason(
    device: DmlDevice, windows: Windows
) -> None:
    memory, target = device.memory(64), np.zeros(64, np.uint8)
    device.upload(memory, bytes_of(64))
    windows.faults.remove_at_submission = windows.counts.submissions + 1
    readback = device.read_array(memory, target)
    for _ in range(2):
        with pytest.raises(onnxplug.errors.DeviceReset, match="DEVICE_HUNG"):
            readback.finish()
    assert readback.is_done() and not readback.is_fine()
    with pytest.raises(onnxplug.errors.DeviceReset, match="DEVICE_HUNG"):
        device.upload(memory, bytes_of(64))


def test_a_device_may_be_removed_at_any_call(windows: Windows) -> None:
    """Nothing is left of it, and what was asked fails as it should."""
    libraries = Libraries()
    adapter = find_adapters(libraries)[0]
    for call in range(1, 200):
        windows.faults.remove_at_call = windows.counts.calls + call
        try:
            device = DmlDevice(libraries, adapter)
        except onnxplug.errors.DeviceReset:
            continue
        try:
            memory, target = device.memory(64), np.zeros(64, np.uint8)
            device.upload(memory, bytes_of(64))
            device.submit([Copies((Region(memory, device.memory(64), 64),))])
            device.read_array(memory, target).finish()
            done = True
        except onnxplug.errors.DeviceReset as error:
            assert "HUNG" in str(error)
            done = False
        finally:
            device.close()
        assert not windows.alive
        if done:
            break
    assert done
