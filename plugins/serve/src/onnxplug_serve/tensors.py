"""Tensors as they travel: numbers in JSON or in messages, and raw bytes.

Raw bytes are little-endian and in C order; of ``BYTES`` each element is four bytes of
its length, and then these (the protocol's `binary tensor data extension
<https://kserve.github.io/website/docs/concepts/architecture/data-plane/v2-protocol/binary-tensor-data-extension>`_).
"""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from onnxplug_serve.datatypes import BYTES, DATATYPES, numpy_dtype
from onnxplug_serve.errors import BadRequest, TooLarge
from onnxplug_serve.settings import Limits

_TEXT: Final = 64
"""Bytes that a text takes besides its characters."""

_LENGTH: Final = struct.Struct("<I")

_IS_LITTLE: Final = sys.byteorder == "little"

MOST_ELEMENTS: Final = 1 << 40
"""More than fit in any request: shapes are checked before they are multiplied."""


def check_head(
    tensor: Mapping[str, Any], limits: Limits
) -> tuple[str, str, Sequence[int]]:
    """The name, the datatype and the shape that a request says of a *tensor*, checked
    before its data is looked at.

    Raises:
        BadRequest: it is nothing that a tensor has.
        TooLarge: its rank is beyond the limit.
    """
    name, datatype, shape = (tensor.get(key) for key in ("name", "datatype", "shape"))
    if not isinstance(name, str) or not name:
        raise BadRequest(f"an input's name is {_shown(name)}; expected a text")
    if datatype not in DATATYPES:
        raise BadRequest(
            f"input {name!r} is of datatype {_shown(datatype)}; expected one of "
            + ", ".join(DATATYPES)
        )
    if not isinstance(shape, Sequence) or isinstance(shape, str | bytes):
        raise BadRequest(f"the shape of input {name!r} is {_shown(shape)}")
    if len(shape) > limits.rank:
        raise TooLarge(
            f"input {name!r} has {len(shape)} dimensions, of {limits.rank} at most"
        )
    for size in shape:
        if type(size) is not int or not 0 <= size <= MOST_ELEMENTS:
            raise BadRequest(
                f"the shape of input {name!r} has {_shown(size)}; expected sizes from "
                f"0 to {MOST_ELEMENTS}"
            )
    return name, str(datatype), shape


def _shown(value: object) -> str:
    """*value* in an error: not all of it, whatever its length."""
    if isinstance(value, str):
        return repr(value[:40])
    if isinstance(value, int | float | None):
        return repr(value) if not isinstance(value, int) or abs(value) < 10**40 else "…"
    return f"a {type(value).__name__}"


def memory_of(array: Any) -> int:
    """The bytes that *array* takes, or about as many, where it is of texts."""
    return int(array.nbytes) + (_TEXT * array.size if array.dtype.kind == "O" else 0)


def from_raw(
    name: str, datatype: str, shape: Sequence[int], raw: Any, limits: Limits
) -> Any:
    """The array of a tensor of raw bytes, which it shares.

    Args:
        raw: a buffer of bytes.

    Raises:
        BadRequest: there are more or fewer bytes than its shape says.
        TooLarge: it is of more texts than memory may be taken for.
    """
    count = math.prod(shape)
    if datatype == BYTES:
        if _TEXT * count > limits.request_bytes:
            raise TooLarge(
                f"input {name!r} has {count} texts, of {limits.request_bytes // _TEXT} "
                "at most"
            )
        return _array_of_texts(name, shape, _split(name, raw))
    dtype = numpy_dtype(datatype)
    if len(raw) != count * dtype.itemsize:
        raise BadRequest(
            f"input {name!r} has {len(raw)} bytes; expected {count * dtype.itemsize} "
            f"for {datatype} of shape {list(shape)}"
        )
    array = np.frombuffer(raw, dtype.newbyteorder("<") if not _IS_LITTLE else dtype)
    # other bytes than 0 and 1 would be neither to what computes with them
    if datatype == "BOOL" and array.size and array.view(np.uint8).max() > 1:
        raise BadRequest(f"input {name!r} is BOOL, and has bytes other than 0 and 1")
    return array.reshape(shape)


def _split(name: str, raw: Any) -> Iterable[bytes]:
    view = memoryview(raw)
    at = 0
    while at < len(view):
        if len(view) - at < _LENGTH.size:
            raise BadRequest(f"input {name!r} ends within the length of an element")
        (length,) = _LENGTH.unpack_from(view, at)
        at += _LENGTH.size
        if length > len(view) - at:
            raise BadRequest(f"input {name!r} ends within an element of {length} bytes")
        yield bytes(view[at : at + length])
        at += length


def _array_of_texts(name: str, shape: Sequence[int], items: Iterable[Any]) -> Any:
    texts = []
    for item in items:
        if isinstance(item, bytes):
            try:
                item = item.decode()
            except UnicodeDecodeError as error:
                raise BadRequest(f"input {name!r} is no UTF-8: {error}") from error
        if not isinstance(item, str):
            raise BadRequest(f"input {name!r} has {_shown(item)}; expected texts")
        if not item.isascii() and any("\ud800" <= each <= "\udfff" for each in item):
            raise BadRequest(f"input {name!r} has half of a character of UTF-16")
        texts.append(item)
    _check_count(name, texts, shape)
    array = np.empty(len(texts), object)
    array[:] = texts
    return array.reshape(shape)


