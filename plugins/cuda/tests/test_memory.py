"""Memory in the order of streams: what is handed out when, limits, and no memory."""

from __future__ import annotations

import ctypes
import gc
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from onnxplug_compiler.gpu.execution.device import Copies
from onnxplug_cuda import staging as staged
from onnxplug_cuda.device import CudaDevice
from onnxplug_cuda.pool import Arena

from .standin import Machine

MIB = 1 << 20


def filled(device: CudaDevice, stream: Any, value: int, nbytes: int = 4096) -> Any:
    memory = device.memory(nbytes, stream)
    stream.upload(memory, np.full(nbytes, value, np.uint8))
    return memory


def content(stream: Any, memory: Any, nbytes: int = 4096) -> np.ndarray[Any, Any]:
    found = np.empty(nbytes, np.uint8)
    stream.fetch(memory, found)
    return found


def test_what_a_stream_used_it_gets_again_at_once(
    machine: Machine, device: CudaDevice
) -> None:
    stream = device.new_stream()
    memory = filled(device, stream, 1)
    address = memory.address
    del memory
    again = device.memory(4096, stream)
    assert again.address == address
    assert machine.counts["streamWaitEvent"] == machine.counts["eventQuery"] == 0


def test_another_stream_gets_it_when_the_first_is_past_its_use(
    machine: Machine, device: CudaDevice
) -> None:
    machine.gate.clear()
    first, second = device.new_stream(), device.new_stream()
    memory = filled(device, first, 1)
    address = memory.address
    del memory
    other = device.memory(4096, second)
    assert other.address != address
    del other
    machine.gate.set()
    first.synchronize()
    assert device.memory(4096, second).address == address


def test_memory_for_any_stream_is_used_by_none(
    machine: Machine, device: CudaDevice
) -> None:
    machine.gate.clear()
    stream = device.new_stream()
    memory = filled(device, stream, 1)
    address = memory.address
    del memory
    assert device.memory(4096).address != address


def test_streams_wait_for_memory_where_there_is_no_other(
    machine: Machine, device: CudaDevice
) -> None:
    machine.gate.clear()
    word = device.open_arena(MIB, doubles=False)
    first, second = device.new_stream(), device.new_stream()
    memory = device.memory(MIB, first, word)
    first.upload(memory, np.full(MIB, 7, np.uint8))
    del memory
    again = device.memory(MIB, second, word)
    second.upload(again, np.full(MIB, 9, np.uint8))
    machine.gate.set()
    assert (content(second, again, MIB) == 9).all()
    assert machine.counts["malloc"] == 1
    assert machine.counts["streamWaitEvent"] >= 1
    del again
    # and the host, for memory that any stream may use
    device.memory(MIB, None, word)
    assert machine.counts["malloc"] == 1


def test_blocks_are_cut_and_joined(device: CudaDevice) -> None:
    arena = device.arena()
    small = [device.memory(1000) for _ in range(64)]
    assert arena.held == MIB
    assert arena.used == 64 * 1024
    assert len({memory.address for memory in small}) == 64
    del small[::2]
    gc.collect()
    whole = device.memory(900 << 10)
    del small, whole
    assert device.memory(MIB).nbytes == MIB
    assert arena.held == MIB


@pytest.mark.parametrize(
    ("doubles", "held"),
    [(True, [MIB, MIB, 5 * MIB, 5 * MIB]), (False, [300 << 10, 600 << 10, None, None])],
)
def test_an_arena_grows_by_its_strategy(
    device: CudaDevice, doubles: bool, held: list[int | None]
) -> None:
    word = device.open_arena(None, doubles=doubles)
    kept = []
    for nbytes, expected in zip(
        (300 << 10, 300 << 10, 3 * MIB, 512), held, strict=True
    ):
        kept.append(device.memory(nbytes, None, word))
        if expected is not None:
            assert device.arena(word).held == expected
    assert device.arena(word).used == sum(memory.nbytes for memory in kept)


