"""Random graphs of float16 and bfloat16, made of those of float32."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper

from .random_graphs import Array, Case

_FLOAT = onnx.TensorProto.FLOAT
_BODILESS = (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)


class Narrow(NamedTuple):
    """A graph of 16 bits, and the same with float32 between its nodes.

    Attributes:
        model: of the narrow type wherever *wide* is of float32.
        feeds: its inputs.
        wide: computes in float32 on what *model* has, constants that are rounded to the
            narrow type, and rounds where *model* has a Cast to it.
        wide_feeds: the same inputs, those of floats as float32.
    """

    model: onnx.ModelProto
    feeds: dict[str, Array]
    wide: onnx.ModelProto
    wide_feeds: dict[str, Array]


def narrow(case: Case, dtype: np.dtype[Any]) -> Narrow:
    """*case* with *dtype* in the place of float32."""
    model = onnx.ModelProto.FromString(case.model.SerializeToString())
    wide = onnx.ModelProto.FromString(case.model.SerializeToString())
    kind = helper.np_dtype_to_tensor_dtype(dtype)
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        if value.type.tensor_type.elem_type == _FLOAT:
            value.type.tensor_type.elem_type = kind
    for tensor, other in zip(_tensors(model), _tensors(wide), strict=True):
        if tensor.data_type == _FLOAT:
            array = numpy_helper.to_array(tensor).astype(dtype)
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
            array = array.astype(np.float32)
            other.CopyFrom(numpy_helper.from_array(array, other.name))
    for made in model.graph.node:
        if made.op_type == "Cast" and made.attribute[0].i == _FLOAT:
            made.attribute[0].i = kind
    nodes: list[onnx.NodeProto] = []
    for each in wide.graph.node:
        made = onnx.NodeProto.FromString(each.SerializeToString())
        nodes.append(made)
        if made.op_type == "Cast" and made.attribute[0].i == _FLOAT:
            out = made.output[0]
            made.output[0] = f"{out} before it is rounded"
            rounded = f"{out} rounded"
            nodes += [
                helper.make_node("Cast", [made.output[0]], [rounded], to=kind),
                helper.make_node("Cast", [rounded], [out], to=_FLOAT),
            ]
    del wide.graph.node[:]
    wide.graph.node.extend(nodes)
    feeds, wide_feeds = dict(case.feeds), dict(case.feeds)
    for name, array in case.feeds.items():
        if array.dtype == np.float32:
            feeds[name] = array.astype(dtype)
            wide_feeds[name] = feeds[name].astype(np.float32)
    return Narrow(model, feeds, wide, wide_feeds)


def _tensors(model: onnx.ModelProto) -> list[onnx.TensorProto]:
    found = list(model.graph.initializer)
    for made in model.graph.node:
        for attribute in made.attribute:
            assert attribute.type not in _BODILESS, "bodies have tensors, too"
            if attribute.type == onnx.AttributeProto.TENSOR:
                found.append(attribute.t)
    return found
