"""Libraries beside a library, which it needs and the system does not find.

Wheels are zip files, which hold no links: one has ``libtensorrt_rtx.so.1.7.1``, and
what needs that asks for ``libtensorrt_rtx.so.1``, or for ``libtensorrt_rtx.so`` while
it runs, without saying where.  The system takes what is loaded already for what is
asked for by the name that the library gives itself, so these are loaded first; and for
a name that it does not give itself, a library is made that has that name, and nothing
but the need of the other.  Nothing is written beside the libraries.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import platform
import struct
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from onnxplug.authoring.files import opened
from onnxplug.authoring.record import Record

_MACHINES: Final = {"x86_64": 62, "aarch64": 183}
_LOAD, _DYNAMIC, _STACK = 1, 2, 0x6474E551
_END, _NEEDED, _HASH, _STRINGS, _SYMBOLS = 0, 1, 4, 5, 6
_STRINGS_SIZE, _SYMBOL_SIZE, _NAME = 10, 11, 14
_PAGE: Final = 0x1000


class Linked(Record):
    """What a library says of itself and others.

    Attributes:
        name: what others ask for it by; empty if it does not say.
        needed: the names of what it needs.
    """

    name: str
    needed: tuple[str, ...]


def linked(path: Path) -> Linked | None:
    """What the library at *path* says; ``None`` if it is none for 64-bit Linux."""
    with opened(path) as file:
        if os.fstat(file.fileno()).st_size < 64:
            return None
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            try:
                return _linked(data)
            except (struct.error, ValueError):
                return None


def _linked(data: Any) -> Linked | None:
    if data[:6] != b"\x7fELF\x02\x01":
        return None
    (table,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    # type and flags, then where it is in the file and in memory, and its size there
    parts = [
        struct.unpack_from("<IIQQQQ", data, table + place * size)
        for place in range(count)
    ]
    entries: list[tuple[int, int]] = []
    for kind, _, offset, _, _, length in parts:
        if kind == _DYNAMIC:
            entries = list(struct.iter_unpack("<qQ", data[offset : offset + length]))
    facts = dict(entries)
    if _STRINGS not in facts:
        return None
    strings = next(
        facts[_STRINGS] - address + offset
        for kind, _, offset, address, _, length in parts
        if kind == _LOAD and address <= facts[_STRINGS] < address + length
    )

    def text(place: int) -> str:
        end = data.find(b"\0", strings + place)
        return bytes(data[strings + place : end]).decode("utf-8", "replace")

    return Linked(
        text(facts[_NAME]) if _NAME in facts else "",
        tuple(text(value) for tag, value in entries if tag == _NEEDED),
    )


def load_neighbours(path: Path) -> Iterator[Any]:
    """Load what the library at *path* needs of those beside it, as far as the system
    does not find it; each is loaded for ever, as others may use it."""
    if sys.platform != "linux" or platform.machine() not in _MACHINES:
        return
    beside: dict[str, tuple[Path, Linked]] = {}
    for each in sorted(path.parent.iterdir()):
        if ".so" in each.name and each.is_file() and each != path:
            found = linked(each)
            if found is not None:
                beside[found.name or each.name] = (each, found)
    own = linked(path)
    wanted, loaded = list(own.needed if own else ()), set[str]()
    while wanted:
        name = wanted.pop(0)
        if name not in beside or name in loaded:
            continue
        file, found = beside[name]
        first = [each for each in found.needed if each in beside and each not in loaded]
        if first:
            beside[name] = (file, Linked(found.name, ()))
            wanted[:0] = [*first, name]
            continue
        loaded.add(name)
        with contextlib.suppress(OSError):  # whoever needs it says so
            yield ctypes.CDLL(str(file))
    yield from _aliases(sorted(loaded), [path, *(file for file, _ in beside.values())])


def _aliases(names: list[str], files: list[Path]) -> Iterator[Any]:
    """Let what is loaded under *names* be found without their versions, where a library
    of *files* asks for it so."""
    for name in names:
        short = name.partition(".so")[0] + ".so"
        if short == name or not any(_mentions(file, short) for file in files):
            continue
        with contextlib.suppress(OSError):
            yield ctypes.CDLL(short)
            continue
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / short
            file.write_bytes(alias(short, name))
            with contextlib.suppress(OSError):
                yield ctypes.CDLL(str(file))


def _mentions(file: Path, text: str) -> bool:
    with opened(file) as source:
        if not os.fstat(source.fileno()).st_size:
            return False
        with mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return data.find(b"\0" + text.encode() + b"\0") >= 0


def alias(name: str, target: str) -> bytes:
    """A library called *name* that has nothing, and needs that called *target*.

    By ELF's rules, what is looked up in it is found in what it needs.
    """
    strings = b"\0" + name.encode() + b"\0" + target.encode() + b"\0"
    head, parts = 64, 3 * 56
    symbols = head + parts  # one of nothing
    hashes = symbols + 24
    texts = hashes + 16
    dynamic = -(-(texts + len(strings)) // 8) * 8
    entries = (
        (_NEEDED, 2 + len(name.encode())),
        (_NAME, 1),
        (_HASH, hashes),
        (_STRINGS, texts),
        (_SYMBOLS, symbols),
        (_STRINGS_SIZE, len(strings)),
        (_SYMBOL_SIZE, 24),
        (_END, 0),
    )
    size = dynamic + 16 * len(entries)
    read_write = 6
    # a shared object of version 1, whose parts follow the head
    made = struct.pack(
        "<16sHHIQQQIHHHHHH",
        b"\x7fELF\x02\x01\x01",
        *(3, _MACHINES[platform.machine()], 1, 0, head, 0, 0, head, 56, 3, 0, 0, 0),
    )
    for kind, offset, length, unit in (
        (_LOAD, 0, size, _PAGE),
        (_DYNAMIC, dynamic, 16 * len(entries), 8),
        (_STACK, 0, 0, 16),
    ):
        made += struct.pack(
            "<IIQQQQQQ",
            *(kind, read_write, offset, offset, offset, length, length, unit),
        )
    made += bytes(24) + struct.pack("<IIII", 1, 1, 0, 0) + strings
    made = made.ljust(dynamic, b"\0")
    return made + b"".join(struct.pack("<QQ", *entry) for entry in entries)
