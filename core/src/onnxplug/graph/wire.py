"""Protobuf's wire format: one message at a time, as tags and ranges of bytes.

Owns: the bounds.  Whatever the bytes, scanning a message ends in a list of fields that
lie within it, or in ``MalformedModel`` with the byte offset.  Nothing is copied.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np

from onnxplug.errors import MalformedModel

VARINT: Final = 0
FIXED64: Final = 1
BYTES: Final = 2
FIXED32: Final = 5

_MAX_DEPTH: Final = 100  # messages in messages; protobuf's own limit
_MAX_VARINT: Final = 10  # bytes
_MAX_TAG: Final = (1 << 32) - 1
_64_BITS: Final = (1 << 64) - 1
_MOST_RUNS: Final = 64
"""Runs of repeated fields that are read at once.  What takes turns is read one by one,
as it takes longer to look how far each run goes."""

_ALIKE: Final = 64
"""Fields of bytes that are read before others are expected to be like them."""

_AT_ONCE: Final = 1 << 12
"""Fields that a regular expression matches, which holds a place for each meanwhile."""

_CHUNK: Final = 1 << 20  # bytes of varints decoded at a time, which bounds memory


def tag(number: int, wire_type: int) -> int:
    """The tag of field *number*, as it is written before the field."""
    return number << 3 | wire_type


def signed(value: int) -> int:
    """The int32 or int64 that a varint holds: two's complement of 64 bits."""
    return value if value < 1 << 63 else value - (1 << 64)


