"""Which values cross from one partition to another, and how large they are."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from onnxplug.authoring.record import Record
from onnxplug.escape import escape
from onnxplug.partition.specialisations import plural

if TYPE_CHECKING:
    from onnxplug.partition.placements import CopyPlacement, NodePlacement

HOST: Final = -1
"""The number of what the host runs, instead of a partition's."""

_MOST: Final = 10
"""Borders in a summary."""


class Border(Record):
    """A value that one partition makes, and others read.

    Attributes:
        graph: of the node that makes it, as in :class:`NodePlacement`.
        value: the value's name.
        source: the partition that makes it; -1 for the host.
        targets: the partitions that read it, in the order of nodes.
        nbytes: its size, when known before running.
        is_copied: it is copied between memory locations on the way, in each run.
    """

    graph: str
    value: str
    source: int
    targets: tuple[int, ...]
    nbytes: int | None
    is_copied: bool

    def __str__(self) -> str:
        targets = ", ".join(_name(number) for number in self.targets)
        size = "unknown size" if self.nbytes is None else f"{self.nbytes} bytes"
        copied = ", copied" if self.is_copied else ""
        way = f"{_name(self.source)} → {targets}"
        return escape(f"{self.value}: {way}, {size}{copied}")


def _name(number: int) -> str:
    return "host" if number == HOST else f"partition {number}"


def owners(nodes: Sequence[NodePlacement]) -> dict[str, int]:
    """The place in *nodes* of each body's node, by the way to the body."""
    ways = dict.fromkeys(node.graph for node in nodes if node.graph)
    if not ways:
        return {}
    places = {
        f"{node.graph}/{node.node}" if node.graph else node.node: place
        for place, node in enumerate(nodes)
    }
    found = {way: places.get(way.rpartition(".")[0]) for way in ways}
    return {way: place for way, place in found.items() if place is not None}


class Producers:
    """Finds the node that makes what another one reads.

    Args:
        nodes: all, in order.
    """

    def __init__(self, nodes: Sequence[NodePlacement]) -> None:
        self.owners: Mapping[str, int] = owners(nodes)
        self._nodes = nodes
        self._places = {
            (node.graph, name): place
            for place, node in enumerate(nodes)
            for name in node.outputs
            if name
        }

    def of(self, graph: str, name: str) -> int | None:
        """The place of what makes *name*, in *graph* or in one around it; ``None`` for
        inputs and constants."""
        while (place := self._places.get((graph, name))) is None:
            if (owner := self.owners.get(graph)) is None:
                return None
            graph = self._nodes[owner].graph
        return place


def find_borders(
    nodes: Sequence[NodePlacement], copies: Iterable[CopyPlacement]
) -> list[Border]:
    """The values that cross, in the order in which they are made."""
    producers = Producers(nodes)
    crossing: dict[tuple[int, str], dict[int, None]] = {}
    for node in nodes:
        for name in filter(None, node.inputs):
            place = producers.of(node.graph, name)
            if place is not None and nodes[place].partition != node.partition:
                crossing.setdefault((place, name), {})[node.partition] = None
    copied = {copy.value for copy in copies}
    borders = []
    for (place, name), targets in sorted(crossing.items()):
        source = nodes[place]
        sizes = dict(zip(source.outputs, source.nbytes, strict=False))
        borders.append(
            Border(
                source.graph,
                name,
                source.partition,
                tuple(targets),
                sizes.get(name),
                name in copied,
            )
        )
    return borders


def copies_in_words(copies: Sequence[CopyPlacement]) -> str:
    """How many there are, and how large together."""
    known = [copy.nbytes for copy in copies if copy.nbytes is not None]
    text = "1 copy" if len(copies) == 1 else f"{len(copies)} copies"
    if not known:
        return f"{text} of unknown size"
    unknown = len(copies) - len(known)
    more = f" and {unknown} of unknown size" if unknown else ""
    return f"{text} of {sum(known)} bytes{more}"


def largest_in_lines(borders: Sequence[Border]) -> list[str]:
    """The largest of *borders*, and how much the rest is."""
    # what is not known may be large
    largest = sorted(
        borders, key=lambda each: -math.inf if each.nbytes is None else -each.nbytes
    )
    lines = [f"  border {border}" for border in largest[:_MOST]]
    if rest := largest[_MOST:]:
        nbytes = sum(border.nbytes or 0 for border in rest)
        lines.append(f"  and {plural(len(rest), 'smaller border')}, {nbytes} bytes")
    return lines