def _check_count(name: str, items: Sequence[Any], shape: Sequence[int]) -> None:
    count = math.prod(shape)
    if len(items) != count:
        raise BadRequest(
            f"input {name!r} has {len(items)} elements; expected {count} for the shape "
            f"{list(shape)}"
        )


def from_numbers(
    name: str, datatype: str, shape: Sequence[int], numbers: Sequence[Any]
) -> Any:
    """The array of a tensor whose elements are *numbers*, or lists of these in C order.

    Raises:
        BadRequest: there are more or fewer than its shape says, or one is not of its
            type.
    """
    flat = _flat(name, numbers)
    if datatype == BYTES:
        return _array_of_texts(name, shape, flat)
    _check_count(name, flat, shape)
    dtype = numpy_dtype(datatype)
    kind = _kind(datatype)
    if not kind.issuperset(map(type, flat)):
        wrong = next(each for each in flat if type(each) not in kind)
        raise BadRequest(f"input {name!r} is {datatype}, and has {_shown(wrong)}")
    try:
        with np.errstate(over="ignore"):
            array = np.array(flat, dtype).reshape(shape)
    except (OverflowError, ValueError, TypeError) as error:
        raise BadRequest(f"input {name!r} has no {datatype}: {error}") from error
    if float in kind and np.isinf(array).any():
        _check_infinite(name, datatype, array, flat)
    return array


def _check_infinite(
    name: str, datatype: str, array: Any, numbers: Sequence[Any]
) -> None:
    for made, given in zip(array.reshape(-1), numbers, strict=True):
        if np.isinf(made) and not math.isinf(given):
            raise BadRequest(f"input {name!r} has {_shown(given)}, too large a number")


def from_scalars(
    name: str, datatype: str, shape: Sequence[int], scalars: Sequence[Any]
) -> Any:
    """The array of a tensor whose elements are *scalars* of a message of gRPC, which
    are of their field's type.

    Raises:
        BadRequest: there are more or fewer than its shape says, or one does not fit.
    """
    if datatype == BYTES:
        return _array_of_texts(name, shape, scalars)
    _check_count(name, scalars, shape)
    dtype = numpy_dtype(datatype)
    try:
        # numpy would let integers that do not fit wrap around
        wide = dtype if dtype.kind not in "iu" or dtype.itemsize == 8 else np.int64
        array = np.fromiter(scalars, wide, len(scalars))
    except (OverflowError, ValueError) as error:
        raise BadRequest(f"input {name!r} has no {datatype}: {error}") from error
    if array.dtype != dtype:
        limits = np.iinfo(dtype)
        if array.size and not limits.min <= array.min() <= array.max() <= limits.max:
            raise BadRequest(f"input {name!r} has no {datatype}: one does not fit")
        array = array.astype(dtype)
    return array.reshape(shape)


def _kind(datatype: str) -> frozenset[type]:
    if datatype == "BOOL":
        return frozenset({bool})
    if "INT" in datatype:
        return frozenset({int})
    return frozenset({int, float})


def _flat(name: str, data: Any) -> list[Any]:
    """The elements of *data*, which may be nested deeper than calls can be."""
    if not isinstance(data, list | tuple):
        raise BadRequest(
            f"the data of input {name!r} is {_shown(data)}; expected a list"
        )
    while list in (kinds := set(map(type, data))):
        if len(kinds) > 1:
            raise BadRequest(f"the data of input {name!r} is nested unevenly")
        data = [each for part in data for each in part]
    flat: list[Any] = data
    return flat


def to_raw(array: Any) -> bytes | memoryview:
    """The raw bytes of *array*, which they share where that is possible."""
    if array.dtype.kind in "OUST":
        parts = []
        for item in array.reshape(-1):
            text = item if isinstance(item, bytes) else str(item).encode()
            parts += [_LENGTH.pack(len(text)), text]
        return b"".join(parts)
    little = np.ascontiguousarray(array, _little(array.dtype))
    raw: Any = little.reshape(-1).view(np.uint8)
    return memoryview(raw)


def _little(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return dtype if _IS_LITTLE else dtype.newbyteorder("<")


def to_numbers(array: Any) -> Any:
    """The elements of *array* in C order, as JSON has them: a list, or an array of a
    dimension and of a type that orjson writes as one.

    NaN and infinities are what Python's ``json`` writes for them; bfloat16 and float16
    are numbers that float32 has.
    """
    if array.dtype.kind in "OUST":
        return [
            item.decode(errors="replace") if isinstance(item, bytes) else str(item)
            for item in array.reshape(-1)
        ]
    if array.dtype.kind == "V" or (
        array.dtype.itemsize == 2 and array.dtype.kind == "f"
    ):
        array = array.astype(np.float32)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        return NotFinite(array.reshape(-1).tolist())
    return np.ascontiguousarray(array).reshape(-1)


class NotFinite(list[float]):
    """Numbers of which orjson would write some as ``null``: it writes no such lists."""
