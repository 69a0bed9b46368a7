"""Elements as ONNX's ``raw_data`` stores them, and as numpy arrays hold them.

Owns: the layout of elements smaller than a byte.  In a file they are packed from the
least significant bit; in an array each has a byte of its own, in its low bits.
"""

from __future__ import annotations

import math
import mmap
from typing import Any, Final

import numpy as np

from onnxplug.ep import DataType

_Array = np.ndarray[Any, Any]
_PIECE: Final = 1 << 24  # bytes


def from_raw(raw: memoryview, dtype: DataType, shape: tuple[int, ...]) -> _Array:
    """The array whose ``raw_data`` is *raw*: a view of it where possible.

    *raw* has the length that *dtype* and *shape* ask for.
    """
    if dtype.bits < 8:
        fields = _unpack(np.frombuffer(raw, np.uint8), dtype.bits, math.prod(shape))
        _release(raw)
        return _shaped(fields.view(dtype.numpy), shape)
    if dtype is DataType.BOOL:
        octets = np.frombuffer(raw, np.uint8)
        # any byte may be in the file, but a bool that is neither 0 nor 1 is not valid
        flags = octets != 0 if octets.max(initial=0) > 1 else octets.view(np.bool)
        return _shaped(flags, shape)
    array = _shaped(np.frombuffer(raw, dtype.numpy), shape)
    # Embedded weights start at any byte.  numpy copies an unaligned operand in every
    # operation and native engines may not take one at all, so it is copied once here.
    if array.flags.aligned:
        return array
    return _copy(raw, array)


def is_copied(raw: memoryview, dtype: DataType) -> bool:
    """Whether :func:`from_raw` is sure to make no view of *raw*."""
    if dtype.bits < 8:
        return True
    whole = raw[: raw.nbytes // dtype.numpy.itemsize * dtype.numpy.itemsize]
    return not np.frombuffer(whole, dtype.numpy).flags.aligned


def _copy(raw: memoryview, array: _Array) -> _Array:
    """A copy of *array*, which is *raw*; no more than a piece of both is in memory."""
    copy = np.empty(array.shape, array.dtype)
    octets, target = np.frombuffer(raw, np.uint8), copy.reshape(-1).view(np.uint8)
    for start in range(0, raw.nbytes, _PIECE):
        target[start : start + _PIECE] = octets[start : start + _PIECE]
        _release(raw[: start + _PIECE])
    return copy


def _release(raw: memoryview) -> None:
    """Let the system drop the pages of a mapped file that are wholly in *raw*.

    They are read from the file again when they are used again.
    """
    mapping = raw.obj
    if not isinstance(mapping, mmap.mmap) or not raw.readonly:
        return
    if not hasattr(mmap, "MADV_DONTNEED"):
        return
    base = np.frombuffer(mapping, np.uint8).ctypes.data
    start = np.frombuffer(raw, np.uint8).ctypes.data - base
    page = mmap.PAGESIZE
    first, end = -(-start // page) * page, (start + raw.nbytes) // page * page
    if end > first:
        mapping.madvise(mmap.MADV_DONTNEED, first, end - first)


def to_raw(array: _Array, dtype: DataType) -> _Array:
    """The bytes of ``raw_data`` for *array*: a view of it where possible.

    Returns:
        a C-contiguous array of uint8 with one dimension.
    """
    octets = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return octets if dtype.bits >= 8 else _pack(octets, dtype.bits)


def from_entries(entries: _Array, dtype: DataType, shape: tuple[int, ...]) -> _Array:
    """The array whose ``int32_data``, ``int64_data`` or ``uint64_data`` is *entries*.

    Elements below 32 bits are stored bit by bit in the low bits of an entry; those
    of 4 and 2 bits fill a byte of it.
    """
    if dtype.bits in (2, 4):
        octets = entries.astype(np.uint8)
        return from_raw(octets.data, dtype, shape)
    if dtype is DataType.BOOL:
        return _shaped(entries != 0, shape)
    bits = 8 if dtype.bits == 6 else dtype.bits
    words = entries.astype(f"u{bits // 8}")
    if dtype.bits == 6:
        words &= 0x3F
    return _shaped(words.view(dtype.numpy), shape)


def entry_count(dtype: DataType, size: int) -> int:
    """How many entries of ``int32_data`` and the like hold *size* elements."""
    return -(-size * dtype.bits // 8) if dtype.bits in (2, 4) else size


def _shaped(array: _Array, shape: tuple[int, ...]) -> _Array:
    return array.reshape(shape)


def _unpack(octets: _Array, bits: int, size: int) -> _Array:
    group, width = _group(bits)
    words = _words(octets, width)
    fields = np.empty((len(words), group), np.uint8)
    for index in range(group):
        fields[:, index] = words >> (bits * index) & ((1 << bits) - 1)
    return fields.reshape(-1)[:size]


def _pack(fields: _Array, bits: int) -> _Array:
    group, width = _group(bits)
    size = -(-fields.size * bits // 8)
    padded = np.zeros((-(-fields.size // group), group), np.uint8)
    padded.reshape(-1)[: fields.size] = fields & ((1 << bits) - 1)
    words = np.zeros(len(padded), np.uint32)
    for index in range(group):
        words |= padded[:, index].astype(np.uint32) << np.uint32(bits * index)
    octets = np.empty((len(words), width), np.uint8)
    for index in range(width):
        octets[:, index] = words >> np.uint32(8 * index) & np.uint32(0xFF)
    return octets.reshape(-1)[:size]


def _group(bits: int) -> tuple[int, int]:
    """The fewest elements that fill whole bytes, and how many bytes they fill."""
    width = math.lcm(bits, 8) // 8
    return width * 8 // bits, width


def _words(octets: _Array, width: int) -> _Array:
    """Each group of *width* bytes as one integer, the first byte lowest."""
    if width == 1:
        return octets
    padded = np.zeros((-(-octets.size // width), width), np.uint8)
    padded.reshape(-1)[: octets.size] = octets
    words = np.zeros(len(padded), np.uint32)
    for index in range(width):
        words |= padded[:, index].astype(np.uint32) << np.uint32(8 * index)
    return words
