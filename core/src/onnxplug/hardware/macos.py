"""macOS: an Apple-silicon Mac is known by its processor; an Intel Mac has PCI GPUs.

What the system says comes through a reader, :mod:`onnxplug.hardware.macos_api` unless a
test gives one; what its answers mean is decided here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from onnxplug.ep import DeviceType, HardwareDevice
from onnxplug.hardware import vendors
from onnxplug.hardware.log import left_out
from onnxplug.hardware.macos_api import PciDevice

_DISPLAY: Final = 0x03  # PCI's base class


class Reader(Protocol):
    """What the system says.  No method raises: what cannot be read is left out."""

    def text(self, name: str) -> str:
        """A sysctl that is text; empty when there is none."""

    def number(self, name: str) -> int:
        """A sysctl that is a number; 0 when there is none."""

    def pci_devices(self) -> Sequence[PciDevice]:
        """The PCI devices of the I/O registry."""


def find(reader: Reader | None = None) -> list[HardwareDevice]:
    """The CPU, then GPUs, then the Neural Engine."""
    if reader is None:
        from onnxplug.hardware.macos_api import SystemReader

        reader = SystemReader()
    brand = reader.text("machdep.cpu.brand_string").strip()
    # 1 under Rosetta too, where the processor calls itself an Intel one
    if reader.number("hw.optional.arm64"):
        return _apple_silicon(brand, reader)
    identity = reader.text("machdep.cpu.vendor")
    vendor, vendor_id = vendors.processor_vendor(identity)
    return [_device(DeviceType.CPU, vendor, vendor_id, brand), *_pci_gpus(reader)]


def _apple_silicon(brand: str, reader: Reader) -> list[HardwareDevice]:
    """GPU and Neural Engine are parts of the processor and have no PCI id."""
    apple = (vendors.vendor_name(vendors.APPLE), vendors.APPLE)
    name = brand if brand.startswith("Apple") else "Apple"
    found = [
        _device(DeviceType.CPU, *apple, brand),
        _device(DeviceType.GPU, *apple, f"{name} GPU", Discrete="0"),
    ]
    if reader.number("kern.hv_vmm_present"):
        left_out("a virtual machine has no Neural Engine")
    else:
        found.append(_device(DeviceType.NPU, *apple, "Apple Neural Engine"))
    return found


def _pci_gpus(reader: Reader) -> list[HardwareDevice]:
    displays = [
        device
        for device in reader.pci_devices()
        if device.class_code >> 16 == _DISPLAY and device.vendor_id
    ]
    return [
        _device(
            DeviceType.GPU,
            vendors.vendor_name(device.vendor_id),
            device.vendor_id,
            device.model,
            device_id=device.device_id,
            # of the GPUs in Intel Macs, Intel's own are in the processor
            Discrete="0" if device.vendor_id == vendors.INTEL else "1",
        )
        for device in sorted(displays, key=_order)
    ]


def _order(device: PciDevice) -> tuple[tuple[int, ...], int, int]:
    """By bus, slot and function: "1:0:0", of a Thunderbolt box "9:0:0(5:9)"."""
    parts = device.slot.partition("(")[0].split(":")
    place = tuple(int(part) if part.isdecimal() else 0 for part in parts)
    return place, device.vendor_id, device.device_id


def _device(
    kind: DeviceType,
    vendor: str,
    vendor_id: int,
    description: str,
    *,
    device_id: int = 0,
    **metadata: str,
) -> HardwareDevice:
    if description:
        metadata["Description"] = description
    return HardwareDevice(
        type=kind,
        vendor=vendor,
        vendor_id=vendor_id,
        device_id=device_id,
        metadata=metadata,
    )
