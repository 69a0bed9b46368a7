"""Questions to ask before an EP is asked for; no EP is created to answer them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from onnxplug.authoring.record import Record
from onnxplug.ep import EpFactory, HardwareDevice
from onnxplug.errors import EpError, PluginBlocked, PluginError, PluginNotFound
from onnxplug.plugins import PluginRegistry, PluginState
from onnxplug.selection.devices import faults, hardware_for, judged_devices
from onnxplug.selection.known import (
    CHECK,
    canonical,
    find_known,
    instead_of,
    missing_reason,
    platform_reason,
    remedy,
    this_platform,
    tries_on,
)

if TYPE_CHECKING:
    from onnxplug.ep import RefusedDevice


class Availability(Record):
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
        return _drives_any(factory, registry, hardware)
    except PluginNotFound:
        return not_installed(name, registry)
    except PluginBlocked as error:
        todo = f"change the settings that say so; {CHECK}"
        return Availability(name, False, str(error), todo)
    except (PluginError, EpError) as error:
        ep = getattr(error, "ep", "") or getattr(error, "plugin", "") or name
        return Availability(ep, False, str(error), f"repair its plugin; {CHECK}")


def platform_support(
    name: str, registry: PluginRegistry, hardware: Sequence[HardwareDevice]
) -> Availability:
    """Whether an EP exists for this operating system and processor, installed or not.

    Where onnxplug knows of no such EP, that of an installed plugin is asked for
    devices; one that nobody knows does not exist.
    """
    known = find_known(name)
    reason = platform_reason(known, *this_platform()) if known else ""
    if known and not reason:
        return Availability(known.name, True)
    try:
        answer = _drives_any(registry.factory(name), registry, hardware)
    except PluginNotFound:
        answer = not_installed(name, registry)
    except (PluginError, EpError):
        # it is installed, and cannot be asked
        answer = Availability(name, True)
    if answer or known is None:
        return answer
    if tries_on(known, *this_platform()) and known.name in installed_names(registry):
        return answer  # it is there, and says itself what it lacks
    todo = instead_of(known, installed_names(registry))
    return Availability(known.name, False, reason, todo)


def not_installed(name: str, registry: PluginRegistry) -> Availability:
    """The answer for an EP that no installed plugin supplies."""
    known = find_known(name)
    return Availability(
        known.name if known else name,
        False,
        missing_reason(name),
        remedy(name, installed_names(registry)),
    )


def find_factory(name: str, registry: PluginRegistry) -> EpFactory:
    """The factory of an EP.

    Raises:
        PluginError: it cannot be had; the text says what to do.
    """
    try:
        # it may be a word for an EP that some other distribution supplies
        return registry.factory(canonical(name, registry))
    except PluginNotFound as error:
        missing = not_installed(name, registry)
        installed = ", ".join(record.name for record in registry.records())
        raise PluginNotFound(
            f"{missing.reason}; {missing.remedy}\n"
            f"Installed EPs: {installed or 'none'}.",
            plugin=missing.name,
        ) from error


def installed_names(registry: PluginRegistry) -> list[str]:
    """The EPs that are installed and, as far as is known, not broken."""
    usable = (PluginState.FOUND, PluginState.LOADING, PluginState.READY)
    return [each.name for each in registry.records() if each.state in usable]


def no_device(
    factory: EpFactory,
    hardware: Sequence[HardwareDevice],
    refused: Sequence[RefusedDevice] = (),
) -> tuple[str, str]:
    """Why an EP drives no device of *hardware*, and what to do about it.

    What the EP says of itself comes first: an EP whose engine is missing drives
    nothing, whatever the machine has.  Then why it refused the devices that it did.
    """
    found = faults(factory)
    if found:
        reason = "; ".join(fault.message for fault in found)
        todo = "; ".join(fault.remedy for fault in found if fault.remedy)
        return f"{factory.name} cannot be used: {reason}", todo or CHECK
    none = f"{factory.name} drives none of this machine's devices"
    if refused:
        kinds: dict[str, dict[str, None]] = {}
        for each in refused:
            kinds.setdefault(each.reason, {})[str(each.device.type)] = None
        why = "; ".join(f"{', '.join(of)}: {reason}" for reason, of in kinds.items())
        todos = dict.fromkeys(each.remedy for each in refused if each.remedy)
        return f"{none}; {why}", "; ".join(todos) or "choose another EP"
    reason = f"{none} ({', '.join(sorted({str(d.type) for d in hardware})) or 'none'})"
    known = find_known(factory.name)
    elsewhere = platform_reason(known, *this_platform()) if known else ""
    if elsewhere:
        return reason, f"{elsewhere}; choose another EP"
    return reason, "`onnxplug devices` lists the devices that were found"


def _drives_any(
    factory: EpFactory, registry: PluginRegistry, hardware: Sequence[HardwareDevice]
) -> Availability:
    """Whether the EP of *factory* drives a device.

    Raises:
        EpError: it failed when it was asked.
    """
    shown = hardware_for(registry, factory.name, hardware)
    pairs, refused = judged_devices(factory, shown)
    if pairs:
        return Availability(factory.name, True)
    return Availability(factory.name, False, *no_device(factory, shown, refused))
