"""The order in which policies see pairs of EP and device: that of ONNX Runtime."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from onnxplug.ep import DeviceType, EpDevice

CPU: Final = "CPUExecutionProvider"
"""The default CPU EP, which runs what no other EP takes."""

_RANKS: Final = {DeviceType.NPU: 0, DeviceType.GPU: 1, DeviceType.CPU: 2}


def order_devices(
    ep_devices: Iterable[EpDevice], vendor_ids: Mapping[str, int] | None = None
) -> list[EpDevice]:
    """*ep_devices*, best first; equal ones stay in the order they came in.

    1. NPUs, then GPUs, then CPUs;
    2. among GPUs those with metadata ``Discrete`` ``"1"`` first;
    3. EPs of the device's own maker first;
    4. the default CPU EP last;
    5. by the EP's name.

    Args:
        vendor_ids: the PCI vendor id of each EP's maker, by the EP's name.
    """
    ids = vendor_ids or {}

    def key(pair: EpDevice) -> tuple[int, bool, bool, bool, str]:
        return (
            _RANKS[pair.device.type],
            not is_discrete(pair),
            not has_makers_ep(pair, ids.get(pair.ep_name, 0)),
            is_default_cpu(pair),
            pair.ep_name,
        )

    return sorted(ep_devices, key=key)


def is_discrete(pair: EpDevice) -> bool:
    """Whether the device is a GPU that is known to have memory of its own."""
    device = pair.device
    return device.type is DeviceType.GPU and device.metadata.get("Discrete") == "1"


def has_makers_ep(pair: EpDevice, vendor_id: int) -> bool:
    """Whether EP and device have one maker, by number or by name.

    Unlike in ONNX Runtime, where no EP is without a maker, two empty names do not
    match.
    """
    device = pair.device
    if vendor_id and vendor_id == device.vendor_id:
        return True
    return bool(pair.ep_vendor) and pair.ep_vendor == device.vendor


def is_default_cpu(pair: EpDevice) -> bool:
    """Whether it is the CPU EP of onnxplug, on a CPU."""
    return pair.ep_name == CPU and pair.device.type is DeviceType.CPU
