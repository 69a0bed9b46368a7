"""What shapes the outputs of some nodes have for given shapes of their inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from onnxplug.ep import TensorType
from onnxplug.errors import ModelError
from onnxplug.graph import Graph, Node, Weight
from onnxplug.graph.scopes import outermost
from onnxplug.shapes.inference import infer_symbolically

Shape: TypeAlias = tuple[int, ...]


def shapes_for(
    source: Graph,
    members: Sequence[Node],
    outputs: Sequence[str],
    fed: Mapping[str, Shape],
) -> dict[str, tuple[int | None, ...]]:
    """The shapes of values that follow from operators alone.

    Nothing that the model declares is looked at.  Values of which not even the rank
    follows are left out; a size that does not follow is ``None``.

    Args:
        source: a graph.
        members: some of its nodes, in topological order.
        outputs: values that these make, of which the shapes are wanted.
        fed: the shapes of tensors that they are given.
    """
    if any(node.subgraphs for node in members):
        return {}  # bodies belong to the graph that they are in
    nodes = [
        Node(
            node.op_type,
            node.inputs,
            node.outputs,
            node.typed_attributes,
            domain=node.domain,
            name=node.name,
        )
        for node in members
    ]
    made = {name for node in nodes for name in node.outputs}
    constants: dict[str, Weight] = {}
    for name in {name for node in nodes for name in node.inputs if name} - made:
        weight = source.weight(name)
        if weight is not None:
            constants[name] = weight
    graph = Graph(
        source.name,
        inputs=list(fed),
        outputs=(),
        nodes=nodes,
        constants=constants,
        types={
            name: TensorType(source.value(name).dtype, shape)
            for name, shape in fed.items()
        },
        opset_imports=source.opset_imports,
    )
    graph.plugins = outermost(source).plugins
    try:
        infer_symbolically(graph)
    except ModelError:  # the model is wrong, so nothing follows
        return {}
    shapes: dict[str, tuple[int | None, ...]] = {}
    for name in outputs:
        type = graph.types.get(name)
        if isinstance(type, TensorType) and type.shape is not None:
            shapes[name] = tuple(
                size if isinstance(size, int) else None for size in type.shape
            )
    return shapes
