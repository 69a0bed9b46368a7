"""The element types that float32 is narrowed to, and what they cannot hold."""

from __future__ import annotations

from typing import Any, Final

import ml_dtypes
import numpy as np

from onnxplug.authoring.record import Record
from onnxplug.ep import DataType


class Element(Record):
    """An element type with fewer bits than float32.

    Attributes:
        dtype: which one.
        type_name: as ONNX's operator schemas write a tensor of it.
        largest: the largest finite number.
        smallest: the smallest number that has all digits.
        mask: a negative number of large magnitude to which others, of ordinary size or
            masks again, can be added without leaving the range; ``exp`` of what is so
            far below any maximum is 0.
        holds_counts: whether numbers of elements are within its range.
    """

    dtype: DataType
    type_name: str
    largest: float
    smallest: float
    mask: float
    holds_counts: bool

    def round(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """*array*, of float32 and any shape, with elements of this type."""
        with np.errstate(over="ignore"):
            return array.astype(self.dtype.numpy)


def _element(dtype: DataType, name: str, *, holds_counts: bool) -> Element:
    limits = ml_dtypes.finfo(dtype.numpy)  # type: ignore[no-untyped-call]
    largest = float(limits.max)
    return Element(
        dtype=dtype,
        type_name=f"tensor({name})",
        largest=largest,
        smallest=float(limits.smallest_normal),
        mask=-(2.0 ** (np.floor(np.log2(largest)) - 1)),
        holds_counts=holds_counts,
    )


ELEMENTS: Final = {
    DataType.FLOAT16: _element(DataType.FLOAT16, "float16", holds_counts=False),
    DataType.BFLOAT16: _element(DataType.BFLOAT16, "bfloat16", holds_counts=True),
}
"""Those that a model can be narrowed to."""
