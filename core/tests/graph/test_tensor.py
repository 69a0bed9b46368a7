"""Tensors: every element type, every way of storing it, and wrong sizes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from onnxplug.ep import DataType
from onnxplug.errors import InvalidModel, UnsupportedModel
from onnxplug.graph.load import load_model


def model_of(*initializers: TensorProto) -> onnx.ModelProto:
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    node = helper.make_node("Constant", [], ["y"], value_int=0)
    graph = helper.make_graph([node], "main", [], [y], initializers)
    return helper.make_model(graph)


def weight_of(tensor: TensorProto) -> np.ndarray:
    tensor.name = "w"
    array = load_model(model_of(tensor)).graph.constant("w")
    assert array is not None
    return array


ALL_TYPES = [dtype for dtype in DataType if dtype is not DataType.STRING]


def values_of(dtype: DataType, count: int) -> np.ndarray:
    random = np.random.default_rng(dtype.onnx)
    if dtype is DataType.BOOL:
        return random.random(count) > 0.5
    small = random.integers(-100, 100, count)
    if dtype.numpy.kind == "u" or dtype.value.startswith("u"):
        small = abs(small)
    return small.astype(np.float32).astype(dtype.numpy)


@pytest.mark.parametrize("dtype", ALL_TYPES)
def test_every_element_type_is_read(dtype: DataType) -> None:
    for shape in ((), (0,), (1,), (5,), (3, 7), (2, 0, 3), (4, 3)):
        for raw in (True, False):
            check_reading(dtype, shape, raw)


def check_reading(dtype: DataType, shape: tuple[int, ...], raw: bool) -> None:
    expected = values_of(dtype, int(np.prod(shape))).reshape(shape)
    if raw:
        tensor = numpy_helper.from_array(expected)
    else:
        tensor = helper.make_tensor("w", dtype.onnx, shape, expected.reshape(-1))
        assert not tensor.HasField("raw_data")
    found = weight_of(tensor)
    assert found.dtype == dtype.numpy
    assert found.shape == shape
    assert found.tobytes() == numpy_helper.to_array(tensor).tobytes()
    assert found.tobytes() == expected.tobytes()
    assert not found.flags.writeable


def test_float6_entries_are_one_element_each() -> None:
    tensor = TensorProto(data_type=TensorProto.FLOAT6E2M3, dims=[3])
    tensor.int32_data.extend([0b001000, 0b101000, 0b011111])
    found = weight_of(tensor)
    assert found.dtype == ml_dtypes.float6_e2m3fn
    assert found.astype(np.float32).tolist() == [1.0, -1.0, 7.5]


def test_strings_are_text_in_an_object_array() -> None:
    tensor = helper.make_tensor("w", TensorProto.STRING, [2, 2], ["a", "", "ü", "d"])
    found = weight_of(tensor)
    assert found.dtype == object
    assert found.tolist() == [["a", ""], ["ü", "d"]]


def test_strings_that_are_not_utf8_survive() -> None:
    tensor = TensorProto(data_type=TensorProto.STRING, dims=[1], string_data=[b"\xff"])
    assert weight_of(tensor)[0].encode("utf-8", "surrogateescape") == b"\xff"


def test_negative_integers_of_every_width_are_read() -> None:
    for dtype in ("INT8", "INT16", "INT32", "INT64"):
        kind = getattr(TensorProto, dtype)
        tensor = helper.make_tensor("w", kind, [3], [-1, -128, 127])
        assert weight_of(tensor).tolist() == [-1, -128, 127]


def test_bools_are_normal_whatever_the_bytes() -> None:
    tensor = TensorProto(data_type=TensorProto.BOOL, dims=[4], raw_data=b"\0\1\2\xff")
    found = weight_of(tensor)
    assert found.view(np.uint8).tolist() == [0, 1, 1, 1]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=40))
def test_any_int64_data_is_read(values: list[int]) -> None:
    tensor = helper.make_tensor("w", TensorProto.INT64, [len(values)], values)
    assert weight_of(tensor).tolist() == values


def test_complex_numbers_are_pairs() -> None:
    for kind in (TensorProto.COMPLEX64, TensorProto.COMPLEX128):
        tensor = helper.make_tensor("w", kind, [2], [1 + 2j, -3j])
        assert weight_of(tensor).tolist() == [1 + 2j, -3j]


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        (TensorProto(data_type=1, dims=[3], raw_data=bytes(8)), "8 bytes.* need 12"),
        (TensorProto(data_type=1, dims=[1], raw_data=bytes(8)), "8 bytes.* need 4"),
        (TensorProto(data_type=1, dims=[3]), "0 bytes.* need 12"),
        (TensorProto(data_type=1, dims=[3], float_data=[1.0]), "4 bytes.* need 12"),
        (
            TensorProto(data_type=7, dims=[3], int64_data=[1]),
            "1 values.* need 3",
        ),
        (TensorProto(data_type=7, dims=[1], int64_data=[1, 2]), "2 values.* need 1"),
        # as many bytes as values are needed, and fewer values
        (
            TensorProto(data_type=7, dims=[4], int64_data=[300, 300]),
            "2 values.* need 4",
        ),
        (TensorProto(data_type=8, dims=[3], string_data=[b"a"]), "1 strings.* need 3"),
        (TensorProto(data_type=22, dims=[3], raw_data=bytes(3)), "3 bytes.* need 2"),
        (TensorProto(data_type=27, dims=[5], raw_data=bytes(3)), "3 bytes.* need 4"),
        (TensorProto(data_type=1, dims=[-1]), "negative size"),
        (TensorProto(data_type=1, dims=[2**31, 2**31]), "more bytes than can be"),
        (TensorProto(data_type=1, dims=[0, 2**62, 2**62]), "more bytes than can be"),
        (TensorProto(data_type=1, dims=[2**60], raw_data=b"1234"), "4 bytes.* need"),
        (TensorProto(data_type=0, dims=[1]), "element type 0 is not defined"),
        (TensorProto(data_type=29, dims=[1]), "element type 29 is not defined"),
        (TensorProto(data_type=-1, dims=[1]), "element type -1 is not defined"),
    ],
)
def test_a_tensor_s_size_is_checked_when_it_is_loaded(
    tensor: TensorProto, expected: str
) -> None:
    tensor.name = "w"
    with pytest.raises(InvalidModel, match=f"tensor 'w'.*{expected}"):
        load_model(model_of(tensor))


@pytest.mark.parametrize(
    "tensor",
    [
        TensorProto(data_type=1, dims=[1] * 65, raw_data=bytes(4)),
        TensorProto(data_type=1, segment=TensorProto.Segment(begin=0, end=1)),
    ],
)
def test_tensors_that_cannot_be_held_are_unsupported(tensor: TensorProto) -> None:
    with pytest.raises(UnsupportedModel):
        load_model(model_of(tensor))


# sparse initializers


def sparse_model(
    values: Any, indices: Any, dims: list[int], dtype: Any = np.float32
) -> onnx.ModelProto:
    proto = model_of()
    sparse = proto.graph.sparse_initializer.add()
    sparse.dims.extend(dims)
    sparse.values.CopyFrom(numpy_helper.from_array(np.array(values, dtype), "w"))
    sparse.indices.CopyFrom(numpy_helper.from_array(np.array(indices, np.int64), "i"))
    return proto


def test_sparse_initializers_are_dense_constants() -> None:
    for indices in ([1, 5], [[0, 1], [1, 2]]):
        graph = load_model(sparse_model([7, 8], indices, [2, 3])).graph
        assert graph.value("w").is_constant
        assert graph.value("w").shape == (2, 3)
        assert graph.constant("w").tolist() == [[0, 7, 0], [0, 0, 8]]


@pytest.mark.parametrize(
    ("values", "indices", "dims"),
    [
        ([1, 2], [1], [4]),
        ([1], [[0, 0]], [4]),
        ([[1]], [0], [4]),
        ([1], [[[0]]], [4]),
        ([1], [0], [-4]),
    ],
)
def test_sparse_parts_that_do_not_fit_are_refused(
    values: Any, indices: Any, dims: list[int]
) -> None:
    with pytest.raises(InvalidModel):
        load_model(sparse_model(values, indices, dims))


@pytest.mark.parametrize("indices", [[4], [-1], [2**62]])
def test_sparse_indices_outside_are_refused(indices: list[int]) -> None:
    words = rf"tensor 'w' of shape \[4\] has an index outside it: {indices[0]}"
    with pytest.raises(InvalidModel, match=words):
        load_model(sparse_model([1], indices, [4]))


def test_a_sparse_tensor_that_would_be_huge_is_refused() -> None:
    with pytest.raises(UnsupportedModel, match="made dense"):
        load_model(sparse_model([1], [0], [2**50]))
