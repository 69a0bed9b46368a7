"""HRESULTs that Windows answers with, as signed integers, and two ways to fail."""

from __future__ import annotations


def _signed(value: int) -> int:
    return value - 2**32


S_OK = 0
S_FALSE = 1
E_NOTIMPL = _signed(0x80004001)
E_NOINTERFACE = _signed(0x80004002)
E_POINTER = _signed(0x80004003)
E_FAIL = _signed(0x80004005)
E_OUTOFMEMORY = _signed(0x8007000E)
E_INVALIDARG = _signed(0x80070057)
DXGI_ERROR_INVALID_CALL = _signed(0x887A0001)
DXGI_ERROR_NOT_FOUND = _signed(0x887A0002)
DXGI_ERROR_UNSUPPORTED = _signed(0x887A0004)
DXGI_ERROR_DEVICE_REMOVED = _signed(0x887A0005)
DXGI_ERROR_DEVICE_HUNG = _signed(0x887A0006)
DXGI_ERROR_DEVICE_RESET = _signed(0x887A0007)
DXGI_ERROR_DRIVER_INTERNAL_ERROR = _signed(0x887A0020)
DXGI_ERROR_SDK_COMPONENT_MISSING = _signed(0x887A002D)


class Failure(Exception):
    """What may happen to a program that does nothing wrong; it is answered only."""

    def __init__(self, result: int, reason: str) -> None:
        super().__init__(reason)
        self.result = result


class Invalid(Failure):
    """A rule of the documentation is broken: noted, and answered as Windows does."""

    def __init__(self, reason: str, result: int = E_INVALIDARG) -> None:
        super().__init__(result, reason)
