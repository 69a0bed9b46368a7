"""Device memory: out of numpy's reach, counted, and poisoned until written."""

from __future__ import annotations

import numpy as np
import pytest

from onnxplug import ep
from onnxplug.ep import HOST, DataType
from onnxplug_testing import DeviceArray, Knobs, SimulatedFactory
from onnxplug_testing.simulated.memory import poison

X = np.array([1, 2, 3, 4], np.float32)


@pytest.fixture
def factory() -> SimulatedFactory:
    return SimulatedFactory()


def upload(factory: SimulatedFactory, array: np.ndarray) -> DeviceArray:
    dtype = DataType.from_numpy(array.dtype)
    target = factory.allocator().empty(array.shape, dtype)
    factory.transfer.copy([(array, target)], None)
    return target


def download(factory: SimulatedFactory, array: DeviceArray) -> np.ndarray:
    target = np.zeros(array.shape, array.dtype)
    factory.transfer.copy([(array, target)], None)
    return target


# numpy cannot read it


@pytest.mark.parametrize(
    "read",
    [
        np.asarray,
        np.from_dlpack,
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
def test_nothing_reads_a_device_array(factory, read) -> None:
    array = upload(factory, X)
    with pytest.raises(TypeError):
        read(array)


def test_the_error_says_what_to_do(factory) -> None:
    array = upload(factory, X)
    message = r"DeviceArray\(float32\[4\] on simulated:0\) is not in host memory; copy"
    with pytest.raises(TypeError, match=message):
        np.asarray(array)


def test_shape_and_dtype_are_those_of_an_array(factory) -> None:
    array = factory.allocator().empty((2, 3), DataType.BFLOAT16)
    assert array.shape == (2, 3)
    assert array.dtype == DataType.BFLOAT16.numpy
    assert array.location == ep.MemoryLocation("simulated", 0)


# the allocator


def test_live_and_peak_bytes_are_counted(factory) -> None:
    allocator = factory.allocator()
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
    allocator = SimulatedFactory(Knobs(memory_limit=40)).allocator()
    array = allocator.empty((8,), DataType.FLOAT32)
    message = (
        r"simulated:0 has 32 of 40 bytes in use; 12 more, for float32\[3\], do not"
    )
    with pytest.raises(MemoryError, match=message):
        allocator.empty((3,), DataType.FLOAT32)
    assert allocator.live_bytes == 32
    del array
    allocator.empty((10,), DataType.FLOAT32)


def test_strings_stay_on_the_host(factory) -> None:
    with pytest.raises(TypeError, match="holds no strings"):
        factory.allocator().empty((1,), DataType.STRING)


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


def test_arrays_travel_to_the_device_and_back(factory) -> None:
    np.testing.assert_array_equal(download(factory, upload(factory, X)), X)


def test_each_copy_is_recorded(factory) -> None:
    device = ep.MemoryLocation("simulated", 0)
    array = upload(factory, X)
    stream = factory.create_stream(device)
    factory.transfer.copy([(array, X.copy())], stream)
    up, down = factory.transfer.copies
    assert (up.source, up.target, up.queued) == (HOST, device, False)
    assert (down.source, down.target, down.queued) == (device, HOST, True)
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
def test_only_the_ways_of_the_devices_are_known(factory, source, target, known) -> None:
    source, target = (
        place if place is HOST else ep.MemoryLocation(*place)
        for place in (source, target)
    )
    assert factory.transfer.can_copy(source, target) is known


def test_devices_have_memory_of_their_own(factory) -> None:
    first = upload(factory, X)
    second = factory.allocator(1).empty((4,), DataType.FLOAT32)
    assert second.location != first.location
    factory.transfer.copy([(first, second)], None)
    np.testing.assert_array_equal(download(factory, second), X)


@pytest.mark.parametrize("target", [np.zeros(3, np.float32), np.zeros(4, np.int32)])
def test_copies_between_unlike_arrays_are_refused(factory, target) -> None:
    with pytest.raises(ValueError, match=r"cannot copy float32\[4\] to"):
        factory.transfer.copy([(upload(factory, X), target)], None)


# forgotten synchronisation


def test_new_memory_holds_poison(factory) -> None:
    array = factory.allocator().empty((4,), DataType.FLOAT32)
    assert np.isnan(download(factory, array)).all()


def test_a_host_target_holds_poison_until_synchronised(factory) -> None:
    array = upload(factory, X)
    stream = factory.create_stream(array.location)
    target = np.zeros(4, np.float32)
    factory.transfer.copy([(array, target)], stream)
    assert np.isnan(target).all()
    stream.synchronize()
    np.testing.assert_array_equal(target, X)


def test_a_source_changed_too_early_is_seen(factory) -> None:
    stream = factory.create_stream(ep.MemoryLocation("simulated", 0))
    source = X.copy()
    array = factory.allocator().empty((4,), DataType.FLOAT32, stream)
    factory.transfer.copy([(source, array)], stream)
    source[:] = 99
    stream.synchronize()
    np.testing.assert_array_equal(download(factory, array), [99] * 4)


def test_a_device_array_holds_poison_for_other_streams(factory) -> None:
    here = ep.MemoryLocation("simulated", 0)
    writer, reader = factory.create_stream(here), factory.create_stream(here)
    array = factory.allocator().empty((4,), DataType.FLOAT32, writer)
    target = np.zeros(4, np.float32)
    factory.transfer.copy([(X, array)], writer)
    factory.transfer.copy([(array, target)], reader)
    reader.synchronize()
    assert np.isnan(target).all()
    factory.transfer.copy([(array, target)], reader)
    reader.wait(writer)  # too late for what was queued before
    reader.synchronize()
    assert np.isnan(target).all()
    factory.transfer.copy([(array, target)], reader)
    reader.synchronize()
    np.testing.assert_array_equal(target, X)


def test_a_host_array_may_be_source_and_target_on_one_stream(factory) -> None:
    stream = factory.create_stream(ep.MemoryLocation("simulated", 0))
    array = factory.allocator().empty((4,), DataType.FLOAT32, stream)
    both = X.copy()
    factory.transfer.copy([(both, array), (array, both)], stream)
    stream.synchronize()
    np.testing.assert_array_equal(both, X)


def test_memory_dropped_is_reused_after_the_work_on_its_stream(factory) -> None:
    stream = factory.create_stream(ep.MemoryLocation("simulated", 0))
    array = factory.allocator().empty((4,), DataType.FLOAT32, stream)
    target = np.zeros(4, np.float32)
    factory.transfer.copy([(X, array), (array, target)], stream)
    del array
    assert factory.allocator().live_bytes == 0
    stream.synchronize()
    np.testing.assert_array_equal(target, X)


def test_memory_dropped_too_early_for_another_stream_is_seen(factory) -> None:
    here = ep.MemoryLocation("simulated", 0)
    maker, reader = factory.create_stream(here), factory.create_stream(here)
    array = factory.allocator().empty((4,), DataType.FLOAT32, maker)
    target = np.zeros(4, np.float32)
    factory.transfer.copy([(X, array)], maker)
    maker.synchronize()
    factory.transfer.copy([(array, target)], reader)
    del array  # the reader has yet to read it
    reader.synchronize()
    assert np.isnan(target).all()


@pytest.mark.parametrize("dropped", ["source", "target"])
def test_a_host_array_dropped_before_its_copy_is_done_is_an_error(
    factory, dropped: str
) -> None:
    stream = factory.create_stream(ep.MemoryLocation("simulated", 0))
    array = factory.allocator().empty((4,), DataType.FLOAT32, stream)
    pair = (X.copy(), array) if dropped == "source" else (array, X.copy())
    factory.transfer.copy([pair], stream)
    del pair
    with pytest.raises(
        RuntimeError, match=r"float32\[4\], was dropped before the copy"
    ):
        stream.synchronize()


def test_views_of_host_arrays_are_copied_too(factory) -> None:
    stream = factory.create_stream(ep.MemoryLocation("simulated", 0))
    array = factory.allocator().empty((2,), DataType.FLOAT32, stream)
    source, target = X.copy(), np.zeros(4, np.float32)
    factory.transfer.copy([(source[::2], array), (array, target[2:])], stream)
    stream.synchronize()
    np.testing.assert_array_equal(target, [0, 0, 1, 3])
