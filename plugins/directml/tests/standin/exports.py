"""The libraries of Windows, whose functions are C functions of this machine."""

from __future__ import annotations

import ctypes
import ntpath
from collections.abc import Callable
from types import SimpleNamespace
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


def library(windows: Windows, name: str) -> SimpleNamespace:
    """A library with its functions as attributes.

    Args:
        windows: the machine.
        name: of one of the system's libraries, or the path of a DirectML.dll that the
            machine has.

    Raises:
        OSError: there is no such library.
    """
    found: dict[str, Any] = {}
    plain = name.lower()
    if ntpath.basename(name) != name:
        if name not in windows.files:
            raise OSError(f"there is no file {name}")
        plain = "directml.dll"
    if plain in windows.lacking:
        raise OSError(f"the machine lacks {name}")
    if plain == "kernel32.dll":
        found = _kernel32(windows)
    elif plain == "directml.dll":
        level = windows.files.get(name, windows.directml_level)

        def make_device(here: Windows, *values: Any) -> None:
            _dml_device(here, level, *values)

        kinds = (_ADDRESS, _NUMBER, _NUMBER, _ADDRESS, _ADDRESS)
        found["DMLCreateDevice1"] = _export(
            windows, "DMLCreateDevice1", kinds, make_device
        )
    elif plain in _LIBRARIES:
        for function, (kinds, answer) in _LIBRARIES[plain].items():
            found[function] = _export(windows, function, kinds, answer)
    else:
        raise OSError(f"the stand-in has no {name}")
    kept = {f: made for f, made in found.items() if f not in windows.lacking}
    return SimpleNamespace(**kept)


def _kernel32(windows: Windows) -> dict[str, Any]:
    events = windows.events
    signatures: dict[str, tuple[Any, ...]] = {
        "CreateEventW": (_ADDRESS, _ADDRESS, _NUMBER, _NUMBER, _ADDRESS),
        "CloseHandle": (_NUMBER, _ADDRESS),
        "SetEvent": (_NUMBER, _ADDRESS),
        "ResetEvent": (_NUMBER, _ADDRESS),
        "WaitForSingleObject": (_NUMBER, _ADDRESS, _NUMBER),
    }
    return {
        name: ctypes.CFUNCTYPE(*kinds)(getattr(events, name))
        for name, kinds in signatures.items()
    }


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


def _d3d12_device(
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
    level: tuple[int, int],
    d3d12: int | None,
    flags: int,
    least: int,
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
    if least not in definitions.members("DML_FEATURE_LEVEL").values():
        raise Invalid(f"there is no feature level {least:#x}")
    if least > level[0] << 12 | level[1] << 8:
        raise Failure(DXGI_ERROR_UNSUPPORTED, f"DirectML is of {level}")
    guid = _guid(riid)
    if bytes(guid.contents) not in interfaces(DmlDevice.INTERFACE):
        raise Failure(E_NOINTERFACE, "a device has no such interface")
    DmlDevice(windows, device, level).hand_out(guid, _place(place))


_LIBRARIES: dict[str, dict[str, tuple[Any, Callable[..., int | None]]]] = {
    "dxgi.dll": {
        "CreateDXGIFactory2": ((_NUMBER, _ADDRESS, _ADDRESS), _dxgi_factory),
    },
    "dxcore.dll": {
        "DXCoreCreateAdapterFactory": ((_ADDRESS, _ADDRESS), _dxcore_factory),
    },
    "d3d12.dll": {
        "D3D12CreateDevice": ((_ADDRESS, _NUMBER, _ADDRESS, _ADDRESS), _d3d12_device),
        "D3D12GetDebugInterface": ((_ADDRESS, _ADDRESS), _no_debug_layer),
    },
}
