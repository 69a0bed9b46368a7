"""ONNX's element types and torch's."""

from __future__ import annotations

from typing import Any, Final

from onnxplug.ep import DataType

_SAME_NAME: Final = frozenset(
    """bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32
    float64 complex64 complex128 float8_e4m3fn float8_e4m3fnuz float8_e5m2
    float8_e5m2fnuz float8_e8m0fnu""".split()
)
"""Names of the types that torch's tensors hold, which are ONNX's, too."""

TENSOR_TYPES: Final = frozenset(DataType(name) for name in _SAME_NAME)
"""What a tensor of torch holds; types of fewer bits than a byte are not among these."""


def torch_dtype(torch: Any, dtype: DataType) -> Any:
    """torch's name for *dtype*, which is one of :data:`TENSOR_TYPES`.

    Raises:
        TypeError: tensors of torch do not hold it.
    """
    if dtype not in TENSOR_TYPES:
        raise TypeError(f"tensors of torch do not hold {dtype}")
    return getattr(torch, str(dtype))


def data_type(dtype: Any) -> DataType:
    """ONNX's name for torch's *dtype*."""
    return DataType(str(dtype).removeprefix("torch."))


FLOATS: Final = frozenset(
    {DataType.FLOAT16, DataType.BFLOAT16, DataType.FLOAT32, DataType.FLOAT64}
)
SIGNED: Final = frozenset(
    {DataType.INT8, DataType.INT16, DataType.INT32, DataType.INT64}
)
UNSIGNED: Final = frozenset(
    {DataType.UINT8, DataType.UINT16, DataType.UINT32, DataType.UINT64}
)
INTEGERS: Final = SIGNED | UNSIGNED
NUMBERS: Final = FLOATS | INTEGERS
BOOL: Final = frozenset({DataType.BOOL})
POSITIONS: Final = frozenset({DataType.INT32, DataType.INT64})
"""Types of indices."""
FLOAT8: Final = frozenset(
    each for each in TENSOR_TYPES if str(each).startswith("float8")
)
