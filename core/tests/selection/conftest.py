"""Made-up machines: hardware, pairs, and EPs that are known for one test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from onnxplug.ep import DeviceType, EpDevice, HardwareDevice
from onnxplug.plugins import FoundPlugin, PluginRegistry
from onnxplug.selection import CPU, SessionContext
from onnxplug_testing import Knobs, SimulatedFactory

MakePair = Callable[..., EpDevice]


def device(kind: str, vendor: str = "", vendor_id: int = 0, **metadata: str) -> Any:
    return HardwareDevice(
        type=DeviceType(kind), vendor=vendor, vendor_id=vendor_id, metadata=metadata
    )


@pytest.fixture
def hardware() -> list[HardwareDevice]:
    """A processor and two GPUs."""
    return [
        device("cpu", "Intel", 0x8086),
        device("gpu", "NVIDIA", 0x10DE, Discrete="1", pci_bus_id="0000:01:00.0"),
        device("gpu", "Intel", 0x8086, Discrete="0", pci_bus_id="0000:00:02.0"),
    ]


@pytest.fixture
def context(registry: PluginRegistry) -> SessionContext:
    return SessionContext(None, 0, {}, registry)


@pytest.fixture
def installed() -> list[FoundPlugin]:
    """The plugins that the registry finds installed."""
    return []


@pytest.fixture
def registry(installed: list[FoundPlugin]) -> PluginRegistry:
    """A registry of its own, with no plugin installed unless a test says so."""
    return PluginRegistry({}, find=lambda group: installed)


AddEp = Callable[..., SimulatedFactory]


@pytest.fixture
def add(registry: PluginRegistry) -> AddEp:
    """Makes an EP known: ``add("Cuda", "gpu", **knobs)`` drives all GPUs there are."""

    def make(
        ep: str, kind: str, *, vendor_id: int = 0, **knobs: Any
    ) -> SimulatedFactory:
        settings = {"virtual": False, "device_count": 8, **knobs}
        name = f"{ep}ExecutionProvider"
        factory = SimulatedFactory(
            Knobs(name=name, device_type=DeviceType(kind), **settings)
        )
        factory.vendor_id = vendor_id  # type: ignore[misc]
        registry.add(factory)
        return factory

    return make


@pytest.fixture
def cpu(add: AddEp) -> SimulatedFactory:
    """The CPU EP, made known."""
    return add(CPU.removesuffix("ExecutionProvider"), "cpu")


@pytest.fixture
def pair() -> MakePair:
    """Makes a pair: ``pair("Cuda", "gpu", vendor="NVIDIA", ep_vendor="NVIDIA")``."""

    def make(
        ep: str,
        kind: str,
        *,
        vendor: str = "",
        vendor_id: int = 0,
        ep_vendor: str = "",
        **metadata: str,
    ) -> EpDevice:
        return EpDevice(
            ep_name=f"{ep}ExecutionProvider",
            ep_vendor=ep_vendor,
            device=device(kind, vendor, vendor_id, **metadata),
        )

    return make
