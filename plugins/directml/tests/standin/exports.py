"""The functions that the libraries export, as C functions of this machine."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .. import definitions
from .adapters import (
    AdapterDescription,
    DxcoreAdapter,
    DxcoreFactory,
    DxgiAdapter,
    DxgiFactory,
)
from .com import OBJECTS, interfaces, object_at
from .device import D3D12Device
from .directml import DmlDevice
from .results import (
    DXGI_ERROR_INVALID_CALL,
    DXGI_ERROR_SDK_COMPONENT_MISSING,
    DXGI_ERROR_UNSUPPORTED,
    E_INVALIDARG,
    E_NOINTERFACE,
    E_POINTER,
    S_FALSE,
    Failure,
    Invalid,
)

if TYPE_CHECKING:
    from .windows import Windows

_ADDRESS, _NUMBER = ctypes.c_void_p, ctypes.c_uint32


def exports(windows: Windows) -> dict[str, Any]:
    """C functions by their names, of dxgi, dxcore, d3d12, DirectML and kernel32.

    An attribute ``library`` of each names the DLL that it is of.
    """
    made: dict[str, Any] = {}
    for library, name, arguments, answer in (
        ("dxgi", "CreateDXGIFactory2", (_NUMBER, _ADDRESS, _ADDRESS), _dxgi_factory),
        ("dxcore", "DXCoreCreateAdapterFactory", (_ADDRESS, _ADDRESS), _dxcore_factory),
        ("d3d12", "D3D12CreateDevice", (_ADDRESS, _NUMBER, _ADDRESS, _ADDRESS), _d3d12),
        ("d3d12", "D3D12GetDebugInterface", (_ADDRESS, _ADDRESS), _no_debug_layer),
        (
            "directml",
            "DMLCreateDevice1",
            (_ADDRESS, _NUMBER, _NUMBER, _ADDRESS, _ADDRESS),
            _dml_device,
        ),
    ):
        made[name] = _export(windows, name, arguments, answer)
        made[name].library = library
    events = windows.events
    for name, result, arguments in (
        ("CreateEventW", _ADDRESS, (_ADDRESS, _NUMBER, _NUMBER, _ADDRESS)),
        ("CloseHandle", _NUMBER, (_ADDRESS,)),
        ("SetEvent", _NUMBER, (_ADDRESS,)),
        ("ResetEvent", _NUMBER, (_ADDRESS,)),
        ("WaitForSingleObject", _NUMBER, (_ADDRESS, _NUMBER)),
    ):
        made[name] = ctypes.CFUNCTYPE(result, *arguments)(getattr(events, name))
        made[name].library = "kernel32"
    return made


def _export(
    windows: Windows, name: str, arguments: Any, answer: Callable[..., int | None]
) -> Any:
    def called(*values: Any) -> int:
        with windows.lock:
            try:
                return answer(windows, *values) or 0
            except Failure as failure:
                if isinstance(failure, Invalid):
                    windows.note(f"{name}: {failure}")
                return failure.result
            except Exception as error:  # noqa: BLE001  a callback's error is lost
                windows.broken(name, error)
                return E_INVALIDARG

    return ctypes.CFUNCTYPE(ctypes.c_int32, *arguments)(called)


def _guid(address: int | None) -> Any:
    if not address:
        raise Invalid("the identifier of the interface is null")
    guid = type(definitions.find("IDMLDevice")._iid_)
    return ctypes.cast(address, ctypes.POINTER(guid))


def _place(address: int | None) -> Any:
    if not address:
        raise Invalid("there is no place for the object", E_POINTER)
    return ctypes.cast(address, ctypes.POINTER(ctypes.c_void_p))


def _dxgi_factory(
    windows: Windows, flags: int, riid: int | None, place: int | None
) -> None:
    if flags & ~1:
        raise Invalid(f"flags {flags:#x} are not known", DXGI_ERROR_INVALID_CALL)
    if flags and not windows.debug_layers:
        raise Failure(DXGI_ERROR_SDK_COMPONENT_MISSING, "there are no debug layers")
    DxgiFactory(windows).hand_out(_guid(riid), _place(place))


def _dxcore_factory(windows: Windows, riid: int | None, place: int | None) -> None:
    DxcoreFactory(windows).hand_out(_guid(riid), _place(place))


def _no_debug_layer(windows: Windows, riid: int | None, place: int | None) -> int:
    return DXGI_ERROR_SDK_COMPONENT_MISSING


def _described(windows: Windows, address: int | None) -> AdapterDescription:
    if not address:
        return next(a for a in windows.adapters if a.for_graphics)
    found = OBJECTS.get(address)
    if not isinstance(found, DxgiAdapter | DxcoreAdapter) or found.destroyed:
        raise Invalid(f"the adapter is {found}")
    return found.description


def _d3d12(
    windows: Windows,
    adapter: int | None,
    level: int,
    riid: int | None,
    place: int | None,
) -> int | None:
    found = _described(windows, adapter)
    if windows.faults.no_device:
        raise Failure(windows.faults.no_device, "as the test wants")
    if found.level < level:
        raise Failure(DXGI_ERROR_UNSUPPORTED, f"{found.name} has no level {level:#x}")
    guid = _guid(riid)
    if not place:
        return S_FALSE
    device = windows.devices.get(found.luid)
    if device is None:
        D3D12Device(windows, found).hand_out(guid, _place(place))
        return None
    if device.removed:  # devices are singletons, also where they are lost
        raise Failure(device.removed, "the device of the adapter is removed")
    return device.QueryInterface(guid, _place(place))


def _dml_device(
    windows: Windows,
    d3d12: int | None,
    flags: int,
    level: int,
    riid: int | None,
    place: int | None,
) -> None:
    device = object_at(d3d12, D3D12Device, "the Direct3D 12 device")
    if windows.faults.no_directml:
        raise Failure(windows.faults.no_directml, "as the test wants")
    if flags & ~1:
        raise Invalid(f"flags {flags:#x} are not known")
    if flags and not windows.debug_layers:
        raise Failure(DXGI_ERROR_SDK_COMPONENT_MISSING, "there are no debug layers")
    if level not in definitions.members("DML_FEATURE_LEVEL").values():
        raise Invalid(f"there is no feature level {level:#x}")
    major, minor = windows.directml_level
    if level > major << 12 | minor << 8:
        raise Failure(DXGI_ERROR_UNSUPPORTED, f"DirectML is of {major}.{minor}")
    guid = _guid(riid)
    if bytes(guid.contents) not in interfaces(DmlDevice.INTERFACE):
        raise Failure(E_NOINTERFACE, "a device has no such interface")
    DmlDevice(windows, device).hand_out(guid, _place(place))
