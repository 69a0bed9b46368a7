"""The devices that one EP drives, and the hardware that it is shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from onnxplug.duration import is_duration
from onnxplug.ep import EpDevice, EpFactory, Finding, HardwareDevice, Level
from onnxplug.errors import EpError, OptionError, PluginLoadError
from onnxplug.guard import FAILURES, blaming
from onnxplug.interruption import raise_interruption
from onnxplug.plugins import PluginRegistry
from onnxplug.plugins.declared import is_text_table
from onnxplug.selection.options import parse_options

if TYPE_CHECKING:
    import logging

    from onnxplug.ep import RefusedDevice


def judged_devices(
    factory: EpFactory, hardware: Sequence[HardwareDevice]
) -> tuple[tuple[EpDevice, ...], tuple[RefusedDevice, ...]]:
    """The pairs of an EP, and the devices that it refuses.

    Raises:
        EpError: the factory raised, or gave another answer than it should.
    """
    with blaming(factory.name, "devices", "supported_devices"):
        answers: tuple[Any, ...] = tuple(factory.supported_devices(hardware))
    pairs: list[EpDevice] = []
    refused: list[RefusedDevice] = []
    for answer in answers:
        wrong = ""
        if isinstance(answer, EpDevice) and answer.ep_name == factory.name:
            pairs.append(answer)
            wrong = _wrong_pair(factory, answer)
        elif _is_refused(answer):
            refused.append(answer)
            wrong = _wrong_refusal(answer)
        else:
            wrong = (
                f"it offers {answer!r}, which is no EpDevice of its own and no "
                "RefusedDevice"
            )
        if wrong:
            text = f"{factory.name} failed in supported_devices: {wrong}"
            raise EpError(text, ep=factory.name, stage="devices")
    return tuple(pairs), tuple(refused)


def _is_refused(answer: object) -> bool:
    if isinstance(answer, EpDevice):
        return False
    from onnxplug.ep import RefusedDevice  # which few EPs have

    return isinstance(answer, RefusedDevice)


def _wrong_pair(factory: EpFactory, pair: EpDevice) -> str:
    """What is wrong with a pair; empty if nothing is."""
    for what in ("metadata", "default_options"):
        facts = getattr(pair, what)
        if not is_text_table(facts):
            return (
                f"its {what} of {pair} are {facts!r}; expected a mapping of texts to "
                "texts"
            )
    try:
        parse_options(factory.name, factory.options, pair.default_options)
    except OptionError as error:
        return f"it suggests options for {pair} that it does not have so: {error}"
    return "" if pair.costs is None else _wrong_costs(pair, pair.costs)


def _wrong_costs(pair: EpDevice, costs: object) -> str:
    """What is wrong with the costs of a pair; empty if nothing is."""
    from onnxplug.ep import Costs  # which few EPs state

    if not isinstance(costs, Costs):
        return f"its costs of {pair} are {costs!r}; expected ep.Costs, or None"
    for field in fields(costs):
        value = getattr(costs, field.name)
        if not is_duration(value):
            return (
                f"its costs of {pair} have {field.name} = {value!r}; expected a finite "
                "number of seconds, not less than 0"
            )
    return ""


def _wrong_refusal(refused: RefusedDevice) -> str:
    """What is wrong with a refusal; empty if nothing is."""
    if not isinstance(refused.device, HardwareDevice):
        return f"it refuses {refused.device!r}, which is no HardwareDevice"
    if not isinstance(refused.reason, str) or not refused.reason.strip():
        return (
            f"it refuses {refused.device.type} with the reason {refused.reason!r}; "
            "expected a text that says why"
        )
    if not isinstance(refused.remedy, str):
        return (
            f"it refuses {refused.device.type} with the remedy {refused.remedy!r}; "
            "expected a text"
        )
    return ""


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
    except FAILURES as error:  # one that failed before may fail in this, too
        raise_interruption(error)
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
