"""The device does work in order while the host goes on, and reports what failed."""

from __future__ import annotations

import importlib
import threading
from typing import Any

import numpy as np
import pytest

from onnxplug.ep import DataType, DeviceContext, MemoryKind, MemoryLocation

memory: Any = importlib.import_module("acme_ep.memory")
streams: Any = importlib.import_module("acme_ep.streams")


@pytest.fixture
def context() -> DeviceContext:
    made: DeviceContext = memory.AcmeSpaces().create_context(
        MemoryLocation(memory.SPACE, 0)
    )
    return made


def test_there_is_one_device() -> None:
    with pytest.raises(LookupError, match=f"there is {memory.SPACE}:0"):
        memory.AcmeSpaces().create_context(MemoryLocation(memory.SPACE, 1))


def test_copies_there_and_back_are_queued(context: DeviceContext) -> None:
    allocator = context.allocator(MemoryKind.DEVICE)
    stream: Any = context.create_stream()
    assert allocator is not None
    source = np.arange(6, dtype=np.float32).reshape(2, 3)
    there = allocator.empty((2, 3), DataType.FLOAT32, stream)
    back = np.zeros_like(source)
    go = threading.Event()
    stream.enqueue(lambda: go.wait(60) and None)
    context.transfer.copy([(source, there), (there, back)], stream)
    end = stream.record()
    assert not end.done()
    assert not back.any()
    go.set()
    end.synchronize()
    np.testing.assert_array_equal(back, source)
    stream.close()


def test_arrays_that_differ_are_not_copied(context: DeviceContext) -> None:
    allocator = context.allocator(MemoryKind.DEVICE)
    assert allocator is not None
    there = allocator.empty((2,), DataType.FLOAT32)
    with pytest.raises(ValueError, match=r"cannot copy float64\[2\] to float32\[2\]"):
        context.transfer.copy([(np.ones(2), there)], None)


def test_a_stream_waits_for_another() -> None:
    first, second = streams.AcmeStream(), streams.AcmeStream()
    go = threading.Event()
    order: list[int] = []
    first.enqueue(lambda: go.wait(60) and None)
    first.enqueue(lambda: order.append(1))
    assert second.wait(first.record())
    second.enqueue(lambda: order.append(2))
    go.set()
    second.synchronize()
    assert order == [1, 2]
    first.close()
    second.close()


def test_what_fails_drops_what_is_behind_it_and_is_raised_to_all_who_wait() -> None:
    first, second = streams.AcmeStream(), streams.AcmeStream()
    done: list[int] = []

    def fail() -> None:
        raise RuntimeError("the device is hot")

    before = first.record()
    first.enqueue(fail)
    first.enqueue(lambda: done.append(1))
    assert second.wait(first.record())
    second.enqueue(lambda: done.append(2))
    for waiting in (first, second, first.record()):
        with pytest.raises(RuntimeError, match="the device is hot"):
            waiting.synchronize()
    before.synchronize()
    assert done == []
    first.close()
    second.close()
