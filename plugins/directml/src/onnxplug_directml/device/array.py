"""Arrays in the memory of an adapter."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from onnxplug_directml.device.pool import Memory


class DmlArray:
    """An array on an adapter, in C order from the beginning of its memory.

    Attributes:
        memory: where it is.
        shape: sizes.
        dtype: numpy's.
    """

    __slots__ = ("__weakref__", "dtype", "memory", "shape")

    def __init__(
        self, memory: Memory, shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> None:
        self.memory = memory
        self.shape = shape
        self.dtype = dtype

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return math.prod(self.shape) * self.dtype.itemsize
