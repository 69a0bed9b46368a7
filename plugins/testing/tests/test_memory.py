"""Device memory: out of numpy's reach, counted, and poisoned until written."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest

from onnxplug import ep
from onnxplug.ep import HOST, DataType
from onnxplug_testing import (
    DeviceArray,
    Knobs,
    OwnType,
    SimulatedContext,
    SimulatedFactory,
)
from onnxplug_testing.simulated.storage import poison

HERE = ep.MemoryLocation("simulated", 0)
X = np.array([1, 2, 3, 4], np.float32)


@pytest.fixture
def device() -> SimulatedContext:
    return make_device()


def make_device(**knobs: Any) -> SimulatedContext:
    return SimulatedFactory(Knobs(**knobs)).memory_spaces.create_context(HERE)


def upload(device: SimulatedContext, array: np.ndarray) -> DeviceArray:
    dtype = DataType.from_numpy(array.dtype)
    target = device.device.empty(array.shape, dtype)
    device.transfer.copy([(array, target)], None)
    return target


def download(device: SimulatedContext, array: DeviceArray) -> np.ndarray:
    target = np.zeros(array.shape, device.data_type(array).numpy)
    device.transfer.copy([(array, target)], None)
    return target


# numpy cannot read it


@pytest.mark.parametrize(
    "read",
    [
        np.asarray,
        lambda array: np.add(X, array),
        lambda array: X + array,
        lambda array: np.concatenate([array, array]),
        lambda array: np.copyto(X.copy(), array),
        lambda array: X.copy().__setitem__(slice(None), array),
        memoryview,
        bytes,
        list,
        len,
        bool,
        float,
        int,
        lambda array: array[0],
        lambda array: array.__setitem__(0, 1),
        lambda array: 1 in array,
    ],
)
def test_nothing_reads_a_device_array(device, read) -> None:
    array = upload(device, X)
    with pytest.raises(TypeError):
        read(array)


def test_the_error_says_what_to_do(device) -> None:
    array = upload(device, X)
    message = r"DeviceArray\(float32\[4\] on simulated:0\) is not in host memory; copy"
    with pytest.raises(TypeError, match=message):
        np.asarray(array)


def test_shape_and_dtype_are_those_of_an_array(device) -> None:
    array = device.device.empty((2, 3), DataType.BFLOAT16)
    assert array.shape == (2, 3)
    assert array.dtype == DataType.BFLOAT16.numpy
    assert array.location == ep.MemoryLocation("simulated", 0)


# the allocator


def test_live_and_peak_bytes_are_counted(device) -> None:
    allocator = device.device
    first = allocator.empty((4,), DataType.FLOAT32)
    second = allocator.empty((2,), DataType.INT64)
    assert (allocator.live_bytes, allocator.peak_bytes) == (32, 32)
    del first
    assert (allocator.live_bytes, allocator.peak_bytes) == (16, 32)
    third = allocator.empty((), DataType.BOOL)
    assert allocator.live_bytes == 17
    assert allocator.allocations == 3
    del second, third
    assert (allocator.live_bytes, allocator.peak_bytes) == (0, 32)


def test_the_limit_is_kept_until_memory_is_free_again() -> None:
    device = make_device(memory_limit=40)
    allocator = device.device
    array = allocator.empty((8,), DataType.FLOAT32)
    message = (
        r"simulated:0 has 32 of 40 bytes in use; 12 more, for float32\[3\], do not"
    )
    with pytest.raises(MemoryError, match=message):
        allocator.empty((3,), DataType.FLOAT32)
    assert allocator.live_bytes == 32
    del array
    allocator.empty((10,), DataType.FLOAT32)


def test_strings_stay_on_the_host(device) -> None:
    with pytest.raises(TypeError, match="holds no strings"):
        device.device.empty((1,), DataType.STRING)


@pytest.mark.parametrize("dtype", DataType)
def test_poison_is_no_plausible_value(dtype: DataType) -> None:
    array = np.zeros(3, dtype.numpy)
    poison(array)
    assert (array != np.zeros(3, dtype.numpy)).all()
    if dtype in ("float16", "float32", "float64", "bfloat16", "complex64"):
        assert np.isnan(array.astype(np.complex64)).all()
    elif dtype in ("int32", "int64"):
        assert (np.abs(array) > 1e9).all()


def test_strided_arrays_are_poisoned_too() -> None:
    array = np.zeros((4, 4), np.int32)
    poison(array[::2, ::2])
    assert np.count_nonzero(array) == 4


# the data transfer


def test_arrays_travel_to_the_device_and_back(device) -> None:
    np.testing.assert_array_equal(download(device, upload(device, X)), X)


def test_each_copy_is_recorded(device) -> None:
    array = upload(device, X)
    stream = device.create_stream()
    device.transfer.copy([(array, X.copy())], stream)
    up, down = device.transfer.copies
    assert (up.source, up.target, up.queued) == (HOST, HERE, False)
    assert (down.source, down.target, down.queued) == (HERE, HOST, True)
    assert (up.dtype, up.shape, up.nbytes) == (DataType.FLOAT32, (4,), 16)


@pytest.mark.parametrize(
    ("source", "target", "known"),
    [
        (HOST, ("simulated", 0), True),
        (("simulated", 1), HOST, True),
        (("simulated", 0), ("simulated", 1), True),
        (HOST, HOST, False),
        (HOST, ("cuda", 0), False),
        (("simulated", 0), ("cuda", 0), False),
    ],
)
def test_only_the_ways_of_the_devices_are_known(device, source, target, known) -> None:
    source, target = (
        place if place is HOST else ep.MemoryLocation(*place)
        for place in (source, target)
    )
    assert device.transfer.can_copy(source, target) is known


def test_devices_have_memory_of_their_own() -> None:
    devices = SimulatedFactory(Knobs(device_count=2))
    near = devices.memory_spaces.create_context(HERE)
    far = devices.memory_spaces.create_context(ep.MemoryLocation("simulated", 1))
    first, second = upload(near, X), far.device.empty((4,), DataType.FLOAT32)
    assert second.location != first.location
    near.transfer.copy([(first, second)], None)
    np.testing.assert_array_equal(download(far, second), X)


@pytest.mark.parametrize("target", [np.zeros(3, np.float32), np.zeros(4, np.int32)])
def test_copies_between_unlike_arrays_are_refused(device, target) -> None:
    with pytest.raises(ValueError, match=r"cannot copy float32\[4\] to"):
        device.transfer.copy([(upload(device, X), target)], None)


# forgotten synchronisation


def test_new_memory_holds_poison(device) -> None:
    array = device.device.empty((4,), DataType.FLOAT32)
    assert np.isnan(download(device, array)).all()


def test_a_host_target_holds_poison_until_synchronised(device) -> None:
    array = upload(device, X)
    stream = device.create_stream()
    target = np.zeros(4, np.float32)
    device.transfer.copy([(array, target)], stream)
    assert np.isnan(target).all()
    stream.synchronize()
    np.testing.assert_array_equal(target, X)


def test_a_source_changed_too_early_is_seen(device) -> None:
    stream = device.create_stream()
    source = X.copy()
    array = device.device.empty((4,), DataType.FLOAT32, stream)
    device.transfer.copy([(source, array)], stream)
    source[:] = 99
    stream.synchronize()
    np.testing.assert_array_equal(download(device, array), [99] * 4)


def test_a_device_array_holds_poison_for_other_streams(device) -> None:
    writer, reader = device.create_stream(), device.create_stream()
    array = device.device.empty((4,), DataType.FLOAT32, writer)
    target = np.zeros(4, np.float32)
    device.transfer.copy([(X, array)], writer)
    device.transfer.copy([(array, target)], reader)
    reader.synchronize()
    assert np.isnan(target).all()
    device.transfer.copy([(array, target)], reader)
    assert reader.wait(writer.record())  # too late for what was queued before
    reader.synchronize()
    assert np.isnan(target).all()
    device.transfer.copy([(array, target)], reader)
    reader.synchronize()
    np.testing.assert_array_equal(target, X)


def test_a_host_array_may_be_source_and_target_on_one_stream(device) -> None:
    stream = device.create_stream()
    array = device.device.empty((4,), DataType.FLOAT32, stream)
    both = X.copy()
    device.transfer.copy([(both, array), (array, both)], stream)
    stream.synchronize()
    np.testing.assert_array_equal(both, X)


def test_memory_dropped_is_reused_after_the_work_on_its_stream(device) -> None:
    stream = device.create_stream()
    array = device.device.empty((4,), DataType.FLOAT32, stream)
    target = np.zeros(4, np.float32)
    device.transfer.copy([(X, array), (array, target)], stream)
    del array
    assert device.device.live_bytes == 0
    stream.synchronize()
    np.testing.assert_array_equal(target, X)


@pytest.mark.parametrize("idle", [True, False])
@pytest.mark.parametrize("schedule", ["late", "threaded"])
def test_memory_dropped_too_early_for_another_stream_is_an_error(
    idle: bool, schedule: str
) -> None:
    device = make_device(schedule=schedule)
    maker, reader = device.create_stream(), device.create_stream()
    array = device.device.empty((4,), DataType.FLOAT32, maker)
    target, leave = np.zeros(4, np.float32), threading.Event()
    device.transfer.copy([(X, array)], maker)
    maker.synchronize()
    if schedule == "threaded":
        reader.enqueue(lambda: wait_for(leave))
    device.transfer.copy([(array, target)], reader)
    if not idle:
        maker.enqueue(lambda: None)
    del array  # the reader has yet to read it
    leave.set()
    with pytest.raises(RuntimeError, match=r"float32\[4\], was dropped before work"):
        reader.synchronize()
    assert np.isnan(target).all()


def wait_for(event: threading.Event) -> None:
    assert event.wait(30)


def test_memory_may_be_dropped_when_its_stream_waits_for_its_users(device) -> None:
    maker, reader = device.create_stream(), device.create_stream()
    array = device.device.empty((4,), DataType.FLOAT32, maker)
    target = np.zeros(4, np.float32)
    device.transfer.copy([(X, array)], maker)
    assert reader.wait(maker.record())
    device.transfer.copy([(array, target)], reader)
    assert maker.wait(reader.record())
    del array
    maker.synchronize()
    np.testing.assert_array_equal(target, X)


# memory that is handed out again


def test_a_stream_gets_its_memory_again_at_once(device) -> None:
    stream = device.create_stream()
    first = device.device.empty((4,), DataType.FLOAT32, stream)
    targets = np.zeros((2, 4), np.float32)
    device.transfer.copy([(X, first), (first, targets[0])], stream)
    del first
    second = device.device.empty((2, 2), DataType.INT32, stream)
    assert device.device.pool.reused == 1
    Y = np.array([[5, 6], [7, 8]], np.int32)
    device.transfer.copy([(Y, second)], stream)
    stream.synchronize()
    np.testing.assert_array_equal(targets[0], X)
    np.testing.assert_array_equal(download(device, second), Y)


def test_others_get_it_when_the_stream_is_done_with_it(device) -> None:
    stream = device.create_stream()
    array = device.device.empty((4,), DataType.FLOAT32, stream)
    target = np.zeros(4, np.float32)
    device.transfer.copy([(X, array), (array, target)], stream)
    del array
    kept = [device.device.empty((4,), DataType.FLOAT32)]
    kept.append(device.device.empty((4,), DataType.FLOAT32, device.create_stream()))
    assert device.device.pool.reused == 0
    stream.synchronize()
    kept.append(device.device.empty((4,), DataType.FLOAT32))
    assert device.device.pool.reused == 1
    np.testing.assert_array_equal(target, X)


def test_memory_handed_out_again_holds_poison(device) -> None:
    stream = device.create_stream()
    first = device.device.empty((4,), DataType.FLOAT32, stream)
    device.transfer.copy([(X, first)], stream)
    del first
    second = device.device.empty((4,), DataType.FLOAT32, stream)
    # also for who looks before the stream comes to it
    assert np.isnan(download(device, second)).all()
    stream.synchronize()
    assert np.isnan(download(device, second)).all()


def test_what_is_written_before_the_stream_comes_to_it_is_lost(device) -> None:
    stream = device.create_stream()
    first = device.device.empty((4,), DataType.FLOAT32, stream)
    device.transfer.copy([(X, first)], stream)
    del first
    second = device.device.empty((4,), DataType.FLOAT32, stream)
    device.transfer.copy([(X, second)], None)  # on no stream: too early
    stream.synchronize()
    assert np.isnan(download(device, second)).all()


@pytest.mark.parametrize("schedule", ["late", "threaded"])
def test_many_arrays_in_the_order_of_their_streams_keep_their_values(
    schedule: str,
) -> None:
    device = make_device(schedule=schedule, seed=3)
    streams = [device.create_stream() for _ in range(3)]
    targets = np.zeros((60, 4), np.float32)
    sources = np.arange(240, dtype=np.float32).reshape(60, 4)
    for number in range(60):
        stream = streams[number % 3]
        array = device.device.empty((4,), DataType.FLOAT32, stream)
        pairs = [(sources[number], array), (array, targets[number])]
        device.transfer.copy(pairs, stream)
        del array, pairs
    for stream in streams:
        stream.synchronize()
        stream.close()
    np.testing.assert_array_equal(targets, sources)
    assert device.device.pool.reused > 20
    assert device.device.live_bytes == 0


def test_arrays_in_cycles_are_released_by_whoever_collects_them(device) -> None:
    stream = device.create_stream()
    target = np.zeros(4, np.float32)
    for number in range(300):
        array = device.device.empty((4,), DataType.FLOAT32, stream)
        device.transfer.copy([(X, array), (array, target)], stream)
        cycle: list[Any] = [array]
        cycle.append(cycle)
        del array, cycle
        if number % 50 == 0:
            stream.synchronize()
            np.testing.assert_array_equal(target, X)
    stream.synchronize()
    gc.collect()
    assert device.device.live_bytes == 0
    np.testing.assert_array_equal(target, X)


# pinned memory


def test_pinned_arrays_are_numpys_poisoned_and_counted(device) -> None:
    pinned = device.allocator(ep.MemoryKind.PINNED)
    array = pinned.empty((2, 3), DataType.FLOAT32)
    assert type(array) is np.ndarray
    assert (array.shape, array.dtype, array.flags.writeable) == ((2, 3), X.dtype, True)
    assert array.flags.c_contiguous
    assert np.isnan(array).all()
    assert (pinned.live_bytes, device.device.live_bytes) == (24, 0)
    row = array[1]
    del array
    assert pinned.live_bytes == 24  # views keep it
    row[:] = 1
    del row
    assert (pinned.live_bytes, pinned.peak_bytes, pinned.allocations) == (0, 24, 1)
    assert pinned.empty((0, 3), DataType.INT64).shape == (0, 3)
    assert pinned.empty((), DataType.BFLOAT16).shape == ()


def test_there_may_be_no_pinned_memory() -> None:
    assert make_device(pinned=False).allocator(ep.MemoryKind.PINNED) is None


def test_pinned_arrays_of_a_stream_may_be_dropped_before_its_work(device) -> None:
    stream = device.create_stream()
    pinned = device.pinned.empty((4,), DataType.FLOAT32, stream)
    pinned[:] = X
    array = device.device.empty((4,), DataType.FLOAT32, stream)
    device.transfer.copy([(pinned, array)], stream)
    del pinned
    again = device.pinned.empty((4,), DataType.FLOAT32, stream)
    assert device.pinned.pool.reused == 1
    device.transfer.copy([(array, again)], stream)
    stream.synchronize()
    np.testing.assert_array_equal(again, X)


@pytest.mark.parametrize("made_on", ["no stream", "another stream"])
def test_others_may_not_be_dropped(device, made_on: str) -> None:
    stream = device.create_stream()
    other = device.create_stream() if made_on == "another stream" else None
    pinned = device.pinned.empty((4,), DataType.FLOAT32, other)
    pinned[:] = X
    array = device.device.empty((2,), DataType.FLOAT32, stream)
    device.transfer.copy([(pinned[::2], array)], stream)
    del pinned
    with pytest.raises(RuntimeError, match=r"float32\[4\], was dropped before work"):
        stream.synchronize()


# element types of the device's own


def test_a_device_spells_element_types_in_its_own_way() -> None:
    device = make_device(own_dtypes=frozenset({DataType.FLOAT32}))
    array = upload(device, X)
    assert array.dtype == OwnType(DataType.FLOAT32)
    assert device.data_type(array) is DataType.FLOAT32
    assert device.data_type(X) is DataType.FLOAT32
    with pytest.raises(TypeError):
        np.dtype(array.dtype)
    assert not hasattr(array.dtype, "itemsize")
    np.testing.assert_array_equal(download(device, array), X)
    copies = device.transfer.copies
    assert {(copy.dtype, copy.nbytes) for copy in copies} == {(DataType.FLOAT32, 16)}
    other = device.device.empty((4,), DataType.INT32)
    assert (other.dtype, device.data_type(other)) == (np.int32, DataType.INT32)


# stacking and taking


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("streamed", [False, True])
def test_arrays_are_stacked_and_taken_apart(device, axis: int, streamed: bool) -> None:
    stream = device.create_stream() if streamed else None
    parts = [np.arange(6, dtype=np.int64).reshape(2, 3) + 10 * n for n in range(4)]
    arrays = [upload(device, part) for part in parts]
    stacked = device.stack(arrays, axis, stream)
    assert stacked.shape == np.stack(parts, axis).shape
    taken = device.take(stacked, axis, 2, stream)
    if stream is not None:
        assert (download(device, taken) == -6510615555426900571).all(), "poison"
        stream.synchronize()
    np.testing.assert_array_equal(download(device, stacked), np.stack(parts, axis))
    np.testing.assert_array_equal(download(device, taken), parts[2])


def test_stacking_and_taking_may_be_left_to_the_host() -> None:
    device = make_device(stacks=False)
    array = upload(device, X)
    assert device.stack([array], 0, None) is NotImplemented
    assert device.take(array, 0, 0, None) is NotImplemented


@pytest.mark.parametrize("dropped", ["source", "target"])
def test_a_host_array_dropped_before_its_copy_is_done_is_an_error(
    device, dropped: str
) -> None:
    stream = device.create_stream()
    array = device.device.empty((4,), DataType.FLOAT32, stream)
    pair = (X.copy(), array) if dropped == "source" else (array, X.copy())
    device.transfer.copy([pair], stream)
    del pair
    with pytest.raises(
        RuntimeError, match=r"float32\[4\], was dropped before the copy"
    ):
        stream.synchronize()


def test_views_of_host_arrays_are_copied_too(device) -> None:
    stream = device.create_stream()
    array = device.device.empty((2,), DataType.FLOAT32, stream)
    source, target = X.copy(), np.zeros(4, np.float32)
    device.transfer.copy([(source[::2], array), (array, target[2:])], stream)
    stream.synchronize()
    np.testing.assert_array_equal(target, [0, 0, 1, 3])
