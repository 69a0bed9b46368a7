"""``TensorProto`` and ``SparseTensorProto``: constants in a model.

Owns: that a tensor's bytes are as many as its shape and element type need, before
anything is allocated for them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

import numpy as np

from onnxplug.authoring.bounds import MOST_AXES
from onnxplug.authoring.record import Record
from onnxplug.ep import DataType, SparseTensor
from onnxplug.errors import InvalidModel, UnsupportedModel
from onnxplug.graph import tags
from onnxplug.graph.external import ExternalData
from onnxplug.graph.graph import densify, outside
from onnxplug.graph.packing import entry_count, from_entries, from_raw
from onnxplug.graph.size import tensor_nbytes
from onnxplug.graph.value_type import read_data_type
from onnxplug.graph.weight import Weight
from onnxplug.graph.wire import Message, signed

_Chunk = int | tuple[int, int]
"""A part of a repeated scalar: one varint's value, or a range of bytes: several
packed varints, or one or several numbers of fixed width."""

_MAX_DENSE: Final = 1 << 31
"""Bytes that a sparse tensor may become."""

_EXTERNAL: Final = 1  # DataLocation.EXTERNAL

# The field that holds an element type's values when raw_data does not.
_VALUES: Final = {
    DataType.FLOAT32: "float_data",
    DataType.COMPLEX64: "float_data",
    DataType.FLOAT64: "double_data",
    DataType.COMPLEX128: "double_data",
    DataType.INT64: "int64_data",
    DataType.UINT32: "uint64_data",
    DataType.UINT64: "uint64_data",
    DataType.STRING: "string_data",
}
_FIELDS: Final = {
    tags.TENSOR_FLOAT_DATA: "float_data",
    tags.TENSOR_FLOAT_DATA_PACKED: "float_data",
    tags.TENSOR_INT32_DATA: "int32_data",
    tags.TENSOR_INT32_DATA_PACKED: "int32_data",
    tags.TENSOR_STRING_DATA: "string_data",
    tags.TENSOR_INT64_DATA: "int64_data",
    tags.TENSOR_INT64_DATA_PACKED: "int64_data",
    tags.TENSOR_DOUBLE_DATA: "double_data",
    tags.TENSOR_DOUBLE_DATA_PACKED: "double_data",
    tags.TENSOR_UINT64_DATA: "uint64_data",
    tags.TENSOR_UINT64_DATA_PACKED: "uint64_data",
}
_VARINT_TAGS: Final = (
    tags.TENSOR_INT32_DATA,
    tags.TENSOR_INT64_DATA,
    tags.TENSOR_UINT64_DATA,
)


class Sparse(Record):
    """A sparse constant, its parts not yet materialised."""

    values: Weight
    indices: Weight
    shape: tuple[int, ...]

    def tensor(self) -> SparseTensor:
        """The parts as arrays."""
        return SparseTensor(
            values=self.values.array, indices=self.indices.array, shape=self.shape
        )

    def dense(self) -> np.ndarray[Any, Any]:
        """The dense array."""
        return densify(self.tensor())


def read_tensor(message: Message, external: ExternalData) -> tuple[str, Weight]:
    """A tensor's name and content.

    Raises:
        InvalidModel: its bytes are not as many as its shape needs.
        ExternalDataError: they should be in another file, and are not.
    """
    name = ""
    number = location = 0
    dims: list[int] = []
    raw: memoryview | None = None
    chunks: dict[str, list[_Chunk]] = {}
    entries: dict[str, str] = {}
    for tag, start, end in message.fields():
        match tag:
            case tags.TENSOR_DIMS:
                dims.append(signed(start))
            case tags.TENSOR_DATA_TYPE:
                number = start
            case tags.TENSOR_NAME:
                name = message.text(start, end)
            case tags.TENSOR_RAW_DATA:
                raw = message.data[start:end]
            case tags.TENSOR_DIMS_PACKED:
                dims.extend(map(signed, message.varints(start, end).tolist()))
            case tags.TENSOR_EXTERNAL_DATA:
                key, value = read_entry(message.child(start, end))
                entries[key] = value
            case tags.TENSOR_DATA_LOCATION:
                location = start
            case tags.TENSOR_SEGMENT:
                raise UnsupportedModel(
                    f"byte {start}: a tensor is split into segments, which "
                    "onnxplug does not support; save the model with whole tensors"
                )
            case _ if tag in _FIELDS:
                chunk = start if tag in _VARINT_TAGS else (start, end)
                chunks.setdefault(_FIELDS[tag], []).append(chunk)
    dtype = read_data_type(number, f"tensor {name!r}")
    shape = _shape(dims, dtype, name)
    if location == _EXTERNAL:
        if dtype is DataType.STRING:
            raise InvalidModel(
                f"tensor {name!r} has strings in external data, which ONNX forbids"
            )
        raw = external.read(entries, tensor_nbytes(dtype, shape), name)
    elif not raw and (values := chunks.get(_VALUES.get(dtype, "int32_data"))):
        return name, _from_values(message, values, dtype, shape, name, external)
    elif dtype is DataType.STRING:
        return name, _from_values(message, [], dtype, shape, name, external)
    return name, _from_raw(raw or memoryview(b""), dtype, shape, name, external)


def read_sparse_tensor(message: Message, external: ExternalData) -> tuple[str, Sparse]:
    """A sparse tensor's name (that of its values) and content.

    The indices are read: whoever makes it dense writes where they say.

    Raises:
        InvalidModel: its parts do not fit each other, or an index lies outside it.
        UnsupportedModel: the dense array would be so large that it must be a trap.
    """
    values: tuple[str, Weight] | None = None
    indices: tuple[str, Weight] | None = None
    dims: list[int] = []
    for tag, start, end in message.fields():
        match tag:
            case tags.SPARSE_TENSOR_VALUES:
                values = read_tensor(message.child(start, end), external)
            case tags.SPARSE_TENSOR_INDICES:
                indices = read_tensor(message.child(start, end), external)
            case tags.SPARSE_TENSOR_DIMS:
                dims.append(signed(start))
            case tags.SPARSE_TENSOR_DIMS_PACKED:
                dims.extend(map(signed, message.varints(start, end).tolist()))
    if values is None or indices is None:
        raise InvalidModel(
            f"byte {message.start}: a sparse tensor needs values and indices"
        )
    name, stored = values
    shape = _shape(dims, stored.dtype, name)
    count = stored.shape[0] if len(stored.shape) == 1 else -1
    if indices[1].dtype is not DataType.INT64 or indices[1].shape not in (
        (count,),
        (count, len(shape)),
    ):
        raise InvalidModel(
            f"sparse tensor {name!r} of shape {list(shape)} has values of shape "
            f"{list(stored.shape)} and {indices[1].dtype} indices of shape "
            f"{list(indices[1].shape)}; expected int64 indices, [n] or [n, rank], for "
            "values [n]"
        )
    sparse = Sparse(stored, indices[1], shape)
    needed = math.prod(shape) * stored.dtype.numpy.itemsize
    if needed > _MAX_DENSE:
        raise UnsupportedModel(
            f"sparse tensor {name!r} of shape {list(shape)} would take {needed} bytes "
            f"when made dense; onnxplug makes at most {_MAX_DENSE}"
        )
    wrong = outside(sparse.indices.array, shape)
    if wrong.any():
        raise InvalidModel(
            f"sparse tensor {name!r} of shape {list(shape)} has an index outside it: "
            f"{sparse.indices.array[wrong][0]}"
        )
    return name, sparse


def read_entry(message: Message) -> tuple[str, str]:
    """The key and value of a ``StringStringEntryProto``."""
    key = value = ""
    for tag, start, end in message.fields():
        match tag:
            case tags.ENTRY_KEY:
                key = message.text(start, end)
            case tags.ENTRY_VALUE:
                value = message.text(start, end, errors="surrogateescape")
    return key, value


def _shape(dims: list[int], dtype: DataType, name: str) -> tuple[int, ...]:
    if len(dims) > MOST_AXES:
        raise UnsupportedModel(
            f"tensor {name!r} has {len(dims)} dimensions; numpy has at most {MOST_AXES}"
        )
    if min(dims, default=0) < 0:
        raise InvalidModel(f"tensor {name!r} has a negative size in shape {dims}")
    # sizes of 0 count as 1 here, as they do in numpy's own check of strides
    size = math.prod([size or 1 for size in dims])
    if size * max(dtype.bits // 8, 1) >= 1 << 63:
        raise InvalidModel(
            f"tensor {name!r} of shape {dims} has more bytes than can be addressed"
        )
    return tuple(dims)


def _from_raw(
    raw: memoryview,
    dtype: DataType,
    shape: tuple[int, ...],
    name: str,
    external: ExternalData,
) -> Weight:
    expected = tensor_nbytes(dtype, shape)
    if len(raw) != expected:
        raise _wrong_size(name, dtype, shape, f"{len(raw)} bytes", expected)
    materialise = partial(from_raw, raw, dtype, shape)
    return Weight(dtype, shape, materialise, raw, external.contents.origin(raw))


def _from_values(
    message: Message,
    chunks: list[_Chunk],
    dtype: DataType,
    shape: tuple[int, ...],
    name: str,
    external: ExternalData,
) -> Weight:
    """A weight whose values are in the field of their own type."""
    size = math.prod(shape)
    materialise: Callable[[], np.ndarray[Any, Any]]
    if dtype is DataType.STRING:
        if len(chunks) != size:
            raise _wrong_size(name, dtype, shape, f"{len(chunks)} strings", size)
        materialise = partial(_strings, message, _ranges(chunks), shape)
    elif _VALUES.get(dtype) in ("float_data", "double_data"):
        # numbers of fixed width are stored as in raw_data
        ranges = _ranges(chunks)
        if len(ranges) == 1:
            start, end = ranges[0]
            return _from_raw(message.data[start:end], dtype, shape, name, external)
        joined = b"".join(message.data[start:end] for start, end in ranges)
        return _from_raw(memoryview(joined), dtype, shape, name, external)
    else:
        count = entry_count(dtype, size)
        found = sum(
            1 if isinstance(chunk, int) else message.varint_count(*chunk)
            for chunk in chunks
        )
        if found != count:
            raise _wrong_size(name, dtype, shape, f"{found} values", count)
        materialise = partial(_integers, message, chunks, dtype, shape)
    return Weight(dtype, shape, materialise)


def _ranges(chunks: Iterable[_Chunk]) -> list[tuple[int, int]]:
    return [chunk for chunk in chunks if isinstance(chunk, tuple)]


def _strings(
    message: Message, ranges: list[tuple[int, int]], shape: tuple[int, ...]
) -> np.ndarray[Any, Any]:
    array = np.empty(len(ranges), object)
    for index, (start, end) in enumerate(ranges):
        array[index] = message.text(start, end, errors="surrogateescape")
    return array.reshape(shape)


def _integers(
    message: Message,
    chunks: list[_Chunk],
    dtype: DataType,
    shape: tuple[int, ...],
) -> np.ndarray[Any, Any]:
    parts: list[np.ndarray[Any, Any]] = []
    for _, group in itertools.groupby(chunks, key=lambda chunk: type(chunk)):
        same = list(group)
        if isinstance(same[0], int):
            parts.append(np.array(same, np.uint64))
        else:
            parts.extend(message.varints(*chunk) for chunk in _ranges(same))
    entries = parts[0] if len(parts) == 1 else np.concatenate(parts)
    return from_entries(entries, dtype, shape)


def _wrong_size(
    name: str, dtype: DataType, shape: tuple[int, ...], found: str, expected: int
) -> InvalidModel:
    return InvalidModel(
        f"tensor {name!r} has {found}, but its element type {dtype} and shape "
        f"{list(shape)} need {expected}; the model is damaged"
    )
