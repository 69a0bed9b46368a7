"""Whether the element types that a model states agree with its operators.

ONNX's own check needs ``onnx``, whose import costs more than a small session; a model
that states every type gets this one instead.  It knows the operators that tie the
types of their operands together, and says nothing of the others.
Source: the type constraints of the operators in the ONNX specification.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from onnxplug.authoring.nodes import describe
from onnxplug.authoring.operators import having
from onnxplug.ep import DataType, SparseTensorType
from onnxplug.errors import InvalidModel
from onnxplug.graph import Graph, Node
from onnxplug.graph.scopes import all_graphs

_ALL: Final = range(1 << 16)
_FIRST: Final = (0,)

_SAME_AS_OUTPUT: Final[dict[str, range | tuple[int, ...]]] = {
    **dict.fromkeys(
        "Add Sub Mul Div Max Min Sum Mean MatMul Gemm Concat And Or Xor PRelu Clip "
        "Conv ConvTranspose InstanceNormalization".split(),
        _ALL,
    ),
    **dict.fromkeys(
        "Abs Neg Ceil Floor Round Sign Sqrt Exp Log Erf Reciprocal Relu LeakyRelu Elu "
        "Selu Celu Sigmoid HardSigmoid HardSwish Softplus Softsign Tanh Sin Cos Tan "
        "Gelu Mish Softmax LogSoftmax Hardmax Identity Transpose Reshape Flatten "
        "Squeeze Unsqueeze Slice Gather GatherElements GatherND Expand Tile Pad Split "
        "DepthToSpace SpaceToDepth MaxPool AveragePool GlobalMaxPool LpPool "
        "GlobalAveragePool BatchNormalization LayerNormalization GroupNormalization "
        "RMSNormalization LRN ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd "
        "ReduceL1 ReduceL2 ReduceSumSquare CumSum TopK Resize Dropout Pow Not "
        "Trilu".split(),
        _FIRST,
    ),
    "Where": (1, 2),
    "ScatterElements": (0, 2),
    "ScatterND": (0, 2),
}
"""Operators to the inputs whose element type is that of the first output."""


def check_agreement(graph: Graph) -> None:
    """Check the stated element types of *graph* and of bodies within.

    Raises:
        InvalidModel: an operator ties values together that are stated to differ, or is
            given a sparse tensor, which no operator of ONNX takes.
    """
    sparse: set[str] = set()
    for each in all_graphs(graph):
        sparse.update(
            name
            for name, type in each.types.items()
            if isinstance(type, SparseTensorType)
        )
        for node in each.nodes:
            if node.domain == "":
                _check(each, node)
            if sparse and node.domain in ("", "ai.onnx.ml"):
                _check_dense(node, sparse)


def _check(graph: Graph, node: Node) -> None:
    tied = dict(_tied(graph, node))
    if len(set(tied.values())) > 1:
        found = ", ".join(f"{name!r} is {dtype}" for name, dtype in tied.items())
        raise InvalidModel(
            f"Type Error: {describe(node)} binds one type to different ones: {found}; "
            "insert a Cast, or correct the types that the model states"
        )


def _check_dense(node: Node, sparse: Collection[str]) -> None:
    for name in (*node.inputs, *node.outputs):
        if name in sparse:
            raise InvalidModel(
                f"Type Error: {describe(node)} has the sparse tensor {name!r}, and no "
                "operator of ONNX takes or gives one; declare a dense tensor"
            )


def _tied(graph: Graph, node: Node) -> Iterator[tuple[str, DataType]]:
    """The values whose element types must be one, with those that are known."""
    positions = _SAME_AS_OUTPUT.get(node.op_type)
    names: list[str | None] = []
    if positions is not None:
        names = [name for at, name in enumerate(node.inputs) if at in positions]
        names += node.outputs[:1]
    elif node.op_type in having("comparison"):
        names = list(node.inputs)
    for name in names:
        dtype = graph.value(name).dtype if name else None
        if name and dtype is not None:
            yield name, dtype
