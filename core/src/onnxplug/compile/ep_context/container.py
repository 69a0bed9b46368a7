"""The host's format around what EPs serialise: entries behind a header that is checked.

A container begins with eight bytes that no text has, the length of the header and its
CRC-32; then comes the header as JSON, then the entries' bytes, each from a multiple of
4096 on, the last of which ends it.  So a container that was cut off, or that something
was appended to, is seen to be damaged without reading it.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from onnxplug.authoring.record import Record
from onnxplug.ep import OptionValue

MAGIC: Final = b"\x8bONNXEPC"
"""What containers begin with; the first byte begins no character of UTF-8."""

_FORMAT: Final = 1
_FIXED: Final = struct.Struct("<8sII")
_ALIGNMENT: Final = 4096
_LARGEST_HEADER: Final = 16 << 20

Signature = list[Any]
"""Types of inputs and outputs; see :mod:`onnxplug.compile.ep_context.signature`."""


class Damaged(ValueError):
    """A container is not as it was written; the text continues "it is damaged: "."""


class Entry(Record):
    """One compiled partition.

    Attributes:
        name: what nodes call it, their ``partition_name``.
        ep: the EP's name.
        info: for each device of the EP, what it says of its compatibility.
        options: the EP's options that were compiled in.
        signature: of the partition.
        checksum: of *data*.
        data: the EP's bytes, read-only.
    """

    name: str
    ep: str
    info: tuple[str, ...]
    options: Mapping[str, OptionValue]
    signature: Signature
    checksum: str
    data: memoryview


def pack(entries: Sequence[Entry]) -> Iterator[memoryview | bytes]:
    """A container of *entries*, in parts, none of which is a copy of their data."""
    described: list[dict[str, Any]] = []
    place = 0  # behind the header, whose length depends on this
    for entry in entries:
        place = _aligned(place)
        described.append(
            {
                "name": entry.name,
                "ep": entry.ep,
                "info": list(entry.info),
                "options": dict(entry.options),
                "signature": entry.signature,
                "checksum": entry.checksum,
                "offset": place,
                "nbytes": len(entry.data),
            }
        )
        place += len(entry.data)
    header = json.dumps({"format": _FORMAT, "entries": described}).encode()
    written = _FIXED.size + len(header)
    yield _FIXED.pack(MAGIC, len(header), zlib.crc32(header)) + header
    start = _aligned(written)
    for entry, description in zip(entries, described, strict=True):
        offset: int = start + description["offset"]
        yield bytes(offset - written)
        yield entry.data
        written = offset + len(entry.data)


def unpack(container: memoryview) -> dict[str, Entry]:
    """The entries of a container by name; their data is a part of it, and not read.

    Raises:
        Damaged: it is none, or not whole.
    """
    if len(container) < _FIXED.size or bytes(container[: len(MAGIC)]) != MAGIC:
        raise Damaged("it does not begin as what onnxplug writes")
    _, length, crc = _FIXED.unpack_from(container)
    if length > min(_LARGEST_HEADER, len(container) - _FIXED.size):
        raise Damaged(
            f"its header is said to have {length} bytes, and all of it has "
            f"{len(container)}"
        )
    end = _FIXED.size + length
    header = bytes(container[_FIXED.size : end])
    if zlib.crc32(header) != crc:
        raise Damaged("the checksum of its header is wrong")
    try:
        return _entries(json.loads(header), container, _aligned(end))
    # whoever made the header can have made its checksum
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        if isinstance(error, Damaged):
            raise
        raise Damaged(
            f"its header is not as expected: {type(error).__name__}"
        ) from error


def _entries(header: Any, container: memoryview, start: int) -> dict[str, Entry]:
    if header["format"] != _FORMAT:
        raise Damaged(
            f"it is of format {header['format']!r:.40}, and this onnxplug reads "
            f"{_FORMAT}; compile the model anew, or use the onnxplug that wrote it"
        )
    entries: dict[str, Entry] = {}
    end = start
    for item in header["entries"]:
        offset, nbytes = item["offset"], item["nbytes"]
        if not (_is_size(offset) and _is_size(nbytes)):
            raise Damaged("its header has sizes that are none")
        begin = start + offset
        if begin != _aligned(end) or begin + nbytes > len(container):
            raise Damaged(
                f"{item['name']!r:.200} is at bytes {begin} to {begin + nbytes} of "
                f"{len(container)}"
            )
        end = begin + nbytes
        data = container[begin:end].toreadonly()
        entry = Entry(
            _text(item["name"]),
            _text(item["ep"]),
            tuple(map(_text, item["info"])),
            {_text(name): value for name, value in dict(item["options"]).items()},
            list(item["signature"]),
            _text(item["checksum"]),
            data,
        )
        if entry.name in entries:
            raise Damaged("two of its entries have one name")
        entries[entry.name] = entry
    if end != len(container) and entries:
        raise Damaged(f"{len(container) - end} bytes follow its end")
    return entries


def _is_size(number: object) -> bool:
    return type(number) is int and 0 <= number < 1 << 62


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _aligned(place: int) -> int:
    return -(-place // _ALIGNMENT) * _ALIGNMENT
