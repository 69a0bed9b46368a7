"""DLPack: checks of what other libraries describe, and types that numpy has none for.

Owns: what DLPack's structures hold.  Every capsule is looked at before an array is made
of it, as whoever reads it, numpy included, believes all that it says.  Host arrays of
element types without DLPack in numpy are exchanged as whole numbers of the same width;
their capsules are given the types' codes.

Source: ``dlpack.h`` of DLPack 1.1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from onnxplug.authoring.bounds import MOST_AXES, MOST_ELEMENTS, OutOfBounds, sizes
from onnxplug.authoring.dlpack import TYPES, WHOLE, Tensor, is_capsule, tensor_of
from onnxplug.authoring.record import Record
from onnxplug.ep import DataType
from onnxplug.errors import InvalidArgument, ValueTypeError
from onnxplug.interruption import raise_interruption
from onnxplug.session.addresses import check_range

HOST: Final = {1, 3, 11}
"""DLPack's types of memory that the host reads: its own, and that pinned for CUDA and
ROCm."""


class Source(Record):
    """What gives capsules, each of which is looked at, or a capsule, given once."""

    content: Any

    def __dlpack__(self, **options: Any) -> Any:
        content = self.content
        capsule = content if is_capsule(content) else content.__dlpack__(**options)
        _check(tensor_of(capsule))
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        if not is_capsule(self.content):
            where, ordinal = map(int, self.content.__dlpack_device__())
            return where, ordinal
        tensor = tensor_of(self.content)
        return tensor.device_type, tensor.device_id


def is_of_bytes(capsule: Any) -> bool:
    """Whether a capsule has whole numbers of 8 bits, which booleans may be, too.

    Raises:
        ValueTypeError: it is no capsule, or was used already.
    """
    tensor = tensor_of(capsule)
    return (tensor.code, tensor.bits, tensor.lanes) == (WHOLE, 8, 1)


def as_source(data: Any) -> Source:
    """*data*, an array or a capsule.

    Raises:
        InvalidArgument: the capsule describes memory that cannot be.
        ValueTypeError: it is neither, or the capsule was used already.
    """
    if is_capsule(data):
        _check(tensor_of(data))
    elif not (hasattr(data, "__dlpack__") and hasattr(data, "__dlpack_device__")):
        raise ValueTypeError(
            f"a value is made from a {type(data).__name__}; expected an object with "
            "__dlpack__ and __dlpack_device__, or a DLPack capsule"
        )
    return Source(data)


def import_host(source: Source) -> np.ndarray[Any, Any]:
    """The array of an object whose memory the host reads.

    Raises:
        InvalidArgument: its capsule describes memory that cannot be.
        Exception: whatever the library raises.
    """
    try:
        if not is_capsule(source.content) or _narrow(source.content) is None:
            return np.from_dlpack(source)
    except InvalidArgument:
        raise
    except Exception as error:  # of a library that has a type that numpy has not
        raise_interruption(error)
        capsule = source.__dlpack__()
        if _narrow(capsule) is None:
            raise
        source = Source(capsule)
    type = _narrow(source.content)
    assert type is not None
    tensor_of(source.content).code = WHOLE
    return np.from_dlpack(source).view(type.numpy)


def _narrow(capsule: Any) -> DataType | None:
    tensor = tensor_of(capsule)
    return TYPES.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None


def _check(tensor: Tensor) -> None:
    """Check that there may be such a tensor.

    Whether its memory is there nobody can tell: for that its exporter vouches.

    Raises:
        InvalidArgument: its shape is none, or its elements have no address, or would
            lie where no process has memory.
    """
    rank = tensor.ndim
    if not 0 <= rank <= MOST_AXES:
        raise _wrong(f"has {rank} axes; expected 0 to {MOST_AXES}")
    if rank and not tensor.shape:
        raise _wrong(f"has {rank} axes and no sizes: its shape is null")
    itemsize = -(-tensor.bits * tensor.lanes // 8)
    try:
        shape = sizes(tensor.shape[:rank], itemsize=itemsize)
    except OutOfBounds as error:
        raise _wrong(f"has a shape that there is not: {error}") from error
    if 0 in shape:
        return
    if not tensor.data:
        raise _wrong(
            f"has shape {list(shape)} and no memory: its address is null; expected "
            "that of the first element"
        )
    steps = _steps(shape, tensor.strides[:rank] if tensor.strides else None)
    first = tensor.byte_offset + sum(step for step in steps if step < 0) * itemsize
    end = tensor.byte_offset + (sum(step for step in steps if step > 0) + 1) * itemsize
    if tensor.device_type in HOST:  # elsewhere it may be anything that is not null
        first, end = first + tensor.data, end + tensor.data
        what = f"a DLPack capsule of shape {list(shape)}"
        check_range(first, end - first, what)
    elif end - first > MOST_ELEMENTS or end > MOST_ELEMENTS:
        raise _wrong(f"has elements to byte {end}, beyond what int64 counts")


def _steps(shape: Sequence[int], strides: Sequence[int] | None) -> list[int]:
    """How many elements the last of each axis is after the first."""
    if strides is None:
        return [math.prod(shape) - 1]
    return [stride * (size - 1) for stride, size in zip(strides, shape, strict=True)]


def _wrong(what: str) -> InvalidArgument:
    return InvalidArgument(f"a DLPack capsule {what}")
