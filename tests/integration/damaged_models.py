"""Small models of many kinds, and ways to damage them."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT: Final = TensorProto.FLOAT


def _value(
    name: str, shape: list[int | str | None] | None = None
) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, FLOAT, shape)


def _model(
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
    weights: list[TensorProto] | None = None,
    **more: object,
) -> onnx.ModelProto:
    sparse = more.pop("sparse", [])
    graph = helper.make_graph(
        nodes, "g", inputs, outputs, weights or [], sparse_initializer=sparse
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, ir_version=10, opset_imports=opsets, **more)


def plain() -> onnx.ModelProto:
    """A layer, with names, attributes and a dimension that is a symbol."""
    weights = [
        numpy_helper.from_array(np.arange(12, dtype=np.float32).reshape(3, 4), "w"),
        helper.make_tensor("b", FLOAT, [4], [1.0, 2.0, 3.0, 4.0]),
        helper.make_tensor("axes", TensorProto.INT64, [1], [1]),
    ]
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["h"], "gemm", alpha=0.5, transA=0),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("ReduceSum", ["r", "axes"], ["s"], keepdims=0),
        helper.make_node("Cast", ["s"], ["y"], to=TensorProto.FLOAT),
    ]
    return _model(nodes, [_value("x", ["n", 3])], [_value("y", ["n"])], weights)


def beside() -> onnx.ModelProto:
    """Weights in ``w.bin``."""
    weight = TensorProto(name="w", dims=[2, 3], data_type=FLOAT)
    weight.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "w.bin"), ("offset", "8"), ("length", "24")):
        weight.external_data.add(key=key, value=value)
    node = helper.make_node("Add", ["x", "w"], ["y"])
    return _model([node], [_value("x", [2, 3])], [_value("y", [2, 3])], [weight])


def sparse() -> onnx.ModelProto:
    """A sparse initializer."""
    tensor = helper.make_sparse_tensor(
        numpy_helper.from_array(np.array([5, 6], np.float32), "s"),
        numpy_helper.from_array(np.array([[0, 1], [1, 2]])),
        [2, 3],
    )
    node = helper.make_node("Mul", ["x", "s"], ["y"])
    return _model([node], [_value("x", [2, 3])], [_value("y")], sparse=[tensor])


def sequences() -> onnx.ModelProto:
    """Sequences, an optional, and bodies."""
    tensor = helper.make_tensor_type_proto(FLOAT, [2])
    output = helper.make_value_info("y", helper.make_sequence_type_proto(tensor))
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["c"], ["c_out"]),
            helper.make_node("Add", ["v", "x"], ["v_out"]),
            helper.make_node("Neg", ["v"], ["scanned"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            _value("v", [2]),
        ],
        [
            helper.make_tensor_value_info("c_out", TensorProto.BOOL, []),
            _value("v_out", [2]),
            _value("scanned", [2]),
        ],
    )
    count = numpy_helper.from_array(np.array(3, np.int64), "count")
    nodes = [
        helper.make_node("Loop", ["count", "", "x"], ["last", "all"], body=body),
        helper.make_node("SplitToSequence", ["all"], ["parts"], axis=0, keepdims=0),
        helper.make_node("SequenceInsert", ["parts", "last"], ["y"]),
    ]
    return _model(nodes, [_value("x", [2])], [output], [count])


def functions() -> onnx.ModelProto:
    """A function with an attribute that calls another."""
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    leak = helper.make_node("LeakyRelu", ["a"], ["b"])
    leak.attribute.add(
        name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT
    )
    inner = helper.make_function("own", "Leak", ["a"], ["b"], [leak], opsets, ["slope"])
    call = helper.make_node("Leak", ["p"], ["q"], domain="own", slope=0.5)
    twice = helper.make_node("Add", ["q", "q"], ["r"])
    outer = helper.make_function("own", "Twice", ["p"], ["r"], [call, twice], opsets)
    node = helper.make_node("Twice", ["x"], ["y"], domain="own")
    x, y = _value("x", [2]), _value("y")
    return _model([node], [x], [y], functions=[outer, inner])


MODELS: Final[dict[str, Callable[[], onnx.ModelProto]]] = {
    made.__name__: made for made in (plain, beside, sparse, sequences, functions)
}
"""Models by name; :func:`beside` needs :func:`write_weights`."""


def write_weights(folder: Path) -> None:
    """The file of external data."""
    content = np.arange(6, dtype=np.float32).tobytes()
    (folder / "w.bin").write_bytes(b"12345678" + content + b"tail")


def damage(data: bytes, generator: random.Random) -> bytes:
    """*data* with one to three bytes changed, left out or put in."""
    damaged = bytearray(data)
    for _ in range(generator.randint(1, 3)):
        place = generator.randrange(len(damaged))
        kind = generator.random()
        if kind < 0.4:
            damaged[place] ^= 1 << generator.randrange(8)
        elif kind < 0.8:
            damaged[place] = generator.choice(b"\0\1\2\x7f\x80\xff\x10\x08")
        elif kind < 0.9:
            del damaged[place]
        else:
            damaged.insert(place, generator.randrange(256))
    return bytes(damaged)
