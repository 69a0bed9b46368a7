"""Arrays of the context that TensorRT works in, as it asks for them: by address.

They are another EP's, of which DLPack tells where they are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from onnxplug import ep
from onnxplug.authoring.dlpack import CODES, tensor_of

UNSHARED: Final = frozenset(
    dtype for dtype in ep.DataType if dtype.bits < 8 and dtype not in CODES
)
"""Element types of arrays that DLPack does not tell of."""


class DeviceArrays:
    """Makes arrays in a device's memory, and tells where they are.

    Args:
        context: of the device.
    """

    def __init__(self, context: ep.DeviceContext) -> None:
        self._context = context
        allocator = context.allocator(ep.MemoryKind.DEVICE)
        if allocator is None:
            raise RuntimeError(f"{context.location} has no memory for arrays")
        self._allocator = allocator

    def new(self, shape: Sequence[int], dtype: ep.DataType, stream: ep.Stream) -> Any:
        """A new array, for work on *stream*."""
        return self._allocator.empty(shape, dtype, stream)

    def address(self, array: Any, stream: ep.Stream) -> int:
        """Where *array* is, whose content is there for work on *stream*, which it is
        kept for."""
        capsule = array.__dlpack__(stream=stream.native_handle)
        tensor = tensor_of(capsule)  # which is there as long as the capsule
        return int(tensor.data or 0) + int(tensor.byte_offset)

    def fits(self, array: Any, shape: Sequence[int], dtype: ep.DataType) -> bool:
        """Whether *array* is of this shape and element type."""
        return tuple(array.shape) == tuple(shape) and (
            self._context.data_type(array) is dtype
        )

    def first(self, array: Any, shape: Sequence[int], stream: ep.Stream) -> Any:
        """An array of *shape* that shares the first elements of *array*, of equal rank.

        Raises:
            ValueError: *array* has fewer.
        """
        if tuple(array.shape) == tuple(shape):
            return array
        if len(array.shape) != len(shape) or math.prod(shape) > math.prod(array.shape):
            raise ValueError(
                f"an output of shape {list(shape)} is in memory for {list(array.shape)}"
            )
        capsule = array.__dlpack__(stream=stream.native_handle)
        tensor = tensor_of(capsule)
        step = 1
        for axis in reversed(range(len(shape))):
            tensor.shape[axis] = shape[axis]
            if tensor.strides:
                tensor.strides[axis] = step
            step *= max(shape[axis], 1)
        return self._context.from_dlpack(capsule)
