"""What stands for the nodes of a partition that a library compiles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onnxplug import ep


class FusedNode:
    """The node that stands for a partition."""

    index = 0
    since_version = 1
    attributes: dict[str, Any] = {}  # noqa: RUF012
    subgraphs: dict[str, Any] = {}  # noqa: RUF012
    captures: tuple[str, ...] = ()

    def __init__(
        self, name: str, ep_name: str, inputs: tuple[str, ...], outputs: Sequence[str]
    ) -> None:
        self.name = self.op_type = name
        self.domain = ep_name
        self.inputs: tuple[str | None, ...] = inputs
        self.outputs: tuple[str | None, ...] = tuple(outputs)


def constants_of(partition: ep.Partition) -> list[str]:
    """The constants that a partition's nodes use, in the order of their use."""
    names = [
        name
        for node in partition.nodes
        for name in (*node.inputs, *node.captures)
        if name is not None and partition.value(name).is_constant
    ]
    return list(dict.fromkeys(names))


def in_order_of_use(nodes: Sequence[ep.Node], names: Sequence[str]) -> list[str]:
    """*names* as nodes use them first, as in ONNX Runtime.

    Some libraries take the order of a node's inputs for that of its partition.
    """
    wanted = set(names)
    used = [
        name
        for node in nodes
        for name in (*node.inputs, *node.captures)
        if name in wanted and name is not None
    ]
    return list(dict.fromkeys([*used, *names]))
