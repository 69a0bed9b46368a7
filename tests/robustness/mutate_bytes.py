"""Damage to the bytes of a model."""

from __future__ import annotations

import random
import struct

INTERESTING = (0, 1, 0x7F, 0x80, 0xFF)
VARINTS = (0, 1, 127, 128, 2**31 - 1, 2**31, 2**32, 2**62, 2**63 - 1, 2**63, 2**64 - 1)


def mutated_bytes(content: bytes, choose: random.Random) -> tuple[bytes, str]:
    """The bytes with one to three changes, and which."""
    data = bytearray(content)
    told: list[str] = []
    for _ in range(choose.choice((1, 1, 1, 2, 3))):
        if not data:
            break
        told.append(choose.choice(_MUTATIONS)(data, choose))
    return bytes(data), "; ".join(told)


def varint(number: int) -> bytes:
    """A number as protobuf writes it."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _flip(data: bytearray, choose: random.Random) -> str:
    place = choose.randrange(len(data))
    bit = choose.randrange(8)
    data[place] ^= 1 << bit
    return f"bit {bit} of byte {place} flipped"


def _set(data: bytearray, choose: random.Random) -> str:
    place = choose.randrange(len(data))
    data[place] = choose.choice((*INTERESTING, choose.randrange(256)))
    return f"byte {place} set to {data[place]}"


def _cut(data: bytearray, choose: random.Random) -> str:
    length = choose.randrange(len(data))
    del data[length:]
    return f"cut to {length} bytes"


def _drop(data: bytearray, choose: random.Random) -> str:
    place = choose.randrange(len(data))
    count = choose.choice((1, 2, 4, 16))
    del data[place : place + count]
    return f"{count} bytes at {place} dropped"


def _insert(data: bytearray, choose: random.Random) -> str:
    place = choose.randrange(len(data))
    more = choose.choice(
        (
            bytes([choose.randrange(256)]),
            varint(choose.choice(VARINTS)),
            struct.pack("<f", choose.choice((float("nan"), 1e38))),
            bytes(choose.randrange(1, 40)),
        )
    )
    data[place:place] = more
    return f"{more.hex()} inserted at {place}"


def _repeat(data: bytearray, choose: random.Random) -> str:
    start = choose.randrange(len(data))
    stop = min(len(data), start + choose.choice((2, 8, 64)))
    place = choose.randrange(len(data))
    data[place:place] = data[start:stop]
    return f"bytes {start} to {stop} repeated at {place}"


def _resize(data: bytearray, choose: random.Random) -> str:
    """Change a length or another number: what follows a key of protobuf."""
    places = [n for n in range(len(data) - 1) if data[n] & 7 in (0, 2)]
    if not places:
        return _flip(data, choose)
    place = choose.choice(places) + 1
    stop = place
    while stop < len(data) - 1 and data[stop] & 0x80:
        stop += 1
    number = choose.choice((*VARINTS, data[place] + choose.choice((-1, 1, 5))))
    data[place : stop + 1] = varint(max(number, 0))
    return f"number at {place} set to {number}"


_MUTATIONS = (_flip, _flip, _set, _cut, _drop, _insert, _repeat, _resize, _resize)
