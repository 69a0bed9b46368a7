"""The structures of the interface, read from the text files beside this module.

A line is an entry: what it returns, its name, and the kinds of its arguments; its place
in the file is its place in the structure.  Kinds are

====  =====================  ====  =====================
p     a pointer              s     a text
i     a 32-bit int or enum   u     an unsigned one
l     a 64-bit int           q     an unsigned one
n     a size_t               b     a bool
f     a path of the system   !     a status, ``NULL`` if all is well
.     nothing                t     a text that is returned, never ``NULL``
====  =====================  ====  =====================

A line ``@24`` says that what follows came with version 24.  Entries of which only the
name stands there are known, and not implemented.
"""

from __future__ import annotations

import ctypes
import functools
import os
from importlib.resources import files
from typing import Any, Final

from onnxplug.authoring.record import Record

API_VERSION: Final = 32
"""The newest version of the interface whose libraries are hosted."""

VERSION: Final = f"1.{API_VERSION}.0"
"""The version of ONNX Runtime that libraries are told: some refuse older ones by it."""

_PATH: Final[Any] = ctypes.c_wchar_p if os.name == "nt" else ctypes.c_char_p

_KINDS: Final[dict[str, Any]] = {
    "!": ctypes.c_void_p,
    ".": None,
    "p": ctypes.c_void_p,
    "s": ctypes.c_char_p,
    "t": ctypes.c_void_p,
    "i": ctypes.c_int32,
    "u": ctypes.c_uint32,
    "l": ctypes.c_int64,
    "q": ctypes.c_uint64,
    "n": ctypes.c_size_t,
    "b": ctypes.c_bool,
    "f": _PATH,
}


class Entry(Record):
    """An entry of a structure.

    Attributes:
        structure: its name.
        name: the entry's own.
        place: its place among the entries.
        result: the kind of what it returns.
        arguments: the kinds of its arguments.
        since: the version that it came with; 0 where that does not matter.
    """

    structure: str
    name: str
    place: int
    result: str
    arguments: str
    since: int = 0

    @property
    def signature(self) -> Any:
        """The type of the function, for ``ctypes``."""
        return signature(self.result, self.arguments)

    def __str__(self) -> str:
        return f"{self.structure}.{self.name}"


@functools.cache
def signature(result: str, arguments: str) -> Any:
    """The type of functions that take *arguments* and return *result*."""
    return ctypes.CFUNCTYPE(_KINDS[result], *(_KINDS[kind] for kind in arguments))


@functools.cache
def entries(structure: str) -> tuple[Entry, ...]:
    """The entries of *structure*, in order."""
    text = files(__package__).joinpath(f"{structure}.txt").read_text("utf-8")
    found: list[Entry] = []
    since = 0
    for line in text.splitlines():
        if line.startswith("@"):
            since = int(line[1:])
            continue
        result, name, *kinds = line.split()
        place = len(found)
        found.append(Entry(structure, name, place, result, "".join(kinds), since))
    return tuple(found)