class Message:
    """A serialized message: a range of a buffer.

    Attributes:
        data: the whole buffer, of which offsets are counted from the start.
        start: the first byte of the message.
        end: the byte after its last.
    """

    __slots__ = ("_depth", "data", "end", "start")

    def __init__(self, data: memoryview, start: int, end: int, depth: int = 1) -> None:
        self.data: Final = data
        self.start: Final = start
        self.end: Final = end
        self._depth: Final = depth

    @classmethod
    def whole(cls, data: memoryview) -> Message:
        """The message that fills *data*, a contiguous buffer of bytes."""
        return cls(data, 0, len(data))

    def child(self, start: int, end: int) -> Message:
        """The message in the range of one of this message's fields.

        Raises:
            MalformedModel: messages are nested too deeply.
        """
        if self._depth == _MAX_DEPTH:
            raise MalformedModel(
                f"byte {start}: messages are nested more than {_MAX_DEPTH} deep; "
                "protobuf allows no more"
            )
        return Message(self.data, start, end, self._depth + 1)

    def fields(self) -> list[tuple[int, int, int]]:
        """The fields in order of appearance.

        Each is (tag, start, end) of its bytes; for a varint (tag, value, offset), the
        value unsigned.  Since a tag holds the wire type, comparing tags also skips
        fields of an unexpected wire type, as protobuf does.

        Raises:
            MalformedModel: the bytes are not a message.
        """
        # The one hot loop of loading: bytes are read first and found to lie beyond
        # the end afterwards, and varints of one byte, nearly all of them, stay inline.
        data, end = self.data, self.end
        position = self.start
        found: list[tuple[int, int, int]] = []
        append = found.append
        try:
            while position < end:
                field = data[position]
                position += 1
                if field > 0x7F:
                    field, position = _varint(data, position - 1, end)
                wire_type = field & 7
                if wire_type == BYTES:
                    length = data[position]
                    position += 1
                    if length > 0x7F:
                        length, position = _varint(data, position - 1, end)
                    start = position
                    position += length
                elif wire_type == VARINT:
                    value = data[position]
                    start = position
                    position += 1
                    if value > 0x7F:
                        value, position = _varint(data, start, end)
                    if field < 8 or field > _MAX_TAG:
                        raise _bad_tag(field, start)
                    append((field, value, start))
                    continue
                else:
                    start = position
                    position += _fixed_width(wire_type, start)
                if position > end:
                    break
                if field < 8 or field > _MAX_TAG:
                    raise _bad_tag(field, start)
                append((field, start, position))
        except IndexError as error:
            raise _truncated(position, end) from error
        if position > end:
            raise _truncated(position, end)
        return found

    def split(
        self, varint: int, fixed32: int, octets: int
    ) -> tuple[
        list[tuple[int, int, int]],
        np.ndarray[Any, Any],
        np.ndarray[Any, Any],
        list[bytes],
    ]:
        """The fields, and apart from them the values of three that are repeated.

        Many, as of a tree ensemble, are read at once where they follow each other,
        which they do if fields are written in the order of their numbers, as protobuf
        does.

        Args:
            varint, fixed32, octets: tags of one byte, the last one after the others.
                Of these fields, those that do not follow each other may be among the
                fields all the same.

        Returns:
            The fields as :meth:`fields` has them, and the values as uint64, as float32,
            and as bytes.

        Raises:
            MalformedModel: the bytes are not a message.
        """
        others: list[tuple[int, int, int]] = []
        varints, floats = [np.empty(0, np.uint64)], [np.empty(0, np.float32)]
        position = self.start
        for _ in range(_MOST_RUNS):
            if position >= self.end or self.data[position] > max(varint, fixed32):
                break
            found, begin = self.data[position], position
            if found == varint:
                numbers, position = self._run_of_varints(position)
                varints.append(numbers)
            elif found == fixed32:
                numbers, position = self._run_of_floats(position)
                floats.append(numbers)
            else:
                position = self._end_of_field(position)
                others += Message(self.data, begin, position, self._depth).fields()
            if position == begin:
                break
        pieces, position = self._run_of_bytes(position, octets)
        others += Message(self.data, position, self.end, self._depth).fields()
        return others, np.concatenate(varints), np.concatenate(floats), pieces

    def _run_of_bytes(self, start: int, tag_: int) -> tuple[list[bytes], int]:
        """The contents of fields of a tag from *start* on, each of fewer than 128
        bytes, and where they end."""
        data = bytes(self.data[start : self.end])
        found, place, last = list[bytes](), 0, len(data) - 1
        seen: dict[bytes, bytes] = {}
        look = _ALIKE
        while place < last and data[place] == tag_:
            end = place + 2 + data[place + 1]
            if data[place + 1] > 0x7F or end > len(data):
                break
            found.append(data[place + 2 : end])
            seen[data[place:end]] = found[-1]
            place = end
            if len(found) >= look and len(seen) < _ALIKE:
                more, place = _alike(data, place, seen)
                found += more
                look = 2 * len(found)
        return found, start + place

    def _run_of_varints(self, start: int) -> tuple[np.ndarray[Any, Any], int]:
        """The varints of fields of one tag from *start* on, and where they end."""
        values = [np.empty(0, np.uint64)]
        position, tag_ = start, self.data[start]
        while position < self.end:
            end = min(position + _CHUNK, self.end)
            octets = np.frombuffer(self.data[position:end], np.uint8)
            last = np.flatnonzero(octets < 0x80)
            last = last[: last.size // 2 * 2]
            first = np.concatenate(([0], last[:-1] + 1))[: last.size]
            tags, numbers = first[0::2], first[1::2]
            other = (octets[tags] != tag_) | (last[0::2] != tags)
            count = int(other.argmax()) if other.any() else tags.size
            numbers, lengths = numbers[:count], (last - first + 1)[1::2][:count]
            if not count or int(lengths.max()) > _MAX_VARINT:
                break
            values.append(_decoded(octets, numbers, lengths))
            position += int(last[2 * count - 1]) + 1
            if count < tags.size:
                break
        return np.concatenate(values), position

    def _run_of_floats(self, start: int) -> tuple[np.ndarray[Any, Any], int]:
        """The floats of fields of one tag from *start* on, and where they end."""
        width = 1 + _fixed_width(FIXED32, start)
        most = (self.end - start) // width
        octets = np.frombuffer(self.data[start : start + most * width], np.uint8)
        rows = octets.reshape(most, width)
        other = rows[:, 0] != self.data[start]
        count = int(other.argmax()) if other.any() else most
        numbers = np.ascontiguousarray(rows[:count, 1:]).view("<f4").reshape(-1)
        return numbers.astype(np.float32), start + count * width

    def _end_of_field(self, position: int) -> int:
        """The byte after the field at *position*."""
        field, place = _varint(self.data, position, self.end)
        if field & 7 == VARINT:
            _, end = _varint(self.data, place, self.end)
        elif field & 7 == BYTES:
            length, place = _varint(self.data, place, self.end)
            end = place + length
        else:
            end = place + _fixed_width(field & 7, place)
        if end > self.end:
            raise _truncated(end, self.end)
        return end

    def text(self, start: int, end: int, errors: str = "strict") -> str:
        """The UTF-8 text in a range.

        Raises:
            MalformedModel: it is not UTF-8, and *errors* is ``strict``.
        """
        try:
            return str(self.data[start:end], "utf-8", errors)
        except UnicodeDecodeError as error:
            raise MalformedModel(
                f"byte {start + error.start}: a name is not UTF-8: "
                f"{bytes(self.data[start:end][:40])!r}"
            ) from error

    def varint_count(self, start: int, end: int) -> int:
        """How many packed varints are in a range, which are looked at, not decoded.

        Raises:
            MalformedModel: the range does not hold whole varints.
        """
        octets = _octets(self.data[start:end], start)
        return sum(len(first) for first, _ in _places(octets, start))

    def varints(self, start: int, end: int) -> np.ndarray[Any, Any]:
        """The packed varints in a range, as uint64.

        Raises:
            MalformedModel: the range does not hold whole varints.
        """
        return _packed_varints(self.data[start:end], start)


def _alike(
    data: bytes, start: int, fields: Mapping[bytes, bytes]
) -> tuple[Iterable[bytes], int]:
    """The contents of those *fields* that follow each other from *start* on, and where
    they end: as the modes of nodes, which are few.

    Args:
        fields: their contents by all of their bytes.  As these begin with the length,
            none is how another one begins.
    """
    one = b"|".join(map(re.escape, fields))
    # a possessive quantifier ends too early, or too late, in Python up to 3.11.4
    some = re.compile(b"(?:%s){1,%d}" % (one, _AT_ONCE))
    end = start
    while run := some.match(data, end):
        end = run.end()
    return map(fields.__getitem__, re.findall(one, data[start:end])), end


def _varint(data: memoryview, position: int, end: int) -> tuple[int, int]:
    """A varint of any length, and the offset after it."""
    value = shift = 0
    for index in range(position, min(position + _MAX_VARINT, end)):
        byte = data[index]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & _64_BITS, index + 1
        shift += 7
    if position + _MAX_VARINT > end:
        raise _truncated(position, end)
    raise MalformedModel(
        f"byte {position}: a varint of more than {_MAX_VARINT} bytes; "
        "the file is damaged or not an ONNX model"
    )


def _fixed_width(wire_type: int, position: int) -> int:
    if wire_type == FIXED32:
        return 4
    if wire_type == FIXED64:
        return 8
    kind = "a group, which ONNX does not use" if wire_type in (3, 4) else "not defined"
    raise MalformedModel(
        f"byte {position}: wire type {wire_type} is {kind}; "
        "the file is damaged or not an ONNX model"
    )


def _truncated(position: int, end: int) -> MalformedModel:
    return MalformedModel(
        f"byte {end}: the message ends here, within a field that reaches byte "
        f"{position}; the file is truncated, damaged or not an ONNX model"
    )


def _bad_tag(field: int, position: int) -> MalformedModel:
    return MalformedModel(
        f"byte {position}: {field >> 3} is not a field number; "
        "the file is damaged or not an ONNX model"
    )


def _octets(packed: memoryview, offset: int) -> np.ndarray[Any, Any]:
    octets = np.frombuffer(packed, np.uint8) if packed else np.empty(0, np.uint8)
    if octets.size and octets[-1] > 0x7F:
        end = offset + octets.size
        raise _truncated(end + 1, end)
    return octets


def _places(
    octets: np.ndarray[Any, Any], offset: int
) -> Iterator[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    """Where varints begin in *octets*, of which the last is one's end, and how many
    bytes each has; some at a time."""
    position = 0
    while position < octets.size:
        is_last = octets[position : position + _CHUNK] < 0x80
        last = np.flatnonzero(is_last) + position
        first = np.empty_like(last)
        first[:1] = position
        first[1:] = last[:-1] + 1
        lengths = last - first + 1
        if not last.size or int(lengths.max()) > _MAX_VARINT:
            raise MalformedModel(
                f"byte {offset + position} or after: a varint of more than "
                f"{_MAX_VARINT} bytes; the file is damaged"
            )
        yield first, lengths
        position = int(last[-1]) + 1


def _packed_varints(packed: memoryview, offset: int) -> np.ndarray[Any, Any]:
    octets = _octets(packed, offset)
    count = int(np.count_nonzero(octets < 0x80))
    if count == octets.size:
        return octets.astype(np.uint64)
    values = np.empty(count, np.uint64)
    done = 0
    for first, lengths in _places(octets, offset):
        values[done : done + first.size] = _decoded(octets, first, lengths)
        done += first.size
    return values


def _decoded(
    octets: np.ndarray[Any, Any],
    first: np.ndarray[Any, Any],
    lengths: np.ndarray[Any, Any],
) -> np.ndarray[Any, Any]:
    """The varints of so many bytes from *first* on."""
    values: np.ndarray[Any, Any] = (octets[first] & 0x7F).astype(np.uint64)
    for index in range(1, int(lengths.max())):
        longer = np.flatnonzero(lengths > index)
        septets = (octets[first[longer] + index] & 0x7F).astype(np.uint64)
        values[longer] |= septets << np.uint64(7 * index)
    return values
