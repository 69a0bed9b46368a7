"""macOS: what becomes of the answers of sysctl and the I/O registry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from onnxplug.ep import DeviceType, HardwareDevice
from onnxplug.hardware import macos
from onnxplug.hardware.macos import PciDevice


@dataclass
class Answers:
    """What a system says."""

    texts: Mapping[str, str] = field(default_factory=dict)
    numbers: Mapping[str, int] = field(default_factory=dict)
    devices: Sequence[PciDevice] = ()

    def text(self, name: str) -> str:
        return self.texts.get(name, "")

    def number(self, name: str) -> int:
        return self.numbers.get(name, 0)

    def pci_devices(self) -> Sequence[PciDevice]:
        return self.devices


M2 = {"machdep.cpu.brand_string": "Apple M2 Pro"}
ARM64 = {"hw.optional.arm64": 1}
INTEL = {
    "machdep.cpu.vendor": "GenuineIntel",
    "machdep.cpu.brand_string": "Intel(R) Core(TM) i9-9880H CPU @ 2.30GHz",
}


def test_an_apple_silicon_mac() -> None:
    def apple(kind: DeviceType, **metadata: str) -> HardwareDevice:
        return HardwareDevice(
            type=kind, vendor="Apple", vendor_id=0x106B, metadata=metadata
        )

    assert macos.find(Answers(M2, ARM64)) == [
        apple(DeviceType.CPU, Description="Apple M2 Pro"),
        apple(DeviceType.GPU, Discrete="0", Description="Apple M2 Pro GPU"),
        apple(DeviceType.NPU, Description="Apple Neural Engine"),
    ]


@pytest.mark.parametrize("brand", ["VirtualApple @ 2.50GHz processor", ""])
def test_rosetta_and_silence_hide_neither_gpu_nor_npu(brand: str) -> None:
    found = macos.find(Answers({"machdep.cpu.brand_string": brand}, ARM64))
    assert [device.type for device in found] == ["cpu", "gpu", "npu"]
    assert found[1].metadata["Description"] == "Apple GPU"


def test_a_virtual_machine_has_no_neural_engine() -> None:
    found = macos.find(Answers(M2, {**ARM64, "kern.hv_vmm_present": 1}))
    assert [device.type for device in found] == ["cpu", "gpu"]


def test_an_intel_mac_with_two_gpus() -> None:
    sound = PciDevice(vendor_id=0x8086, device_id=0xA348, class_code=0x040300)
    radeon = PciDevice(
        vendor_id=0x1002,
        device_id=0x7340,
        class_code=0x030000,
        model="AMD Radeon Pro 5500M",
        slot="3:0:0",
    )
    uhd = PciDevice(
        vendor_id=0x8086,
        device_id=0x3E9B,
        class_code=0x030000,
        model="Intel UHD Graphics 630",
        slot="0:2:0",
    )
    assert macos.find(Answers(INTEL, devices=[sound, radeon, uhd])) == [
        HardwareDevice(
            type=DeviceType.CPU,
            vendor="Intel",
            vendor_id=0x8086,
            metadata={"Description": "Intel(R) Core(TM) i9-9880H CPU @ 2.30GHz"},
        ),
        HardwareDevice(
            type=DeviceType.GPU,
            vendor="Intel",
            vendor_id=0x8086,
            device_id=0x3E9B,
            metadata={"Discrete": "0", "Description": "Intel UHD Graphics 630"},
        ),
        HardwareDevice(
            type=DeviceType.GPU,
            vendor="AMD",
            vendor_id=0x1002,
            device_id=0x7340,
            metadata={"Discrete": "1", "Description": "AMD Radeon Pro 5500M"},
        ),
    ]


def test_slots_of_any_form_give_an_order() -> None:
    slots = ["9:0:0(5:9)", "junk", "", "10:0:0", "1:0:0"]
    devices = [
        PciDevice(vendor_id=0x1002, device_id=index, class_code=0x038000, slot=slot)
        for index, slot in enumerate(slots)
    ]
    found = macos.find(Answers(INTEL, devices=devices))
    assert [slots[gpu.device_id] for gpu in found[1:]] == [
        "junk",
        "",
        "1:0:0",
        "9:0:0(5:9)",
        "10:0:0",
    ]


def test_a_system_that_says_nothing_has_a_cpu() -> None:
    no_ids = PciDevice(vendor_id=0, device_id=0, class_code=0x030000)
    assert macos.find(Answers(devices=[no_ids])) == [
        HardwareDevice(type=DeviceType.CPU)
    ]
