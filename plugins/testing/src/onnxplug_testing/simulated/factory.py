"""The factory of simulated EPs: devices, options, and what sessions share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from onnxplug import ep
from onnxplug_testing.simulated.knobs import Knobs, Stage
from onnxplug_testing.simulated.memory import (
    SimulatedAllocator,
    SimulatedDataTransfer,
)
from onnxplug_testing.simulated.provider import SimulatedExecutionProvider
from onnxplug_testing.simulated.streams import Schedule, SimulatedStream


class SimulatedFactory(ep.EpFactory):
    """Creates simulated EPs.

    Attributes:
        knobs: how they behave.
        transfer: the one data transfer.
        schedule: the order of work on streams; knows which streams are open.
        created: the EPs created, in order.
        closed: it was.
    """

    spi_version = (0, 1)
    name = "SimulatedExecutionProvider"
    vendor = "onnxplug"
    version = "0.1.0"
    options = {  # noqa: RUF012 - a constant: its type is declared by EpFactory
        "tag": ep.Option(default="", doc="A word for people; has no effect."),
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
        "verbose": ep.Option(default=False, doc="Log more; has no effect."),
    }

    def __init__(self, knobs: Knobs | None = None) -> None:
        self.knobs = knobs or Knobs()
        # several simulated EPs may live side by side; a real one has one name
        self.name = self.knobs.name  # type: ignore[misc]
        self.transfer = SimulatedDataTransfer(self.knobs.space)
        self.schedule = Schedule(self.knobs.seed)
        self.created: list[SimulatedExecutionProvider] = []
        self.closed = False
        self._allocators: dict[int, SimulatedAllocator] = {}

    def supported_devices(
        self, devices: Sequence[ep.HardwareDevice]
    ) -> Iterable[ep.EpDevice]:
        self.knobs.check(Stage.DEVICES)
        offered = self._virtual_devices() if self.knobs.virtual else devices
        suitable = [
            device for device in offered if device.type is self.knobs.device_type
        ]
        return [
            ep.EpDevice(
                ep_name=self.name,
                ep_vendor=self.vendor,
                device=device,
                metadata={
                    "version": self.version,
                    "ordinal": str(ordinal),
                    **self.knobs.device_metadata,
                },
            )
            for ordinal, device in enumerate(suitable[: self.knobs.device_count])
        ]

    def create(
        self,
        devices: Sequence[ep.EpDevice],
        options: Mapping[str, ep.OptionValue],
        session: ep.SessionContext,
    ) -> SimulatedExecutionProvider:
        self.knobs.check(Stage.CREATE)
        allocator = self.allocator(int(devices[0].metadata["ordinal"]))
        provider = SimulatedExecutionProvider(self.knobs, allocator, options)
        self.created.append(provider)
        return provider

    def create_allocator(self, location: ep.MemoryLocation) -> ep.Allocator | None:
        if location.space != self.knobs.space:
            return None
        return self.allocator(location.ordinal)

    def create_data_transfer(self) -> SimulatedDataTransfer:
        return self.transfer

    def create_stream(self, location: ep.MemoryLocation) -> ep.Stream | None:
        if not self.knobs.streams or location.space != self.knobs.space:
            return None
        return SimulatedStream(self.schedule, location)

    def probes(self, device: ep.EpDevice) -> Iterable[ep.Probe]:
        return self.knobs.probes

    def diagnose(self) -> Iterable[ep.Finding]:
        return self.knobs.findings

    def close(self) -> None:
        left = sum(not provider.closed for provider in self.created)
        if left:
            raise RuntimeError(
                f"the factory of {self.name} was closed before {left} of its "
                f"{len(self.created)} EPs; close those first"
            )
        self.closed = True

    def allocator(self, ordinal: int = 0) -> SimulatedAllocator:
        """The allocator of device *ordinal*."""
        if ordinal not in self._allocators:
            location = ep.MemoryLocation(self.knobs.space, ordinal)
            self._allocators.setdefault(
                ordinal,
                SimulatedAllocator(location, self.schedule, self.knobs.memory_limit),
            )
        return self._allocators[ordinal]

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
