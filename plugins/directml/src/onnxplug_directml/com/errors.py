"""What an ``HRESULT`` means, as an exception that says what was asked."""

from __future__ import annotations

from typing import ClassVar, Final, NamedTuple

from onnxplug import ep


class ComError(ep.EPFail):
    """Windows refused a call.

    Attributes:
        hresult: the code, as Windows writes it: 0x887A0005.
    """

    def __init__(self, message: str, hresult: int = 0) -> None:
        super().__init__(message)
        self.hresult = hresult


class InvalidCall(ComError, ValueError):
    """A description, or the time of a call, is not as the documentation demands."""


class Unsupported(ComError, NotImplementedError):
    """The device, its driver or the library does not have what was asked for."""


class NotFound(ComError, LookupError):
    """There is nothing like what was asked for."""


class OutOfMemory(ComError, ep.OutOfMemory):
    """Neither the adapter nor the system has so much memory."""

    code: ClassVar[int] = ep.OutOfMemory.code


class DeviceRemoved(ep.status_class(15), ComError):  # type: ignore[misc]
    """The device is gone, with all that was in its memory."""


class _Code(NamedTuple):
    hresult: int
    meaning: str
    error: type[ComError]


_HARDWARE_GONE: Final = "the adapter was removed, or its driver was updated or failed"

CODES: Final = {
    "E_NOTIMPL": _Code(0x80004001, "it is not implemented", Unsupported),
    "E_NOINTERFACE": _Code(
        0x80004002, "the object does not have that interface", Unsupported
    ),
    "E_POINTER": _Code(0x80004003, "a pointer is null", InvalidCall),
    "E_ABORT": _Code(0x80004004, "it was given up", ComError),
    "E_FAIL": _Code(0x80004005, "Windows does not say why", ComError),
    "E_UNEXPECTED": _Code(0x8000FFFF, "it was not to be called now", InvalidCall),
    "E_ACCESSDENIED": _Code(0x80070005, "the process may not", ComError),
    "E_HANDLE": _Code(0x80070006, "a handle is not open", InvalidCall),
    "E_OUTOFMEMORY": _Code(0x8007000E, "there is not so much memory", OutOfMemory),
    "E_INVALIDARG": _Code(
        0x80070057, "an argument is not as it has to be", InvalidCall
    ),
    "DXGI_ERROR_INVALID_CALL": _Code(
        0x887A0001, "the arguments, or the time of the call, are wrong", InvalidCall
    ),
    "DXGI_ERROR_NOT_FOUND": _Code(0x887A0002, "there is no such thing", NotFound),
    "DXGI_ERROR_UNSUPPORTED": _Code(
        0x887A0004, "the device or its driver does not have it", Unsupported
    ),
    "DXGI_ERROR_DEVICE_REMOVED": _Code(0x887A0005, _HARDWARE_GONE, DeviceRemoved),
    "DXGI_ERROR_DEVICE_HUNG": _Code(
        0x887A0006, "the device did not finish its work in time", DeviceRemoved
    ),
    "DXGI_ERROR_DEVICE_RESET": _Code(
        0x887A0007, "the device failed on what it was given to do", DeviceRemoved
    ),
    "DXGI_ERROR_DRIVER_INTERNAL_ERROR": _Code(
        0x887A0020, "the driver failed", DeviceRemoved
    ),
    "DXGI_ERROR_NOT_CURRENTLY_AVAILABLE": _Code(
        0x887A0022, "it cannot be had now", ComError
    ),
    "DXGI_ERROR_REMOTE_OUTOFMEMORY": _Code(
        0x887A0024, "the remote machine has not so much memory", OutOfMemory
    ),
    "DXGI_ERROR_ACCESS_DENIED": _Code(0x887A002B, "the process may not", ComError),
    "DXGI_ERROR_SDK_COMPONENT_MISSING": _Code(
        0x887A002D,
        "a debug layer was asked for, and Windows' Graphics Tools are not installed",
        Unsupported,
    ),
    "D3D12_ERROR_ADAPTER_NOT_FOUND": _Code(
        0x887E0001, "the adapter is not that of a cache", NotFound
    ),
    "D3D12_ERROR_DRIVER_VERSION_MISMATCH": _Code(
        0x887E0002, "the driver is not that of a cache", ComError
    ),
}
"""The codes that Direct3D 12, DXGI, DXCore and DirectML answer with, by name."""

_NAMES: Final = {code.hresult: name for name, code in CODES.items()}


def error_of(hresult: int, asked: str, reason: int | None = None) -> ComError:
    """The exception for a call that failed.

    Args:
        hresult: what it returned, signed or not.
        asked: what was asked, as a sentence's subject: "ID3D12Device.CreateFence".
        reason: what the device says of its removal, if it does.
    """
    code = hresult & 0xFFFFFFFF
    name = _NAMES.get(code)
    if name is None:
        message = f"{asked} failed: Windows answers 0x{code:08X}"
        return ComError(message, code)
    entry = CODES[name]
    message = f"{asked} failed: {entry.meaning} ({name}, 0x{code:08X})"
    if issubclass(entry.error, DeviceRemoved):
        message = f"{message}{_removal(reason, code)}"
    return entry.error(message, code)


def _removal(reason: int | None, code: int) -> str:
    if reason is None or reason & 0xFFFFFFFF in (0, code):
        return ""
    reason &= 0xFFFFFFFF
    name = _NAMES.get(reason)
    if name is None:
        return f"; the device gives 0x{reason:08X} as the reason"
    return f"; the reason: {CODES[name].meaning} ({name})"
