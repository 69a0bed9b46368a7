"""Where nodes run, in ONNX Runtime's words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxplug.authoring.record import Record

if TYPE_CHECKING:
    from onnxplug.partition.report import Explanation


class OrtEpAssignedNode(Record):
    """A node and the operator it calls."""

    domain: str
    op_type: str
    name: str


class OrtEpAssignedSubgraph(Record):
    """A partition and its nodes."""

    ep_name: str
    nodes: list[OrtEpAssignedNode]

    def get_nodes(self) -> list[OrtEpAssignedNode]:
        """The partition's nodes."""
        return self.nodes


def assigned_subgraphs(explanation: Explanation) -> list[OrtEpAssignedSubgraph]:
    """The partitions and their nodes."""
    return [
        OrtEpAssignedSubgraph(
            part.ep,
            [
                OrtEpAssignedNode(node.domain, node.op_type, node.name)
                for node in explanation.nodes
                if node.partition == part.number
            ],
        )
        for part in explanation.partitions
    ]
