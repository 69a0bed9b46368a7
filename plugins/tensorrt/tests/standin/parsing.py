"""The parser, networks, and refitting."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
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


class ITensorBefore11(ITensor):
    """As documented of TensorRT 10."""

    def __init__(
        self,
        value: onnx.ValueInfoProto,
        network: INetworkDefinition,
        *,
        is_shape_tensor: bool = False,
    ) -> None:
        super().__init__(value, is_shape_tensor=is_shape_tensor)
        self.dtype = _DTYPES[value.type.tensor_type.elem_type]
        self._network = network

    def set_dynamic_range(self, min: float, max: float) -> bool:
        assert not self._network._flags & 1 << 1, "a network that is strongly typed"
        self._network._ranges[self.name] = min, max
        return self.name not in self._network.world.rangeless


_DTYPES = {
    onnx.TensorProto.FLOAT: enums.DataType.FLOAT,
    onnx.TensorProto.FLOAT16: enums.DataType.HALF,
    onnx.TensorProto.BFLOAT16: enums.DataType.BF16,
    onnx.TensorProto.INT64: enums.DataType.INT64,
}


class ILayer:
    def __init__(self, kind: enums.LayerType, *outputs: ITensor) -> None:
        self._kind, self._outputs = kind, outputs
        self._elements: Any = None

    @property
    def type(self) -> enums.LayerType:
        return self._kind

    @property
    def num_outputs(self) -> int:
        return len(self._outputs)

    def get_output(self, index: int) -> ITensor:
        return self._outputs[index]


class IConstantLayer(ILayer):
    @property
    def weights(self) -> Any:
        return self._elements


class INetworkDefinition:
    world: Any

    def __init__(self) -> None:
        self.model: onnx.ModelProto | None = None
        self.weights: dict[str, tuple[int, int]] = {}
        self._flags = 0
        self._ranges: dict[str, tuple[float, float]] = {}
        self.world.networks.append(self)

    @property
    def _inputs(self) -> Sequence[ITensor]:
        assert self.model is not None
        graph = self.model.graph
        shapes = {
            node.input[index]
            for node in graph.node
            for index in READ_AS_SHAPES.get(node.op_type, ())
            if index < len(node.input)
        }
        made = []
        for value in graph.input:
            is_shape = value.name in shapes
            if self.world.__version__.startswith("10."):
                made.append(ITensorBefore11(value, self, is_shape_tensor=is_shape))
            else:
                made.append(ITensor(value, is_shape_tensor=is_shape))
        return made

    @property
    def _layers(self) -> list[ILayer]:
        """Of TensorRT 10: one of each constant, and of each node."""
        assert self.model is not None
        graph = with_weights(self).graph
        values = {each.name: each for each in (*graph.value_info, *graph.output)}
        layers = []
        for tensor in graph.initializer:
            value = onnx.helper.make_tensor_value_info(
                f"{tensor.name}_output", tensor.data_type, tensor.dims
            )
            layer = ILayer(enums.LayerType.CONSTANT, ITensorBefore11(value, self))
            layer._elements = numpy_helper.to_array(tensor)
            layers.append(layer)
        for node in graph.node:
            outputs = [
                ITensorBefore11(values.get(name) or _of_float32(name), self)
                for name in node.output
            ]
            layers.append(ILayer(enums.LayerType.ACTIVATION, *outputs))
        return layers

    @property
    def num_layers(self) -> int:
        return len(self._layers)

    def get_layer(self, index: int) -> ILayer:
        return self._layers[index]

    @property
    def num_inputs(self) -> int:
        return len(self._inputs)

    def get_input(self, index: int) -> ITensor:
        return self._inputs[index]


def _of_float32(name: str) -> onnx.ValueInfoProto:
    return onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)


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


CLASSES = (INetworkDefinition, IConstantLayer, OnnxParser, Refitter, OnnxParserRefitter)
