"""Models of the compiled tier for arrays of any shape, made once and run often."""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper

import onnxplug

from ....kernels.tests.properties.strategies import Array, Dtype, Shape

_SIDES = (1, 2, 3, 5, 8, 15, 16, 17, 31, 33, 48, 64, 100)
"""Around the number of elements that are computed together."""

_MAX_SIZE = 2000


class Node(NamedTuple):
    """One node, with an output of its own.

    Attributes:
        inputs: names of the model's inputs, constants, or ``None``.
        dtype: of the output.
    """

    op_type: str
    inputs: tuple[str | Array | None, ...]
    dtype: Any
    attributes: Mapping[str, Any] = {}


class Compiled:
    """A model of nodes that read the same inputs, of which every one is compiled.

    Args:
        nodes: by the name of the output.
        dtypes: of the inputs; their shapes are unknown.
    """

    def __init__(self, nodes: Mapping[str, Node], dtypes: Mapping[str, Any]) -> None:
        self.nodes = nodes
        constants: list[onnx.TensorProto] = []

        def named(value: str | Array | None) -> str:
            if not isinstance(value, np.ndarray):
                return value or ""
            constants.append(numpy_helper.from_array(value, f"c{len(constants)}"))
            return constants[-1].name

        graph = helper.make_graph(
            [
                helper.make_node(
                    node.op_type, [*map(named, node.inputs)], [name], **node.attributes
                )
                for name, node in nodes.items()
            ],
            "properties",
            [_any_shape(name, dtype) for name, dtype in dtypes.items()],
            [_any_shape(name, node.dtype) for name, node in nodes.items()],
            constants,
        )
        model = helper.make_model(graph, ir_version=onnx.IR_VERSION)
        options = onnxplug.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = onnxplug.InferenceSession(
            model, options, providers=["CPUExecutionProvider"]
        )
        (partition,) = self._session.explain().partitions
        assert set(partition.tiers) == {"compiled"}, partition.tiers

    def run(self, **feeds: Array) -> dict[str, Array]:
        """The outputs by their names."""
        results = self._session.run(None, feeds)
        return dict(zip(self.nodes, results, strict=True))


def _any_shape(name: str, dtype: Any) -> onnx.ValueInfoProto:
    number = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return helper.make_tensor_value_info(name, number, None)


@functools.cache
def shapes(min_rank: int = 0, max_rank: int = 4, *, empty: bool = True) -> list[Shape]:
    """Shapes around the sizes of vectors, the smallest first."""
    generator = random.Random(max_rank)
    chosen = []
    for rank in range(min_rank, max_rank + 1):
        for _ in range(30 if rank else 6):
            shape: list[int] = []
            for _ in range(rank):
                side = generator.choice(_SIDES)
                shape.insert(0, min(side, _MAX_SIZE // math.prod(shape)))
            if empty and shape and generator.random() < 0.1:
                shape[generator.randrange(rank)] = 0
            chosen.append(tuple(shape))
    return sorted(chosen, key=lambda shape: (len(shape), math.prod(shape) or 99))


def dtypes(*names: str) -> list[Dtype]:
    """NumPy's and ml_dtypes' types of these names."""
    return [
        helper.tensor_dtype_to_np_dtype(onnx.TensorProto.BFLOAT16)
        if name == "bfloat16"
        else np.dtype(name)
        for name in names
    ]
