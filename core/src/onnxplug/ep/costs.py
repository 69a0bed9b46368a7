"""What an EP says that copies and nodes cost, for the host to weigh partitions by.

Of use to few EPs, so not imported by :mod:`onnxplug.ep` until it is asked for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from onnxplug.authoring.fact import fact
from onnxplug.ep.graph import Graph, Node


@fact()
class Costs:
    """What work on an EP's device is taken to cost.

    The host gives a partition that is in a memory of its own to the next EP if copies
    to and from other partitions cost more than its nodes gain.  All are finite and
    not less than 0.

    Attributes:
        seconds_per_copy: of each copy, whatever its size.
        seconds_per_byte: of each byte that is copied, besides.
        seconds_gained_per_node: how much sooner a node is done here than by the EP that
            would have it instead; 20 times that if it is compute-intensive, such as
            ``MatMul``.  Only where not all EPs have a :class:`CostModel`
            that knows.
    """

    seconds_per_copy: float = 15e-6
    seconds_per_byte: float = 1e-10
    seconds_gained_per_node: float = 20e-6


class CostModel(ABC):
    """Tells what nodes cost on an EP, where a partition may not be worth its copies."""

    @abstractmethod
    def estimate(self, graph: Graph, nodes: Sequence[Node]) -> float | None:
        """How long *nodes* of *graph* take, in seconds, without copies.

        Asked are the EP that has the partition, and those that would have its nodes
        instead.  Pure and quick: nothing is compiled or run.

        Returns:
            finite and not less than 0; ``None`` if that is not known, such as without
            the shapes.  Unless all know, the pair's :class:`Costs` decide.
        """