def test_the_limit_is_of_the_arena_and_says_so(device: CudaDevice) -> None:
    word = device.open_arena(3 * MIB, doubles=True)
    kept = device.memory(2 * MIB, None, word)
    assert device.arena(word).held == 2 * MIB
    with pytest.raises(MemoryError) as caught:
        device.memory(2 * MIB, None, word)
    said = str(caught.value)
    assert f"{2 * MIB} bytes of device memory were asked for" in said
    assert f"{kept.nbytes} bytes are in use" in said
    assert f"of the {3 * MIB} that gpu_mem_limit allows; raise" in said
    # the others have memory, and the arena when something of it has returned
    device.memory(2 * MIB)
    del kept
    device.memory(3 * MIB, None, word)


def test_without_memory_what_nobody_uses_is_given_back_once(
    machine: Machine, device: CudaDevice
) -> None:
    machine.capacity = 8 * MIB
    idle = device.open_arena(None, doubles=False)
    device.memory(6 * MIB, None, idle)
    assert machine.used == 6 * MIB
    kept = device.memory(5 * MIB)
    assert machine.used == 8 * MIB  # the next power of two
    with pytest.raises(MemoryError) as caught:
        device.memory(4 * MIB)
    said = str(caught.value)
    assert f"{4 * MIB} bytes of device memory were asked for, and CUDA has none" in said
    assert f"{kept.nbytes} bytes are in use" in said
    assert "feed less at once" in said
    with pytest.raises(MemoryError, match="has 268435456 in all"):
        device.memory(1 << 40)


def test_what_is_given_back_is_used_by_nothing(
    machine: Machine, device: CudaDevice
) -> None:
    machine.late = 20
    machine.capacity = 4 * MIB
    stream = device.new_stream()
    memory = device.memory(3 * MIB, stream)
    stream.upload(memory, np.ones(3 * MIB, np.uint8))
    del memory
    word = device.open_arena(None, doubles=False)
    device.memory(2 * MIB, stream, word)
    assert machine.counts["free"] >= 2  # one begins the context


def test_an_arena_is_given_up_when_its_memory_has_returned(
    machine: Machine, device: CudaDevice
) -> None:
    word = device.open_arena(None, doubles=True)
    memory = device.memory(100, None, word)
    device.close_arena(word)
    assert machine.used == MIB
    stream = device.new_stream()
    stream.upload(memory, np.full(100, 3, np.uint8))
    assert (content(stream, memory, 100) == 3).all()
    del memory
    device.close_arena(device.open_arena(None, doubles=True))
    assert machine.used == 0


def test_regions_are_of_the_functions_of_the_user(
    machine: Machine, device: CudaDevice
) -> None:
    from onnxplug_cuda.external import ExternalSource

    given: list[int] = []
    emptied = []

    @ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t)
    def allocate(nbytes: int) -> int:
        if nbytes > 2 * MIB:
            return 0
        given.append(machine.allocate(nbytes, on_host=False) + odd)
        return given[-1]

    odd = 0

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    def free(address: int) -> None:
        given.remove(address)
        machine.free(address - odd)

    @ctypes.CFUNCTYPE(None)
    def empty() -> None:
        emptied.append(True)

    def address(function: Any) -> int:
        return ctypes.cast(function, ctypes.c_void_p).value or 0

    source = ExternalSource(address(allocate), address(free), address(empty))
    word = device.open_arena(None, doubles=False, source=source)
    memory = device.memory(MIB, None, word)
    assert given == [memory.address]
    with pytest.raises(MemoryError, match="gpu_external_alloc gave none"):
        device.memory(3 * MIB, None, word)
    assert emptied
    odd = 8
    with pytest.raises(RuntimeError, match="is no multiple of 256"):
        device.memory(2 * MIB, None, word)
    odd = 0
    assert given == [memory.address]
    del memory
    device.close_arena(word)
    assert given == []


def test_random_work_on_streams_keeps_everybodys_memory(
    machine: Machine, device: CudaDevice
) -> None:
    """Copies at random, between streams that wait for each other as a host has them:
    each value is what it was made, and the stand-in sees no race."""
    dice = random.Random(1)
    machine.late = 0.3
    word = device.open_arena(3 * MIB, doubles=True)
    streams = [device.new_stream() for _ in range(3)]
    streams[1].copies_beside = True
    values: list[tuple[Any, int, Any]] = []
    for step in range(120):
        stream = dice.choice(streams)
        nbytes = 64 << 10
        if len(values) > 12 or (values and dice.random() < 0.4):
            memory, value, event = values.pop(dice.randrange(len(values)))
            assert stream.wait(event)
            if dice.random() < 0.5:
                copy = device.memory(nbytes, stream, word)
                stream.queue(Copies(((memory, copy, nbytes),)))
                values.append((copy, value, stream.record()))
                del copy
            else:
                assert (content(stream, memory, nbytes) == value).all()
            del memory
        else:
            memory = device.memory(nbytes, stream, word)
            stream.upload(memory, np.full(nbytes, step, np.uint8))
            values.append((memory, step, stream.record()))
    for memory, value, event in values:
        event.synchronize()
        assert (content(streams[0], memory, 64 << 10) == value).all()
    assert machine.counts["malloc"] <= 4


