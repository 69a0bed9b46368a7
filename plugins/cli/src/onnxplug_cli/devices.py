"""``onnxplug devices``: the hardware, and the EPs that can drive it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from onnxplug_cli.distinctions import distinctions
from onnxplug_cli.library import add_library_argument
from onnxplug_cli.names import name_to_write
from onnxplug_cli.text import print_json, print_table, say

if TYPE_CHECKING:
    from onnxplug.ep import EpDevice, HardwareDevice, RefusedDevice


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    """Declare the command."""
    summary = "list the hardware, and the EPs that can drive it"
    parser = commands.add_parser(
        "devices",
        parents=[common],
        help=summary,
        description=f"{summary.capitalize()}.",
    )
    add_library_argument(parser)
    parser.set_defaults(command=_devices)


def _devices(arguments: argparse.Namespace) -> None:
    from onnxplug.plugins import registry
    from onnxplug.selection.enumerate import enumerate_devices, find_hardware

    hardware = find_hardware(registry)
    found = enumerate_devices(registry, hardware)
    ep_devices = found.devices
    if arguments.json:
        print_json(
            {
                "hardware": [hardware_data(device) for device in hardware],
                "ep_devices": [ep_device_data(device) for device in ep_devices],
                "refused_devices": [
                    {"ep": ep, **refused_data(refused)} for ep, refused in found.refused
                ],
            }
        )
        return
    print_table(
        ("HARDWARE", "VENDOR", "PCI ID", "DESCRIPTION"),
        [
            (device.type, device.vendor, _pci_id(device), description(device))
            for device in hardware
        ],
        wrap="DESCRIPTION",
    )
    say()
    if ep_devices:
        _print_pairs(ep_devices)
    else:
        say("No installed EP drives any of it; `onnxplug eps` lists the EPs.")
    if found.refused:
        say()
        print_table(
            ("EP", "REFUSED", "REASON"),
            [
                (
                    name_to_write(ep),
                    refused.device.type,
                    [description(refused.device), reason_and_remedy(refused)]
                    if description(refused.device)
                    else reason_and_remedy(refused),
                )
                for ep, refused in found.refused
            ],
            wrap="REASON",
        )


def _print_pairs(ep_devices: Sequence[EpDevice]) -> None:
    apart = distinctions(ep_devices)
    print_table(
        ("EP", "HARDWARE", "DESCRIPTION", "VERSION"),
        [
            (
                name_to_write(pair.ep_name),
                pair.device.type,
                [line for line in (description(pair.device), told) if line] or "",
                pair.metadata.get("version", ""),
            )
            for pair, told in zip(ep_devices, apart, strict=True)
        ],
        wrap="DESCRIPTION",
    )


def hardware_data(device: HardwareDevice) -> dict[str, Any]:
    """A device for JSON."""
    return {
        "type": str(device.type),
        "vendor": device.vendor,
        "vendor_id": device.vendor_id,
        "device_id": device.device_id,
        "metadata": dict(device.metadata),
    }


def ep_device_data(pair: EpDevice) -> dict[str, Any]:
    """A pair of EP and device for JSON."""
    return {
        "ep": pair.ep_name,
        "ep_vendor": pair.ep_vendor,
        "device": hardware_data(pair.device),
        "metadata": dict(pair.metadata),
        "default_options": dict(pair.default_options),
    }


def refused_data(refused: RefusedDevice) -> dict[str, Any]:
    """A device that an EP refuses, for JSON."""
    return {
        "device": hardware_data(refused.device),
        "reason": refused.reason,
        "remedy": refused.remedy,
    }


def reason_and_remedy(refused: RefusedDevice) -> str:
    """Why an EP refuses a device, and what to do about it, if anything."""
    return f"{refused.reason}; {refused.remedy}" if refused.remedy else refused.reason


def _pci_id(device: HardwareDevice) -> str:
    if not device.device_id:  # CPUs have none
        return ""
    return f"{device.vendor_id:04x}:{device.device_id:04x}"


def description(device: HardwareDevice) -> str:
    """The product's name; empty when unknown."""
    return device.metadata.get("Description", "")
