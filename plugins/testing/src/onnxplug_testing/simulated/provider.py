"""The simulated EP in one session."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from onnxplug import ep
from onnxplug_testing.simulated.capability import judge, operator
from onnxplug_testing.simulated.context import SimulatedContext
from onnxplug_testing.simulated.image import read_model
from onnxplug_testing.simulated.knobs import Knobs, Stage
from onnxplug_testing.simulated.partition import (
    SimulatedPartition,
    value_locations,
)


class SimulatedExecutionProvider(ep.ExecutionProvider):
    """Runs partitions on one simulated device.

    Attributes:
        options: the options it was created with.
        partitions: what it compiled, in order.
        closed: it was.
    """

    def __init__(
        self,
        knobs: Knobs,
        context: SimulatedContext,
        options: Mapping[str, ep.OptionValue],
    ) -> None:
        self.location = context.location
        self.options = dict(options)
        self.captures = bool(options.get("enable_graph_capture"))
        self.specialises = knobs.specialises
        self.partitions: list[SimulatedPartition] = []
        self.closed = False
        self._knobs = knobs
        self._context = context
        self._compilations = itertools.count()

    def get_capability(self, graph: ep.Graph) -> ep.CapabilityReport:
        self._knobs.check(Stage.GET_CAPABILITY)
        return judge(graph, self._knobs)

    def estimate(self, graph: ep.Graph, nodes: Sequence[ep.Node]) -> float | None:
        seconds = self._knobs.seconds
        if seconds is None:
            return None
        return sum(seconds.get(operator(node), 0.0) for node in nodes)

    def examine(self, partition: ep.Partition) -> ep.ValueLocations:
        return value_locations(partition, self._knobs, self._context)

    def compile(self, partition: ep.Partition) -> SimulatedPartition:
        count = next(self._compilations)
        self._knobs.check(Stage.COMPILE)
        if self._knobs.refuse_session:
            raise ep.SessionRefused(self._knobs.refuse_session)
        whole = count in self._knobs.decline_partitions
        named = [
            node
            for node in partition.nodes
            if operator(node) in self._knobs.decline_ops
        ]
        if whole or named:
            ops = sorted({operator(node) for node in partition.nodes})
            raise ep.Declined(
                ep.Reason(
                    ep.RefusalCode.OTHER,
                    f"partition {count} of {', '.join(ops)} (Knobs.decline_…)",
                ),
                nodes=() if whole else named,
            )
        return self._kept(SimulatedPartition(partition, self._knobs, self._context))

    def restore(self, partition: ep.Partition, data: memoryview) -> SimulatedPartition:
        self._knobs.check(Stage.RESTORE)
        model = read_model(data)
        return self._kept(
            SimulatedPartition(partition, self._knobs, self._context, model)
        )

    def _kept(self, compiled: SimulatedPartition) -> SimulatedPartition:
        """*compiled*, which is the session's from now on."""
        if self.captures and not compiled.is_queued:
            raise ep.SessionRefused(
                f"{self._knobs.name} cannot capture {compiled.in_words}: "
                "it waits for values; turn enable_graph_capture off"
            )
        self.partitions.append(compiled)
        return compiled

    def close(self) -> None:
        left = sum(not partition.closed for partition in self.partitions)
        if left:
            raise RuntimeError(
                f"{self._knobs.name} was closed before {left} of its "
                f"{len(self.partitions)} partitions; close those first"
            )
        self.closed = True
