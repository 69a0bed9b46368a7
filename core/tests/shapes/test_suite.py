"""The rules against ONNX's own cases of single operators, and its own inference."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx.shape_inference
import pytest

from onnxplug.ep import MapType, OptionalType, SequenceType, TensorType, ValueType
from onnxplug.graph import Graph
from onnxplug.graph.load import load_model
from onnxplug.graph.scopes import all_graphs
from onnxplug.graph.value_type import read_type
from onnxplug.graph.wire import Message
from onnxplug.prepare.infer import infer_types
from onnxplug.prepare.inline import inline_functions
from onnxplug.shapes.stated import is_known

OPEN = {
    # the sizes of targets are fed, and nothing else says their ranks
    "test_affine_grid_2d_align_corners_expanded",
    "test_affine_grid_2d_expanded",
    "test_affine_grid_3d_align_corners_expanded",
    "test_affine_grid_3d_expanded",
    # states that are of another rank at first, or an optional of what they are later
    "test_loop16_seq_none",
    "test_range_bfloat16_type_positive_delta_expanded",
    "test_range_float16_type_positive_delta_expanded",
    "test_range_float_type_positive_delta_expanded",
    "test_range_int32_type_negative_delta_expanded",
}
"""Cases of which an element type or a rank depends on what is fed."""

LESS = {
    # these two are wrong: elements of the sequence need not be of the shape said
    "test_loop13_seq",
    "test_loop16_seq_none",
    # the states of a Scan are taken to keep their sizes
    "test_linear_attention_gated_delta_mqa_expanded",
    # the body declares sizes that it may be wrong in
    "test_loop11",
}
"""Cases of which ONNX claims to know more."""


@pytest.fixture(scope="module")
def inferred(suite) -> list[tuple[Any, Graph]]:
    """The cases, and their graphs with no types but those that follow from inputs."""
    found = []
    for case in suite:
        if case.model is None:
            continue
        model = load_model(case.model)
        inline_functions(model)
        for graph in all_graphs(model.graph):
            for node in graph.nodes:
                for name in filter(None, node.outputs):
                    graph.types.pop(name, None)
        infer_types(model.graph)
        found.append((case, model.graph))
    return found


def test_what_follows_is_what_the_suite_expects(inferred):
    followed, wrong = 0, []
    for case, graph in inferred:
        if not case.data_sets:
            continue
        _, expected = case.data_sets[0]
        for name, value in zip(graph.outputs, expected, strict=False):
            found = graph.types.get(name)
            if isinstance(value, onnx.TensorProto):
                continue  # of an element type that numpy lacks
            if not _fits(found, value):
                wrong.append(f"{case.name}: {found} for {type(value)} {value!r:.80}")
            followed += isinstance(found, TensorType) and found.shape is not None
    assert not wrong, "\n".join(wrong)
    assert followed > 1300


def _fits(found: ValueType | None, value: Any) -> bool:
    match found:
        case TensorType(dtype, shape):
            array = np.asarray(value)
            return dtype in (None, _dtype(array)) and (
                shape is None
                or (
                    len(shape) == array.ndim
                    and all(
                        size == actual or not isinstance(size, int)
                        for size, actual in zip(shape, array.shape, strict=True)
                    )
                )
            )
        case SequenceType(element):
            return isinstance(value, list) and all(_fits(element, v) for v in value)
        case OptionalType(element):
            return value is None or _fits(element, value)
        case MapType():
            return isinstance(value, dict)
    return found is None


def _dtype(array: np.ndarray[Any, Any]) -> Any:
    from onnxplug.ep import DataType

    return DataType.from_numpy(array.dtype)


def test_element_types_and_ranks_are_known_of_every_node(inferred):
    open_cases = {
        case.name
        for case, graph in inferred
        for node in graph.nodes
        for name in filter(None, node.outputs)
        if not is_known(graph.types.get(name))
    }
    assert open_cases == OPEN


def test_as_much_follows_as_onnx_infers(inferred):
    compared, wrong = 0, []
    for case, graph in inferred:
        for name, theirs in _of_onnx(case.model):
            if name not in graph.types:
                continue  # within a function
            compared += 1
            if not _says(graph.types[name], theirs) and case.name not in LESS:
                wrong.append(f"{case.name}: {graph.types[name]}, ONNX says {theirs}")
    assert not wrong, "\n".join(wrong)
    assert compared > 10_000


def _of_onnx(model: onnx.ModelProto) -> Iterator[tuple[str, ValueType | None]]:
    """The types that ONNX infers of what the model does not state."""
    asked = onnx.ModelProto()
    asked.CopyFrom(model)
    asked.graph.ClearField("value_info")
    for output in asked.graph.output:
        output.ClearField("type")
    try:
        graph = onnx.shape_inference.infer_shapes(asked, data_prop=True).graph
    except onnx.shape_inference.InferenceError:
        return  # without its outputs' types, one case stops it
    for value in (*graph.value_info, *graph.output):
        proto = value.type.SerializeToString()
        yield value.name, read_type(Message.whole(memoryview(proto)))


def _says(ours: ValueType | None, theirs: ValueType | None) -> bool:
    """Whether *ours* says all that *theirs* says of kinds, types, ranks and sizes."""
    match ours, theirs:
        case TensorType(), TensorType():
            return theirs.dtype in (None, ours.dtype) and (
                theirs.shape is None
                or (
                    ours.shape is not None
                    and len(ours.shape) == len(theirs.shape)
                    and all(
                        one == other or not isinstance(other, int)
                        for one, other in zip(ours.shape, theirs.shape, strict=True)
                    )
                )
            )
        case (SequenceType(), SequenceType()) | (OptionalType(), OptionalType()):
            return _says(ours.element, theirs.element)
        case MapType(), MapType():
            return ours.key == theirs.key
    return theirs is None
