"""An EP with memory and streams of its own, on threads; without mistakes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from onnxplug import ep

from .device_memory import (
    SPACE,
    DeviceAllocator,
    DeviceContext,
    DeviceSpaces,
    DeviceTransfer,
)
from .device_partition import DevicePartition
from .device_streams import DeviceCapture, DeviceStream
from .operators import OPERATORS, Operator, why_not


class DeviceExecutionProvider(ep.ExecutionProvider):
    """Runs nodes on the device, in one session."""

    def __init__(self, factory: DeviceFactory, context: DeviceContext) -> None:
        self.location = context.location
        self.context = context
        self._factory = factory

    def get_capability(self, graph: ep.Graph) -> ep.CapabilityReport:
        operators = self._factory.operators_taken
        return ep.CapabilityReport.per_node(
            graph, lambda node: why_not(graph, node, operators), keeps_constants=True
        )

    def compile(self, partition: ep.Partition) -> ep.CompiledPartition:
        return self._factory.partition(
            partition, self.context, self._factory.operators_taken
        )


class DeviceFactory(ep.EpFactory):
    """Offers the EP on its one device; what it is made of is there to be replaced."""

    spi_version = (1, 0)
    name = "ThreadedExecutionProvider"
    version = "0.1.0"
    options: ClassVar[Mapping[str, ep.Option]] = {
        "enable_graph_capture": ep.Option(
            default=False,
            doc="Capture runs on bound values, and launch them again.",
            compiled_in=False,
        ),
        "user_compute_stream": ep.Option(
            default=0,
            doc="The native handle of the stream to work on; 0: the host's own.",
            minimum=0,
            compiled_in=False,
        ),
    }

    operators_taken: ClassVar[Mapping[str, Operator]] = OPERATORS
    provider: ClassVar[type[DeviceExecutionProvider]] = DeviceExecutionProvider
    partition: ClassVar[type[DevicePartition]] = DevicePartition
    allocator: ClassVar[type[DeviceAllocator]] = DeviceAllocator
    transfer: ClassVar[type[DeviceTransfer]] = DeviceTransfer
    stream: ClassVar[type[DeviceStream]] = DeviceStream
    graph_capture: ClassVar[type[DeviceCapture]] = DeviceCapture

    def __init__(self) -> None:
        self.memory_spaces = DeviceSpaces(self.make_context)

    def make_context(self, location: ep.MemoryLocation) -> DeviceContext:
        """The context of the device."""
        return DeviceContext(location, self.allocator(), self.transfer(), self.stream)

    def supported_devices(
        self, devices: Sequence[ep.HardwareDevice]
    ) -> Iterable[ep.EpDevice]:
        device = ep.HardwareDevice(
            type=ep.DeviceType.NPU,
            metadata={"is_virtual": "1", "Description": "threads of this process"},
        )
        yield ep.EpDevice(
            ep_name=self.name,
            device=device,
            metadata={"version": self.version},
            # it is host memory in truth
            costs=ep.Costs(seconds_per_copy=0, seconds_per_byte=0),
            by_name_only=True,
        )

    def create(
        self,
        devices: Sequence[ep.EpDevice],
        options: Mapping[str, ep.OptionValue],
        session: ep.SessionContext,
    ) -> ep.ExecutionProvider:
        context: Any = session.context(ep.MemoryLocation(SPACE, 0))
        provider = self.provider(self, context)
        if options["enable_graph_capture"]:
            provider.capture = self.graph_capture()
        return provider

    def operators(self) -> Iterable[ep.OperatorSupport]:
        for op_type, operator in self.operators_taken.items():
            first, last = operator.versions
            yield ep.OperatorSupport(op_type=op_type, since=first, until=last)
