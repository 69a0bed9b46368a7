"""The ONNX backend suite's models, and what it means to be equal to one."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.backend.test
import pytest
from onnx import AttributeProto, numpy_helper

from onnxplug.ep import (
    DataType,
    MapType,
    OptionalType,
    SequenceType,
    SparseTensorType,
    TensorType,
)
from onnxplug.graph import Graph, Model, Node

_DATA = Path(onnx.backend.test.__file__).parent / "data"


@pytest.fixture(scope="session")
def stored_models() -> dict[str, onnx.ModelProto]:
    """The suite's models that are files: by PyTorch, of the model zoo, simple ones."""
    return {
        str(path.relative_to(_DATA)): onnx.load(path)
        for path in sorted(_DATA.rglob("*.onnx"))
    }


@pytest.fixture(scope="session")
def node_models() -> dict[str, onnx.ModelProto]:
    """The suite's models of single operators, which onnx makes when asked: slow."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = load_model_tests(kind="node")
    return {case.name: case.model for case in cases}


@pytest.fixture(scope="session")
def assert_same() -> Callable[[Model, onnx.ModelProto], None]:
    """Compares our model with onnx's own reading, field by field."""
    return _same_model


def _same_model(ours: Model, proto: onnx.ModelProto) -> None:
    assert ours.graph.opset_imports == {
        _domain(entry.domain): entry.version for entry in proto.opset_import
    }
    _same_graph(ours.graph, proto.graph)
    assert len(ours.functions) == len(proto.functions)
    for function in proto.functions:
        found = ours.functions[function.domain, function.name, function.overload]
        assert found.body.inputs == list(function.input)
        assert found.body.outputs == list(function.output)
        assert found.attributes == tuple(function.attribute)
        _same_attributes(found.attribute_defaults, function.attribute_proto)
        _same_nodes(found.body.nodes, function.node)


def _same_graph(ours: Graph, proto: onnx.GraphProto) -> None:
    weights = {**ours.constants, **ours.defaults}
    dense = {tensor.name: tensor for tensor in proto.initializer}
    sparse = {tensor.values.name: tensor for tensor in proto.sparse_initializer}
    assert set(weights) == {*dense, *sparse}
    for name, tensor in dense.items():
        _same_tensor(weights[name].array, tensor)
        assert weights[name].shape == tuple(tensor.dims)
        assert weights[name].dtype.onnx == tensor.data_type
    inputs = [value.name for value in proto.input]
    assert ours.inputs == [name for name in inputs if name not in weights]
    assert ours.outputs == [value.name for value in proto.output]
    for value in (*proto.value_info, *proto.input, *proto.output):
        if value.type.WhichOneof("value") and value.name not in ours.constants:
            assert ours.value(value.name).type == _type(value.type), value.name
    _same_nodes(ours.nodes, proto.node)


def _same_nodes(ours: list[Node], protos: Any) -> None:
    assert len(ours) == len(protos)
    for node, proto in zip(ours, protos, strict=True):
        assert node.op_type == proto.op_type
        assert node.name == proto.name
        assert node.domain == _domain(proto.domain)
        assert node.overload == proto.overload
        assert _names(node.inputs) == _names(proto.input)
        assert _names(node.outputs) == _names(proto.output)
        _same_attributes(node.typed_attributes, proto.attribute)


def _domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def _names(names: Any) -> list[str]:
    listed = [name or "" for name in names]
    while listed and not listed[-1]:
        listed.pop()
    return listed


def _same_attributes(ours: Mapping[str, Any], protos: Any) -> None:
    assert sorted(ours) == sorted(proto.name for proto in protos)
    for proto in protos:
        attribute = ours[proto.name]
        assert int(attribute.type) == proto.type
        assert attribute.reference == proto.ref_attr_name
        if not proto.ref_attr_name:
            _same_value(attribute.value, proto)


def _same_value(ours: Any, proto: AttributeProto) -> None:
    theirs = onnx.helper.get_attribute_value(proto)
    match proto.type:
        case AttributeProto.TENSOR:
            _same_tensor(ours.array, theirs)
        case AttributeProto.TENSORS:
            for each, tensor in zip(ours, theirs, strict=True):
                _same_tensor(each.array, tensor)
        case AttributeProto.GRAPH:
            _same_graph(ours, theirs)
        case AttributeProto.TYPE_PROTO:
            assert ours == _type(theirs)
        case AttributeProto.SPARSE_TENSOR:
            _same_tensor(ours.values, theirs.values)
            _same_tensor(ours.indices, theirs.indices)
            assert ours.shape == tuple(theirs.dims)
        case AttributeProto.STRING:
            assert ours == theirs.decode()
        case AttributeProto.STRINGS:
            assert list(ours) == [text.decode() for text in theirs]
        case AttributeProto.FLOAT | AttributeProto.FLOATS:
            assert np.array_equal(ours, theirs, equal_nan=True)
        case AttributeProto.INT | AttributeProto.INTS:
            assert ours == (theirs if isinstance(theirs, int) else tuple(theirs))
        case other:
            raise AssertionError(f"the suite has an attribute of type {other}")


def _same_tensor(ours: np.ndarray, proto: onnx.TensorProto) -> None:
    theirs = numpy_helper.to_array(proto)
    assert not ours.flags.writeable
    assert ours.flags.aligned
    assert ours.shape == theirs.shape
    if proto.data_type == onnx.TensorProto.STRING:
        assert ours.dtype == object
        assert ours.tolist() == theirs.astype(object).tolist()
    else:
        assert ours.dtype == theirs.dtype
        assert ours.tobytes() == theirs.tobytes()


def _type(proto: onnx.TypeProto) -> Any:
    """An ``onnx.TypeProto`` as ours, read through protobuf's own classes."""
    kind = proto.WhichOneof("value")
    match kind:
        case "tensor_type" | "sparse_tensor_type":
            tensor = getattr(proto, kind)
            dtype = DataType.from_onnx(tensor.elem_type) if tensor.elem_type else None
            shape = None
            if tensor.HasField("shape"):
                shape = tuple(
                    d.dim_value if d.HasField("dim_value") else d.dim_param or None
                    for d in tensor.shape.dim
                )
            return (TensorType if kind == "tensor_type" else SparseTensorType)(
                dtype, shape
            )
        case "sequence_type":
            return SequenceType(_type(proto.sequence_type.elem_type))
        case "optional_type":
            return OptionalType(_type(proto.optional_type.elem_type))
        case "map_type":
            key = DataType.from_onnx(proto.map_type.key_type)
            return MapType(key, _type(proto.map_type.value_type))
    return None
