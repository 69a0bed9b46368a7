"""Reads what libraries pass to entries by its address, and writes what these give back.

Owns: that no more is read than there can be, and nothing where nothing is.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Final

from onnxplug.authoring.bounds import MOST_AXES
from onnxplug_native.interface import readable
from onnxplug_native.interface.codes import Code, InterfaceError
from onnxplug_native.interface.handles import Handle

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


def pointers(address: int | None, count: int, most: int, what: str) -> list[int]:
    """The *count* addresses at *address*; of a null, 0.

    Args:
        most: how many there can be.
        what: whose they are, in the plural.

    Raises:
        InterfaceError: there are to be more, or there are to be some, and nothing is
            there.
    """
    require_array(address, count, most, ctypes.sizeof(_POINTER), what)
    return [value or 0 for value in _array(_POINTER, address, count)]


def ints(address: int | None, count: int, most: int, what: str) -> list[int]:
    """The *count* ``int`` at *address*, as of :func:`pointers`.

    Raises:
        InterfaceError: as there.
    """
    require_array(address, count, most, ctypes.sizeof(ctypes.c_int), what)
    return list(_array(ctypes.c_int, address, count))


def texts(address: int | None, count: int, most: int, what: str) -> list[str]:
    """The *count* C strings whose addresses are at *address*, as of :func:`pointers`.

    Raises:
        InterfaceError: as there, or nothing is where one is to be.
    """
    return [text_at(each) for each in pointers(address, count, most, what)]


def text_at(address: int | None) -> str:
    """The C string at *address*; empty if that is null.

    Raises:
        InterfaceError: nothing is there.
    """
    found = readable.text_at(address) if address else ""
    if found is None:
        raise InterfaceError(
            Code.INVALID_ARGUMENT, f"a text is at {address:#x}, where nothing is"
        )
    return found


def sizes(address: int | None, count: int) -> tuple[int, ...]:
    """The *count* ``int64_t`` of a shape at *address*.

    Raises:
        InterfaceError: there are to be more than arrays have dimensions, or there are
            to be some, and *address* is null.
    """
    if count > MOST_AXES:
        raise _too_many(count, MOST_AXES, "dimensions")
    if not count:
        return ()
    if not address:
        raise _null()
    return tuple(_array(ctypes.c_int64, address, count))


def require_array(
    address: int | None, count: int, most: int, itemsize: int, what: str
) -> None:
    """Check that there may be *count* items at *address*, before they are read.

    Args:
        most: how many there can be.
        what: what they are, in the plural.

    Raises:
        InterfaceError: there are to be more, or there are to be some, and nothing is
            there.
    """
    if count > most:
        raise _too_many(count, most, what)
    if not count:
        return
    if not address:
        raise _null()
    if not readable.is_readable(address, count * itemsize):
        raise InterfaceError(
            Code.INVALID_ARGUMENT,
            f"{count} {what} are given at {address:#x}, where nothing is, or less",
        )


def _array(kind: Any, address: int | None, count: int) -> Any:
    return (kind * count).from_address(address) if count else ()


def _too_many(count: int, most: int, what: str) -> InterfaceError:
    return InterfaceError(
        Code.INVALID_ARGUMENT, f"{count} {what} are given; there can be {most} at most"
    )


def _null() -> InterfaceError:
    return InterfaceError(Code.INVALID_ARGUMENT, "an array is null")
