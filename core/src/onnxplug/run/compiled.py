"""What compiling makes of a graph: what its EPs made, in an order to be executed."""

from __future__ import annotations

from collections.abc import Iterator

from onnxplug.authoring.record import Record
from onnxplug.ep import CompiledPartition
from onnxplug.graph import Graph
from onnxplug.guard import Closer
from onnxplug.partition import Candidate, GraphPartition
from onnxplug.run.concurrency_limit import ConcurrencyLimit


class CompiledUnit(Record):
    """A partition with what its EP made of it, or a control-flow node of the host's.

    Attributes:
        partition: the nodes and their border.
        candidate: the EP; ``None`` for the host.
        compiled: what the EP made; ``None`` for the host.
        concurrency_limit: taken while running, when the EP limits concurrent runs.
        bodies: the compiled bodies of a node of the host's, by attribute.
        number: the partition's in the report; -1 for the host.
    """

    partition: GraphPartition
    candidate: Candidate | None
    compiled: CompiledPartition | None
    concurrency_limit: ConcurrencyLimit | None
    bodies: dict[str, CompiledGraph]
    number: int = -1


class CompiledGraph(Record):
    """The units of a graph in an order in which they can be executed.

    Attributes:
        where: empty for the main graph, else the way to the body, for reports.
    """

    graph: Graph
    units: list[CompiledUnit]
    where: str = ""

    def closers(self) -> Iterator[Closer]:
        """What closes every compiled partition, those of bodies first."""
        for unit in self.units:
            for body in unit.bodies.values():
                yield from body.closers()
            if unit.candidate is not None and unit.compiled is not None:
                yield unit.candidate.name, unit.compiled.close
