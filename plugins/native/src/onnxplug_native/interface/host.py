"""The tables that libraries call: every entry is ours, or says that it is not there.

Owns: the one instance of the tables in a process, which is never destroyed, as a
library that is unloaded late may still call it.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any, Final

from onnxplug_native.interface import ending
from onnxplug_native.interface.codes import Code
from onnxplug_native.interface.status import Status, status_of
from onnxplug_native.interface.table import (
    API_VERSION,
    VERSION,
    Entry,
    entries,
    signature,
)

_Function = Callable[..., Any]

_FUNCTIONS: Final[dict[tuple[str, str], _Function]] = {}

_UNKNOWN: Final = 64
"""Entries after the last that is known: newer libraries may call them."""

_HOSTED: Final = (
    "OrtApi",
    "OrtEpApi",
    "OrtModelEditorApi",
    "OrtCompileApi",
    "OrtInteropApi",
)


_TABLES: Final = {
    "GetEpApi": "OrtEpApi",
    "GetModelEditorApi": "OrtModelEditorApi",
    "GetCompileApi": "OrtCompileApi",
    "GetInteropApi": "OrtInteropApi",
}
"""The entries that give a table."""

_WITHOUT_RESULTS: Final = ("Logger_LogMessage", "AllocatorFree")
"""Entries that have succeeded where they did nothing."""


def implements(
    name: str, structure: str = "OrtApi"
) -> Callable[[_Function], _Function]:
    """Make a function the entry *name* of *structure*.

    What it raises becomes the status that the entry returns.  An entry that returns a
    status returns ``None`` otherwise; others return their result, and what is to be
    returned instead of an exception is 0, or an empty text.
    """

    def register(function: _Function) -> _Function:
        _FUNCTIONS[structure, name] = function
        return function

    return register


class HostTable:
    """One structure of function pointers.

    Attributes:
        address: where it is.
    """

    def __init__(self, structure: str) -> None:
        known = entries(structure)
        self._callbacks = [_callback(entry) for entry in known]
        for index in range(len(known), len(known) + _UNKNOWN):
            entry = Entry(structure, f"[{index}]", index, "!", "")
            self._callbacks.append(_missing(entry))
        self._pointers = (ctypes.c_void_p * len(self._callbacks))(
            *(ctypes.cast(each, ctypes.c_void_p).value for each in self._callbacks)
        )
        self.address: int = ctypes.addressof(self._pointers)
        unknown = [ending.STATUS] * _UNKNOWN
        ending.replace_at_the_end(self._pointers, [*map(_at_the_end, known), *unknown])

    def replace(self, index: int, function: int) -> None:
        """Let the entry at *index* be another function, by its address."""
        self._pointers[index] = function

    def function(self, index: int) -> int:
        """The address of the entry's function that is written in Python."""
        found = ctypes.cast(self._callbacks[index], ctypes.c_void_p).value
        assert found is not None
        return found


def _callback(entry: Entry) -> Any:
    function = _FUNCTIONS.get((entry.structure, entry.name))
    if function is None:
        return _missing(entry)
    name = str(entry)
    if entry.result == "!":

        def call(*arguments: Any) -> int | None:
            try:
                function(*arguments)
            # a library is no place for it
            except BaseException as error:  # noqa: BLE001
                return status_of(error, name)
            return None

        return entry.signature(call)

    instead = ending.EMPTY if entry.result == "t" else 0

    def call_plain(*arguments: Any) -> Any:
        try:
            return function(*arguments) or instead
        except Exception as error:  # noqa: BLE001
            status_of_nothing(error, name)
            return instead

    return entry.signature(call_plain)


def _at_the_end(entry: Entry) -> int:
    """What an entry returns at the end of the process."""
    if entry.name in _TABLES:
        return table(_TABLES[entry.name]).address
    if entry.name == "GetErrorMessage":
        return ending.MESSAGE
    if entry.result == "t":
        return ending.EMPTY
    if entry.name == "CreateStatus":
        return ending.STATUS
    if entry.name.startswith("Release") or entry.name in _WITHOUT_RESULTS:
        return 0
    return ending.STATUS if entry.result == "!" else 0


def status_of_nothing(error: Exception, name: str) -> None:
    """Log what an entry failed of that can return no status."""
    import logging

    logging.getLogger("onnxplug.plugin.onnxplug_native").warning(
        "%s failed: %s", name, error
    )


def _missing(entry: Entry) -> Any:
    """An entry that says that it is not there."""
    name = entry.name if entry.name.startswith("[") else f".{entry.name}"
    text = (
        f"{entry.structure}{name} (entry {entry.place}) is not implemented by "
        "onnxplug-native"
    )

    def refuse(*_: Any) -> Any:
        if entry.result == "!":
            return Status(Code.NOT_IMPLEMENTED, text).address
        import logging

        logging.getLogger("onnxplug.plugin.onnxplug_native").warning("%s", text)
        if entry.result == "t":
            return ending.EMPTY
        return None if entry.result in ".p" else 0

    return signature(entry.result, entry.arguments)(refuse)


@functools.cache
def table(structure: str) -> HostTable:
    """The table of *structure*, made of what implements its entries by then."""
    if structure not in _HOSTED:
        raise LookupError(f"{structure} is not hosted")
    return HostTable(structure)


@functools.cache
def api_base() -> int:
    """The address of ``OrtApiBase``, which a library's first call is given."""
    # made now, where what goes wrong can be raised, and not in a call from a library
    table("OrtApi")
    get_api = signature("p", "u")(_get_api)
    get_version = signature("p", "")(lambda: _VERSION_TEXT)
    pointers = (ctypes.c_void_p * 2)(
        ctypes.cast(get_api, ctypes.c_void_p).value,
        ctypes.cast(get_version, ctypes.c_void_p).value,
    )
    ending.lasting([get_api, get_version, pointers])
    late = [table("OrtApi").address, _VERSION_TEXT]
    ending.replace_at_the_end(pointers, late)
    return ctypes.addressof(pointers)


def _get_api(version: int) -> int | None:
    """The same table for every version up to ours; ``None`` for newer ones."""
    if not 1 <= version <= API_VERSION:
        _ASKED.append(version)
        return None
    return table("OrtApi").address


def asked_in_vain() -> int | None:
    """The version of the interface that was asked for and is not there, if one was
    since this was last called."""
    version = _ASKED[-1] if _ASKED else None
    _ASKED.clear()
    return version


_VERSION_TEXT: Final = ending.lasting_text(VERSION)
_ASKED: Final[list[int]] = []
