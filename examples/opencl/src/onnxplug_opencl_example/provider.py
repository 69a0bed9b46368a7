"""The EP in one session."""

from __future__ import annotations

from functools import partial

from onnxplug import ep

from .context import OpenClContext
from .operators import why_not
from .partition import OpenClPartition


class OpenClExecutionProvider(ep.ExecutionProvider):
    """Runs nodes of float32 on one device."""

    def __init__(self, context: OpenClContext) -> None:
        self.location = context.location
        self._context = context

    def get_capability(self, graph: ep.Graph) -> ep.CapabilityReport:
        """Take the nodes whose operators there are; constants are copied there."""
        return ep.CapabilityReport.per_node(
            graph, partial(why_not, graph), keeps_constants=True
        )

    def compile(self, partition: ep.Partition) -> ep.CompiledPartition:
        """What queues the nodes; kernels are built when they are first launched."""
        return OpenClPartition(partition, self._context)
