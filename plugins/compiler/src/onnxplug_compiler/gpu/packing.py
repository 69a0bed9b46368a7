"""Constants of integers of 2 and 4 bits, of which bytes on a device hold several."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxplug_compiler.gpu.render.body import PACKED
from onnxplug_compiler.ir.buffers import Buffer, Constant
from onnxplug_compiler.ir.elements import element_of


def packed_element(buffer: Buffer, dtype: np.dtype[Any]) -> str | None:
    """How kernels name the elements of a constant that is packed; ``None`` for other
    arrays, whose elements have at least a byte each."""
    element = f"{element_of(dtype)}p"
    return element if isinstance(buffer, Constant) and element in PACKED else None


def packed(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The content of a constant as kernels read it: *array* itself, or bytes whose
    lowest bits are the first element's."""
    bits = PACKED.get(f"{element_of(array.dtype)}p")
    if bits is None:
        return array
    each = 8 // bits
    codes = np.zeros(-(-array.size // each) * each, np.uint8)
    codes[: array.size] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    codes &= (1 << bits) - 1
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    parts = codes.reshape(-1, each) << shifts
    return np.asarray(np.bitwise_or.reduce(parts, axis=1), np.uint8)
