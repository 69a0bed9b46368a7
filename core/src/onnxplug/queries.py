"""Questions about this machine: its hardware, and the EPs that are installed."""

from __future__ import annotations

from onnxplug.ep import EpDevice, HardwareDevice
from onnxplug.hardware import discover
from onnxplug.plugins import PluginRecord, registry
from onnxplug.selection.available import (
    Availability,
    availability,
    platform_support,
)
from onnxplug.selection.enumerate import ep_devices, find_hardware
from onnxplug.selection.known import KNOWN, by_priority


def get_hardware_devices() -> list[HardwareDevice]:
    """The devices of this machine, the CPU first, those that plugins found last.

    No driver is loaded; plugins are, to ask them.
    """
    return find_hardware(registry)


def get_plugins() -> list[PluginRecord]:
    """A record of every EP that an installed distribution supplies; none is loaded."""
    return registry.records()


def get_ep_devices() -> list[EpDevice]:
    """Every pair of an EP that can be loaded and a device that it can drive.

    An EP that cannot be loaded has none; :func:`is_available` says why.
    """
    return ep_devices(registry)


def get_all_providers() -> list[str]:
    """The names of all EPs that onnxplug knows or finds installed, best first.

    Others than those it knows stand by name before the CPU EP, which takes every node
    that comes to it.
    """
    installed = (record.name for record in registry.records())
    return by_priority([*(known.name for known in KNOWN), *installed])


def get_available_providers() -> list[str]:
    """The names of the EPs that can be used on this machine, best first."""
    return by_priority(pair.ep_name for pair in get_ep_devices())


def is_available(name: str) -> Availability:
    """Whether an EP is installed, can be loaded, and drives a device of this machine.

    The answer is true or false, and has ``reason`` and ``remedy``.  No EP is created:
    creating it may fail all the same.
    """
    return availability(name, registry, discover())


def supported_by_platform(name: str) -> Availability:
    """Whether an EP exists for this operating system and processor, installed or not.

    The answer is true or false, and has ``reason`` and ``remedy``.
    """
    return platform_support(name, registry, discover())
