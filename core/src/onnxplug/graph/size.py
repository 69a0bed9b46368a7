"""How many bytes tensors take."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnxplug.ep import DataType, ValueInfo


def tensor_nbytes(dtype: DataType, shape: Sequence[int]) -> int:
    """The bytes of a tensor as a model stores it: elements of 4 bits share bytes."""
    return (math.prod(shape) * dtype.bits + 7) // 8


def value_nbytes(value: ValueInfo) -> int | None:
    """The bytes of a tensor; ``None`` when they are not known before running."""
    if value.dtype is None or value.shape is None:
        return None
    sizes = [size for size in value.shape if isinstance(size, int)]
    if len(sizes) != len(value.shape):
        return None
    return tensor_nbytes(value.dtype, sizes)
