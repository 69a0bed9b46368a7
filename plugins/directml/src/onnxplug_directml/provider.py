"""The DirectML EP in one session: it claims nodes, and compiles their graphs."""

from __future__ import annotations

import logging
import threading

from onnxplug import ep
from onnxplug_directml.capability import Judge
from onnxplug_directml.device.compiled import CompiledGraph
from onnxplug_directml.device.context import DmlContext
from onnxplug_directml.device.streams import DmlCapture
from onnxplug_directml.graph_files import GraphFiles
from onnxplug_directml.host_partition import FindKernel, HostPartition
from onnxplug_directml.lowering.lower import examine, lower
from onnxplug_directml.options import Settings
from onnxplug_directml.partition import DmlPartition, EmptyPartition


class DmlProvider(ep.ExecutionProvider):
    """Compiles one graph of each partition, for each set of input shapes.

    Args:
        context: the memory and the queue.
        files: where graphs are written; ``None``: nowhere.
        supplied: finds kernels of the host's.
    """

    def __init__(
        self,
        context: DmlContext,
        settings: Settings,
        logger: logging.Logger,
        files: GraphFiles | None,
        supplied: FindKernel,
    ) -> None:
        self.location = context.location
        self._context = context
        self._settings = settings
        self._logger = logger
        self._files = files
        self._supplied = supplied
        self._files_lock = threading.Lock()
        self.target = context.device.target
        self.specialiser = DmlSpecialiser(self)
        self.capture = DmlCapture() if settings.captures else None

    def get_capability(self, graph: ep.Graph) -> ep.CapabilityReport:
        """Take what can be lowered for the device."""
        judge = Judge(graph, self.target)
        return ep.CapabilityReport.per_node(graph, judge, keeps_constants=True)

    def compile(self, partition: ep.Partition) -> ep.CompiledPartition:
        """One graph, compiled and initialised.

        Raises:
            Declined: it cannot be lowered, or DirectML does not take it.
            LoadCancelled: it is not wanted any more.
            DeviceRemoved: the device is.
            MemoryError: there is not enough memory for it.
        """
        if EmptyPartition.is_one(partition):
            return EmptyPartition(partition, self._context)
        try:
            graph = lower(partition, self.target)
        except ep.Declined:
            if HostPartition.is_one(partition):
                return HostPartition(partition, self._context, self._supplied)
            raise
        if partition.cancelled:
            raise ep.LoadCancelled("cancelled before DirectML compiled the graph")
        if self._files is not None:
            with self._files_lock:
                path = self._files.write(graph)
            self._logger.info("%d nodes are %s", len(partition.nodes), path)
        compiled = CompiledGraph(self._context.device, graph, self._settings.flags)
        try:
            return DmlPartition(compiled, partition, self._context)
        except BaseException:
            compiled.close()
            raise


class DmlSpecialiser(ep.Specialiser):
    """Has a graph compiled for each set of input shapes."""

    def __init__(self, provider: DmlProvider) -> None:
        self._provider = provider

    def examine(self, partition: ep.Partition) -> None:
        """Decline what cannot be lowered, whatever the shapes."""
        examine(partition, self._provider.target)
