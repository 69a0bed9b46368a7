"""Questions about this machine: its hardware, and the EPs that are installed."""

from __future__ import annotations

from onnxplug.ep import EpDevice, HardwareDevice
from onnxplug.errors import OnnxplugError
from onnxplug.hardware import discover
from onnxplug.plugins import PluginRecord, registry
from onnxplug.selection.choose import devices_of


def get_hardware_devices() -> list[HardwareDevice]:
    """The devices of this machine, the CPU first; no driver is loaded."""
    return list(discover())


def get_plugins() -> list[PluginRecord]:
    """A record of every EP that an installed distribution supplies; none is loaded."""
    return registry.records()


def get_ep_devices() -> list[EpDevice]:
    """Every pair of an EP that can be loaded and a device that it can drive."""
    pairs: list[EpDevice] = []
    for record in registry.records():
        try:
            factory = registry.factory(record.name)
            pairs.extend(devices_of(factory, discover()))
        except OnnxplugError:
            # the registry keeps why; who asks for the EP by name is told
            continue
    return pairs


def get_available_providers() -> list[str]:
    """The names of the EPs that can be used on this machine."""
    return list(dict.fromkeys(pair.ep_name for pair in get_ep_devices()))
