"""Weights with other content than they say: the model's fault, and no EP's."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxplug
from onnxplug.errors import InvalidModel, ModelError, UnsupportedModel

FLOAT = TensorProto.FLOAT


def sparse(
    dims: list[int], indices: Any, values: Any = (1.0,)
) -> onnx.SparseTensorProto:
    return helper.make_sparse_tensor(
        numpy_helper.from_array(np.array(values, np.float32), "w"),
        numpy_helper.from_array(np.array(indices, np.int64)),
        dims,
    )


def added(*nodes: onnx.NodeProto, **stored: Any) -> bytes:
    """A model that adds *w* to its input."""
    graph = helper.make_graph(
        [*nodes, helper.make_node("Add", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", FLOAT, None)],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        **stored,
    )
    opsets = [helper.make_opsetid("", 21)]
    data: bytes = helper.make_model(
        graph, ir_version=10, opset_imports=opsets
    ).SerializeToString()
    return data


def constant(**value: Any) -> onnx.NodeProto:
    return helper.make_node("Constant", [], ["w"], **value)


OUTSIDE = {
    "past the end": ([4], [4]),
    "before the beginning": ([4], [-1]),
    "in another row": ([2, 2], [[0, 2]]),
    "of nothing": ([0], [0]),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_sparse_weights_with_an_index_outside_are_refused(name: str) -> None:
    tensor = sparse(*OUTSIDE[name])
    for model in (
        added(sparse_initializer=[tensor]),
        added(constant(sparse_value=tensor)),
    ):
        with pytest.raises(InvalidModel, match="has an index outside it: "):
            onnxplug.InferenceSession(model)


def test_sparse_weights_that_memory_does_not_hold_are_refused() -> None:
    for size in (1 << 32, 1 << 60):
        with pytest.raises(UnsupportedModel, match="when made dense"):
            onnxplug.InferenceSession(added(sparse_initializer=[sparse([size], [0])]))


def test_whole_numbers_that_are_too_few_or_too_many_are_refused() -> None:
    for numbers in ([300, 300], [1] * 5):
        # as many bytes as four numbers may have, or more
        tensor = TensorProto(data_type=2, dims=[4], int32_data=numbers, name="w")
        for model in (added(initializer=[tensor]), added(constant(value=tensor))):
            with pytest.raises(ModelError, match=f"{len(numbers)} values.*need 4"):
                onnxplug.InferenceSession(model)
