"""DLPack capsules that describe what cannot be: numpy would believe each of them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pytest

from onnxplug.ep import DataType, TensorType
from onnxplug.errors import InputTypeError, InvalidArgument
from onnxplug.session.inputs import InputChecker
from onnxplug.session.ort_value import OrtValue

X = np.arange(6, dtype=np.float32).reshape(2, 3)

new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype = ctypes.py_object
new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


KEPT: list[Any] = []


class Managed(ctypes.Structure):
    """``DLManagedTensor``."""

    _fields_: ClassVar = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    ]


class Exporter:
    """Gives capsules of X, of which *fields* are said to be otherwise."""

    def __init__(
        self, sizes: Sequence[int] = (2, 3), steps: Sequence[int] = (), **fields: Any
    ) -> None:
        self.numbers = (ctypes.c_int64 * (len(sizes) + len(steps)))(*sizes, *steps)
        place = ctypes.addressof(self.numbers)
        facts = {
            "data": X.ctypes.data,
            "device_type": 1,
            "ndim": len(sizes),
            "code": 2,
            "bits": 32,
            "lanes": 1,
            "shape": place,
            "strides": place + 8 * len(sizes) if steps else None,
        }
        self.managed = Managed(**facts | fields)

    def __dlpack__(self, **options: object) -> Any:
        KEPT.append(self)  # capsules without a deleter own nothing
        return new_capsule(ctypes.addressof(self.managed), b"dltensor", None)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.managed.device_type, self.managed.device_id


IMPOSSIBLE = {
    "no address": ({"data": None}, "its address is null"),
    "no address, of a type that numpy has not": (
        {"data": None, "code": 4, "bits": 16},
        "its address is null",
    ),
    "an address in the first page": ({"data": 8}, "address 0x8, and has 24 bytes"),
    "an offset beyond all memory": ({"byte_offset": 1 << 63}, "no process has memory"),
    "an offset that wraps around": ({"byte_offset": 2**64 - 8}, "no process has"),
    "strides that wrap around": ({"steps": (1 << 62, 1)}, "no process has memory"),
    "elements before null": ({"steps": (-(1 << 61), 1)}, "no process has memory"),
    "no sizes": ({"shape": None}, "2 axes and no sizes: its shape is null"),
    "a negative size": ({"sizes": (-2, 3)}, "negative size"),
    "more elements than there can be": ({"sizes": (1 << 62, 8)}, "int64 can count"),
    "a negative rank": ({"ndim": -1}, "-1 axes; expected 0 to 64"),
    "a rank that no array has": ({"ndim": 1 << 30}, "1073741824 axes"),
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_what_cannot_be_is_refused_in_words(name: str) -> None:
    fields, words = IMPOSSIBLE[name]
    source = Exporter(**fields)
    for data in (source, source.__dlpack__()):
        with pytest.raises(InvalidArgument, match=words):
            OrtValue.from_dlpack(data)
    # as an array of a library that is fed
    checker = InputChecker({"x": TensorType(DataType.FLOAT32, None)}, {})
    with pytest.raises(InputTypeError, match=words):
        checker.check({"x": source})


def test_memory_of_devices_may_be_anywhere_but_at_null() -> None:
    words = "its address is null|memory no installed EP owns"
    for data in (None, 1):  # a handle need be no address
        with pytest.raises(InvalidArgument, match=words) as caught:
            OrtValue.from_dlpack(Exporter(data=data, device_type=4).__dlpack__())
        assert ("null" in str(caught.value)) is (data is None)


def test_nothing_needs_no_address_and_strides_may_be_negative() -> None:
    for data in (None, 8):
        value = OrtValue.from_dlpack(Exporter((0, 3), data=data).__dlpack__())
        assert value.shape() == [0, 3]
    last_row = Exporter(data=X.ctypes.data + 12, steps=(-3, 1))
    value = OrtValue.from_dlpack(last_row.__dlpack__())
    np.testing.assert_array_equal(value.numpy(), X[::-1])
    # the steps of an axis of one element are never taken
    value = OrtValue.from_dlpack(Exporter((1, 3), steps=(1 << 62, 1)).__dlpack__())
    np.testing.assert_array_equal(value.numpy(), X[:1])


def test_capsules_of_another_dlpack_are_not_read() -> None:
    structure = (ctypes.c_uint64 * 16)(2)  # version 2.0, and whatever it has
    capsule = new_capsule(ctypes.addressof(structure), b"dltensor_versioned", None)
    with pytest.raises(InvalidArgument, match=r"of DLPack 2\.0; expected 1\.x"):
        OrtValue.from_dlpack(capsule)
