"""The exported names of libraries made by hand, byte by byte, in three formats."""

from __future__ import annotations

import contextlib
import struct
import sys
import sysconfig
from pathlib import Path

import pytest

from onnxplug.plugins.native import NotALibrary, exported_symbols, symbols_in


def strings(names: list[str]) -> tuple[bytes, list[int]]:
    """A table of strings that begins with an empty one, and where each name is."""
    table, places = b"\0", []
    for name in names:
        places.append(len(table))
        table += name.encode() + b"\0"
    return table, places


def elf(bits: int, order: str) -> bytes:
    """Exports good and weak; local is not exported, and absent is imported."""
    table, places = strings(["good", "weak", "local", "absent"])
    kinds = [(0x12, 5), (0x22, 5), (0x02, 5), (0x12, 0)]  # binding and type, section
    symbols = bytes(24 if bits == 64 else 16)
    for name, (info, home) in zip(places, kinds, strict=True):
        if bits == 64:
            symbols += struct.pack(f"{order}I2BH2Q", name, info, 0, home, 8, 0)
        else:
            symbols += struct.pack(f"{order}3I2BH", name, 8, 0, info, 0, home)
    header_size = 64 if bits == 64 else 52
    at_symbols = header_size + len(table)
    at_sections = at_symbols + len(symbols)
    section = f"{order}2I4Q2I2Q" if bits == 64 else f"{order}10I"
    sections = bytes(struct.calcsize(section))
    sections += struct.pack(section, 0, 3, 0, 0, header_size, len(table), 0, 0, 0, 0)
    sections += struct.pack(section, 0, 11, 0, 0, at_symbols, len(symbols), 1, 0, 0, 0)
    identity = b"\x7fELF" + bytes([bits // 32, 1 if order == "<" else 2, 1])
    address = "Q" if bits == 64 else "I"
    header = identity.ljust(16, b"\0") + struct.pack(
        f"{order}2HI3{address}I6H",
        *(3, 0, 1, 0, 0, at_sections, 0, 0, 0, 0, struct.calcsize(section), 3, 0),
    )
    assert len(header) == header_size
    return header + table + symbols + sections


def pe(magic: int, *, exports: bool = True) -> bytes:
    """A DLL with one section, loaded at 0x1000, that is its export table."""
    names = ["good", "better"]
    at, raw = 0x1000, 0x200
    table = at + 40
    texts, places = strings(names)
    at_texts = table + 4 * len(names)
    directory = struct.pack("<2I2H7I", 0, 0, 0, 0, 0, 1, 2, len(names), 0, table, 0)
    assert len(directory) == 40
    pointers = b"".join(struct.pack("<I", at_texts + place) for place in places)
    content = directory + pointers + texts
    optional = struct.pack("<H", magic).ljust(112 if magic == 0x20B else 96, b"\0")
    optional += struct.pack("<2I", at if exports else 0, len(content))
    section = b".edata\0\0" + struct.pack("<4I", len(content), at, len(content), raw)
    header = b"MZ".ljust(0x3C, b"\0") + struct.pack("<I", 0x40)
    header += b"PE\0\0" + struct.pack("<2H3I2H", 0x8664, 1, 0, 0, 0, len(optional), 0)
    header += optional + section.ljust(40, b"\0")
    return header.ljust(raw, b"\0") + content


def mach(bits: int, order: str) -> bytes:
    """Exports good; hidden is not external, absent is undefined, debug a stab."""
    table, places = strings(["_good", "_hidden", "_absent", "_debug"])
    kinds = [0x0F, 0x0E, 0x01, 0x2F]
    symbol = f"{order}I2BH{'Q' if bits == 64 else 'I'}"
    symbols = b"".join(
        struct.pack(symbol, place, kind, 1, 0, 0)
        for place, kind in zip(places, kinds, strict=True)
    )
    size = 32 if bits == 64 else 28
    other = struct.pack(f"{order}2I", 0x1B, 16).ljust(16, b"\0")
    at_symbols = size + len(other) + 24
    at_table = at_symbols + len(symbols)
    command = struct.pack(
        f"{order}6I", 2, 24, at_symbols, len(kinds), at_table, len(table)
    )
    magic = 0xFEEDFACF if bits == 64 else 0xFEEDFACE
    header = struct.pack(f"{order}7I", magic, 7, 3, 6, 2, len(other + command), 0)
    return header.ljust(size, b"\0") + other + command + symbols + table


def universal(*parts: bytes, wide: bool = False) -> bytes:
    layout = ">2I2Q2I" if wide else ">5I"
    start = 8 + len(parts) * struct.calcsize(layout)
    table, content = b"", b""
    for part in parts:
        fields = (7, 3, start + len(content), len(part), 0)
        table += struct.pack(layout, *fields, *([0] if wide else []))
        content += part
    magic = 0xCAFEBABF if wide else 0xCAFEBABE
    return struct.pack(">2I", magic, len(parts)) + table + content


LIBRARIES = {
    "elf64": (elf(64, "<"), {"good", "weak"}),
    "elf64 big": (elf(64, ">"), {"good", "weak"}),
    "elf32": (elf(32, "<"), {"good", "weak"}),
    "elf32 big": (elf(32, ">"), {"good", "weak"}),
    "pe32+": (pe(0x20B), {"good", "better"}),
    "pe32": (pe(0x10B), {"good", "better"}),
    "pe without exports": (pe(0x20B, exports=False), set()),
    "mach64": (mach(64, "<"), {"good"}),
    "mach64 big": (mach(64, ">"), {"good"}),
    "mach32": (mach(32, "<"), {"good"}),
    "universal": (universal(mach(64, "<"), mach(32, ">")), {"good"}),
    "universal, wide": (universal(mach(64, "<"), wide=True), {"good"}),
}


@pytest.mark.parametrize("name", LIBRARIES)
def test_the_exported_names_are_found(name: str, tmp_path: Path) -> None:
    data, expected = LIBRARIES[name]
    assert symbols_in(data) == expected
    path = tmp_path / "library"
    path.write_bytes(data)
    assert exported_symbols(path) == expected


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_damaged_library_is_an_error_and_nothing_worse(name: str) -> None:
    data, _ = LIBRARIES[name]
    failures = 0
    for length in range(4, len(data)):
        try:
            symbols_in(data[:length])
        except NotALibrary as error:
            assert str(error)
            failures += 1
    assert failures > len(data) // 3
    for position in range(4, len(data)):
        for value in (0, 0xFF):
            with contextlib.suppress(NotALibrary):
                symbols_in(data[:position] + bytes([value]) + data[position + 1 :])


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"#!/bin/sh", "begins with b'#!/b'"),
        (b"MZ".ljust(0x80, b"\0"), "a program for DOS"),
        (universal(b"ELF"), "a part of it begins with b'ELF'"),
    ],
)
def test_what_is_no_library_is_told(data: bytes, told: str) -> None:
    with pytest.raises(NotALibrary, match=told):
        symbols_in(data)


def test_an_empty_file_is_no_library(tmp_path: Path) -> None:
    path = tmp_path / "empty.so"
    path.touch()
    with pytest.raises(NotALibrary, match="an empty file"):
        exported_symbols(path)


@pytest.mark.skipif(sys.platform != "linux", reason="looks at Linux's own modules")
def test_the_extension_modules_of_python_are_told() -> None:
    folder = Path(sysconfig.get_paths()["stdlib"]) / "lib-dynload"
    modules = sorted(folder.glob("*.so"))
    if not modules:
        pytest.skip("this Python has its extension modules built in")
    for path in modules:
        assert f"PyInit_{path.name.partition('.')[0]}" in exported_symbols(path)
