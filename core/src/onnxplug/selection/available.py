"""Questions to ask before an EP is asked for; no EP is created to answer them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from onnxplug.ep import HardwareDevice
from onnxplug.errors import EpError, PluginBlocked, PluginError, PluginNotFound
from onnxplug.plugins import PluginRegistry
from onnxplug.selection.devices import devices_of, hardware_for
from onnxplug.selection.known import (
    PAGE,
    find_known,
    platform_reason,
    remedy,
    this_platform,
)


class Availability(NamedTuple):
    """An answer that is true or false, and says why it is false.

    Attributes:
        name: the EP's name, as it was asked for when it is unknown.
        available: the answer.
        reason: why not; empty when it is true.
        remedy: what to do about it; empty when it is true.
    """

    name: str
    available: bool
    reason: str = ""
    remedy: str = ""

    def __bool__(self) -> bool:
        return self.available


def availability(
    name: str, registry: PluginRegistry, hardware: Sequence[HardwareDevice]
) -> Availability:
    """Whether an EP is installed, can be loaded, and drives a device of *hardware*.

    Creating it may fail all the same.
    """
    try:
        factory = registry.factory(name)
        pairs = devices_of(factory, hardware_for(registry, factory.name, hardware))
    except PluginNotFound as error:
        known = find_known(name)
        first_line = str(error).splitlines()[0]
        return Availability(
            known.name if known else name, False, first_line, remedy(name)
        )
    except PluginBlocked as error:
        todo = f"change the settings that say so (see {PAGE})"
        return Availability(name, False, str(error), todo)
    except (PluginError, EpError) as error:
        ep = getattr(error, "ep", "") or getattr(error, "plugin", "") or name
        return Availability(ep, False, str(error), f"repair its plugin (see {PAGE})")
    if pairs:
        return Availability(factory.name, True)
    reason = drives_none(factory.name, hardware)
    return Availability(factory.name, False, reason, no_device_remedy(factory.name))


def platform_support(
    name: str, registry: PluginRegistry, hardware: Sequence[HardwareDevice]
) -> Availability:
    """Whether an EP exists for this operating system and processor, installed or not.

    Of an EP that onnxplug does not know its factory is asked for devices; with no
    factory to ask, nothing speaks against it.
    """
    known = find_known(name)
    if known is not None:
        reason = platform_reason(known, *this_platform())
        todo = f"choose another EP (see {PAGE})" if reason else ""
        return Availability(known.name, not reason, reason, todo)
    try:
        factory = registry.factory(name)
        pairs = devices_of(factory, hardware_for(registry, factory.name, hardware))
    except (PluginError, EpError):
        return Availability(name, True)
    if pairs:
        return Availability(factory.name, True)
    reason = drives_none(factory.name, hardware)
    return Availability(factory.name, False, reason, no_device_remedy(factory.name))


def drives_none(ep: str, hardware: Sequence[HardwareDevice]) -> str:
    """That an EP drives no device of *hardware*."""
    kinds = ", ".join(sorted({str(device.type) for device in hardware})) or "none"
    return f"{ep} drives none of this machine's devices ({kinds})"


def no_device_remedy(ep: str) -> str:
    """What to do about an EP that drives no device."""
    known = find_known(ep)
    reason = platform_reason(known, *this_platform()) if known else ""
    if reason:
        return f"{reason}; choose another EP (see {PAGE})"
    return f"`onnxplug devices` lists the devices that were found (see {PAGE})"
