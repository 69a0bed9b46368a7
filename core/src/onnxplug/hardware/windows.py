"""Windows: DXGI's adapters, what DXCore adds to them, and DXCore's NPUs.

What the system says comes through a reader, :mod:`onnxplug.hardware.windows_api`
unless a test gives one; what its answers mean is decided here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

from onnxplug.ep import DeviceType, HardwareDevice
from onnxplug.hardware import vendors
from onnxplug.hardware.log import left_out
from onnxplug.hardware.windows_api import DxcoreAdapter, DxgiAdapter

_SOFTWARE_ADAPTERS: Final = frozenset({(vendors.MICROSOFT, 0x8C)})
"""The Basic Render Driver, which old systems do not mark as software."""


class Reader(Protocol):
    """What the system says.  No method raises: what cannot be read is left out."""

    def processor(self) -> tuple[str, str]:
        """The vendor's identity string and the name of the first processor."""

    def dxgi(self) -> Sequence[DxgiAdapter]:
        """All adapters, in DXGI's order."""

    def dxcore(self) -> Sequence[DxcoreAdapter]:
        """All adapters that can compute."""


def find(reader: Reader | None = None) -> list[HardwareDevice]:
    """The CPU, then GPUs in DXGI's order, then NPUs by vendor and device."""
    if reader is None:
        from onnxplug.hardware.windows_api import SystemReader

        reader = SystemReader()
    dxcore = {adapter.luid: adapter for adapter in reader.dxcore() if adapter.hardware}
    dxgi = {
        adapter.luid: adapter
        for adapter in sorted(reader.dxgi(), key=lambda adapter: adapter.number)
        if not _is_software(adapter)
    }
    # GPUs without graphics are known to DXCore only
    compute_only = sorted(
        (each for luid, each in dxcore.items() if each.gpu and luid not in dxgi),
        key=_order,
    )
    npus = sorted(
        (each for luid, each in dxcore.items() if not each.gpu and luid not in dxgi),
        key=_order,
    )
    ranks = _performance_indices(dxgi.values())
    return [
        _cpu(*reader.processor()),
        *(_dxgi_gpu(each, dxcore.get(each.luid), ranks) for each in dxgi.values()),
        *(_dxcore_device(DeviceType.GPU, adapter) for adapter in compute_only),
        *(_dxcore_device(DeviceType.NPU, adapter) for adapter in npus),
    ]


def _cpu(identity: str, name: str) -> HardwareDevice:
    vendor, vendor_id = vendors.processor_vendor(identity)
    return HardwareDevice(
        type=DeviceType.CPU,
        vendor=vendor,
        vendor_id=vendor_id,
        metadata={"Description": name.strip()} if name.strip() else {},
    )


def _is_software(adapter: DxgiAdapter) -> bool:
    ids = (adapter.vendor_id, adapter.device_id)
    if adapter.software or ids in _SOFTWARE_ADAPTERS:
        left_out("%s is software or remote", adapter.description)
        return True
    return False


def _order(adapter: DxcoreAdapter) -> tuple[int, int, int]:
    return adapter.vendor_id, adapter.device_id, adapter.luid


def _performance_indices(adapters: Iterable[DxgiAdapter]) -> dict[int, int]:
    """Places among the real GPUs, by luid."""
    ranked = sorted(
        (adapter.performance_rank, adapter.luid)
        for adapter in adapters
        if adapter.performance_rank is not None
    )
    return {luid: index for index, (_, luid) in enumerate(ranked)}


def _dxgi_gpu(
    adapter: DxgiAdapter, core: DxcoreAdapter | None, ranks: Mapping[int, int]
) -> HardwareDevice:
    facts = {
        "LUID": str(adapter.luid),
        "DxgiAdapterNumber": str(adapter.number),
        "DxgiVideoMemory": f"{adapter.video_memory >> 20} MB",
    }
    if adapter.luid in ranks:
        facts["DxgiHighPerformanceIndex"] = str(ranks[adapter.luid])
    integrated = core.integrated if core is not None else None
    return _device(DeviceType.GPU, adapter, integrated, facts)


def _dxcore_device(kind: DeviceType, adapter: DxcoreAdapter) -> HardwareDevice:
    facts = {"LUID": str(adapter.luid)}
    return _device(kind, adapter, adapter.integrated, facts)


def _device(
    kind: DeviceType,
    adapter: DxgiAdapter | DxcoreAdapter,
    integrated: bool | None,
    facts: dict[str, str],
) -> HardwareDevice:
    if integrated is not None:
        facts["Discrete"] = "0" if integrated else "1"
    if adapter.description:
        facts["Description"] = adapter.description
    return HardwareDevice(
        type=kind,
        vendor=vendors.vendor_name(adapter.vendor_id),
        vendor_id=adapter.vendor_id,
        device_id=adapter.device_id,
        metadata=facts,
    )
