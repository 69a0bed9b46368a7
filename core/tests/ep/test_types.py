"""Element types agree with ONNX and numpy."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from onnxplug.ep import DataType, SequenceType, TensorType, ValueInfo, named_sizes

NUMBERS = sorted(set(TensorProto.DataType.values()) - {TensorProto.UNDEFINED})


def test_every_element_type_of_onnx_has_a_data_type() -> None:
    assert [DataType.from_onnx(number).onnx for number in NUMBERS] == NUMBERS
    assert len(DataType) == len(NUMBERS)


@pytest.mark.parametrize("number", NUMBERS, ids=TensorProto.DataType.Name)
def test_numpy_dtypes_are_those_of_onnx(number: int) -> None:
    expected = onnx.helper.tensor_dtype_to_np_dtype(number)
    assert DataType.from_onnx(number).numpy == expected


@pytest.mark.parametrize("data_type", DataType)
def test_numpy_dtypes_lead_back(data_type: DataType) -> None:
    assert DataType.from_numpy(data_type.numpy) is data_type


@pytest.mark.parametrize(
    "data_type", [each for each in DataType if each is not DataType.STRING]
)
def test_bits_agree_with_the_size_of_a_serialised_tensor(data_type: DataType) -> None:
    array = np.zeros(8, data_type.numpy)
    tensor = onnx.numpy_helper.from_array(array)
    assert tensor.data_type == data_type.onnx
    assert len(tensor.raw_data) == data_type.bits  # 8 elements of bits / 8 bytes


@pytest.mark.parametrize(
    "dtype", [object, "U3", "S3", np.dtypes.StringDType()], ids=str
)
def test_text_is_string(dtype: object) -> None:
    assert DataType.from_numpy(np.dtype(dtype)) is DataType.STRING


def test_byte_order_is_ignored() -> None:
    assert DataType.from_numpy(np.dtype(">f4")) is DataType.FLOAT32


@pytest.mark.parametrize("dtype", ["datetime64[s]", "V4", "longdouble"])
def test_other_dtypes_are_refused_with_the_ones_there_are(dtype: str) -> None:
    with pytest.raises(TypeError, match=r"no ONNX element type.*float32, uint8"):
        DataType.from_numpy(np.dtype(dtype))


@pytest.mark.parametrize("number", [0, -1, max(NUMBERS) + 1])
def test_undefined_numbers_are_refused(number: int) -> None:
    with pytest.raises(ValueError, match=f"element type {number} is not defined"):
        DataType.from_onnx(number)


def test_unknown_rank_is_not_a_scalar() -> None:
    unknown = ValueInfo(name="x", type=TensorType(DataType.INT8))
    scalar = ValueInfo(name="x", type=TensorType(DataType.INT8, ()))
    assert (unknown.dtype, unknown.shape) == (DataType.INT8, None)
    assert scalar.shape == ()


def test_what_is_not_a_tensor_has_neither_dtype_nor_shape() -> None:
    value = ValueInfo(name="x", type=SequenceType(TensorType(DataType.INT8, ())))
    assert (value.dtype, value.shape) == (None, None)


def test_a_shape_in_numbers() -> None:
    type_ = TensorType(shape=("batch", "past + seq", 12, None, "?"))
    assert type_.shape_for({"batch": 2, "past": 3, "seq": 1}) == (2, 4, 12, None, None)
    assert type_.shape_for({"past": 3}) == (None, None, 12, None, None)
    # an expression may be known as a whole
    assert type_.shape_for({"past + seq": 7}) == (None, 7, 12, None, None)
    assert TensorType().shape_for({}) is None
    assert TensorType(shape=()).shape_for({}) == ()


def test_what_names_of_sizes_stand_for() -> None:
    types = [
        TensorType(shape=("batch", "seq")),
        TensorType(shape=("batch", "past + seq", 12)),
        SequenceType(TensorType(shape=("n",))),
        TensorType(),
        TensorType(shape=("lost",)),
        None,
    ]
    shapes = [(2, 3), (2, 8, 12), None, (4,), None, (5,)]
    assert named_sizes(types, shapes) == {"batch": 2, "seq": 3, "past + seq": 8}
    assert named_sizes(types[:2], [(2, 3), (4, 8, 12)]) == {
        "seq": 3,
        "past + seq": 8,
    }
