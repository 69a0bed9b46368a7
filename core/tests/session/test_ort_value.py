"""Values with a place: shared with numpy, checked when they are written."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto

from onnxplug.ep import DataType, SparseTensor
from onnxplug.errors import (
    ArgumentTypeError,
    InvalidArgument,
    OutOfMemory,
    OutputMismatch,
)
from onnxplug.session.ort_value import OrtValue

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_a_value_shares_its_array_and_keeps_it_alive() -> None:
    array = X.copy()
    value = OrtValue.ortvalue_from_numpy(array)
    array[0, 0] = 7
    assert value.numpy()[0, 0] == 7
    del array
    assert value.numpy()[0, 0] == 7


def test_what_a_value_tells() -> None:
    value = OrtValue.ortvalue_from_numpy(X)
    assert value.shape() == [2, 3]
    assert value.data_type() == "tensor(float)"
    assert value.element_type() == 1
    assert value.device_name() == "cpu"
    assert value.tensor_size_in_bytes() == 24
    assert value.data_ptr() == X.ctypes.data
    assert value.has_value() and value.is_tensor()
    assert not value.is_sparse_tensor() and not value.is_tensor_sequence()
    assert not OrtValue(None).has_value()


@pytest.mark.parametrize("name", ["bfloat16", "float8_e5m2", "int4", "bool", "int64"])
def test_every_element_type_is_a_numpy_dtype(name: str) -> None:
    dtype = getattr(ml_dtypes, name, None) or np.dtype(name)
    value = OrtValue.ortvalue_from_numpy(np.ones((2, 2), dtype))
    assert value.numpy().dtype == dtype


def test_other_layouts_and_byte_orders_are_copied() -> None:
    for array in (X.T, X.astype(">f4"), X[:, ::2]):
        value = OrtValue.ortvalue_from_numpy(array)
        np.testing.assert_array_equal(value.numpy(), array)
        assert value.numpy().flags.c_contiguous and value.numpy().dtype.isnative


def test_from_shape_and_type() -> None:
    for element_type in (np.float16, np.dtype("f2"), 10):
        value = OrtValue.ortvalue_from_shape_and_type([2, 3], element_type)
        assert value.shape() == [2, 3] and value.element_type() == 10


def test_bytes_are_read_as_another_type_of_the_same_size() -> None:
    bits = np.array([0x3F80], np.uint16)
    value = OrtValue.ortvalue_from_numpy_with_onnx_type(bits, 16)
    assert value.numpy().dtype == ml_dtypes.bfloat16 and value.numpy()[0] == 1
    with pytest.raises(InvalidArgument, match="have 2 bytes, and those of float32 4"):
        OrtValue.ortvalue_from_numpy_with_onnx_type(bits, 1)


def test_dlpack_both_ways() -> None:
    value = OrtValue.ortvalue_from_numpy(X.copy())
    taken = np.from_dlpack(value)
    assert np.shares_memory(taken, value.numpy())
    for array in (X.copy(), np.array([True, False])):
        back = OrtValue.from_dlpack(array)
        np.testing.assert_array_equal(back.numpy(), array)
    flags = OrtValue.from_dlpack(np.array([1, 0], np.uint8), is_bool_tensor=True)
    assert flags.numpy().tolist() == [True, False]
    assert value.__dlpack_device__() == (1, 0)


class Unwilling:
    """As a tensor of a device."""

    def __dlpack__(self, **options: object) -> object:
        raise RuntimeError("not on the host")

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0


def test_dlpack_shares_odd_arrays_or_refuses_them() -> None:
    odd = np.empty(4 * X.size + 1, np.uint8)[1:].view(np.float32)
    odd[:] = X.ravel()
    read_only = X.copy()
    read_only.flags.writeable = False
    for array in (X.T, X[:, ::-1], np.broadcast_to(X[:1], (3, 3)), odd, read_only):
        value = OrtValue.from_dlpack(array)
        np.testing.assert_array_equal(value.numpy(), array)
        assert np.shares_memory(value.numpy(), array)
        back = np.from_dlpack(OrtValue.ortvalue_from_numpy(array))
        np.testing.assert_array_equal(back, array)
    for wrong in (X.astype(">f4"), X.astype(object)):
        with pytest.raises(InvalidArgument, match="gives numpy no array by DLPack"):
            OrtValue.from_dlpack(wrong)
    with pytest.raises(InvalidArgument, match=r"DLPack's device \(2, 0\)"):
        OrtValue.from_dlpack(Unwilling())


def test_only_zeros_and_ones_of_a_byte_are_booleans() -> None:
    flags = np.array([1, 0, 1], np.uint8)
    for value in (
        OrtValue.from_dlpack(flags[::-1], is_bool_tensor=True),
        OrtValue.ortvalue_from_numpy_with_onnx_type(flags, 9),
    ):
        assert value.numpy().tolist() == [True, False, True]
    for wrong in (2 * flags, X):
        with pytest.raises(InvalidArgument, match=r"boolean|and those of bool 1"):
            OrtValue.from_dlpack(wrong, is_bool_tensor=True)
        with pytest.raises(InvalidArgument, match=r"boolean|and those of bool 1"):
            OrtValue.ortvalue_from_numpy_with_onnx_type(wrong, 9)
    # a pointer is as long as a number of 64 bits, and none
    texts = np.array(["a"], object)
    for array, number in ((texts, 7), (np.array([1]), 8)):
        with pytest.raises(InvalidArgument, match="strings have no bytes"):
            OrtValue.ortvalue_from_numpy_with_onnx_type(array, number)


def test_shapes_have_sizes_of_zero_or_more() -> None:
    for shape in ([-1], [2, -3], [1 << 62, 4]):
        with pytest.raises(InvalidArgument, match="the shape"):
            OrtValue.ortvalue_from_shape_and_type(shape, np.float32)


@pytest.mark.parametrize("shape", ["12", None, 6, [2.5]])
def test_what_is_no_list_of_sizes_is_no_shape(shape: Any) -> None:
    with pytest.raises(ArgumentTypeError, match=r"a shape is .*; expected a list of"):
        OrtValue.ortvalue_from_shape_and_type(shape, np.float32)


def test_a_tensor_has_no_more_axes_than_numpys_arrays() -> None:
    assert OrtValue.ortvalue_from_shape_and_type([1] * 64, np.float32)
    with pytest.raises(InvalidArgument, match="65 sizes; numpy has at most 64"):
        OrtValue.ortvalue_from_shape_and_type([1] * 65, np.float32)


@pytest.mark.parametrize("element_type", ["nonsense", None, object(), "M8[s]", [1]])
def test_what_is_no_element_type_is_refused(element_type: Any) -> None:
    with pytest.raises(ArgumentTypeError, match="an element type is "):
        OrtValue.ortvalue_from_shape_and_type([2], element_type)


def test_numbers_that_onnx_gives_no_element_type_are_refused() -> None:
    for make in (
        lambda: OrtValue.ortvalue_from_shape_and_type([2], 77),
        lambda: OrtValue.ortvalue_from_numpy_with_onnx_type(X, 77),
    ):
        with pytest.raises(InvalidArgument, match="77 is not defined by ONNX"):
            make()


def test_a_tensor_larger_than_memory_is_told_so() -> None:
    for element_type in (DataType.FLOAT32, DataType.STRING):
        with pytest.raises(
            OutOfMemory, match=r"\[1099511627776\] needs more"
        ) as caught:
            OrtValue.ortvalue_from_shape_and_type([1 << 40], element_type)
        assert caught.value.nbytes == element_type.numpy.itemsize << 40


def test_a_new_tensor_of_strings_has_strings() -> None:
    value = OrtValue.ortvalue_from_shape_and_type([2], TensorProto.STRING)
    assert value.numpy().tolist() == ["", ""]
    for make in (
        lambda: OrtValue.ortvalue_from_shape_and_type([2], object, "cuda"),
        lambda: OrtValue.ortvalue_from_numpy(np.array(["a"], object), "cuda"),
    ):
        with pytest.raises(InvalidArgument, match="only the host holds them"):
            make()


@pytest.mark.parametrize("place", [(3, 0), (None, 0), ("cuda", "x"), ("cuda", 1.5)])
def test_a_device_is_a_name_and_a_number(place: Any) -> None:
    for make in (
        lambda: OrtValue.ortvalue_from_shape_and_type([2], np.float32, *place),
        lambda: OrtValue.ortvalue_from_numpy(X, *place),
    ):
        with pytest.raises(ArgumentTypeError, match=r"a device (is|has number) "):
            make()
    with pytest.raises(InvalidArgument, match="number -1; expected 0 or more"):
        OrtValue.ortvalue_from_numpy(X, "cuda", -1)


def test_what_is_read_only_is_not_updated() -> None:
    array = X.copy()
    array.flags.writeable = False
    with pytest.raises(OutputMismatch, match="read-only"):
        OrtValue.ortvalue_from_numpy(array).update_inplace(X + 1)
    np.testing.assert_array_equal(array, X)


def test_update_in_place_checks_shape_and_element_type() -> None:
    array = X.copy()
    value = OrtValue.ortvalue_from_numpy(array)
    value.update_inplace(X + 1)
    np.testing.assert_array_equal(array, X + 1)
    for wrong in (X.astype(np.float64), X.astype(np.int8), X.reshape(3, 2), X[0]):
        with pytest.raises(OutputMismatch, match="expected the same"):
            value.update_inplace(wrong)
    with pytest.raises(OutputMismatch, match="masked array"):
        value.update_inplace(np.ma.masked_less(X, 1))
    np.testing.assert_array_equal(array, X + 1)
    value.update_inplace(OrtValue.ortvalue_from_numpy(X))
    np.testing.assert_array_equal(array, X)


def test_sequences_have_lists_and_no_shape() -> None:
    value = OrtValue([X, X])
    assert value.is_tensor_sequence() and value.data_type() == "seq(tensor(float))"
    assert len(value.to_list()) == 2
    for ask in (value.numpy, value.shape, value.data_ptr, value.element_type):
        with pytest.raises(InvalidArgument, match="not a tensor"):
            ask()


def test_a_sparse_tensor_has_no_address() -> None:
    sparse = SparseTensor(values=X[0], indices=np.arange(3), shape=(9,))
    value = OrtValue(sparse)
    assert value.is_sparse_tensor() and not value.is_tensor()
    assert value.data_type() == "sparse_tensor(float)" and value.raw is sparse
    with pytest.raises(InvalidArgument, match=r"sparse_tensor\(float\), not a tensor"):
        value.numpy()


def test_what_is_no_array_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="from a list"):
        OrtValue.ortvalue_from_numpy([1.0])  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="text"):
        OrtValue.ortvalue_from_numpy(np.array(["a"]))


def test_a_device_nobody_has_is_named() -> None:
    with pytest.raises(InvalidArgument, match="no installed EP has memory named 'tpu'"):
        OrtValue.ortvalue_from_numpy(X, "tpu")
