"""The adapters of a machine: those that DXGI lists, and those that DXCore adds."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator, Sequence
from typing import Final

from onnxplug import ep
from onnxplug.authoring.record import Record
from onnxplug_directml.abi import guids
from onnxplug_directml.abi.d3d12 import D3D_FEATURE_LEVEL
from onnxplug_directml.abi.dxcore import DXCoreAdapterProperty, DXCoreHardwareIDParts
from onnxplug_directml.abi.dxgi import DXGI_ADAPTER_FLAG
from onnxplug_directml.abi.types import LUID
from onnxplug_directml.com.dxcore import IDXCoreAdapter
from onnxplug_directml.com.dxgi import IDXGIAdapter1
from onnxplug_directml.com.errors import ComError, InvalidCall, NotFound
from onnxplug_directml.com.libraries import Libraries
from onnxplug_directml.com.unknown import IUnknown

_SOFTWARE: Final = frozenset({(0x1414, 0x8C)})
"""The Basic Render Driver, which old systems do not mark as software."""

_MOST: Final = 64
"""A bound on loops that a broken driver could keep going."""


class Adapter(Record):
    """An adapter.

    Attributes:
        luid: its number until the next boot.
        name: as users know it.
        kind: GPU or NPU.
        vendor_id, device_id: PCI's.
        is_software: it computes on the processor.
        in_dxgi: DXGI lists it; others are DXCore's.
        level: the least feature level of Direct3D that devices on it have.
    """

    luid: int
    name: str
    kind: ep.DeviceType
    vendor_id: int = 0
    device_id: int = 0
    is_software: bool = False
    in_dxgi: bool = True
    level: D3D_FEATURE_LEVEL = D3D_FEATURE_LEVEL.LEVEL_11_0

    def __str__(self) -> str:
        return self.name or f"the adapter {self.luid:#x}"


def find_adapters(libraries: Libraries) -> list[Adapter]:
    """All adapters in DXGI's order, then those that only DXCore knows.

    Raises:
        RuntimeError: there is no DXGI.
    """
    found = list(_dxgi(libraries))
    known = {each.luid for each in found}
    with contextlib.suppress(RuntimeError, ComError):  # before Windows 10 version 2004
        found += [each for each in _dxcore(libraries) if each.luid not in known]
    return found


@contextlib.contextmanager
def opened(libraries: Libraries, adapter: Adapter) -> Iterator[IUnknown]:
    """Windows' object of an adapter.

    Raises:
        LookupError: it is not there any more.
        RuntimeError: Windows' library is not there.
    """
    low, high = adapter.luid & 0xFFFFFFFF, adapter.luid >> 32
    luid = LUID(low, ctypes.c_int32(high).value)
    with contextlib.ExitStack() as ends:
        try:
            if adapter.in_dxgi:
                dxgi = ends.enter_context(libraries.CreateDXGIFactory2(0))
                native = ends.enter_context(dxgi.EnumAdapterByLuid(luid))
            else:
                dxcore = ends.enter_context(libraries.DXCoreCreateAdapterFactory())
                native = ends.enter_context(dxcore.GetAdapterByLuid(luid))
        except (NotFound, InvalidCall) as error:  # DXGI's answer, and DXCore's
            raise LookupError(f"{adapter} is not there any more: {error}") from error
        yield native


def _dxgi(libraries: Libraries) -> Iterator[Adapter]:
    with libraries.CreateDXGIFactory2(0) as factory:
        for number in range(_MOST):
            try:
                found = factory.EnumAdapters1(number)
            except NotFound:
                return
            with found:
                yield _described(found)


def _described(native: IDXGIAdapter1) -> Adapter:
    desc = native.GetDesc1()
    ids = (int(desc.VendorId), int(desc.DeviceId))
    text = bytes(desc.Description).decode("utf-16-le", "replace")
    flags = DXGI_ADAPTER_FLAG.SOFTWARE | DXGI_ADAPTER_FLAG.REMOTE
    return Adapter(
        luid=_number(desc.AdapterLuid),
        name=text.partition("\0")[0],
        kind=ep.DeviceType.GPU,
        vendor_id=ids[0],
        device_id=ids[1],
        is_software=bool(desc.Flags & flags) or ids in _SOFTWARE,
    )


def _dxcore(libraries: Libraries) -> Iterator[Adapter]:
    attributes = (
        guids.DXCORE_ADAPTER_ATTRIBUTE_D3D12_CORE_COMPUTE,
        guids.DXCORE_ADAPTER_ATTRIBUTE_D3D12_GENERIC_ML,
    )
    with libraries.DXCoreCreateAdapterFactory() as factory:
        seen: set[int] = set()
        for attribute in attributes:
            with factory.CreateAdapterList([attribute]) as adapters:
                for number in range(min(adapters.GetAdapterCount(), _MOST)):
                    try:
                        with adapters.GetAdapter(number) as native:
                            adapter = _described_by_dxcore(native)
                    except ComError:  # one that goes just now is none of them
                        continue
                    if adapter.luid not in seen:
                        seen.add(adapter.luid)
                        yield adapter


def _described_by_dxcore(native: IDXCoreAdapter) -> Adapter:
    luid, ids = LUID(), DXCoreHardwareIDParts()
    is_hardware = ctypes.c_bool(True)
    _read(native, DXCoreAdapterProperty.InstanceLuid, luid)
    _read(native, DXCoreAdapterProperty.HardwareIDParts, ids)
    _read(native, DXCoreAdapterProperty.IsHardware, is_hardware)
    has = native.IsAttributeSupported
    is_gpu = not has(guids.DXCORE_HARDWARE_TYPE_ATTRIBUTE_NPU) and (
        has(guids.DXCORE_HARDWARE_TYPE_ATTRIBUTE_GPU)
        or has(guids.DXCORE_ADAPTER_ATTRIBUTE_D3D12_GRAPHICS)
    )
    levels = D3D_FEATURE_LEVEL
    has_core = has(guids.DXCORE_ADAPTER_ATTRIBUTE_D3D12_CORE_COMPUTE)
    return Adapter(
        luid=_number(luid),
        name=_name(native),
        kind=ep.DeviceType.GPU if is_gpu else ep.DeviceType.NPU,
        vendor_id=int(ids.vendorID),
        device_id=int(ids.deviceID),
        is_software=not is_hardware.value,
        in_dxgi=False,
        level=levels.LEVEL_1_0_CORE if has_core else levels.LEVEL_1_0_GENERIC,
    )


def _read(native: IDXCoreAdapter, which: DXCoreAdapterProperty, into: object) -> None:
    """Fill *into* with a property, if the adapter has it."""
    if native.IsPropertySupported(which):
        native.GetProperty(which, ctypes.sizeof(into), ctypes.addressof(into))  # type: ignore[arg-type]


def _name(native: IDXCoreAdapter) -> str:
    which = DXCoreAdapterProperty.DriverDescription
    if not native.IsPropertySupported(which):
        return ""
    text = ctypes.create_string_buffer(native.GetPropertySize(which))
    _read(native, which, text)
    return text.value.decode("utf-8", "replace")


def _number(luid: LUID) -> int:
    return (int(luid.HighPart) & 0xFFFFFFFF) << 32 | int(luid.LowPart)


def choose(
    adapters: Sequence[Adapter],
    devices: Sequence[ep.HardwareDevice],
    number: int,
    kinds: frozenset[ep.DeviceType],
    preference: str,
) -> int:
    """The place of the adapter that is meant.

    Args:
        devices: what a session was given: of these one is taken where *number* leaves
            it open.
        number, kinds, preference: as of the options.

    Raises:
        LookupError: there is no such adapter.
    """
    if number >= 0:
        npus_only = kinds == {ep.DeviceType.NPU}
        listed = [
            place
            for place, each in enumerate(adapters)
            if (each.kind is ep.DeviceType.NPU if npus_only else each.in_dxgi)
        ]
        if number < len(listed):
            return listed[number]
        what = "NPUs" if npus_only else "adapters"
        raise LookupError(f"there are {len(listed)} {what}, counted from 0")
    places = {each.luid: place for place, each in enumerate(adapters)}
    for device in _preferred(devices, kinds, preference):
        place = places.get(int(device.metadata.get("LUID", "-1")))
        if place is not None and not adapters[place].is_software:
            return place
    wanted = " or ".join(sorted(kinds))
    raise LookupError(
        f"Windows has no {wanted} of the session's devices among its adapters: "
        f"{', '.join(map(str, adapters)) or 'none'}"
    )


def _preferred(
    devices: Sequence[ep.HardwareDevice],
    kinds: frozenset[ep.DeviceType],
    preference: str,
) -> list[ep.HardwareDevice]:
    found = [each for each in devices if each.type in kinds]

    def rank(device: ep.HardwareDevice) -> tuple[bool, int]:
        facts = device.metadata
        place = int(facts.get("DxgiHighPerformanceIndex", "0"))
        if preference == "minimum_power":
            return facts.get("Discrete") == "1", -place
        return facts.get("Discrete") == "0", place

    return found if preference == "default" else sorted(found, key=rank)
