"""The scanner against hand-made bytes, and against every way of damaging them."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onnxplug.errors import InvalidModel
from onnxplug.graph.wire import (
    BYTES,
    FIXED32,
    FIXED64,
    VARINT,
    Message,
    signed,
    tag,
)


def varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def scan(data: bytes) -> list[tuple[int, int, int]]:
    return Message.whole(memoryview(data)).fields()


def test_an_empty_message_has_no_fields() -> None:
    assert scan(b"") == []


def test_fields_come_in_order_with_their_values_and_ranges() -> None:
    data = b"\x08\x96\x01" + b"\x12\x02hi" + b"\x1d\0\0\x80?" + b"\x21" + bytes(8)
    assert scan(data) == [
        (tag(1, VARINT), 150, 1),
        (tag(2, BYTES), 5, 7),
        (tag(3, FIXED32), 8, 12),
        (tag(4, FIXED64), 13, 21),
    ]


def test_a_range_within_a_buffer_is_scanned_with_offsets_of_the_buffer() -> None:
    data = b"junk\x08\x01junk"
    assert Message(memoryview(data), 4, 6).fields() == [(tag(1, VARINT), 1, 5)]


def test_field_numbers_above_15_have_longer_tags() -> None:
    data = varint(tag(536870911, VARINT)) + b"\x07"
    assert scan(data) == [(tag(536870911, VARINT), 7, 5)]


@settings(deadline=None)  # others may keep the processor busy
@given(st.integers(0, 2**64 - 1))
def test_varints_of_every_length_are_read(value: int) -> None:
    assert scan(b"\x08" + varint(value))[0][1] == value


@settings(deadline=None)  # others may keep the processor busy
@given(st.integers(-(2**63), 2**63 - 1))
def test_negative_numbers_are_two_s_complement(value: int) -> None:
    assert signed(value % 2**64) == value


def test_a_varint_of_ten_bytes_keeps_64_bits() -> None:
    assert scan(b"\x08" + b"\xff" * 9 + b"\x7f")[0][1] == 2**64 - 1


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"\x08", "byte 1: the message ends here"),
        (b"\x08\x96", "byte 2: the message ends here"),
        (b"\x88", "byte 1: the message ends here"),
        (b"\x12", "byte 1: the message ends here"),
        (b"\x12\x05hi", "byte 4: the message ends here.* reaches byte 7"),
        (b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "byte 11: the message ends"),
        (b"\x0d\0\0\0", "byte 4: the message ends here.* reaches byte 5"),
        (b"\x09\0\0\0\0\0\0\0", "byte 8: the message ends here"),
        (b"\x08" + b"\xff" * 10 + b"\x01", "byte 1: a varint of more than 10 bytes"),
        (b"\xff" * 11, "byte 0: a varint of more than 10 bytes"),
        (b"\x0b\x0c", "byte 1: wire type 3 is a group"),
        (b"\x0c", "byte 1: wire type 4 is a group"),
        (b"\x0e", "byte 1: wire type 6 is not defined"),
        (b"\x0f", "byte 1: wire type 7 is not defined"),
        (b"\x00\x01", "byte 1: 0 is not a field number"),
        (b"\x02\x00", "byte 2: 0 is not a field number"),
        (varint(1 << 35) + b"\x01", "is not a field number"),
    ],
)
def test_damage_is_named_with_its_offset(data: bytes, expected: str) -> None:
    with pytest.raises(InvalidModel, match=expected):
        scan(data)


@pytest.mark.parametrize("data", [b"\x08\x01", b"\x12\x02hi", b"\x0d\0\0\0\0"])
def test_a_field_may_not_reach_beyond_its_message_into_the_buffer(data: bytes) -> None:
    for end in range(1, len(data)):
        with pytest.raises(InvalidModel, match=f"byte {end}: the message ends here"):
            Message(memoryview(data + bytes(20)), 0, end).fields()


@settings(deadline=None)  # others may keep the processor busy
@given(st.binary(max_size=64))
def test_any_bytes_are_fields_within_bounds_or_invalid(data: bytes) -> None:
    try:
        fields = scan(data)
    except InvalidModel:
        return
    for field, start, end in fields:
        if field & 7 != VARINT:
            assert 0 <= start <= end <= len(data)


def test_nesting_is_limited() -> None:
    message = Message.whole(memoryview(b""))
    with pytest.raises(InvalidModel, match="nested more than 100 deep"):
        for _ in range(1000):
            message = message.child(0, 0)


def test_text_is_utf8_or_named_with_its_offset() -> None:
    message = Message.whole(memoryview("ü→".encode() + b"a\xff"))
    assert message.text(0, 5) == "ü→"
    with pytest.raises(InvalidModel, match="byte 6: a name is not UTF-8"):
        message.text(5, 7)
    assert message.text(5, 7, errors="replace") == "a\N{REPLACEMENT CHARACTER}"


# packed varints


def unpack(data: bytes) -> np.ndarray:
    return Message.whole(memoryview(data)).varints(0, len(data))


@settings(deadline=None)  # others may keep the processor busy
@given(st.lists(st.integers(0, 2**64 - 1)))
def test_packed_varints_are_read(values: list[int]) -> None:
    array = unpack(b"".join(map(varint, values)))
    assert array.dtype == np.uint64
    assert array.tolist() == values


def test_packed_varints_of_one_byte_take_the_short_way() -> None:
    assert unpack(bytes(range(128))).tolist() == list(range(128))


def test_many_packed_varints_are_read_in_chunks() -> None:
    values = np.random.default_rng(0).integers(0, 1 << 40, 400_000).tolist()
    data = b"".join(map(varint, values))
    assert len(data) > 2 << 20
    assert unpack(data).tolist() == values


@pytest.mark.parametrize(
    "data", [b"\x80", b"\x01\xff", b"\xff" * 10 + b"\x01", b"\xff" * (3 << 20) + b"\0"]
)
def test_damaged_packed_varints_are_invalid(data: bytes) -> None:
    with pytest.raises(InvalidModel, match="byte"):
        unpack(data)


INTS, FLOATS, TEXTS = tag(8, VARINT), tag(7, FIXED32), tag(9, BYTES)


def split(
    data: bytes,
) -> tuple[list[tuple[int, int, int]], list[int], list[float], list[bytes]]:
    message = Message.whole(memoryview(data))
    others, ints, floats, texts = message.split(INTS, FLOATS, TEXTS)
    return others, ints.tolist(), floats.tolist(), texts


def integers(values: list[int]) -> bytes:
    return b"".join(bytes([INTS]) + varint(value) for value in values)


@settings(deadline=None)  # others may keep the processor busy
@given(
    st.lists(st.integers(0, 2**64 - 1), max_size=40),
    st.lists(st.floats(width=32, allow_nan=False), max_size=40),
    st.lists(st.binary(max_size=127), max_size=9),
)
def test_repeated_values_are_read_apart(
    ints: list[int], floats: list[float], texts: list[bytes]
) -> None:
    name = b"\x0a\x04name"
    written = b"".join(
        bytes([FLOATS]) + np.float32(value).tobytes() for value in floats
    )
    written += integers(ints)
    written += b"".join(bytes([TEXTS, len(text)]) + text for text in texts)
    data = name + written + b"\xa0\x01\x07"
    others, found, numbers, pieces = split(data)
    assert found == ints
    assert numbers == floats
    assert pieces == texts
    assert others == [(tag(1, BYTES), 2, 6), (tag(20, VARINT), 7, len(data) - 1)]


def test_runs_longer_than_a_chunk_are_read_whole() -> None:
    values = [value % 300 for value in range(700_000)]
    assert split(integers(values)) == ([], values, [], [])


@example([b"\x00\x01\x00"], [0, 64])
@settings(deadline=None)  # others may keep the processor busy
@given(
    st.lists(st.binary(max_size=5), min_size=1, max_size=9),
    st.lists(st.integers(0, 2**16), max_size=9),
)
def test_many_bytes_that_are_mostly_alike_are_read_apart(
    kinds: list[bytes], others: list[int]
) -> None:
    texts = [kinds[number % len(kinds)] for number in range(300)]
    for number in others:  # some of them behind what is looked at first
        texts.insert(number % 300, number.to_bytes(3, "big"))
    data = b"".join(bytes([TEXTS, len(text)]) + text for text in texts)
    assert split(data) == ([], [], [], texts)
    end = data + b"\x4a\x05x"  # which is cut off
    with pytest.raises(InvalidModel):
        split(end)


def test_long_bytes_are_among_the_fields() -> None:
    long = bytes([TEXTS, 0x80, 0x01]) + b"y" * 128
    data = b"\x4a\x01x" + long + b"\x4a\x01z"
    fields = [(TEXTS, 6, 134), (TEXTS, 136, 137)]
    assert split(data) == (fields, [], [], [b"x"])


def test_fields_that_take_turns_are_read_in_time() -> None:
    turns = 50_000
    data = (integers([1]) + bytes([FLOATS]) + bytes(4)) * turns
    started = time.process_time()
    others, ints, floats, _ = split(data)
    assert time.process_time() - started < 10
    assert len(others) + len(ints) + len(floats) == 2 * turns


def test_what_comes_later_is_among_the_fields() -> None:
    data = integers([1]) + b"\x4a\x01x" + integers([2])
    assert split(data) == ([(INTS, 2, 6)], [1], [], [b"x"])


@settings(deadline=None)  # others may keep the processor busy
@given(st.binary(max_size=60))
def test_whatever_the_bytes_both_ways_of_reading_agree(data: bytes) -> None:
    data = bytes([INTS]) + data
    try:
        fields = scan(data)
    except InvalidModel:
        with pytest.raises(InvalidModel):
            split(data)
        return
    others, ints, floats, texts = split(data)
    every = [value for field, value, _ in fields if field == INTS]
    assert ints + [value for field, value, _ in others if field == INTS] == every
    found = [data[start:end] for field, start, end in others if field == TEXTS]
    contents = [data[start:end] for field, start, end in fields if field == TEXTS]
    assert texts + found == contents
    assert len(floats) + len(others) + len(ints) + len(texts) == len(fields)
