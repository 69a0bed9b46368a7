"""The names that a native library exports, read from its file; it is never loaded.

Loading a library runs its code, so what it is must be known before.  Of each format
only the tables that lead to those names are read: ELF, PE and Mach-O.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeAlias

from onnxplug.authoring.files import opened

_Data: TypeAlias = bytes | mmap.mmap

_ELF: Final = b"\x7fELF"
_DOS: Final = b"MZ"
_FAT: Final = {b"\xca\xfe\xba\xbe": ">5I", b"\xca\xfe\xba\xbf": ">2I2Q2I"}
_MACH: Final = {
    b"\xcf\xfa\xed\xfe": ("<", 64),
    b"\xce\xfa\xed\xfe": ("<", 32),
    b"\xfe\xed\xfa\xcf": (">", 64),
    b"\xfe\xed\xfa\xce": (">", 32),
}


class NotALibrary(ValueError):
    """A file is no shared library, or is damaged."""


def exported_symbols(path: Path) -> frozenset[str]:
    """The names that the library at *path* exports, without Mach-O's underscore.

    Raises:
        NotALibrary: it is none that can be read.
    """
    with opened(path) as file:
        if not file.read(1):
            raise NotALibrary("it is an empty file")
        # some libraries are gigabytes, and what is read of them is little
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return symbols_in(data)


def symbols_in(data: _Data) -> frozenset[str]:
    """The names that the library with these bytes exports.

    Raises:
        NotALibrary: it is none that can be read.
    """
    magic = bytes(data[:4])
    reader: Callable[[_Data], Iterator[str]]
    if magic == _ELF:
        kind, reader = "ELF", _elf
    elif magic[:2] == _DOS:
        kind, reader = "PE", _pe
    elif magic in _MACH or magic in _FAT:
        kind, reader = "Mach-O", _mach
    else:
        raise NotALibrary(f"it begins with {magic!r}, as no shared library does")
    try:
        return frozenset(reader(data))
    except (struct.error, ValueError, IndexError, OverflowError) as error:
        raise NotALibrary(f"it is a damaged {kind} file: {error}") from error


def _text(data: _Data, offset: int) -> str:
    if not 0 < offset < len(data):
        raise ValueError(f"a name is said to be at {offset} of {len(data)} bytes")
    end = data.find(b"\0", offset)
    if end < 0:
        raise ValueError(f"the name at {offset} does not end")
    return bytes(data[offset:end]).decode("utf-8", "replace")


def _part(data: _Data, offset: int, size: int) -> bytes:
    if offset + size > len(data):
        raise ValueError(f"{size} bytes at {offset} are past its end")
    return bytes(data[offset : offset + size])


# ELF: the section of dynamic symbols, and the section of strings that it links to


_DYNSYM: Final = 11
_LOCAL: Final = 0


def _elf(data: _Data) -> Iterator[str]:
    wide, order = data[4] == 2, "<" if data[5] == 1 else ">"
    if wide:
        (table,) = struct.unpack_from(f"{order}Q", data, 0x28)
        size, count = struct.unpack_from(f"{order}2H", data, 0x3A)
        section, symbol = f"{order}2I4Q2I2Q", f"{order}I2BH2Q"
    else:
        (table,) = struct.unpack_from(f"{order}I", data, 0x20)
        size, count = struct.unpack_from(f"{order}2H", data, 0x2E)
        section, symbol = f"{order}10I", f"{order}3I2BH"
    sections = [
        struct.unpack_from(section, data, table + i * size) for i in range(count)
    ]
    for _, kind, _, _, offset, length, link, *_ in sections:
        if kind != _DYNSYM:
            continue
        names = sections[link][4]
        entry = struct.calcsize(symbol)
        for fields in struct.iter_unpack(
            symbol, _part(data, offset, length - length % entry)
        ):
            if wide:
                name, info, _, home, _, _ = fields
            else:
                name, _, _, info, _, home = fields
            # the upper half of info is the binding; no home: it is imported
            if name and home and info >> 4 != _LOCAL:
                yield _text(data, names + name)


# PE: the first data directory is the export table


def _pe(data: _Data) -> Iterator[str]:
    (start,) = struct.unpack_from("<I", data, 0x3C)
    if _part(data, start, 4) != b"PE\0\0":
        raise ValueError("it is a program for DOS")
    (count,) = struct.unpack_from("<H", data, start + 6)
    (optional_size,) = struct.unpack_from("<H", data, start + 20)
    optional = start + 24
    (magic,) = struct.unpack_from("<H", data, optional)
    directories = optional + (112 if magic == 0x20B else 96)
    (exports,) = struct.unpack_from("<I", data, directories)
    sections = [
        struct.unpack_from("<4I", data, optional + optional_size + i * 40 + 8)
        for i in range(count)
    ]

    def at(address: int) -> int:
        """Where in the file *address* is once it is loaded."""
        for virtual_size, virtual, raw_size, raw in sections:
            if virtual <= address < virtual + max(virtual_size, raw_size):
                return int(address - virtual + raw)
        raise ValueError(f"address {address:#x} is in no section")

    if not exports:
        return
    (number,) = struct.unpack_from("<I", data, at(exports) + 24)
    (names,) = struct.unpack_from("<I", data, at(exports) + 32)
    if not number:
        return
    for (name,) in struct.iter_unpack("<I", _part(data, at(names), 4 * number)):
        yield _text(data, at(name))


# Mach-O: the symbol table that a load command points to; universal files hold several


_SYMTAB: Final = 2
_STAB, _TYPE, _EXTERNAL = 0xE0, 0x0E, 0x01


def _mach(data: _Data) -> Iterator[str]:
    layout = _FAT.get(bytes(data[:4]))
    if layout is None:
        yield from _mach_part(data, 0)
        return
    (count,) = struct.unpack_from(">I", data, 4)
    for i in range(count):
        part = struct.unpack_from(layout, data, 8 + i * struct.calcsize(layout))
        yield from _mach_part(data, part[2])


def _mach_part(data: _Data, start: int) -> Iterator[str]:
    magic = bytes(data[start : start + 4])
    if magic not in _MACH:
        raise ValueError(f"a part of it begins with {magic!r}")
    order, bits = _MACH[magic]
    symbol = f"{order}I2BHQ" if bits == 64 else f"{order}I2BHI"
    (commands,) = struct.unpack_from(f"{order}I", data, start + 16)
    offset = start + (32 if bits == 64 else 28)
    for _ in range(commands):
        command, size = struct.unpack_from(f"{order}2I", data, offset)
        if command == _SYMTAB:
            table, count, names, _ = struct.unpack_from(f"{order}4I", data, offset + 8)
            part = _part(data, start + table, count * struct.calcsize(symbol))
            for name, kind, *_ in struct.iter_unpack(symbol, part):
                # external, defined somewhere, and not for the debugger
                if name and kind & _EXTERNAL and kind & _TYPE and not kind & _STAB:
                    yield _text(data, start + names + name).removeprefix("_")
        if size < 8:
            raise ValueError(f"a load command of {size} bytes")
        offset += size
