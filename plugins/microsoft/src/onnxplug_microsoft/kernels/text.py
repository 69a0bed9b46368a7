"""Strings: cutting into tokens, and hashing, which takes numbers too."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from onnxplug_kernels.patterns import (
    Pattern,
    Runs,
    check_patterns,
    compile_re2,
    encoded,
    find_runs,
)
from onnxplug_microsoft.kernels import KERNELS

_START: Final = "\x02"
_END: Final = "\x03"


@KERNELS.operator(
    "Tokenizer",
    since=1,
    host_only=True,
    check=check_patterns("separators", "tokenexp", longest=True),
)
def tokenizer(
    xp: Any,
    x: Any,
    *,
    mark: int,
    mincharnum: int,
    pad_value: str,
    separators: Sequence[str] = (),
    tokenexp: str = "",
) -> Any:
    """The tokens of each text along a new last axis, filled up with *pad_value*.

    Tokens are what is between *separators*, or what *tokenexp* matches; both are
    regular expressions in RE2's syntax of which the longest match counts.
    """
    if x.ndim not in (1, 2):
        raise ValueError(f"Tokenizer takes shape [C] or [N, C], and not {x.shape}")
    if bool(separators) == bool(tokenexp) or mincharnum < 1:
        raise ValueError(
            f"Tokenizer has separators {separators!r}, tokenexp {tokenexp!r} and "
            f"mincharnum {mincharnum}; expected separators or tokenexp, and one "
            f"character at least"
        )
    if not x.size:
        # ONNX Runtime leaves out the axis of the texts then
        return xp.full((*x.shape[:-1], 0), "", dtype=object)
    runs = find_runs(tokenexp) if tokenexp else None
    if runs is not None:
        rows = _found(runs, x, mincharnum)
    elif tokenexp == "." or tuple(separators) == ("",):
        if mincharnum > 1:
            raise ValueError(f"Tokenizer: no character has {mincharnum} characters")
        rows = [list(text) for text in x.flat]
    elif tokenexp:
        pattern = compile_re2(tokenexp, longest=True)
        rows = [[*_matched(pattern, encoded(text), mincharnum)] for text in x.flat]
    else:
        patterns = [compile_re2(separator, longest=True) for separator in separators]
        rows = [_between(patterns, encoded(text), mincharnum) for text in x.flat]
    longest = max(map(len, rows))
    width = longest + 2 if mark and longest else longest
    if mark and longest:
        rows = [[_START, *row, _END] for row in rows]
    if len(rows) == 1:
        table = xp.array(rows[0], dtype=object)
    else:
        for row in rows:
            row.extend([pad_value] * (width - len(row)))
        tokens = itertools.chain.from_iterable(rows)
        table = xp.fromiter(tokens, dtype=object, count=x.size * width)
    return table.reshape(*x.shape, width)


def _found(runs: Runs, x: Any, fewest: int) -> list[list[str]]:
    """The runs in each text of *x*, of at least *fewest* characters."""
    texts = x.ravel().tolist()
    if not all(map(str.isascii, texts)):
        texts = [encoded(text).decode() for text in texts]
    rows = [*map(runs, texts)]
    if fewest > 1:
        rows = [[token for token in row if len(token) >= fewest] for row in rows]
    return rows


def _between(patterns: Sequence[Pattern], text: bytes, fewest: int) -> list[str]:
    """The parts of *text* of at least *fewest* characters between all separators."""
    parts = [text]
    for pattern in patterns:
        parts = [part for whole in parts for part in _split(pattern, whole)]
        parts = [part for part in parts if len(part.decode()) >= fewest]
    return [part.decode() for part in parts]


def _split(pattern: Pattern, text: bytes) -> Iterator[bytes]:
    start = 0
    while (found := pattern.search(text, start)) is not None:
        first, last = found.span()
        yield text[start:first]
        # an empty match takes the character after it
        start = last if last > first else _next_character(text, first)
        if start > len(text):
            return
    yield text[start:]


def _matched(pattern: Pattern, text: bytes, fewest: int) -> Iterator[str]:
    start = 0
    while start <= len(text) and (found := pattern.search(text, start)) is not None:
        first, last = found.span()
        token = text[first:last].decode()
        if len(token) >= fewest:
            yield token
            start = last
        else:
            start = _next_character(text, first)


def _next_character(text: bytes, place: int) -> int:
    """Where the character after the one at *place* begins."""
    place += 1
    while place < len(text) and text[place] & 0xC0 == 0x80:
        place += 1
    return place


@KERNELS.operator("MurmurHash3", since=1, host_only=True)
def murmur_hash_3(xp: Any, x: Any, *, positive: int = 1, seed: int = 0) -> Any:
    """MurmurHash3_x86_32 of the bytes of each element; of texts in UTF-8.

    Source: https://github.com/aappleby/smhasher, MurmurHash3.cpp, public domain.
    """
    if x.dtype == object:
        hashes = np.zeros(x.size, dtype=np.uint32)
        # bytes that are no UTF-8 are in texts of a model as lone surrogates
        encoded = [text.encode(errors="surrogateescape") for text in x.flat]
        order = sorted(range(x.size), key=lambda i: len(encoded[i]))
        for length, group in itertools.groupby(order, key=lambda i: len(encoded[i])):
            members = list(group)
            joined = b"".join(encoded[i] for i in members)
            keys = np.frombuffer(joined, dtype=np.uint8)
            hashes[members] = _hashes(keys.reshape(len(members), length), seed)
    else:
        size = x.dtype.itemsize
        keys = np.ascontiguousarray(x).reshape(-1).view(np.uint8)
        hashes = _hashes(keys.reshape(x.size, size), seed)
    return hashes.view(np.uint32 if positive else np.int32).reshape(x.shape)


def _hashes(keys: Any, seed: int) -> Any:
    """uint32 [N] of the rows of *keys* uint8 [N, length]."""
    length = keys.shape[1]
    whole = length // 4 * 4
    hashes = np.full(len(keys), seed & 0xFFFFFFFF, dtype=np.uint32)
    blocks = np.ascontiguousarray(keys[:, :whole]).view("<u4")
    for block in blocks.astype(np.uint32).T:
        hashes = _rotated(hashes ^ _mixed(block), 13)
        hashes = hashes * np.uint32(5) + np.uint32(0xE6546B64)
    if whole < length:
        rest = np.zeros(len(keys), dtype=np.uint32)
        for place, column in enumerate(keys[:, whole:].T):
            rest |= column.astype(np.uint32) << np.uint32(8 * place)
        hashes ^= _mixed(rest)
    hashes ^= np.uint32(length)
    hashes = (hashes ^ (hashes >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    hashes = (hashes ^ (hashes >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return hashes ^ (hashes >> np.uint32(16))


def _mixed(block: Any) -> Any:
    return _rotated(block * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)


def _rotated(x: Any, bits: int) -> Any:
    return (x << np.uint32(bits)) | (x >> np.uint32(32 - bits))
