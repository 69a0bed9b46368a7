"""The EP on torch's CPU as if that were a device with memory and streams of its own.

What a GPU would do, but for being late: arrays are tensors outside partitions, too,
copies go through the data transfer, and work is queued on streams, which note it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from onnxplug import ep
from onnxplug_torch.context import TorchContext
from onnxplug_torch.devices import Place
from onnxplug_torch.factory import TorchFactory
from onnxplug_torch.options import read_settings
from onnxplug_torch.provider import TorchProvider

NAME = "DeviceExecutionProvider"
SPACE = "pretended"


class PretendedPlace(Place):
    """torch's CPU, with memory that is not the host's."""

    @property
    def torch_name(self) -> str:
        return "cpu"

    @property
    def location(self) -> ep.MemoryLocation:
        return ep.MemoryLocation(SPACE, self.ordinal)

    @property
    def dlpack(self) -> tuple[int, int]:
        return 1, 0

    @property
    def has_streams(self) -> bool:
        return True

    @property
    def pins(self) -> bool:
        return False

    @property
    def captures(self) -> bool:
        return False


class Stream:
    """As torch.cuda.Stream is used; counts what waits for it and was queued on it."""

    def __init__(self, log: list[str], device: Any) -> None:
        self._log = log
        self.cuda_stream = id(self)

    def wait_event(self, event: Event) -> None:
        assert event.recorded
        self._log.append("wait")

    def synchronize(self) -> None:
        self._log.append("synchronize")


class Event:
    """As torch.cuda.Event is used."""

    recorded = False

    def record(self, stream: Stream) -> None:
        self.recorded = True

    def query(self) -> bool:
        return self.recorded

    def synchronize(self) -> None:
        assert self.recorded


class Module:
    """As torch.cuda is used."""

    Event = Event

    def __init__(self, log: list[str]) -> None:
        self._log = log

    def Stream(self, device: Any) -> Stream:
        return Stream(self._log, device)

    @contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        self._log.append("used")
        yield

    def synchronize(self, device: Any) -> None:
        self._log.append("synchronize all")


class DeviceFactory(TorchFactory):
    """The EP's factory, of one pretended device.

    Attributes:
        log: what streams were told, in order.
        providers: the EPs that it created.
    """

    name = NAME
    memory_spaces = frozenset({SPACE})

    def __init__(self) -> None:
        self.log: list[str] = []
        self.providers: list[TorchProvider] = []

    def supported_devices(
        self, devices: Sequence[ep.HardwareDevice]
    ) -> Iterable[ep.EpDevice]:
        device = ep.HardwareDevice(
            type=ep.DeviceType.GPU, vendor="Pretended", metadata={"is_virtual": "1"}
        )
        return [ep.EpDevice(ep_name=self.name, device=device)]

    def create(
        self,
        devices: Sequence[ep.EpDevice],
        options: Mapping[str, ep.OptionValue],
        session: ep.SessionContext,
    ) -> TorchProvider:
        import torch

        location = PretendedPlace(SPACE, 0).location
        session.context(location)
        provider = TorchProvider(
            torch,
            torch.device("cpu"),
            location,
            read_settings(options, 0),
            session.weights(location),
        )
        self.providers.append(provider)
        return provider

    def create_context(self, location: ep.MemoryLocation) -> TorchContext:
        import torch

        return TorchContext(torch, PretendedPlace(SPACE, 0), Module(self.log))

    def probes(self, device: ep.EpDevice) -> Iterable[ep.Probe]:
        return []
