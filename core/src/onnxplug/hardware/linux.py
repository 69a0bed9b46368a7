"""Linux: sysfs and procfs, which the kernel filled when it found the hardware.

Everything is read below a root, so that a test can give a tree of its own.  A file
that is missing, unreadable or malformed means a device or a fact less, never an error.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Final

from onnxplug.ep import DeviceType, HardwareDevice
from onnxplug.hardware import vendors
from onnxplug.hardware.log import left_out

_PCI_ADDRESS: Final = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")

_DISPLAY_CLASSES: Final = frozenset({0x0300, 0x0302, 0x0380})
_ACCELERATOR_CLASS: Final = 0x1200
"""The class of AMD's Instinct, which has no display; of others it is an NPU's."""

_SCREENS_ONLY: Final = frozenset(
    {
        0x1013,  # Cirrus, emulated by QEMU
        0x102B,  # Matrox, in the management controllers of servers
        0x1234,  # QEMU and Bochs
        0x1414,  # Hyper-V and WSL
        0x15AD,  # VMware
        0x1A03,  # ASPEED, in the management controllers of servers
        0x1AB8,  # Parallels
        0x1AF4,  # virtio
        0x1B36,  # QXL
        0x1D0F,  # Amazon EC2
        0x5853,  # Xen
        0x80EE,  # VirtualBox
    }
)
"""PCI vendors whose display adapters are emulated, or draw a console and no more."""

_SCREEN_ONLY_DEVICES: Final = frozenset({(vendors.HUAWEI, 0x1711)})
"""The same, where the vendor makes GPUs too: the HiSilicon management controller."""

_PLATFORM_GPUS: Final[Mapping[str, int]] = {
    "asahi": vendors.APPLE,
    "etnaviv": 0,
    "gk20a": vendors.NVIDIA,
    "lima": vendors.ARM,
    "msm": vendors.QUALCOMM_ACPI,
    "msm_dpu": vendors.QUALCOMM_ACPI,
    "nvgpu": vendors.NVIDIA,
    "panfrost": vendors.ARM,
    "panthor": vendors.ARM,
    "powervr": vendors.IMAGINATION,
    "v3d": vendors.BROADCOM,
    "vc4-drm": vendors.BROADCOM,
}
"""Drivers of GPUs on no PCI bus; any other DRM device there is a screen or software."""

_PLATFORM_NPUS: Final[Mapping[str, int]] = {
    "ethosu": vendors.ARM,
    "rocket": vendors.ROCKCHIP,
}


def find(root: str | os.PathLike[str] = "/") -> list[HardwareDevice]:
    """The CPU, then GPUs, then NPUs, each by bus address; *root* stands for ``/``."""
    base = os.fspath(root)
    return [_cpu(base), *_gpus(base), *_npus(base)]


def _cpu(root: str) -> HardwareDevice:
    fields = _processor_fields(os.path.join(root, "proc/cpuinfo"))
    if "vendor_id" in fields:
        vendor, vendor_id = vendors.processor_vendor(fields["vendor_id"])
    else:
        number = _number(fields.get("CPU implementer", "")) or 0
        vendor, vendor_id = vendors.arm_vendor(number)
    names = (fields.get(key, "") for key in ("model name", "Processor", "cpu", "uarch"))
    name = next(filter(None, names), "")
    return HardwareDevice(
        type=DeviceType.CPU,
        vendor=vendor,
        vendor_id=vendor_id,
        metadata={"Description": name} if name else {},
    )


def _processor_fields(path: str) -> dict[str, str]:
    """What is said first; of many processors the file is long and takes long."""
    fields: dict[str, str] = {}
    for line in _read(path).splitlines():
        key, colon, value = line.partition(":")
        if colon:
            fields.setdefault(key.strip(), value.strip())
    return fields


def _gpus(root: str) -> list[HardwareDevice]:
    on_pci: dict[str, HardwareDevice] = {}
    elsewhere: dict[str, tuple[str, HardwareDevice]] = {}
    for index, folder in _numbered(os.path.join(root, "sys/class/drm"), "card"):
        address = os.path.basename(os.path.realpath(folder))
        facts = {"card_idx": str(index)}
        if _PCI_ADDRESS.fullmatch(address):
            gpu = _pci_gpu(root, folder, address, facts)
            if gpu is not None:
                on_pci.setdefault(address, gpu)
        else:
            driver, compatible = _driver(folder)
            vendor_id = _PLATFORM_GPUS.get(driver)
            if vendor_id is None:
                left_out("card%d is no GPU: %s, driver %r", index, address, driver)
                continue
            facts["Discrete"] = "0"
            found = _platform_device(DeviceType.GPU, vendor_id, compatible, facts)
            elsewhere.setdefault(address, (driver, found))
    # a GPU whose driver offers no DRM device is on the bus all the same
    for address, folder in _pci_displays(root):
        if address not in on_pci:
            gpu = _pci_gpu(root, folder, address, {})
            if gpu is not None:
                on_pci[address] = gpu
    drivers = {driver for driver, _ in elsewhere.values()}
    return [
        *_in_bus_order(on_pci),
        # where the Raspberry Pi has a v3d, its vc4 is the screen's controller
        *(d for n, d in elsewhere.values() if n != "vc4-drm" or "v3d" not in drivers),
        *_wsl_gpu(root),
    ]


def _pci_displays(root: str) -> Iterator[tuple[str, str]]:
    bus = os.path.join(root, "sys/bus/pci/devices")
    for address in _names(bus):
        if not _PCI_ADDRESS.fullmatch(address):
            continue
        folder = os.path.join(bus, address)
        kind = (_number(_read(os.path.join(folder, "class"))) or 0) >> 8
        if kind in _DISPLAY_CLASSES or (
            kind == _ACCELERATOR_CLASS and _ids(folder)[:1] == (vendors.AMD,)
        ):
            yield address, folder


def _pci_gpu(
    root: str, folder: str, address: str, facts: dict[str, str]
) -> HardwareDevice | None:
    ids = _ids(folder)
    if not ids:
        left_out("%s has no valid vendor and device", address)
        return None
    vendor_id, device_id = ids
    if vendor_id in _SCREENS_ONLY or ids in _SCREEN_ONLY_DEVICES:
        left_out("%s is an emulated or console-only display adapter", address)
        return None
    if os.path.lexists(os.path.join(folder, "physfn")):
        left_out("%s is a virtual function of a device listed already", address)
        return None
    driver = os.path.basename(os.path.realpath(os.path.join(folder, "driver")))
    if "vfio" in driver or driver in ("pci-stub", "pciback"):
        left_out("%s is given away to a virtual machine (%s)", address, driver)
        return None
    discrete = _discrete(vendor_id, address, folder)
    if discrete is not None:
        facts["Discrete"] = "1" if discrete else "0"
    facts["pci_bus_id"] = address
    name = _pci_name(root, vendor_id, address, folder)
    if name:
        facts["Description"] = name
    return HardwareDevice(
        type=DeviceType.GPU,
        vendor=vendors.vendor_name(vendor_id),
        vendor_id=vendor_id,
        device_id=device_id,
        metadata=facts,
    )


def _discrete(vendor_id: int, address: str, folder: str) -> bool | None:
    """Whether the GPU has memory of its own; None when it is not known."""
    if vendor_id == vendors.NVIDIA:
        return True
    if vendor_id == vendors.INTEL:
        _, bus, slot, _ = _sort_key(address)
        if bus:
            return True
        return False if slot == 2 else None  # elsewhere on bus 0: a virtual machine
    if vendor_id == vendors.AMD:
        return _discrete_amd(folder)
    return None


def _discrete_amd(folder: str) -> bool | None:
    hwmon = os.path.join(folder, "hwmon")
    for name in _names(hwmon):
        # the voltage of the north bridge: only processors with graphics have one
        if _read(os.path.join(hwmon, name, "in1_label")).strip() == "vddnb":
            return False
    if _read(os.path.join(folder, "mem_info_vram_vendor")).strip():
        return True
    memory = _read(os.path.join(folder, "mem_info_vram_total")).strip()
    # the share of system memory that firmware sets aside by default
    return False if memory.isdecimal() and int(memory) <= 512 << 20 else None


def _pci_name(root: str, vendor_id: int, address: str, folder: str) -> str:
    """The product's name, where a driver that is loaded already reports it."""
    if vendor_id == vendors.NVIDIA:
        path = f"proc/driver/nvidia/gpus/{address}/information"
        for line in _read(os.path.join(root, path)).splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "Model":
                return value.strip()
    return _read(os.path.join(folder, "product_name")).strip()


