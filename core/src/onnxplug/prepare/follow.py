"""What shapes the outputs of some nodes have for given shapes of their inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from onnxplug.ep import TensorType, ValueType
from onnxplug.errors import ModelError
from onnxplug.graph import Graph, Node
from onnxplug.graph.part import part_of
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
    graph = part_of(
        source,
        members,
        inputs=list(fed),
        types={
            name: TensorType(source.value(name).dtype, shape)
            for name, shape in fed.items()
        },
        retyped=_forgotten,
    )
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


def _forgotten(declared: ValueType | None) -> None:
    return None
