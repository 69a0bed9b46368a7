"""Hardware, and the pairs of EP and hardware that users and policies choose from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING

from onnxplug.authoring.fact import fact

if TYPE_CHECKING:
    from onnxplug.ep.costs import Costs


class DeviceType(StrEnum):
    """The kinds of hardware that a host tells apart."""

    CPU = "cpu"
    GPU = "gpu"
    NPU = "npu"


@fact()
class HardwareDevice:
    """A physical device that the host found without loading a driver.

    Attributes:
        type: what kind of device.
        vendor: the maker's name; empty when unknown.
        vendor_id: PCI vendor id; 0 when unknown.
        device_id: PCI device id; 0 when unknown.
        metadata: facts by the keys of ONNX Runtime (``Discrete``, ``pci_bus_id`` …).
    """

    type: DeviceType
    vendor: str = ""
    vendor_id: int = 0
    device_id: int = 0
    metadata: Mapping[str, str] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash((self.type, self.vendor_id, self.device_id))


@fact()
class EpDevice:
    """An EP on a hardware device: what users and policies choose.

    Attributes:
        ep_name: the EP's name, ``CUDAExecutionProvider``.
        device: the hardware.
        ep_vendor: the EP's maker, compared with the device's by policies.
        metadata: facts about the pair, such as ``version``.
        default_options: options the EP suggests for this device; the user's win.
        costs: by which the host weighs small partitions; ``None``: the defaults of
            :class:`Costs`.
        by_name_only: policies are not offered it; who wants it names the EP.
    """

    ep_name: str
    device: HardwareDevice
    ep_vendor: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    default_options: Mapping[str, str] = field(default_factory=dict)
    costs: Costs | None = None
    by_name_only: bool = False

    def __hash__(self) -> int:
        return hash((self.ep_name, self.device))

    def __str__(self) -> str:
        name = self.device.metadata.get("Description") or self.device.vendor
        return f"{self.ep_name} on {self.device.type}{f' ({name})' if name else ''}"
