"""Device arrays shared by DLPack, as capsules that only such devices read."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

from onnxplug import ep
from onnxplug.ep import DataType
from onnxplug_testing import (
    DeviceArray,
    Knobs,
    SimulatedContext,
    SimulatedFactory,
)
from onnxplug_testing.simulated import dlpack

X = np.array([[1, 2, 3], [4, 5, 6]], np.float32)


@pytest.fixture
def device() -> SimulatedContext:
    return make_device()


def make_device(ordinal: int = 0) -> SimulatedContext:
    location = ep.MemoryLocation("simulated", ordinal)
    return SimulatedFactory(Knobs(device_count=2)).memory_spaces.create_context(
        location
    )


def upload(device: SimulatedContext, array: np.ndarray) -> DeviceArray:
    target = device.device.empty(array.shape, DataType.from_numpy(array.dtype))
    device.transfer.copy([(array, target)], None)
    return target


def download(device: SimulatedContext, array: DeviceArray) -> np.ndarray:
    target = np.zeros(array.shape, array.dtype)
    device.transfer.copy([(array, target)], None)
    return target


@pytest.mark.parametrize(
    "array",
    [
        X,
        X.astype(np.int64),
        X > 2,
        X.astype(np.complex64),
        X.astype(DataType.BFLOAT16.numpy),
        X.astype(np.float16)[:0],
        np.array(7, np.uint16),
    ],
    ids=lambda array: f"{array.dtype}{list(array.shape)}",
)
def test_a_capsule_shares_the_memory(device, array: np.ndarray) -> None:
    mine = upload(device, array)
    theirs = device.from_dlpack(mine.__dlpack__())
    assert (theirs.shape, theirs.dtype) == (array.shape, array.dtype)
    np.testing.assert_array_equal(download(device, theirs), array)
    device.transfer.copy([(np.zeros_like(array), mine)], None)
    np.testing.assert_array_equal(download(device, theirs), np.zeros_like(array))


def test_the_memory_is_kept_while_it_is_shared(device) -> None:
    before = len(dlpack._exported)
    mine = upload(device, X)
    theirs = device.from_dlpack(mine.__dlpack__())
    del mine
    gc.collect()
    assert device.device.live_bytes == X.nbytes
    np.testing.assert_array_equal(download(device, theirs), X)
    assert len(dlpack._exported) == before + 1
    del theirs
    assert device.device.live_bytes == 0
    assert len(dlpack._exported) == before


def test_a_capsule_that_nobody_takes_is_released(device) -> None:
    capsule = upload(device, X).__dlpack__()
    assert device.device.live_bytes == X.nbytes
    dlpack.release_abandoned()
    assert device.device.live_bytes == X.nbytes
    del capsule
    dlpack.release_abandoned()
    assert device.device.live_bytes == 0


def test_a_capsule_is_taken_once(device) -> None:
    capsule = upload(device, X).__dlpack__()
    device.from_dlpack(capsule)
    assert "used_dltensor" in repr(capsule)
    with pytest.raises(BufferError, match="no DLPack capsule, or was taken before"):
        device.from_dlpack(capsule)


@pytest.mark.parametrize("capsule", [None, X, X.__dlpack__()])
def test_what_is_no_capsule_of_the_device_is_refused(device, capsule: Any) -> None:
    with pytest.raises(BufferError):
        device.from_dlpack(capsule)


def test_a_capsule_of_another_device_is_refused_and_not_taken(device) -> None:
    far = make_device(1)
    capsule = upload(far, X).__dlpack__()
    with pytest.raises(BufferError, match=r"device \(12, 1\); expected \(12, 0\)"):
        device.from_dlpack(capsule)
    np.testing.assert_array_equal(download(far, far.from_dlpack(capsule)), X)


def test_numpy_refuses_the_device(device) -> None:
    array = upload(device, X)
    assert array.__dlpack_device__() == (12, 0)
    with pytest.raises((BufferError, RuntimeError), match=r"nsupported device"):
        np.from_dlpack(array)
    del array
    dlpack.release_abandoned()
    assert device.device.live_bytes == 0


@pytest.mark.parametrize("asked", [{"copy": True}, {"dl_device": (1, 0)}])
def test_copies_and_other_devices_are_refused(device, asked: dict[str, Any]) -> None:
    with pytest.raises(BufferError, match="is shared as it is and where it is"):
        upload(device, X).__dlpack__(**asked)


def test_types_that_dlpack_has_not_are_refused(device) -> None:
    array = device.device.empty((2,), DataType.INT4)
    with pytest.raises(BufferError, match="DLPack has no element type int4"):
        array.__dlpack__()


@pytest.mark.parametrize("order", ["blocks", "waits", "none"])
def test_the_importers_stream_waits_for_the_arrays_own(device, order: str) -> None:
    own, importers = device.create_stream(), device.create_stream()
    mine = device.device.empty(X.shape, DataType.FLOAT32, own)
    device.transfer.copy([(X, mine)], own)
    handle = {"blocks": None, "waits": importers.native_handle, "none": -1}[order]
    theirs = device.from_dlpack(mine.__dlpack__(stream=handle))
    assert own.record().done() is (order == "blocks")
    target = np.zeros_like(X)
    device.transfer.copy([(theirs, target)], importers)
    importers.synchronize()
    if order == "none":
        assert np.isnan(target).all()
    else:
        np.testing.assert_array_equal(target, X)