def _wsl_gpu(root: str) -> Iterator[HardwareDevice]:
    """The one device that stands for all GPUs of the Windows host."""
    if not os.path.exists(os.path.join(root, "dev/dxg")):
        return
    # Windows mounts its NVIDIA driver's library here; other makers' leave no mark
    mark = os.path.join(root, "usr/lib/wsl/lib/libnvidia-ml.so.1")
    nvidia = os.path.lexists(mark)
    vendor_id = vendors.NVIDIA if nvidia else vendors.MICROSOFT
    name = vendors.vendor_name(vendor_id) if nvidia else ""
    yield HardwareDevice(
        type=DeviceType.GPU,
        vendor=vendors.vendor_name(vendor_id),
        vendor_id=vendor_id,
        metadata={
            **({"Discrete": "1"} if nvidia else {}),
            "wsl": "1",
            "Description": f"{name} GPU of the Windows host (/dev/dxg)".lstrip(),
        },
    )


def _npus(root: str) -> list[HardwareDevice]:
    on_pci: dict[str, HardwareDevice] = {}
    elsewhere: dict[str, HardwareDevice] = {}
    for index, folder in _numbered(os.path.join(root, "sys/class/accel"), "accel"):
        address = os.path.basename(os.path.realpath(folder))
        facts = {"accel_idx": str(index)}
        if not _PCI_ADDRESS.fullmatch(address):
            driver, compatible = _driver(folder)
            if not driver:
                left_out("accel%d has no driver: %s", index, address)
                continue
            vendor_id = _PLATFORM_NPUS.get(driver, 0)
            found = _platform_device(DeviceType.NPU, vendor_id, compatible, facts)
            elsewhere.setdefault(address, found)
            continue
        ids = _ids(folder)
        if not ids:
            left_out("%s has no valid vendor and device", address)
            continue
        vendor_id, device_id = ids
        facts["pci_bus_id"] = address
        device = HardwareDevice(
            type=DeviceType.NPU,
            vendor=vendors.vendor_name(vendor_id),
            vendor_id=vendor_id,
            device_id=device_id,
            metadata=facts,
        )
        on_pci.setdefault(address, device)
    return [*_in_bus_order(on_pci), *elsewhere.values()]


