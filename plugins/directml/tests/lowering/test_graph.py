"""Tensors as DirectML sees them."""

from __future__ import annotations

import pytest

from onnxplug_directml.abi.directml import DML_OPERATOR_TYPE, DML_TENSOR_DATA_TYPE
from onnxplug_directml.abi.operators import FieldKind
from onnxplug_directml.lowering.graph import Operator, TensorDesc

F32, U8 = DML_TENSOR_DATA_TYPE.FLOAT32, DML_TENSOR_DATA_TYPE.UINT8


@pytest.mark.parametrize(
    ("tensor", "wanted"),
    [
        # the last element that is reached, and all before it, in words of 4 bytes
        (TensorDesc(F32, (2, 3)), 24),
        (TensorDesc(U8, (2, 3)), 8),
        (TensorDesc(U8, (1,)), 4),
        (TensorDesc(F32, (4, 3), (0, 1)), 12),  # one row, four times
        (TensorDesc(F32, (4, 3), (0, 0)), 4),
        (TensorDesc(F32, (3, 2), (1, 3)), 24),  # turned
        (TensorDesc(F32, (2, 3), (5, 1)), 32),  # rows of 5, of which the last is cut
        (TensorDesc(DML_TENSOR_DATA_TYPE.FLOAT64, (2,)), 16),
    ],
)
def test_a_buffer_has_room_up_to_the_last_element(
    tensor: TensorDesc, wanted: int
) -> None:
    assert tensor.size_in_bytes == wanted


@pytest.mark.parametrize(
    ("sizes", "strides", "said"),
    [
        ((), None, "0 axes; DirectML takes 1 to 8"),
        ((1,) * 9, None, "9 axes"),
        ((2, 0), None, "each is 1 to 4294967295"),
        ((2**32,), None, "each is 1 to 4294967295"),
        ((2, 3), (1,), "1 strides of 2 axes"),
        ((2, 3), (-1, 1), "each is 0 to"),
    ],
)
def test_what_is_no_tensor_is_refused(
    sizes: tuple[int, ...], strides: tuple[int, ...] | None, said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        TensorDesc(F32, sizes, strides)


def test_more_elements_than_directml_counts_are_refused() -> None:
    with pytest.raises(ValueError, match="4294967296 elements"):
        TensorDesc(U8, (2**16, 2**16))


def test_arrays_are_laid_out_and_gaps_count() -> None:
    x, y = TensorDesc(F32, (1,)), TensorDesc(F32, (2,))
    join = Operator(DML_OPERATOR_TYPE.JOIN, {"InputTensors": (x, y), "OutputTensor": y})
    assert join.tensors(FieldKind.INPUT) == [x, y]
    gemm = Operator(
        DML_OPERATOR_TYPE.GEMM, {"ATensor": x, "BTensor": y, "OutputTensor": y}
    )
    assert gemm.tensors(FieldKind.INPUT) == [x, y, None]
    assert gemm.tensors(FieldKind.OUTPUT) == [y]
