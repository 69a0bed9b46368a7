"""Structures that libraries make: factories, EPs, and what these give."""

from __future__ import annotations

import ctypes
from typing import Any, Final

from onnxplug import ep
from onnxplug_native.interface.ending import call_begins, call_ends
from onnxplug_native.interface.readable import is_readable, text_at
from onnxplug_native.interface.status import raise_status
from onnxplug_native.interface.table import API_VERSION, Entry, entries
from onnxplug_native.interface.throwing import guarded, require_not_thrown

_FIRST: Final = 8
"""Where the function pointers begin, after the version."""


class Structure:
    """A structure of a library, read only as far as its version goes.

    Attributes:
        address: where it is.
        version: the version of the interface that it was made for.
    """

    def __init__(self, name: str, address: int, owner: str) -> None:
        """*owner* says in messages whose it is.

        Raises:
            EPFail: nothing is there, or something of no version.
        """
        if not is_readable(address, _FIRST):
            raise ep.EPFail(f"{owner} gave an {name} at {address:#x}, where nothing is")
        self.name = name
        self.address = address
        self.owner = owner
        self.version: int = ctypes.c_uint32.from_address(address).value
        if not self.version:
            raise ep.EPFail(
                f"{owner} gave a {name} of version 0; expected that of the interface "
                "which the library was built for"
            )
        self._functions: dict[str, Any] = {}
        self._entries = {entry.name: entry for entry in entries(name)}

    def has(self, name: str) -> bool:
        """Whether the library implements the entry *name*."""
        return self._function(name) is not None

    def call(self, name: str, *arguments: Any) -> Any:
        """Call the entry *name* on this structure.

        Raises:
            EPFail: the library does not implement it.
            OnnxplugError: it failed; of the class that belongs to its status.
        """
        function = self._function(name)
        if function is None:
            raise ep.EPFail(f"{self.owner} does not implement {self.name}.{name}")
        try:
            call_begins()
        except ep.EPFail:
            if name.startswith("Release"):
                return None  # the system does it, and a thread has nothing to tell of
            raise
        try:
            result = function(self.address, *arguments)
        finally:
            call_ends()
        if self._entries[name].result == "!":
            raise_status(result, f"{self.name}.{name} of {self.owner}")
            return None
        require_not_thrown(f"{self.name}.{name} of {self.owner}")
        return result

    def text(self, name: str, *arguments: Any) -> str:
        """The text that the entry *name* returns; empty for a null.

        Raises:
            EPFail: the library does not implement it, or nothing is where the text is
                said to be.
        """
        address = self.call(name, *arguments)
        found = text_at(address) if address else ""
        if found is None:
            raise ep.EPFail(
                f"{self.name}.{name} of {self.owner} gave a text at {address:#x}, "
                "where nothing is"
            )
        return found

    def function(self, name: str) -> Any:
        """The entry *name*, to be called with this structure's address first.

        Raises:
            EPFail: the library does not implement it.
        """
        function = self._function(name)
        if function is None:
            raise ep.EPFail(f"{self.owner} does not implement {self.name}.{name}")
        return function

    def pointer(self, name: str) -> int:
        """Where the entry *name* is; 0 if the library does not implement it."""
        return self._pointer(self._entries[name])

    def _function(self, name: str) -> Any:
        if name not in self._functions:
            self._functions[name] = self._read(self._entries[name])
        return self._functions[name]

    def _read(self, entry: Entry) -> Any:
        pointer = self._pointer(entry)
        return guarded(entry.result, entry.arguments, pointer) if pointer else None

    def _pointer(self, entry: Entry) -> int:
        if not entry.since <= min(self.version, API_VERSION):
            return 0
        place = self.address + _FIRST + entry.place * ctypes.sizeof(ctypes.c_void_p)
        return ctypes.c_void_p.from_address(place).value or 0
