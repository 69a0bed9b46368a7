"""The devices that one EP drives, and the hardware that it is shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from onnxplug.ep import EpDevice, EpFactory, Finding, HardwareDevice, Level
from onnxplug.errors import EpError, OptionError, PluginLoadError
from onnxplug.guard import FAILURES, blaming
from onnxplug.plugins import PluginRegistry
from onnxplug.plugins.declared import is_text_table
from onnxplug.selection.options import parse_options

if TYPE_CHECKING:
    import logging


def devices_of(
    factory: EpFactory, hardware: Sequence[HardwareDevice]
) -> tuple[EpDevice, ...]:
    """The pairs of an EP and the hardware that it can drive.

    Raises:
        EpError: the factory raised, or offers another EP's pairs.
    """
    with blaming(factory.name, "devices"):
        pairs = tuple(factory.supported_devices(hardware))
    for pair in pairs:
        if not isinstance(pair, EpDevice) or pair.ep_name != factory.name:
            raise EpError(
                f"{factory.name} failed in devices: it offers {pair!r}, which is no "
                "EpDevice of its own",
                ep=factory.name,
                stage="devices",
            )
        for what in ("metadata", "default_options"):
            facts = getattr(pair, what)
            if not is_text_table(facts):
                raise EpError(
                    f"{factory.name} failed in devices: its {what} of {pair} are "
                    f"{facts!r}; expected a mapping of texts to texts",
                    ep=factory.name,
                    stage="devices",
                )
        try:
            parse_options(factory.name, factory.options, pair.default_options)
        except OptionError as error:
            raise EpError(
                f"{factory.name} failed in devices: it suggests options for {pair} "
                f"that it does not have so: {error}",
                ep=factory.name,
                stage="devices",
            ) from error
    return pairs


def hardware_for(
    registry: PluginRegistry, ep: str, hardware: Sequence[HardwareDevice]
) -> Sequence[HardwareDevice]:
    """*hardware*, and what the plugin of *ep*, which is loaded, found beside."""
    try:
        probed = registry.resolve(ep).library.probe_hardware()
    except PluginLoadError as error:
        # the hook is optional: the EP may do without, and the record keeps why
        logger().warning("%s", error)
        return hardware
    return merge_hardware(hardware, probed) if probed else hardware


def merge_hardware(
    found: Sequence[HardwareDevice], probed: Sequence[HardwareDevice]
) -> list[HardwareDevice]:
    """*found*, then what plugins *probed* and the host had not found."""
    merged = list(found)
    places = {(device.type, _place(device)) for device in found if _place(device)}
    for device in probed:
        place = device.type, _place(device)
        if device not in merged and place not in places:
            merged.append(device)
            if place[1]:
                places.add(place)
    return merged


def faults(factory: EpFactory) -> list[Finding]:
    """Why an EP cannot work as things are, by what it says of itself."""
    try:
        found = list(factory.diagnose())
    except FAILURES:  # one that failed before may fail in this, too
        return []
    findings = [each for each in found if isinstance(each, Finding)]
    return [each for each in findings if each.level is Level.ERROR]


def logger() -> logging.Logger:
    """That of this package."""
    import logging

    return logging.getLogger("onnxplug.selection")


def _place(device: HardwareDevice) -> str:
    """Where the device is plugged in; empty when unknown."""
    metadata = device.metadata
    return metadata.get("pci_bus_id", "") or metadata.get("LUID", "")
