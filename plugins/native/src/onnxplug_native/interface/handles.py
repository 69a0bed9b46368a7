"""Objects of ours that libraries know by their addresses.

Invariant: an address that a library hands us is looked up and never followed, so that
one that is stale or made up is an error and no crash.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any, Final, TypeVar, overload

from onnxplug_native.interface.codes import Code, InterfaceError
from onnxplug_native.interface.ending import lasting

# libraries may look at texts of theirs until the process ends
_LIVE: Final[dict[int, Handle]] = lasting({})


class Handle:
    """An object that has an address while it lives, which is until it is released.

    Attributes:
        address: what libraries know it by.
    """

    def __init__(self, memory: Any = None) -> None:
        """*memory* is what lies at the address: a ``ctypes`` object."""
        self._memory = memory or (ctypes.c_uint64 * 2)()
        self._texts: dict[str, Any] = {}
        self.address: int = ctypes.addressof(self._memory)
        _LIVE[self.address] = self

    def release(self) -> None:
        """Let the address mean nothing any more.  Idempotent."""
        if _LIVE.get(self.address) is self:
            del _LIVE[self.address]

    def text(self, text: str | bytes) -> int:
        """The address of a C string that lives as long as this object."""
        key = text if isinstance(text, str) else text.decode("utf-8", "replace")
        if key not in self._texts:
            data = text.encode() if isinstance(text, str) else text
            self._texts[key] = ctypes.create_string_buffer(data)
        return ctypes.addressof(self._texts[key])

    def path(self, path: str) -> int:
        """The address of a path as the system writes them, which lives as long."""
        if os.name != "nt":
            return self.text(os.fsencode(path))
        key = f"path {path}"
        if key not in self._texts:
            self._texts[key] = ctypes.create_unicode_buffer(path)
        return ctypes.addressof(self._texts[key])


_H = TypeVar("_H", bound=Handle)


@overload
def find(kind: type[_H], address: int | None) -> _H: ...
@overload
def find(kind: type[_H], address: int | None, *, quiet: bool) -> _H | None: ...
def find(kind: type[_H], address: int | None, *, quiet: bool = False) -> _H | None:
    """The object at *address*.

    Raises:
        InterfaceError: there is none of that kind; with *quiet*, ``None`` is returned.
    """
    found = _LIVE.get(address or 0)
    if isinstance(found, kind):
        return found
    if quiet:
        return None
    what = (
        "a null pointer" if not address else f"{address:#x}, which is none that lives"
    )
    raise InterfaceError(
        Code.INVALID_ARGUMENT, f"expected the address of a {kind.__name__}, got {what}"
    )


def live() -> list[Handle]:
    """All objects that libraries may know; for tests of leaks."""
    return list(_LIVE.values())
