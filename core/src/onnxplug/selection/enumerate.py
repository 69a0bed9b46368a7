"""All pairs of EP and device: one factory on two devices is two pairs.

Invariant: the order is that of the registry's names, then of the hardware; a plugin
that is broken costs its own pairs only, and why is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from onnxplug.authoring.record import Record
from onnxplug.ep import EpDevice, HardwareDevice
from onnxplug.errors import EpError
from onnxplug.hardware import discover
from onnxplug.plugins import PluginRegistry
from onnxplug.selection.devices import judged_devices, logger, merge_hardware

if TYPE_CHECKING:
    from onnxplug.ep import RefusedDevice


class SkippedEp(Record):
    """An EP that has no pairs because it is broken, blocked or incompatible."""

    name: str
    reason: str


class Enumeration(Record):
    """All pairs, and the EPs that could not be asked for theirs.

    Attributes:
        vendor_ids: the PCI vendor id of each EP's maker, by the EP's name.
        refused: devices that EPs might drive and do not, each with the EP's name.
    """

    devices: list[EpDevice]
    skipped: list[SkippedEp]
    vendor_ids: dict[str, int]
    refused: list[tuple[str, RefusedDevice]]


def enumerate_devices(
    registry: PluginRegistry, hardware: Sequence[HardwareDevice] | None = None
) -> Enumeration:
    """Every pair of an EP that may be used without being named, and its devices.

    Args:
        hardware: this machine's when left out.
    """
    factories = registry.automatic_factories()
    if hardware is None:
        hardware = find_hardware(registry)
    found = Enumeration([], [], {}, [])
    for factory in factories:
        found.vendor_ids[factory.name] = factory.vendor_id
        try:
            pairs, refused = judged_devices(factory, hardware)
        except EpError as error:
            found.skipped.append(SkippedEp(factory.name, str(error)))
            logger().warning("%s", error)
        else:
            found.devices.extend(pairs)
            found.refused.extend((factory.name, each) for each in refused)
    for record in registry.records():
        if record.reason:
            found.skipped.append(SkippedEp(record.name, record.reason))
    return found


def ep_devices(
    registry: PluginRegistry, hardware: Sequence[HardwareDevice] | None = None
) -> list[EpDevice]:
    """The pairs of :func:`enumerate_devices`."""
    return enumerate_devices(registry, hardware).devices


def find_hardware(registry: PluginRegistry) -> list[HardwareDevice]:
    """What the host found, and what plugins found that may be used unnamed."""
    registry.automatic_factories()
    return merge_hardware(discover(), registry.probe_hardware())
