"""Calibration tables: the ranges of tensors, for codes of 8 bits, by their names.

TensorRT has them until 10.  A table is a file of either of two formats:

- TensorRT's own: a line such as ``TRT-101303-EntropyCalibration2``, and for each tensor
  its name, ``": "`` and the bits of the scale of its codes, a float32, as up to 8
  hexadecimal digits; the range is 127 times the scale.
- ONNX Runtime's ``calibration.flatbuffers``, which ``write_calibration_table`` of
  ``onnxruntime.quantization`` writes: a table of FlatBuffers with one vector, of tables
  of two texts, a name and the range as a decimal number.

Whoever wrote a table may be wrong, so that nothing in it is believed.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from onnxplug import ep
from onnxplug.authoring.record import Record

NAME: Final = "trt_int8_calibration_table_name"
"""The option that names the file."""

NATIVE: Final = "trt_int8_use_native_calibration_table"
"""The option that says which format it is of."""

_LARGEST: Final = 16 << 20
"""Bytes of a table at most; that of 100 000 tensors has some 10 MiB."""

_LONGEST: Final = 64
"""Bytes of a number at most."""

_CODES: Final = 127
"""The largest code."""

_LINE: Final = re.compile(r"(.+): ?([0-9a-fA-F]{1,8})\s*")

Ranges = Mapping[str, float]
"""Largest absolute values, by the names of tensors."""


class Table(Record):
    """A table that options name.

    Attributes:
        path: relative to the working folder.
        is_native: it is of TensorRT's format.
    """

    path: str
    is_native: bool

    def read(self) -> Ranges:
        """What it says.

        Raises:
            OptionError: there is no such file, or it is none of that format; names the
                line, or the entry.
        """
        content = self._content()
        try:
            entries = (
                _native(content) if self.is_native else _FlatBuffer(content).entries()
            )
            ranges = dict(entries)
        except ValueError as error:
            raise self._refusal(f"{error}; {self._remedy}") from error
        if not ranges:
            raise self._refusal(f"it has no entries; {self._remedy}")
        return ranges

    def _content(self) -> bytes:
        path = Path(self.path)
        try:
            # what is none, as a pipe or a device, may have no end
            is_file = path.is_file()
            content = b""
            if is_file:
                with path.open("rb") as file:
                    content = file.read(_LARGEST + 1)
        except (OSError, ValueError) as error:
            raise self._refusal(f"it cannot be read: {error}") from error
        if not is_file:
            raise self._refusal(
                f"there is no such file; it is looked for from {str(Path.cwd())!r} on, "
                "whatever 'trt_engine_cache_path' is: set its path"
            )
        if len(content) > _LARGEST:
            raise self._refusal(
                f"it has more than {_LARGEST} bytes, as no calibration table has"
            )
        return content

    def _refusal(self, why: str) -> ep.OptionError:
        return ep.OptionError(f"option {NAME!r} is {self.path!r}: {why}")

    @property
    def _remedy(self) -> str:
        if self.is_native:
            return (
                "expected a table that TensorRT wrote; for one of ONNX Runtime's turn "
                f"{NATIVE!r} off"
            )
        return (
            "expected calibration.flatbuffers, as write_calibration_table of "
            "onnxruntime.quantization writes it; for a table that TensorRT wrote set "
            f"{NATIVE!r}"
        )


def _native(content: bytes) -> Iterator[tuple[str, float]]:
    """Names and ranges.

    Raises:
        ValueError: it is no such text; names the line.
    """
    head, *lines = content.split(b"\n")
    if not head.startswith(b"TRT-"):
        raise ValueError(f"line 1 is {_shown(head)}, and not TRT-, a version and so on")
    for number, line in enumerate(lines, 2):
        if not line.strip():
            continue
        found = _LINE.fullmatch(line.decode(errors="replace"))
        if found is None or "\ufffd" in found[1]:
            raise ValueError(
                f"line {number} is {_shown(line)}, and not a name, ': ' and up to 8 "
                "hexadecimal digits"
            )
        (scale,) = struct.unpack(">f", bytes.fromhex(found[2].zfill(8)))
        yield found[1], _checked(scale * _CODES, f"line {number}")


class _FlatBuffer:
    """ONNX Runtime's table, read as FlatBuffers describes its binary format.

    Offsets are from where they stand.  A table begins with how far before it that is
    described, in 16 bits each: bytes of the description, bytes of the table, and where
    in the table its fields are; 0, or beyond the description: it has none.

    Args:
        content: the file's.
    """

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._left = len(content)

    def entries(self) -> Iterator[tuple[str, float]]:
        """Names and ranges.

        Raises:
            ValueError: it is no such table; names the entry, from 0 on.
        """
        what = "its begin"
        try:
            vector = self._field(self._target(0), 0)
            for index in range(0 if vector is None else self._number("I", vector)):
                what = f"entry {index}"
                assert vector is not None
                entry = self._target(vector + 4 + 4 * index)
                name = self._text(self._field(entry, 0))
                yield name, _number(self._text(self._field(entry, 1)), what)
        except (IndexError, UnicodeDecodeError) as error:
            raise ValueError(f"{what} is damaged: {error}") from error

    def _number(self, kind: str, place: int) -> int:
        size = struct.calcsize(kind)
        if not 0 <= place <= len(self._content) - size:
            raise IndexError(f"{place} is not within its {len(self._content)} bytes")
        (found,) = struct.unpack_from(f"<{kind}", self._content, place)
        return int(found)

    def _target(self, place: int) -> int:
        return place + self._number("I", place)

    def _field(self, table: int, index: int) -> int | None:
        """Where what a field leads to is; ``None``: the table has none."""
        described = table - self._number("i", table)
        place = 4 + 2 * index
        if place + 2 > self._number("H", described):
            return None
        offset = self._number("H", described + place)
        return self._target(table + offset) if offset else None

    def _text(self, place: int | None) -> str:
        if place is None:
            raise IndexError("a text is missing")
        length = self._number("I", place)
        # each lies in bytes of its own, which bounds what all of them take
        self._left -= length
        if self._left < 0:
            raise IndexError("it has texts of more bytes than there are")
        begin = place + 4
        if length > len(self._content) - begin:
            raise IndexError(f"a text of {length} bytes is cut off")
        return self._content[begin : begin + length].decode()


def _number(text: str, where: str) -> float:
    if len(text) > _LONGEST:
        raise ValueError(f"{where} has no number, but {text[:_LONGEST]!r} and so on")
    try:
        found = float(text)
    except ValueError:
        raise ValueError(f"{where} has {text!r} where a number belongs") from None
    return _checked(found, where)


def _checked(found: float, where: str) -> float:
    """A range in float32.

    Raises:
        ValueError: it is none.
    """
    try:
        (rounded,) = struct.unpack("<f", struct.pack("<f", found))
    except OverflowError:
        rounded = math.inf
    if not (math.isfinite(rounded) and rounded >= 0):
        raise ValueError(
            f"{where} has the range {found}, and expected is a finite one from 0 on, "
            "of values around 0: calibrate with symmetric ranges"
        )
    return float(rounded)


def _shown(line: bytes) -> str:
    return repr(line[:80].decode(errors="replace"))
