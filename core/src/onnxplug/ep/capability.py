"""What an EP says of a graph: which nodes it takes, and why not the others."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from onnxplug.authoring.fact import fact
from onnxplug.authoring.record import Record
from onnxplug.ep.graph import Graph, Node
from onnxplug.escape import escape


class RefusalCode(StrEnum):
    """Why a node is not on an EP."""

    OP = "op"
    OPSET = "opset"
    DTYPE = "dtype"
    RANK = "rank"
    DYNAMIC_SHAPE = "dynamic-shape"
    ATTRIBUTE = "attribute"
    NOT_CONSTANT = "not-constant"
    NOT_CONVEX = "not-convex"
    TAKEN = "taken"
    COST = "cost"
    VERIFY = "verify"
    OTHER = "other"


class Reason(Record):
    """A code for programs and a detail for people: what was found, what is needed."""

    code: RefusalCode
    detail: str = ""

    def __str__(self) -> str:
        return escape(f"{self.code}: {self.detail}" if self.detail else self.code)


@fact()
class Refusal:
    """One node that an EP does not take.

    Attributes:
        node: the node's index.
        reason: why.
    """

    node: int
    reason: Reason


@fact()
class ComputeCapability:
    """A group of nodes that an EP takes.

    Attributes:
        nodes: indices.
        atomic: the group is run whole or not at all: the host gives it back when it is
            not convex or an EP ranked higher took part of it.  A group that is not
            atomic may be split, and merged with neighbours of the same EP.
        keeps_constants: the EP copies what it needs of constants in ``compile``; the
            host may drop its own reference afterwards.
        label: a word for people, shown in reports.
    """

    nodes: tuple[int, ...]
    atomic: bool = False
    keeps_constants: bool = False
    label: str = ""


@fact()
class CapabilityReport:
    """Every node of a graph is in exactly one claim or one refusal; the host checks."""

    claims: tuple[ComputeCapability, ...] = ()
    refusals: tuple[Refusal, ...] = ()

    @classmethod
    def per_node(
        cls,
        graph: Graph,
        check: Callable[[Node], Reason | None],
        *,
        keeps_constants: bool = False,
    ) -> CapabilityReport:
        """Judge each node alone: it is taken where *check* gives ``None``.

        Raises:
            TypeError: *check* gives something that is no reason either.
        """
        taken: list[int] = []
        refusals: list[Refusal] = []
        for node in graph.nodes:
            reason = check(node)
            if reason is None:
                taken.append(node.index)
            elif isinstance(reason, Reason):
                refusals.append(Refusal(node=node.index, reason=reason))
            else:
                raise TypeError(
                    f"the check of node {node.index} ({node.op_type}) gave "
                    f"{reason!r}; expected None to take it, or a Reason"
                )
        claim = ComputeCapability(nodes=tuple(taken), keeps_constants=keeps_constants)
        return cls(claims=(claim,) if taken else (), refusals=tuple(refusals))
