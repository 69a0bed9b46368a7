"""Finds the CPU; accelerators are added by the modules of each operating system."""

from __future__ import annotations

import functools
import platform
from pathlib import Path

from onnxplug.ep import DeviceType, HardwareDevice

_VENDORS = {
    "GenuineIntel": ("Intel", 0x8086),
    "AuthenticAMD": ("AMD", 0x1022),
    "ARM": ("ARM", 0x13B5),
    "Apple": ("Apple", 0x106B),
}


@functools.cache
def discover(cpuinfo: Path = Path("/proc/cpuinfo")) -> tuple[HardwareDevice, ...]:
    """The devices of this machine, the CPU first.

    *cpuinfo* is Linux's description of the processor; where there is none, what
    Python knows of the processor is used.
    """
    fields = _read_cpuinfo(cpuinfo)
    identity = fields.get("vendor_id") or platform.processor()
    vendor, vendor_id = _VENDORS.get(identity, (identity, 0))
    description = fields.get("model name", "")
    metadata = {"Description": description} if description else {}
    return (
        HardwareDevice(
            type=DeviceType.CPU, vendor=vendor, vendor_id=vendor_id, metadata=metadata
        ),
    )


def _read_cpuinfo(path: Path) -> dict[str, str]:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    first = text.split("\n\n", 1)[0]
    pairs = (line.split(":", 1) for line in first.splitlines() if ":" in line)
    return {key.strip(): value.strip() for key, value in pairs}
