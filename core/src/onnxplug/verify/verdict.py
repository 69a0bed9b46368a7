"""What the check found of each family of operators, and what follows for nodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import TypeAlias

from onnxplug.authoring.record import Record
from onnxplug.ep import (
    DataType,
    Graph,
    MapType,
    Node,
    OptionalType,
    Reason,
    RefusalCode,
    SequenceType,
    ValueType,
)

Operator: TypeAlias = tuple[str, str, DataType]
"""Domain, operator and element type; see :class:`onnxplug.ep.Probe`."""


class Verdict(StrEnum):
    """What is known of a family on a device."""

    PASSED = "passed"
    FAILED = "failed"
    UNVERIFIED = "unverified"


class FamilyVerdict(Record):
    """What is known of one family on one device.

    Attributes:
        detail: what was wrong, or why it is unverified; empty when it passed.
        lasts: another process would find the same.
        timeouts: how often the check ran out of time on this very family; ``None``: it
            did so neither on this one nor before it came to it.
    """

    family: str
    operators: frozenset[Operator]
    verdict: Verdict
    detail: str = ""
    lasts: bool = True
    timeouts: int | None = None

    @property
    def late(self) -> bool:
        """Whether there was no time for it."""
        return self.timeouts is not None


class FailedFamilies:
    """A veto of the nodes whose families failed on the devices of an EP.

    Args:
        remedy: how to find out more; follows a semicolon.
    """

    def __init__(self, verdicts: Iterable[FamilyVerdict], remedy: str) -> None:
        self._remedy = remedy
        self._failed: defaultdict[tuple[str, str], list[FamilyVerdict]]
        self._failed = defaultdict(list)
        for verdict in verdicts:
            if verdict.verdict is Verdict.FAILED:
                names = {(domain, op_type) for domain, op_type, _ in verdict.operators}
                for name in sorted(names):
                    self._failed[name].append(verdict)

    def __call__(self, graph: Graph, node: Node) -> Reason | None:
        """Why *node* is in a family that failed, itself or in a body of its own."""
        for place, inner in _with_bodies(graph, node):
            for verdict in self._failed.get((inner.domain, inner.op_type), ()):
                wanted = {
                    dtype
                    for domain, op_type, dtype in verdict.operators
                    if (domain, op_type) == (inner.domain, inner.op_type)
                }
                # a type that is unknown may be one of them
                if not _dtypes(place, inner).isdisjoint({*wanted, None}):
                    return Reason(
                        RefusalCode.VERIFY,
                        f"family {verdict.family!r} failed on this device: "
                        f"{verdict.detail}; {self._remedy}",
                    )
        return None


def _with_bodies(graph: Graph, node: Node) -> Iterator[tuple[Graph, Node]]:
    yield graph, node
    for body in node.subgraphs.values():
        for inner in body.nodes:
            yield from _with_bodies(body, inner)


def _dtypes(graph: Graph, node: Node) -> set[DataType | None]:
    """The element types of what *node* takes and makes; ``None`` for unknown ones."""
    names: Sequence[str | None] = (*node.inputs, *node.outputs)
    return {_element_type(graph.value(name).type) for name in names if name}


def _element_type(type: ValueType | None) -> DataType | None:
    while isinstance(type, SequenceType | OptionalType | MapType):
        type = type.value if isinstance(type, MapType) else type.element
    return None if type is None else type.dtype
