"""The host's format around what EPs serialise."""

from __future__ import annotations

import contextlib
import random
import struct
import threading
import zlib

import pytest

from onnxplug.authoring.checksum import Checksum
from onnxplug.compile.ep_context.container import MAGIC, Damaged, Entry, pack, unpack


def entry(name: str, data: bytes) -> Entry:
    view = memoryview(data)
    digits = Checksum(view).digits()
    return Entry(
        name, "AcmeEP", ("info",), {"level": 1}, [[["float32", [2, "n"]]], []],
        digits, view,
    )  # fmt: skip


def container(*entries: Entry) -> bytes:
    return b"".join(pack(entries))


TWO = container(entry("a", b"first" * 100), entry("b", b"second" * 1000))


def intact(content: bytes) -> bool:
    """Whether a container is whole, and all of its bytes."""
    found = unpack(memoryview(content))
    return all(Checksum(each.data).digits() == each.checksum for each in found.values())


@pytest.mark.parametrize("sizes", [(0,), (1,), (4096,), (5000, 0, 3), ()])
def test_what_is_packed_is_unpacked(sizes: tuple[int, ...]) -> None:
    contents = {str(n): random.Random(n).randbytes(n) for n in sizes}
    entries = [entry(name, data) for name, data in contents.items()]
    found = unpack(memoryview(container(*entries)))
    assert {name: bytes(each.data) for name, each in found.items()} == contents
    assert [each._replace(data=None) for each in found.values()] == [
        each._replace(data=None) for each in entries
    ]
    assert all(each.data.readonly for each in found.values())


def test_data_are_parts_of_the_container() -> None:
    found = unpack(memoryview(TWO))
    assert all(each.data.obj is TWO for each in found.values())


def test_entries_are_aligned_for_engines_that_map_them() -> None:
    assert TWO.index(b"first") % 4096 == 0
    assert TWO.index(b"second") % 4096 == 0


def test_no_bit_of_it_can_change_unnoticed() -> None:
    """Save those of the padding, which nobody reads."""
    length = struct.unpack_from("<8sII", TWO)[1]
    read = [*range(16 + length), *range(4096, 4596), *range(8192, len(TWO))]
    for place in read[::7] + read[:16]:
        damaged = bytearray(TWO)
        damaged[place] ^= 1 << place % 8
        with contextlib.suppress(Damaged):
            assert not intact(damaged), place


@pytest.mark.parametrize("length", [0, 7, 8, 15, 16, 20, 100, 4096, 4100, -1])
def test_it_cannot_be_cut_off_unnoticed(length: int) -> None:
    with pytest.raises(Damaged):
        unpack(memoryview(TWO[:length]))


def test_nothing_can_be_appended_unnoticed() -> None:
    with pytest.raises(Damaged, match="1 bytes follow its end"):
        unpack(memoryview(TWO + b"x"))


def with_header(header: bytes, rest: bytes = b"") -> bytes:
    start = struct.pack("<8sII", MAGIC, len(header), zlib.crc32(header)) + header
    return start + bytes(-len(start) % 4096) + rest


ENTRY = (
    b'{"name": "a", "ep": "E", "info": [], "options": {}, "signature": [[], []], '
    b'"checksum": "", "offset": %b, "nbytes": %b}'
)


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"nonsense",
        b"[]",
        b"null",
        b"{}",
        b'{"format": 1}',
        b'{"format": 2, "entries": []}',
        b'{"format": 1, "entries": 3}',
        b'{"format": 1, "entries": [3]}',
        b'{"format": 1, "entries": [{}]}',
        b"[" * 100_000,
        b'{"format": 1, "entries": [%b]}' % (ENTRY % (b"0", b"11")),
        b'{"format": 1, "entries": [%b]}' % (ENTRY % (b"-4096", b"10")),
        b'{"format": 1, "entries": [%b]}' % (ENTRY % (b"0", b"-1")),
        b'{"format": 1, "entries": [%b]}' % (ENTRY % (b"1", b"9")),
        b'{"format": 1, "entries": [%b]}' % (ENTRY % (b"true", b"10")),
        b'{"format": 1, "entries": [%b]}' % (ENTRY % (b"0", b"1e1")),
        b'{"format": 1, "entries": [%b]}' % (ENTRY % (b"0", b"9" * 30)),
        b'{"format": 1, "entries": [%b]}'
        % (ENTRY % (b"0", b"10")).replace(b"{}", b'[[1, 2], ["level", 1]]'),
        b'{"format": 1, "entries": [%b]}'
        % b", ".join([ENTRY % (b"0", b"0"), ENTRY % (b"0", b"10")]),
    ],
)
def test_headers_that_cannot_be_are_damage_though_their_checksum_is_right(
    header: bytes,
) -> None:
    with pytest.raises(Damaged):
        unpack(memoryview(with_header(header, b"0123456789")))


def test_a_header_cannot_be_longer_than_the_file() -> None:
    with pytest.raises(Damaged, match="header is said to have 4294967295 bytes"):
        unpack(memoryview(struct.pack("<8sII", MAGIC, 0xFFFFFFFF, 0)))


@pytest.mark.parametrize("left", [0, 1])
def test_a_checksum_needs_no_thread(monkeypatch: pytest.MonkeyPatch, left: int) -> None:
    """Where the system has no more, or not as many."""
    data = memoryview(random.Random(7).randbytes(17 << 20))
    digits = Checksum(data).digits()
    really, started = threading.Thread.start, []

    def start(thread: threading.Thread) -> None:
        if len(started) == left:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        really(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    assert Checksum(data).digits() == digits
    assert len(started) == left


@pytest.mark.parametrize("size", [0, 1, (1 << 20) - 1, 1 << 20, (17 << 20) + 5])
def test_a_checksum_is_that_of_the_content_alone(size: int) -> None:
    """However many threads compute it."""
    data = random.Random(size).randbytes(size)
    digits = Checksum(memoryview(data)).digits()
    assert len(digits) == 32
    assert Checksum(memoryview(bytearray(data))).digits() == digits
    assert Checksum(memoryview(data + b"\0")).digits() != digits
    for place in (0, size // 2, size - 1) if size else ():
        changed = bytearray(data)
        changed[place] ^= 0x10
        assert Checksum(memoryview(changed)).digits() != digits


@pytest.mark.parametrize("size", [0, 5, 3 << 20, 17 << 20])
def test_a_checksum_is_that_of_the_parts_together(size: int) -> None:
    content = random.Random(size).randbytes(size)
    whole = Checksum(memoryview(content)).digits()
    for place in (0, size // 3, size):
        parts = content[:place], content[place:]
        assert Checksum(*map(memoryview, parts)).digits() == whole
