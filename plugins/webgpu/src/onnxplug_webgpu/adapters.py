"""Which adapters wgpu finds, and which of them is meant."""

from __future__ import annotations

import importlib.metadata
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from onnxplug import ep
from onnxplug.authoring.record import Record

OLDEST: Final = (0, 32)
"""The oldest wgpu whose interface is used."""

INSTALL: Final = "pip install 'wgpu>=0.32'"

NO_ADAPTER: Final = {
    "linux": "install the Vulkan driver of your GPU, or Mesa's software one: "
    "apt install libvulkan1 mesa-vulkan-drivers",
    "win32": "update the driver of your GPU; Direct3D 12 or Vulkan is needed",
    "darwin": "Metal is needed, which virtual machines may lack",
}.get(sys.platform, "install a driver for Vulkan")
"""What to do where wgpu finds nothing."""

_BACKENDS: Final = frozenset({"Vulkan", "Metal", "D3D12"})
"""Those that have all of WebGPU; OpenGL has not."""

_NEEDED: Final[Mapping[str, int]] = {
    "max-storage-buffers-per-shader-stage": 8,
    "max-compute-invocations-per-workgroup": 256,
    "max-compute-workgroup-size-x": 256,
    "max-compute-workgroup-storage-size": 16384,
    "max-compute-workgroups-per-dimension": 65535,
    "max-storage-buffer-binding-size": 1 << 27,
}
"""What kernels need; all of WebGPU has as much, but old drivers may not."""

_SOFTWARE: Final = ("lvp", "swiftshader", "vk_swiftshader")
"""How the files begin that describe drivers which compute on the processor."""


class Adapter(Record):
    """What a device is made of.

    Attributes:
        native: wgpu's object.
        name, vendor, driver: as the driver says.
        backend: ``Vulkan``, ``Metal`` or ``D3D12``.
        kind: ``DiscreteGPU``, ``IntegratedGPU``, ``CPU`` or ``Unknown``.
        vendor_id, device_id: PCI's, or others of the driver's.
        number: among those that wgpu lists.
    """

    native: Any
    name: str
    vendor: str
    driver: str
    backend: str
    kind: str
    vendor_id: int
    device_id: int
    number: int

    @property
    def is_software(self) -> bool:
        """Whether it computes on the processor."""
        return self.kind == "CPU"

    def __str__(self) -> str:
        software = ", software" if self.is_software else ""
        return f"{self.name} ({self.backend}{software})"


def installed_version() -> tuple[str, str]:
    """The version of wgpu, and what is wrong with it; one of them is empty."""
    try:
        version = importlib.metadata.version("wgpu")
    except importlib.metadata.PackageNotFoundError:
        return "", "wgpu is not installed"
    numbers = [int(n) if n.isdecimal() else 0 for n in version.split(".")[:2]]
    if tuple(numbers) < OLDEST:
        needed = ".".join(map(str, OLDEST))
        return version, f"wgpu {version} is older than {needed}"
    return version, ""


def import_wgpu() -> Any:
    """The module.

    Raises:
        RuntimeError: it is missing, too old or does not load.
    """
    _, problem = installed_version()
    if problem:
        raise RuntimeError(f"{problem}; {INSTALL}")
    try:
        import wgpu
    # a broken installation raises what it likes
    except Exception as error:
        ep.raise_interruption(error)
        raise RuntimeError(f"wgpu cannot be imported: {error}; {INSTALL}") from error
    return wgpu


def find_adapters(wgpu: Any) -> list[Adapter]:
    """The adapters on which kernels can run, hardware first."""
    found = [each for each in _listed(wgpu) if not _unfit(each)]
    order = ["DiscreteGPU", "IntegratedGPU", "Unknown", "CPU"]
    return sorted(
        found, key=lambda each: order.index(each.kind) if each.kind in order else 2
    )


def unfit_adapters(wgpu: Any) -> list[tuple[Adapter, str]]:
    """The others, and why kernels cannot run on them."""
    reasons = [(each, _unfit(each)) for each in _listed(wgpu)]
    return [(each, reason) for each, reason in reasons if reason]


def _listed(wgpu: Any) -> list[Adapter]:
    found = []
    for number, native in enumerate(wgpu.gpu.enumerate_adapters_sync()):
        info: Mapping[str, Any] = native.info
        found.append(
            Adapter(
                native,
                str(info["device"]),
                str(info["vendor"]),
                str(info["description"]),
                str(info["backend_type"]),
                str(info["adapter_type"]),
                int(info["vendor_id"]),
                int(info["device_id"]),
                number,
            )
        )
    return found


def _unfit(adapter: Adapter) -> str:
    """Why kernels cannot run on an adapter; empty if they can."""
    if adapter.backend not in _BACKENDS:
        return f"{adapter.backend} has not all of WebGPU"
    limits: Mapping[str, int] = adapter.native.limits
    low = [
        f"{name} is {limits[name]}, and not {needed}"
        for name, needed in _NEEDED.items()
        if limits[name] < needed
    ]
    return "; ".join(low)


def choose(
    adapters: Sequence[Adapter],
    devices: Sequence[ep.HardwareDevice],
    number: int = -1,
    power: str = "high-performance",
) -> Adapter:
    """The adapter that is meant.

    Args:
        adapters: at least one.
        devices: what a session was given: for a GPU its own adapter is taken.
        number: the adapter's place in the list; -1 leaves it open.
        power: ``low-power`` prefers a GPU that shares the processor's memory.

    Raises:
        LookupError: there is no such adapter.
    """
    listed = "; ".join(f"{n}: {each}" for n, each in enumerate(adapters))
    if number >= len(adapters):
        raise LookupError(f"there is no adapter {number}; found {listed}")
    if number >= 0:
        return adapters[number]
    gpus = [each for each in devices if each.type is ep.DeviceType.GPU]
    if gpus:
        wanted = gpus[0]
        hardware = [each for each in adapters if not each.is_software]
        same = [
            each
            for each in hardware
            if (each.vendor_id, each.device_id) == (wanted.vendor_id, wanted.device_id)
        ]
        # Metal tells no identities
        kin = [each for each in hardware if each.vendor_id in (0, wanted.vendor_id)]
        if not same + kin:
            raise LookupError(
                f"no adapter is {wanted.metadata.get('Description') or wanted.vendor}; "
                f"found {listed}; {NO_ADAPTER}"
            )
        return (same + kin)[0]
    if power == "low-power":
        shared = [each for each in adapters if each.kind == "IntegratedGPU"]
        return (shared or adapters)[0]
    return adapters[0]


def named_drivers() -> list[Path]:
    """The files that describe Vulkan's drivers, as the environment names them."""
    named = os.environ.get("VK_DRIVER_FILES") or os.environ.get("VK_ICD_FILENAMES")
    return [Path(each) for each in named.split(os.pathsep)] if named else []


def described_drivers() -> list[Path]:
    """The files that describe Vulkan's drivers, found without loading any."""
    folders = ("/usr/share", "/usr/local/share", "/etc", "/usr/local/etc")
    return named_drivers() or [
        path
        for folder in folders
        for path in sorted(Path(folder, "vulkan/icd.d").glob("*.json"))
    ]


def software_drivers() -> Iterator[Path]:
    """Those of drivers which compute on the processor."""
    for path in described_drivers():
        if path.name.startswith(_SOFTWARE) and path.is_file():
            yield path
