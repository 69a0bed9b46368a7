"""The parser, networks, and refitting."""

from __future__ import annotations

import ctypes
from typing import Any

import onnx
from onnx import numpy_helper

from . import enums

READ_AS_SHAPES = {
    "Reshape": (1,),
    "Expand": (1,),
    "ConstantOfShape": (0,),
    "Tile": (1,),
    "Slice": (1, 2),
}
"""Inputs whose elements TensorRT has to know before it runs, by operator."""


class ITensor:
    def __init__(self, value: onnx.ValueInfoProto, *, is_shape_tensor: bool) -> None:
        self.name = value.name
        self.shape = shape_of(value)
        self.is_shape_tensor = is_shape_tensor


class INetworkDefinition:
    world: Any

    def __init__(self) -> None:
        self.model: onnx.ModelProto | None = None
        self.weights: dict[str, tuple[int, int]] = {}
        self._flags = 0
        self.world.networks.append(self)

    @property
    def _inputs(self) -> list[ITensor]:
        assert self.model is not None
        graph = self.model.graph
        shapes = {
            node.input[index]
            for node in graph.node
            for index in READ_AS_SHAPES.get(node.op_type, ())
            if index < len(node.input)
        }
        return [
            ITensor(value, is_shape_tensor=value.name in shapes)
            for value in graph.input
        ]

    @property
    def num_inputs(self) -> int:
        return len(self._inputs)

    def get_input(self, index: int) -> ITensor:
        return self._inputs[index]


class ParserError:
    def __init__(self, node: int, code: str, desc: str) -> None:
        self._node, self._code, self._desc = node, code, desc

    def node(self) -> int:
        return self._node

    def code(self) -> enums.ErrorCode:
        return enums.ErrorCode[self._code]

    def desc(self) -> str:
        return self._desc


class OnnxParser:
    world: Any

    def __init__(self, network: INetworkDefinition, logger: Any) -> None:
        assert getattr(logger, "_is_begun", True)
        self._network = network
        self._errors: list[ParserError] = []
        self._subgraphs: list[tuple[bool, list[int]]] = []

    @property
    def num_errors(self) -> int:
        return len(self._errors)

    @property
    def num_subgraphs(self) -> int:
        return len(self._subgraphs)

    def get_error(self, index: int) -> ParserError:
        return self._errors[index]

    def supports_operator(self, op_name: str) -> bool:
        return op_name not in ("Unheard", "Det")

    def supports_model_v2(self, model: bytes, path: str | None = None) -> bool:
        self.world.check_context("supports_model_v2")
        self.world.counts["supports_model_v2"] += 1
        read = onnx.load_from_string(bytes(model))
        for tensor in read.graph.initializer:
            numpy_helper.to_array(tensor)  # their content is there
        self._look(read)
        return not self._errors

    def _look(self, model: onnx.ModelProto) -> None:
        """As the real one: it ends at the first node that it does not take, which it
        names if it could not read it; if it knows not to support it, it takes none."""
        self._errors, self._subgraphs = [], []
        for index, node in enumerate(model.graph.node):
            refused = self.world.refused.get(node.op_type)
            if refused:
                is_read = refused[0] != "INVALID_NODE"
                self._errors = [ParserError(-1 if is_read else index, *refused)]
                if is_read:
                    self._subgraphs = [(False, list(range(len(model.graph.node))))]
                return

    def is_subgraph_supported(self, index: int) -> bool:
        return self._subgraphs[index][0]

    def get_subgraph_nodes(self, index: int) -> list[int]:
        return self._subgraphs[index][1]

    def load_model_proto(self, model: bytes, path: str | None = None) -> bool:
        assert self._network.model is None, "one model only"
        self._network.model = onnx.load_from_string(bytes(model))
        return True

    def load_initializer(self, name: str, data: int, size: int) -> bool:
        return put(self._network, name, data, size)

    def parse_model_proto(self) -> bool:
        self.world.check_context("parse_model_proto")
        assert self._network.model is not None
        self._look(self._network.model)
        return not self._errors


class Refitter:
    world: Any

    def __init__(self, engine: Any, logger: Any) -> None:
        self.engine = engine
        self.weights: dict[str, onnx.TensorProto] = {}

    def refit_cuda_engine(self) -> bool:
        self.world.counts["refits"] += 1
        self.engine.fill(self.weights)
        return True


class OnnxParserRefitter:
    world: Any

    def __init__(self, refitter: Refitter, logger: Any) -> None:
        self._refitter = refitter
        self._network: INetworkDefinition = self.world.INetworkDefinition()

    def load_model_proto(self, model: bytes, path: str | None = None) -> bool:
        self._network.model = onnx.load_from_string(bytes(model))
        return True

    def load_initializer(self, name: str, data: int, size: int) -> bool:
        return put(self._network, name, data, size)

    def refit_model_proto(self) -> bool:
        whole = with_weights(self._network)
        self._refitter.weights = {each.name: each for each in whole.graph.initializer}
        return True


def put(network: INetworkDefinition, name: str, data: int, size: int) -> bool:
    """Take the place of a weight, which is not read yet."""
    assert network.model is not None
    for tensor in network.model.graph.initializer:
        if tensor.name == name:
            wanted = numpy_helper.to_array(_zeros(tensor)).nbytes
            network.weights[name] = data, size
            return bool(wanted == size)
    return False


def _zeros(tensor: onnx.TensorProto) -> onnx.TensorProto:
    """A tensor as large as one without content."""
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    count = 1
    for size in tensor.dims:
        count *= size
    made = onnx.TensorProto(data_type=tensor.data_type, dims=tensor.dims)
    made.raw_data = bytes(count * dtype.itemsize)
    return made


def with_weights(network: INetworkDefinition) -> onnx.ModelProto:
    """The model, its weights read from where they are."""
    assert network.model is not None
    model = onnx.ModelProto()
    model.CopyFrom(network.model)
    for tensor in model.graph.initializer:
        if tensor.name in network.weights:
            assert tensor.data_location == tensor.DEFAULT, "it would look for a file"
            tensor.raw_data = ctypes.string_at(*network.weights[tensor.name])
    return model


def shape_of(value: onnx.ValueInfoProto) -> tuple[int, ...]:
    """A value's shape; -1 where a size is open."""
    return tuple(
        dim.dim_value if dim.HasField("dim_value") else -1
        for dim in value.type.tensor_type.shape.dim
    )


CLASSES = (INetworkDefinition, OnnxParser, Refitter, OnnxParserRefitter)
