"""Small models, and sessions that run them on the CPU EP."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

import onnxplug
from onnxplug.ep import DataType

from .formats import Array

Shape = Sequence[int | str | None] | None


def tensor(name: str, dtype: DataType | str, shape: Shape = ("n",)) -> Any:
    """A tensor among a graph's inputs or outputs."""
    return helper.make_tensor_value_info(name, DataType(dtype).onnx, shape)


def tensor_type(dtype: DataType | str, shape: Shape = None) -> Any:
    """The type of a tensor, to be put in another."""
    return helper.make_tensor_type_proto(DataType(dtype).onnx, shape)


def model(
    nodes: Sequence[Any],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    *,
    weights: Sequence[Any] = (),
    sparse: Sequence[Any] = (),
    functions: Sequence[Any] = (),
    opsets: Mapping[str, int] | None = None,
    ir_version: int = 14,
) -> onnx.ModelProto:
    """A model of the newest opset, unless *opsets* names others."""
    graph = helper.make_graph(
        nodes, "graph", inputs, outputs, weights, sparse_initializer=sparse
    )
    imports = {"": 28} if opsets is None else opsets
    return helper.make_model(
        graph,
        functions=functions,
        opset_imports=[helper.make_opsetid(*each) for each in imports.items()],
        ir_version=ir_version,
    )


def session(source: Any, *, compiled: bool = True) -> onnxplug.InferenceSession:
    """A session on the CPU EP; without *compiled* all of it runs on arrays."""
    return onnxplug.InferenceSession(
        source, providers=[("CPUExecutionProvider", {"compile": compiled})]
    )


def run(source: Any, feed: Mapping[str, Any], *, compiled: bool = True) -> Any:
    """The outputs by name."""
    made = session(source, compiled=compiled)
    names = [each.name for each in made.get_outputs()]
    return dict(zip(names, made.run(None, feed), strict=True))


def stored(x: Array, name: str) -> onnx.TensorProto:
    """The bytes of *x*; of strings, which have none, the texts."""
    if x.dtype != object:
        return numpy_helper.from_array(x, name)
    texts = [text.encode() for text in x.reshape(-1)]
    return onnx.TensorProto(
        name=name, data_type=DataType.STRING.onnx, dims=x.shape, string_data=texts
    )


def assert_alike(found: Any, expected: Any) -> None:
    """The same kind of value, element types, shapes and bits."""
    if isinstance(expected, list):
        assert isinstance(found, list) and len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_alike(one, other)
    elif isinstance(expected, np.ndarray):
        assert isinstance(found, np.ndarray)
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        if expected.dtype == object:
            assert found.tolist() == expected.tolist()
        else:
            assert found.tobytes() == expected.tobytes()
    else:
        assert found == expected


def sample(dtype: DataType, shape: Iterable[int] = (5,)) -> Array:
    """An array of a type, neither of zeros nor of one number alone."""
    shape = tuple(shape)
    size = int(np.prod(shape))
    if dtype is DataType.STRING:
        texts = np.array(["a", "", "ü", "𝄞 x", "\0"] * (size // 5 + 1), object)
        return texts[:size].reshape(shape)
    bits = np.random.default_rng(dtype.onnx).integers(
        0, 256, size * dtype.numpy.itemsize, np.uint8
    )
    if dtype is DataType.BOOL:
        bits &= 1
    elif dtype.bits < 8:
        bits &= (1 << dtype.bits) - 1
    return bits.view(dtype.numpy).reshape(shape)
