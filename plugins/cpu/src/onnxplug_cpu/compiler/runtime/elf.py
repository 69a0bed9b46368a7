"""Makes an image of an ELF object: machine code that runs wherever it is put.

LLVM gives a relocatable object.  Its code and constants are laid out one after the
other, and the references between them, all relative, are filled in.  What is left needs
no linker and no symbol of the process.

Sources: System V ABI, edition 4.1, chapter 4 (sections, symbols); its AMD64 supplement,
section 4.4 (relocations); ELF for the Arm 64-bit architecture, section 5.7.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from onnxplug_cpu.compiler.runtime.image import Image

PAGE: Final = 4096
"""The distance that aarch64's ``adrp`` counts in, whatever pages the system has."""

_X86_64, _AARCH64 = 62, 183
_RELA, _SYMTAB, _NOBITS = 4, 2, 8
_WRITE, _ALLOC, _EXECUTE = 1, 2, 4


class ImageError(ValueError):
    """An object that is no position-independent image."""


class _Section(NamedTuple):
    name: str
    type: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int


class _Symbol(NamedTuple):
    name: str
    section: int
    value: int


class _Relocation(NamedTuple):
    section: int
    """The section that it changes."""
    offset: int
    type: int
    symbol: _Symbol
    addend: int


def flatten(data: bytes, name: str) -> Image:
    """The image of an object, to be entered at the function *name*.

    Args:
        data: a little-endian ELF64 object for x86-64 or aarch64.

    Raises:
        ImageError: it is none; or it refers to symbols outside itself, has memory
            that is written to, or needs to know its address.
    """
    machine, sections = _read_sections(data)
    _refuse_writable(sections)
    places, size, alignment = _lay_out(sections)
    code = bytearray(size)
    for index, place in places.items():
        section = sections[index]
        content = data[section.offset : section.offset + section.size]
        code[place : place + section.size] = content
    symbols = _read_symbols(data, sections)
    undefined = sorted({s.name for s in symbols if s.section == 0 and s.name})
    if undefined:
        raise ImageError(
            f"the code calls {', '.join(undefined)}, which it does not contain; "
            "kernels may use only what the processor has an instruction for"
        )
    for relocation in _read_relocations(data, sections, symbols, places):
        target = relocation.symbol
        if target.section not in places:
            raise ImageError(
                f"the code refers to {target.name or 'section'!r} in section "
                f"{target.section}, which is not loaded"
            )
        value = places[target.section] + target.value + relocation.addend
        place = places[relocation.section] + relocation.offset
        if machine == _AARCH64:
            paged = _relocate_aarch64(code, place, value, relocation.type)
            alignment = max(alignment, PAGE if paged else 1)
        else:
            _relocate_x86_64(code, place, value, relocation.type)
    for symbol in symbols:
        if symbol.name == name and symbol.section in places:
            entry = places[symbol.section] + symbol.value
            return Image(bytes(code), alignment, entry)
    raise ImageError(f"the object has no function {name!r}")


def _read_sections(data: bytes) -> tuple[int, list[_Section]]:
    if data[:7] != b"\x7fELF\x02\x01\x01" or len(data) < 64:
        raise ImageError("no little-endian ELF64 object")
    kind, machine = struct.unpack_from("<HH", data, 16)
    if kind != 1 or machine not in (_X86_64, _AARCH64):
        raise ImageError(
            f"ELF type {kind} for machine {machine}; expected a relocatable object "
            f"(1) for x86-64 ({_X86_64}) or aarch64 ({_AARCH64})"
        )
    (start,) = struct.unpack_from("<Q", data, 40)
    size, count, names = struct.unpack_from("<HHH", data, 58)
    raw = [
        struct.unpack_from("<IIQQQQIIQQ", data, start + index * size)
        for index in range(count)
    ]
    strings = raw[names][4]
    return machine, [
        _Section(_string(data, strings + r[0]), *r[1:3], *r[4:9]) for r in raw
    ]


def _string(data: bytes, start: int) -> str:
    return data[start : data.index(b"\0", start)].decode()


def _is_loaded(section: _Section) -> bool:
    # tables for unwinding serve exceptions, which nothing here raises
    return (
        bool(section.flags & _ALLOC)
        and section.size > 0
        and not section.name.startswith(".eh_frame")
    )


def _refuse_writable(sections: list[_Section]) -> None:
    for section in sections:
        if _is_loaded(section) and (section.flags & _WRITE or section.type == _NOBITS):
            raise ImageError(
                f"section {section.name} is memory to be written; kernels have "
                "constants only, and none that hold addresses"
            )


