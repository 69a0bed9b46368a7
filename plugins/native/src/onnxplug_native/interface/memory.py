"""Writes what entries give back to the addresses that libraries pass for it."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Final

from onnxplug_native.interface.handles import Handle
from onnxplug_native.interface.status import Code, InterfaceError

_POINTER: Final = ctypes.c_void_p


def put(kind: Any, out: int | None, value: Any) -> None:
    """Write one *value* of a ``ctypes`` type.

    Raises:
        InterfaceError: *out* is null.
    """
    if not out:
        raise InterfaceError(Code.INVALID_ARGUMENT, "where to put the result is null")
    kind.from_address(out).value = value


def put_pointer(out: int | None, value: int | Handle | None) -> None:
    """Write an address, or that of a handle."""
    put(_POINTER, out, value.address if isinstance(value, Handle) else value)


def put_size(out: int | None, value: int) -> None:
    """Write a ``size_t``."""
    put(ctypes.c_size_t, out, value)


def put_int(out: int | None, value: int) -> None:
    """Write an ``int`` or an enum."""
    put(ctypes.c_int32, out, value)


def put_long(out: int | None, value: int) -> None:
    """Write an ``int64_t``."""
    put(ctypes.c_int64, out, value)


def put_bool(out: int | None, value: bool) -> None:
    """Write a ``bool``."""
    put(ctypes.c_bool, out, value)


def put_all(
    kind: Any, out: int | None, values: Sequence[Any], count: int, what: str
) -> None:
    """Write an array of *values*.

    Raises:
        InterfaceError: *out* is null, or has room for another *count* of them.
    """
    if count < len(values):
        raise InterfaceError(
            Code.INVALID_ARGUMENT,
            f"there are {len(values)} {what}, and room for {count}",
        )
    if not values:
        return
    if not out:
        raise InterfaceError(Code.INVALID_ARGUMENT, "where to put the result is null")
    (kind * len(values)).from_address(out)[:] = values


def put_pointers(
    out: int | None, values: Sequence[int | Handle | None], count: int, what: str
) -> None:
    """Write an array of addresses."""
    addresses = [v.address if isinstance(v, Handle) else v for v in values]
    put_all(_POINTER, out, addresses, count, what)


def pointers(address: int | None, count: int) -> list[int]:
    """The *count* addresses at *address*; of a null, 0.

    Raises:
        InterfaceError: there are to be some, and *address* is null.
    """
    if not count:
        return []
    if not address:
        raise InterfaceError(Code.INVALID_ARGUMENT, "an array is null")
    return [value or 0 for value in (_POINTER * count).from_address(address)]


def texts(address: int | None, count: int) -> list[str]:
    """The *count* C strings at *address*."""
    return [
        ctypes.string_at(each).decode("utf-8", "replace") if each else ""
        for each in pointers(address, count)
    ]


def text_at(address: int | None) -> str:
    """The C string at *address*; empty if that is null."""
    return ctypes.string_at(address).decode("utf-8", "replace") if address else ""


def longs(address: int | None, count: int) -> tuple[int, ...]:
    """The *count* ``int64_t`` at *address*.

    Raises:
        InterfaceError: there are to be some, and *address* is null.
    """
    if not count:
        return ()
    if not address:
        raise InterfaceError(Code.INVALID_ARGUMENT, "an array is null")
    return tuple((ctypes.c_int64 * count).from_address(address))