def test_the_stand_in_sees_memory_that_is_handed_out_too_early(
    monkeypatch: pytest.MonkeyPatch, machine: Machine, device: CudaDevice
) -> None:
    """What would be wrong is found: without looking at uses there are races."""
    find = Arena._find

    def careless(arena: Arena, size: int, timeline: Any) -> Any:
        for _, _, block in arena._free:
            block.uses.clear()
        return find(arena, size, timeline)

    monkeypatch.setattr(Arena, "_find", careless)
    first, second = device.new_stream(), device.new_stream()
    machine.gate.clear()
    filled(device, first, 1)
    filled(device, second, 2)
    machine.gate.set()
    assert any("may still be writing" in said for said in machine.violations)
    second.synchronize()
    first.synchronize()
    machine.violations.clear()


@pytest.mark.parametrize("beside", [False, True])
def test_uploads_may_change_and_readbacks_are_what_was_then(
    machine: Machine, make_device: Callable[..., CudaDevice], beside: bool
) -> None:
    machine.late = 5
    device = make_device()
    stream = device.new_stream()
    stream.copies_beside = beside
    array = np.arange(20 * MIB, dtype=np.uint8)
    memory = device.memory(array.nbytes, stream)
    stream.upload(memory, array)
    array[:] = 0
    found = np.empty_like(array)
    stream.read_array(memory, found)
    stream.upload(memory, np.ones(100, np.uint8))
    stream.synchronize_readbacks()
    assert (found == np.arange(20 * MIB, dtype=np.uint8)).all()
    assert (content(stream, memory, 100) == 1).all()
    stream.close()


def test_pinned_arrays_are_copied_directly(
    machine: Machine, device: CudaDevice
) -> None:
    from onnxplug_cuda.staging import pinned_array

    stream = device.new_stream()
    with device.lock, device.driver:
        source, target = (
            pinned_array(device.shared.staging, (1000,), np.dtype(np.float32))
            for _ in range(2)
        )
    source[:] = np.arange(1000)
    memory = device.memory(4000, stream)
    stream.upload_pinned(memory, source)
    stream.read_array(memory, target)
    stream.synchronize()
    np.testing.assert_array_equal(target, np.arange(1000))
    assert machine.counts["hostAlloc"] == 2
    assert machine.counts["memcpyAsync"] == 2


class Line:
    """A stream whose work is done, or never will be."""

    def __init__(self, *, is_done: bool) -> None:
        self.is_done = is_done

    def is_past(self, ticket: int) -> bool:
        return self.is_done

    def synchronize(self, ticket: int) -> bool:
        assert self.is_done, "waits for another's work"
        return True


def test_uploads_wait_for_no_other_streams(
    monkeypatch: pytest.MonkeyPatch, device: CudaDevice
) -> None:
    monkeypatch.setattr(staged, "_MOST_PENDING", 8192)
    staging = device.shared.staging
    slow: Any = Line(is_done=False)
    fast: Any = Line(is_done=True)
    with device.lock, device.driver:
        for _ in range(2):
            staging.give_back_after(staging.take(4096), slow, 1)
        rooms = set()
        for _ in range(4):
            room = staging.take(4096)
            rooms.add(room.address)
            staging.give_back_after(room, fast, 1)
        assert len(rooms) == 1
        slow.is_done = True
        staging.trim()


def test_what_is_in_use_is_counted(device: CudaDevice) -> None:
    before = device.used_bytes()
    stream = device.new_stream()
    memories = [device.memory(MIB, stream) for _ in range(3)]
    assert device.used_bytes() == before + 3 * MIB
    memories.clear()
    assert device.used_bytes() == before