def _platform_device(
    kind: DeviceType, vendor_id: int, compatible: str, facts: dict[str, str]
) -> HardwareDevice:
    if compatible:
        facts["Description"] = compatible
    return HardwareDevice(
        type=kind,
        vendor=vendors.vendor_name(vendor_id),
        vendor_id=vendor_id,
        metadata=facts,
    )


def _driver(folder: str) -> tuple[str, str]:
    """The driver of a device on no PCI bus, and what the device tree calls it."""
    lines = _read(os.path.join(folder, "uevent")).splitlines()
    facts = dict(line.split("=", 1) for line in lines if "=" in line)
    return facts.get("DRIVER", ""), facts.get("OF_COMPATIBLE_0", "")


def _numbered(folder: str, prefix: str) -> Iterator[tuple[int, str]]:
    """The devices of ``prefixN`` entries by number; ``card0-HDMI-A-1`` is none."""
    indices = (
        int(name[len(prefix) :])
        for name in _names(folder)
        if name.startswith(prefix)
        and name[len(prefix) :].isascii()
        and name[len(prefix) :].isdecimal()
    )
    for index in sorted(indices):
        yield index, os.path.join(folder, f"{prefix}{index}", "device")


def _ids(folder: str) -> tuple[int, int] | tuple[()]:
    """Vendor and device; empty unless both are there and sensible."""
    vendor_id = _number(_read(os.path.join(folder, "vendor")))
    device_id = _number(_read(os.path.join(folder, "device")))
    # all ones is what the bus answers for a device that has gone
    if vendor_id is None or device_id is None or not 0 < vendor_id < 0xFFFF:
        return ()
    return (vendor_id, device_id) if 0 <= device_id <= 0xFFFF else ()


def _in_bus_order(devices: Mapping[str, HardwareDevice]) -> list[HardwareDevice]:
    return [devices[address] for address in sorted(devices, key=_sort_key)]


def _sort_key(address: str) -> tuple[int, int, int, int]:
    domain, bus, rest = address.split(":")
    slot, function = rest.split(".")
    return int(domain, 16), int(bus, 16), int(slot, 16), int(function, 16)


def _number(text: str) -> int | None:
    """A hexadecimal number, with or without ``0x``; None when it is none."""
    try:
        return int(text.strip(), 16)
    except ValueError:
        return None


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _read(path: str) -> str:
    """The start of a file, more than any fact takes; empty when it cannot be read."""
    try:
        with open(path, "rb", buffering=0) as file:
            return (file.read(4096) or b"").decode("utf-8", "replace")
    except OSError:
        return ""
