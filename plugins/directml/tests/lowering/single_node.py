"""Models of one node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx

Array = np.ndarray[Any, Any]


class SingleNode(NamedTuple):
    """A node, what it is given, and the version of operators.

    Attributes:
        inputs: arrays; ``None`` for one that is left out.
        constant: positions of those that are initializers.
        outputs: how many are asked for, or which, by their names or empty ones.
        shapes: of outputs, which are of the first input's type, where nobody infers
            them.
    """

    op_type: str
    inputs: Sequence[Array | None]
    constant: Sequence[int] = ()
    attributes: Mapping[str, Any] = {}
    opset: int = 23
    outputs: int | Sequence[str] = 1
    domain: str = ""
    shapes: Sequence[Sequence[int]] = ()

    def model(self) -> onnx.ModelProto:
        """The node as a model, whose outputs are as ONNX infers them."""
        names = [f"x{i}" if x is not None else "" for i, x in enumerate(self.inputs)]
        outputs = self.outputs
        if isinstance(outputs, int):
            outputs = [f"y{i}" for i in range(outputs)]
        node = onnx.helper.make_node(
            self.op_type, names, outputs, domain=self.domain, **dict(self.attributes)
        )
        there = [(i, x) for i, x in enumerate(self.inputs) if x is not None]
        given = [
            onnx.helper.make_tensor_value_info(
                names[i], onnx.helper.np_dtype_to_tensor_dtype(x.dtype), x.shape
            )
            for i, x in there
            if i not in self.constant
        ]
        made = [onnx.ValueInfoProto(name=name) for name in outputs if name]
        for info, shape in zip(made, self.shapes, strict=False):
            first = there[0][1].dtype
            info.CopyFrom(
                onnx.helper.make_tensor_value_info(
                    info.name, onnx.helper.np_dtype_to_tensor_dtype(first), shape
                )
            )
        weights = [
            onnx.numpy_helper.from_array(x, names[i])
            for i, x in there
            if i in self.constant
        ]
        graph = onnx.helper.make_graph([node], "single node", given, made, weights)
        imports = [onnx.helper.make_opsetid("", self.opset)]
        if self.domain:
            imports.append(onnx.helper.make_opsetid(self.domain, 1))
        model = onnx.helper.make_model(graph, opset_imports=imports, ir_version=10)
        return onnx.shape_inference.infer_shapes(model, strict_mode=False)

    def feeds(self) -> dict[str, Array]:
        """What runs of the model are given."""
        return {
            f"x{i}": x
            for i, x in enumerate(self.inputs)
            if x is not None and i not in self.constant
        }
