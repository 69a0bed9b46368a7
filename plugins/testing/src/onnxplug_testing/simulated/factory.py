"""The factory of simulated EPs: devices, options, and what sessions share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from onnxplug import ep
from onnxplug.authoring.compilers import SameCompiler
from onnxplug_testing.simulated.capture import SimulatedGraph
from onnxplug_testing.simulated.context import SimulatedContext
from onnxplug_testing.simulated.knobs import Knobs, Stage
from onnxplug_testing.simulated.memory import SimulatedAllocator
from onnxplug_testing.simulated.provider import SimulatedExecutionProvider
from onnxplug_testing.simulated.schedule import (
    LateSchedule,
    Schedule,
    ThreadedSchedule,
)
from onnxplug_testing.simulated.streams import SimulatedStream
from onnxplug_testing.simulated.transfer import SimulatedDataTransfer


class SimulatedSpaces(ep.MemorySpaces):
    """The memory of simulated devices.

    Attributes:
        contexts: the newest of each location, closed or not.
    """

    def __init__(
        self, knobs: Knobs, schedule: Schedule, transfer: SimulatedDataTransfer
    ) -> None:
        space = frozenset({knobs.space})
        self.owned = frozenset() if knobs.shares else space
        self.spare = space if knobs.spare else frozenset()
        self.keeps_contexts = knobs.keeps_contexts
        self.contexts: dict[ep.MemoryLocation, SimulatedContext] = {}
        self._knobs = knobs
        self._schedule = schedule
        self._transfer = transfer

    def create_context(self, location: ep.MemoryLocation) -> SimulatedContext:
        knobs = self._knobs
        knobs.check(Stage.CONTEXT)
        if location.space not in self.owned | self.spare:
            raise RuntimeError(
                f"{knobs.name} was asked for a context of {location}, which is not in "
                "its memory spaces"
            )
        if location.ordinal >= knobs.device_count:
            raise LookupError(
                f"{knobs.name} has {knobs.device_count} devices, not {location}"
            )
        before = self.contexts.get(location)
        if before is not None and not before.is_closed:
            raise RuntimeError(
                f"{knobs.name} was asked for a second context of {location}; all who "
                "work there share one"
            )
        context = SimulatedContext(location, knobs, self._schedule, self._transfer)
        self.contexts[location] = context
        return context


class SimulatedVerification(ep.Verification):
    """Has checked what the knobs say."""

    def __init__(self, knobs: Knobs) -> None:
        self._knobs = knobs

    def probes(self, device: ep.EpDevice) -> Iterable[ep.Probe]:
        return self._knobs.probes


class SimulatedCompatibility(SameCompiler):
    """Says what the knobs say."""

    def __init__(self, factory: SimulatedFactory) -> None:
        super().__init__(factory)
        self._knobs = factory.knobs

    def check(self, device: ep.EpDevice, info: str) -> tuple[ep.Compatibility, str]:
        return self._knobs.compatibility or super().check(device, info)


class SimulatedFactory(ep.EpFactory):
    """Creates simulated EPs.

    Attributes:
        knobs: how they behave.
        transfer: the one data transfer, of all its contexts.
        schedule: the order of work on streams.
        created: the EPs created, in order.
        closed: it was.
    """

    spi_version = (1, 0)
    memory_spaces: SimulatedSpaces
    name = "SimulatedExecutionProvider"
    vendor = "onnxplug"
    version = "0.1.0"
    options = {  # noqa: RUF012 - a constant: its type is declared by EpFactory
        "tag": ep.Option(
            default="", doc="A word for people; has no effect.", compiled_in=False
        ),
        "level": ep.Option(
            default=1,
            doc="How hard to optimise; has no effect.",
            choices=(0, 1, 2),
            aliases=("optimization_level",),
        ),
        "share": ep.Option(
            default=1.0,
            doc="Share of the device to use; has no effect.",
            minimum=0.0,
            maximum=1.0,
        ),
        "verbose": ep.Option(
            default=False, doc="Log more; has no effect.", compiled_in=False
        ),
        "user_compute_stream": ep.Option(
            default=0,
            doc="The native handle of the stream to work on; 0: the host's own.",
            minimum=0,
            compiled_in=False,
        ),
        "enable_graph_capture": ep.Option(
            default=False,
            doc="Capture runs on bound values, and launch them again.",
            compiled_in=False,
        ),
    }

    def __init__(self, knobs: Knobs | None = None) -> None:
        self.knobs = knobs or Knobs()
        # several simulated EPs may live side by side; a real one has one name
        self.name = self.knobs.name  # type: ignore[misc]
        self.verification = SimulatedVerification(self.knobs)
        self.transfer = SimulatedDataTransfer(self.knobs.space)
        self.schedule: Schedule = (
            ThreadedSchedule if self.knobs.schedule == "threaded" else LateSchedule
        )(self.knobs.seed)
        self.memory_spaces = SimulatedSpaces(self.knobs, self.schedule, self.transfer)
        self.created: list[SimulatedExecutionProvider] = []
        self.closed = False

    def supported_devices(
        self, devices: Sequence[ep.HardwareDevice]
    ) -> Iterable[ep.EpDevice | ep.RefusedDevice]:
        self.knobs.check(Stage.DEVICES)
        refused = self.knobs.refused
        offered = self._virtual_devices() if self.knobs.virtual else devices
        suitable = [
            device
            for device in offered
            if device.type is self.knobs.device_type and device.type not in refused
        ]
        pairs = [
            ep.EpDevice(
                ep_name=self.name,
                ep_vendor=self.vendor,
                device=device,
                metadata={"version": self.version, "ordinal": str(ordinal)},
                costs=self.knobs.costs,
            )
            for ordinal, device in enumerate(suitable[: self.knobs.device_count])
        ]
        return [*pairs, *self._refused_devices(devices)]

    def create(
        self,
        devices: Sequence[ep.EpDevice],
        options: Mapping[str, ep.OptionValue],
        session: ep.SessionContext,
    ) -> SimulatedExecutionProvider:
        self.knobs.check(Stage.CREATE)
        if options.get("enable_graph_capture") and not self.knobs.captures:
            raise ep.OptionError(f"{self.name} cannot capture; see Knobs.captures")
        ordinal = int(devices[0].metadata["ordinal"])
        context = session.context(ep.MemoryLocation(self.knobs.space, ordinal))
        if not isinstance(context, SimulatedContext):
            raise TypeError(f"{self.knobs.space} is not a simulated device's memory")
        provider = SimulatedExecutionProvider(self.knobs, context, options)
        self.created.append(provider)
        return provider

    @property
    def contexts(self) -> Mapping[ep.MemoryLocation, SimulatedContext]:
        """The newest of each location, closed or not."""
        return self.memory_spaces.contexts

    @property
    def compatibility(self) -> ep.CompatibilityCheck:  # type: ignore[override]
        """As by default, unless the knobs have an answer."""
        return SimulatedCompatibility(self)

    def engine_versions(self, device: ep.EpDevice) -> Mapping[str, str]:
        return self.knobs.engine

    def diagnose(self) -> Iterable[ep.Finding]:
        return self.knobs.findings

    def close(self) -> None:
        left = sum(not provider.closed for provider in self.created)
        if left:
            raise RuntimeError(
                f"the factory of {self.name} was closed before {left} of its "
                f"{len(self.created)} EPs; close those first"
            )
        for context in self.contexts.values():
            if not context.is_closed:
                raise RuntimeError(
                    f"the factory of {self.name} was closed before its context of "
                    f"{context.location}; close that first"
                )
        self.closed = True

    @property
    def open_streams(self) -> list[SimulatedStream]:
        """The streams of all contexts that are not closed."""
        contexts = list(self.contexts.values())
        return [stream for context in contexts for stream in context.open_streams]

    @property
    def open_graphs(self) -> list[SimulatedGraph]:
        """The captured graphs of all contexts that are not closed."""
        contexts = list(self.contexts.values())
        return [graph for context in contexts for graph in context.open_graphs]

    def context(self, ordinal: int = 0) -> SimulatedContext:
        """The context of device *ordinal*, which the host has asked for.

        Raises:
            KeyError: it has not.
        """
        return self.contexts[ep.MemoryLocation(self.knobs.space, ordinal)]

    def allocator(self, ordinal: int = 0) -> SimulatedAllocator:
        """What makes arrays on device *ordinal*."""
        return self.context(ordinal).device

    def _refused_devices(
        self, devices: Sequence[ep.HardwareDevice]
    ) -> Iterable[ep.RefusedDevice]:
        for device in devices:
            if device.type in self.knobs.refused:
                reason, remedy = self.knobs.refused[device.type]
                yield ep.RefusedDevice(device=device, reason=reason, remedy=remedy)

    def _virtual_devices(self) -> Sequence[ep.HardwareDevice]:
        return [
            ep.HardwareDevice(
                type=self.knobs.device_type,
                vendor=self.vendor,
                device_id=ordinal,
                metadata={
                    "is_virtual": "1",
                    "Description": f"simulated {self.knobs.device_type} {ordinal}",
                },
            )
            for ordinal in range(self.knobs.device_count)
        ]


class SimulatedPlugin:
    """What a plugin's entry point would name, with knobs: a target to register.

    Attributes:
        factory: the one factory, for tests to look into.
    """

    def __init__(self, knobs: Knobs | None = None) -> None:
        self.factory = SimulatedFactory(knobs)

    @ep.hookimpl
    def onnxplug_ep_factories(self, host: ep.Host) -> Iterable[ep.EpFactory]:
        """The factory; raises when told to fail at load."""
        self.factory.knobs.check(Stage.LOAD)
        return [self.factory]
