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
from onnxplug_testing.simulated.streams import SimulatedStream


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
        if options.get("enable_graph_capture"):
            self.capture = SimulatedCapture()
        self.cost_model = SimulatedCosts(knobs)
        if knobs.specialises:
            self.specialiser = SimulatedSpecialiser(knobs, context)
        self.partitions: list[SimulatedPartition] = []
        self.closed = False
        self.knobs = knobs
        self.context = context
        self._compilations = itertools.count()

    @property
    def serialiser(self) -> ep.Serialiser | None:  # type: ignore[override]
        """Keeps partitions as models."""
        return SimulatedSerialiser(self) if self.knobs.serialises else None

    def get_capability(self, graph: ep.Graph) -> ep.CapabilityReport:
        self.knobs.check(Stage.GET_CAPABILITY)
        return judge(graph, self.knobs)

    def compile(self, partition: ep.Partition) -> SimulatedPartition:
        count = next(self._compilations)
        self.knobs.check(Stage.COMPILE)
        if self.knobs.refuse_session:
            raise ep.SessionRefused(self.knobs.refuse_session)
        whole = count in self.knobs.decline_partitions
        named = [
            node for node in partition.nodes if operator(node) in self.knobs.decline_ops
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
        return self.kept(SimulatedPartition(partition, self.knobs, self.context))

    def kept(self, compiled: SimulatedPartition) -> SimulatedPartition:
        """*compiled*, which is the session's from now on."""
        if self.capture is not None and not compiled.is_queued:
            raise ep.SessionRefused(
                f"{self.knobs.name} cannot capture {compiled.in_words}: "
                "it waits for values; turn enable_graph_capture off"
            )
        self.partitions.append(compiled)
        return compiled

    def close(self) -> None:
        left = sum(not partition.closed for partition in self.partitions)
        if left:
            raise RuntimeError(
                f"{self.knobs.name} was closed before {left} of its "
                f"{len(self.partitions)} partitions; close those first"
            )
        self.closed = True


class SimulatedCapture(ep.GraphCapture):
    """Captures what is queued on streams of a simulated device."""

    def begin(self, stream: ep.Stream) -> None:
        assert isinstance(stream, SimulatedStream)
        stream.begin_capture()

    def end(self, stream: ep.Stream) -> ep.CapturedGraph:
        assert isinstance(stream, SimulatedStream)
        return stream.end_capture()


class SimulatedCosts(ep.CostModel):
    """Says what the knobs say."""

    def __init__(self, knobs: Knobs) -> None:
        self._knobs = knobs

    def estimate(self, graph: ep.Graph, nodes: Sequence[ep.Node]) -> float | None:
        seconds = self._knobs.seconds
        if seconds is None:
            return None
        return sum(seconds.get(operator(node), 0.0) for node in nodes)


class SimulatedSpecialiser(ep.Specialiser):
    """Has partitions compiled by input shapes."""

    def __init__(self, knobs: Knobs, context: SimulatedContext) -> None:
        self.limit = knobs.specialises
        self._knobs = knobs
        self._context = context

    def examine(self, partition: ep.Partition) -> ep.ValueLocations:
        return value_locations(partition, self._knobs, self._context)


class SimulatedSerialiser(ep.Serialiser):
    """Keeps partitions as models."""

    def __init__(self, provider: SimulatedExecutionProvider) -> None:
        self._provider = provider

    def serialise(self, compiled: ep.CompiledPartition) -> bytes:
        self._provider.knobs.check(Stage.SERIALISE)
        assert isinstance(compiled, SimulatedPartition)
        return compiled.image()

    def restore(self, partition: ep.Partition, data: memoryview) -> SimulatedPartition:
        provider = self._provider
        provider.knobs.check(Stage.RESTORE)
        model = read_model(data)
        try:
            made = SimulatedPartition(
                partition, provider.knobs, provider.context, model
            )
        except (ep.SessionRefused, MemoryError):
            raise
        except Exception as error:
            ep.raise_interruption(error)
            what = f"the image is damaged: {error}"
            raise ep.Declined(ep.Reason(ep.RefusalCode.OTHER, what)) from error
        return provider.kept(made)
