"""Makers: their PCI vendor ids, and the names that processors carry.

Names and ids are ONNX Runtime's where it has any, so that policies and EPs written
for it find what they look for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

AMD: Final = 0x1002
AMD_CPU: Final = 0x1022  # AMD's processors and NPUs; its GPUs carry ATI's number
APPLE: Final = 0x106B
ARM: Final = 0x13B5
BROADCOM: Final = 0x14E4
HUAWEI: Final = 0x19E5
IMAGINATION: Final = 0x1010
INTEL: Final = 0x8086
MICROSOFT: Final = 0x1414
NVIDIA: Final = 0x10DE
QUALCOMM: Final = 0x5143
QUALCOMM_ACPI: Final = 0x4D4F4351  # "QCOM": Qualcomm's parts that are on no PCI bus
QUALCOMM_PCI: Final = 0x17CB
ROCKCHIP: Final = 0x1D87

_NAMES: Final[Mapping[int, str]] = {
    AMD: "AMD",
    AMD_CPU: "AMD",
    APPLE: "Apple",
    ARM: "ARM",
    BROADCOM: "Broadcom",
    HUAWEI: "Huawei",
    IMAGINATION: "Imagination",
    INTEL: "Intel",
    MICROSOFT: "Microsoft",
    NVIDIA: "NVIDIA",
    QUALCOMM: "Qualcomm",
    QUALCOMM_ACPI: "Qualcomm",
    QUALCOMM_PCI: "Qualcomm",
    ROCKCHIP: "Rockchip",
    0x1014: "IBM",
    0x1D17: "Zhaoxin",
    0x1D94: "Hygon",
    0x1DA3: "Habana",
    0x1ED5: "Moore Threads",
}

_PROCESSORS: Final[Mapping[str, int]] = {
    "GenuineIntel": INTEL,
    "AuthenticAMD": AMD_CPU,
    "HygonGenuine": 0x1D94,
    "CentaurHauls": 0x1D17,
    "Shanghai": 0x1D17,
    "IBM/S390": 0x1014,
    "Apple": APPLE,
    "ARM": ARM,
    "ARM Limited": ARM,
    "NVIDIA": NVIDIA,
    "Qualcomm": QUALCOMM_ACPI,
    "Qualcomm Technologies Inc": QUALCOMM_ACPI,
}
"""By the string of CPUID, or what Windows writes where a processor has no CPUID."""

_IMPLEMENTERS: Final[Mapping[int, tuple[str, int]]] = {
    0x41: ("ARM", ARM),
    0x42: ("Broadcom", BROADCOM),
    0x43: ("Cavium", 0x177D),
    0x46: ("Fujitsu", 0x10CF),
    0x48: ("Huawei", HUAWEI),
    0x4E: ("NVIDIA", NVIDIA),
    0x50: ("Applied Micro", 0x10E8),
    0x51: ("Qualcomm", QUALCOMM_ACPI),
    0x53: ("Samsung", 0x144D),
    0x56: ("Marvell", 0x11AB),
    0x61: ("Apple", APPLE),
    0x69: ("Intel", INTEL),
    0x6D: ("Microsoft", MICROSOFT),
    0x70: ("Phytium", 0x1DB7),
    0xC0: ("Ampere", 0x1DEF),
}
"""By the "CPU implementer" of an ARM processor (MIDR_EL1 bits 31 to 24)."""


def vendor_name(vendor_id: int) -> str:
    """The maker's name; empty when unknown."""
    return _NAMES.get(vendor_id, "")


def processor_vendor(identity: str) -> tuple[str, int]:
    """Name and id by what the processor calls itself; unknown ones keep their name."""
    identity = identity.strip()
    vendor_id = _PROCESSORS.get(identity, 0)
    return vendor_name(vendor_id) or identity, vendor_id


def arm_vendor(implementer: int) -> tuple[str, int]:
    """Name and id of the maker of an ARM core; empty and 0 when unknown."""
    return _IMPLEMENTERS.get(implementer, ("", 0))
