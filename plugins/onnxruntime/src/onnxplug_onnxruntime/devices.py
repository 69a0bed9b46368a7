"""Pairs of EP and hardware device, as ONNX Runtime describes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import onnxplug
from onnxplug.authoring.record import Record
from onnxplug.ep import EpDevice, HardwareDevice
from onnxplug.errors import Fail, InvalidArgument, OptionTypeError
from onnxplug_onnxruntime.memory import (
    HOST_MEMORY,
    OrtDeviceMemoryType,
    OrtMemoryInfo,
)

if TYPE_CHECKING:
    from onnxplug import OrtCompiledModelCompatibility


class OrtHardwareDeviceType(IntEnum):
    """The kinds of hardware."""

    CPU = 0
    GPU = 1
    NPU = 2


class OrtDeviceEpIncompatibilityReason(IntEnum):
    """Why an EP does not drive a device."""

    NONE = 0
    DRIVER_INCOMPATIBLE = 1
    DEVICE_INCOMPATIBLE = 2
    MISSING_DEPENDENCY = 4
    UNKNOWN = -(2**31)


class OrtHardwareDevice(Record):
    """A device of this machine."""

    type: OrtHardwareDeviceType
    vendor: str
    vendor_id: int
    device_id: int
    metadata: dict[str, str]

    @staticmethod
    def of(device: HardwareDevice) -> OrtHardwareDevice:
        """The description of *device*."""
        return OrtHardwareDevice(
            OrtHardwareDeviceType[device.type.name],
            device.vendor,
            device.vendor_id,
            device.device_id,
            dict(device.metadata),
        )


class OrtSyncStream:
    """A stream of a device, which no EP here hands out."""

    def get_handle(self) -> int:
        """The stream's native handle."""
        raise Fail("an EP makes its streams itself, for each run")


class OrtEpDevice:
    """An EP on a hardware device.

    Attributes:
        pair: as onnxplug describes it.
    """

    def __init__(self, pair: EpDevice) -> None:
        self.pair = pair

    @property
    def ep_name(self) -> str:
        """The EP's name."""
        return self.pair.ep_name

    @property
    def ep_vendor(self) -> str:
        """The EP's maker."""
        return self.pair.ep_vendor

    @property
    def ep_metadata(self) -> dict[str, str]:
        """Facts about the pair."""
        return dict(self.pair.metadata)

    @property
    def ep_options(self) -> dict[str, str]:
        """Options that the EP suggests for the device."""
        return dict(self.pair.default_options)

    @property
    def device(self) -> OrtHardwareDevice:
        """The hardware."""
        return OrtHardwareDevice.of(self.pair.device)

    def memory_info(self, memory_type: OrtDeviceMemoryType) -> OrtMemoryInfo | None:
        """The host's memory for the CPU; what other devices have is not told."""
        is_host = self.device.type is OrtHardwareDeviceType.CPU
        return HOST_MEMORY if is_host else None

    def create_sync_stream(self) -> OrtSyncStream:
        """Not to be had.

        Raises:
            Fail: always: an EP makes its streams itself, for each run.
        """
        raise Fail(
            f"{self.ep_name} makes its streams itself, for each run; pass a stream to "
            "OrtValue.__dlpack__, or wait by IOBinding.synchronize_outputs"
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OrtEpDevice) and other.pair == self.pair

    def __hash__(self) -> int:
        return hash(self.pair)

    def __repr__(self) -> str:
        return f"OrtEpDevice({self.pair})"


def get_ep_devices() -> list[OrtEpDevice]:
    """Every pair of an EP that can be loaded and a device that it can drive."""
    return [OrtEpDevice(pair) for pair in onnxplug.get_ep_devices()]


def get_hardware_devices() -> list[OrtHardwareDevice]:
    """The devices of this machine."""
    return [OrtHardwareDevice.of(each) for each in onnxplug.get_hardware_devices()]


def get_hardware_device_ep_incompatibility_details(
    ep_name: str, hw: OrtHardwareDevice
) -> dict[str, Any]:
    """Why an EP does not drive a device, as ``reasons_bitmask`` and ``notes``.

    The first is of :class:`OrtDeviceEpIncompatibilityReason`; the notes are ``None`` if
    it does.  ``error_code`` is always 0: EPs have none.

    Raises:
        InvalidArgument: no such EP is installed.
    """
    if ep_name not in [record.name for record in onnxplug.get_plugins()]:
        raise InvalidArgument(
            f"No valid factory found for execution provider {ep_name!r}; it is not "
            "installed"
        )
    reason, notes = OrtDeviceEpIncompatibilityReason.NONE, None
    driven = [pair.device for pair in get_ep_devices() if pair.ep_name == ep_name]
    if hw not in driven:
        usable = onnxplug.is_available(ep_name)
        reason = OrtDeviceEpIncompatibilityReason.DEVICE_INCOMPATIBLE
        notes = f"it drives {len(driven)} other devices"
        if not usable:
            reason = OrtDeviceEpIncompatibilityReason.MISSING_DEPENDENCY
            notes = f"{usable.reason}; {usable.remedy}"
    return {"reasons_bitmask": int(reason), "notes": notes, "error_code": 0}


def get_model_compatibility_for_ep_devices(
    ep_devices: Sequence[OrtEpDevice | EpDevice], compatibility_info: str
) -> OrtCompiledModelCompatibility:
    """As :func:`onnxplug.get_model_compatibility_for_ep_devices`."""
    if not isinstance(compatibility_info, str):
        raise OptionTypeError(
            f"the compatibility info is {compatibility_info!r}; expected a text, as "
            "get_compatibility_info_from_model gives it"
        )
    return onnxplug.get_model_compatibility_for_ep_devices(
        pairs(ep_devices), compatibility_info
    )


def pairs(ep_devices: Iterable[OrtEpDevice | EpDevice]) -> list[EpDevice]:
    """*ep_devices* as onnxplug describes them.

    Raises:
        OptionTypeError: one is something else.
    """
    found = [
        each.pair if isinstance(each, OrtEpDevice) else each for each in ep_devices
    ]
    for each in found:
        if not isinstance(each, EpDevice):
            raise OptionTypeError(
                f"an EP's device is {each!r}; expected those of get_ep_devices()"
            )
    return found


def adapted(
    delegate: Callable[..., Sequence[OrtEpDevice]],
) -> Callable[..., list[EpDevice]]:
    """A selection delegate that is given pairs as ONNX Runtime describes them."""

    def choose(ep_devices: Sequence[EpDevice], *arguments: Any) -> list[EpDevice]:
        return pairs(delegate([OrtEpDevice(pair) for pair in ep_devices], *arguments))

    return choose