def _lay_out(sections: list[_Section]) -> tuple[dict[int, int], int, int]:
    """Where each loaded section begins, code first; the whole's size and alignment."""
    loaded = [(i, section) for i, section in enumerate(sections) if _is_loaded(section)]
    loaded.sort(key=lambda pair: not pair[1].flags & _EXECUTE)
    places: dict[int, int] = {}
    end, alignment = 0, 1
    for index, section in loaded:
        each = max(section.alignment, 1)
        places[index] = -(-end // each) * each
        end = places[index] + section.size
        alignment = max(alignment, each)
    return places, end, alignment


def _read_symbols(data: bytes, sections: list[_Section]) -> list[_Symbol]:
    for table in sections:
        if table.type == _SYMTAB:
            strings = sections[table.link].offset
            whole = data[table.offset : table.offset + table.size]
            return [
                _Symbol(_string(data, strings + name), section, value)
                for name, _, _, section, value, _ in struct.iter_unpack(
                    "<IBBHQQ", whole
                )
            ]
    return []


def _read_relocations(
    data: bytes,
    sections: list[_Section],
    symbols: list[_Symbol],
    places: dict[int, int],
) -> Iterator[_Relocation]:
    for table in sections:
        if table.type == _RELA and table.info in places:
            whole = data[table.offset : table.offset + table.size]
            for offset, info, addend in struct.iter_unpack("<QQq", whole):
                yield _Relocation(
                    table.info,
                    offset,
                    info & 0xFFFF_FFFF,
                    symbols[info >> 32],
                    addend,
                )


def _unsupported(kind: int, machine: str) -> ImageError:
    return ImageError(
        f"relocation {kind} of {machine} needs an absolute address or a table of "
        "addresses; refer to functions and constants of the module by internal names"
    )


def _store(code: bytearray, place: int, value: int, size: int) -> None:
    try:
        code[place : place + size] = value.to_bytes(size, "little", signed=True)
    except OverflowError:
        raise ImageError(f"a distance of {value} does not fit {size} bytes") from None


def _relocate_x86_64(code: bytearray, place: int, value: int, kind: int) -> None:
    if kind in (2, 4):  # PC32, PLT32
        _store(code, place, value - place, 4)
    elif kind == 24:  # PC64
        _store(code, place, value - place, 8)
    elif kind:
        raise _unsupported(kind, "x86-64")


_LOW_12_SHIFT: Final = {
    277: 0,  # ADD_ABS_LO12_NC
    278: 0,  # LDST8_ABS_LO12_NC
    284: 1,
    285: 2,
    286: 3,
    299: 4,  # LDST128_ABS_LO12_NC
}


def _relocate_aarch64(code: bytearray, place: int, value: int, kind: int) -> bool:
    """Fill in one reference; whether it holds only where the image is page-aligned."""
    if kind in (260, 261):  # PREL64, PREL32
        _store(code, place, value - place, 8 if kind == 260 else 4)
    elif kind in (282, 283):  # JUMP26, CALL26
        distance = _signed(_scaled(value - place, 2), 26)
        _insert(code, place, distance, 0x03FF_FFFF)
    elif kind == 274:  # ADR_PREL_LO21
        _insert(code, place, _adr(_signed(value - place, 21)), _ADR_MASK)
    elif kind == 275:  # ADR_PREL_PG_HI21
        pages = _signed(value // PAGE - place // PAGE, 21)
        _insert(code, place, _adr(pages), _ADR_MASK)
        return True
    elif kind in _LOW_12_SHIFT:
        low = _scaled(value % PAGE, _LOW_12_SHIFT[kind])
        _insert(code, place, low << 10, 0xFFF << 10)
        return True
    elif kind:
        raise _unsupported(kind, "aarch64")
    return False


def _scaled(value: int, shift: int) -> int:
    if value % (1 << shift):
        raise ImageError(f"address or distance {value} is no multiple of {1 << shift}")
    return value >> shift


def _signed(number: int, bits: int) -> int:
    """A signed number's *bits*."""
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise ImageError(f"a distance of {number} does not fit {bits} bits")
    return number & (1 << bits) - 1


def _adr(number: int) -> int:
    """The immediate of ``adr`` and ``adrp``: its two low bits stand apart."""
    return (number & 3) << 29 | (number >> 2) << 5


_ADR_MASK: Final = _adr(0x1F_FFFF)


def _insert(code: bytearray, place: int, field: int, mask: int) -> None:
    """Write the bits of *mask* into an instruction."""
    (instruction,) = struct.unpack_from("<I", code, place)
    struct.pack_into("<I", code, place, instruction & ~mask | field)
