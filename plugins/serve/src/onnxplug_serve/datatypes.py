"""Element types as the Open Inference Protocol names them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import ml_dtypes
import numpy as np

from onnxplug.ep import DataType

_NUMPY: Final[Mapping[str, np.dtype[Any]]] = {
    "BOOL": np.dtype(np.bool_),
    "UINT8": np.dtype(np.uint8),
    "UINT16": np.dtype(np.uint16),
    "UINT32": np.dtype(np.uint32),
    "UINT64": np.dtype(np.uint64),
    "INT8": np.dtype(np.int8),
    "INT16": np.dtype(np.int16),
    "INT32": np.dtype(np.int32),
    "INT64": np.dtype(np.int64),
    "FP16": np.dtype(np.float16),
    "FP32": np.dtype(np.float32),
    "FP64": np.dtype(np.float64),
    "BF16": np.dtype(ml_dtypes.bfloat16),
}

BYTES: Final = "BYTES"
"""Of strings, each of a length of its own."""

DATATYPES: Final = (*_NUMPY, BYTES)

_NAMES: Final = {dtype: name for name, dtype in _NUMPY.items()}


def numpy_dtype(datatype: str) -> np.dtype[Any]:
    """The dtype of arrays of *datatype*; of ``BYTES`` that of objects.

    Raises:
        KeyError: the protocol has no such type.
    """
    return np.dtype(object) if datatype == BYTES else _NUMPY[datatype]


def datatype_of(dtype: DataType) -> str | None:
    """What the protocol calls *dtype*; ``None``: it has no such type."""
    if dtype is DataType.STRING:
        return BYTES
    return _NAMES.get(dtype.numpy)


def datatype_of_array(array: Any) -> str:
    """What the protocol calls the type of *array*'s elements."""
    return BYTES if array.dtype.kind in "OUST" else _NAMES[array.dtype]
