"""ONNX's type system: element types, and the types that values can have.

Owns: the one spelling of every ONNX element type.  numpy and ml_dtypes are
imported only when a numpy dtype is asked for.
"""

from __future__ import annotations

import functools
import re
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from onnxplug.authoring.fact import ordered_fact
from onnxplug.escape import escape
from onnxplug.interruption import raise_interruption

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import numpy as np


class DataType(StrEnum):
    """An ONNX element type, spelled as numpy and ml_dtypes spell theirs.

    Source: ``TensorProto.DataType`` of the ONNX IR specification.
    """

    FLOAT32 = "float32"
    UINT8 = "uint8"
    INT8 = "int8"
    UINT16 = "uint16"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    STRING = "string"
    BOOL = "bool"
    FLOAT16 = "float16"
    FLOAT64 = "float64"
    UINT32 = "uint32"
    UINT64 = "uint64"
    COMPLEX64 = "complex64"
    COMPLEX128 = "complex128"
    BFLOAT16 = "bfloat16"
    FLOAT8_E4M3FN = "float8_e4m3fn"
    FLOAT8_E4M3FNUZ = "float8_e4m3fnuz"
    FLOAT8_E5M2 = "float8_e5m2"
    FLOAT8_E5M2FNUZ = "float8_e5m2fnuz"
    UINT4 = "uint4"
    INT4 = "int4"
    FLOAT4_E2M1FN = "float4_e2m1fn"
    FLOAT8_E8M0FNU = "float8_e8m0fnu"
    UINT2 = "uint2"
    INT2 = "int2"
    FLOAT6_E2M3FN = "float6_e2m3fn"
    FLOAT6_E3M2FN = "float6_e3m2fn"

    @classmethod
    def from_onnx(cls, number: int) -> DataType:
        """The element type with ONNX's *number* (``TensorProto.DataType``).

        Raises:
            ValueError: *number* is 0 (undefined) or not a number ONNX defines.
        """
        if 1 <= number <= len(_ORDER):
            return _ORDER[number - 1]
        raise ValueError(
            f"element type {number} is not defined by ONNX; "
            f"the defined ones are 1 to {len(_ORDER)}"
        )

    @classmethod
    def from_numpy(cls, dtype: np.dtype[Any]) -> DataType:
        """The element type held by an array of *dtype* (object and text: string).

        Byte order is ignored.

        Raises:
            TypeError: ONNX has no such element type.
        """
        known = _OF_NUMPY.get(dtype)
        if known is not None:
            return known
        if dtype.kind in "OUST":
            return cls.STRING
        try:
            # numpy takes long to tell a name
            return _OF_NUMPY.setdefault(dtype, cls(dtype.name))
        except ValueError as error:
            raise_interruption(error)
            raise TypeError(
                f"numpy dtype {dtype} has no ONNX element type; "
                f"the ones there are: {', '.join(cls)}"
            ) from None

    @property
    def onnx(self) -> int:
        """ONNX's number for this element type (``TensorProto.DataType``)."""
        return _ORDER.index(self) + 1

    @property
    def numpy(self) -> np.dtype[Any]:
        """The numpy dtype of arrays of this element type (string: object)."""
        return _numpy_dtype(self)

    @property
    def bits(self) -> int:
        """Bits that one element takes in a model file; 0 for strings."""
        return _BITS[self]


_ORDER: Final = tuple(DataType)
_OF_NUMPY: Final[dict[np.dtype[Any], DataType]] = {}
_BITS: Final = {DataType.STRING: 0, DataType.BOOL: 8} | {
    data_type: int(match[0])  # every other name says it
    for data_type in _ORDER
    if (match := re.search(r"\d+", data_type))
}
EXTENSIONS: Final = frozenset(
    data_type
    for data_type in _ORDER
    if 0 < _BITS[data_type] < 8
    or not re.fullmatch(r"(u?int|float|complex)\d+|bool|string", data_type)
)
"""Those that ml_dtypes adds to numpy, few of whose functions take them."""


@functools.cache
def _numpy_dtype(data_type: DataType) -> np.dtype[Any]:
    import numpy as np

    if data_type is DataType.STRING:
        return np.dtype(object)
    if data_type not in EXTENSIONS:
        return np.dtype(str(data_type))
    import ml_dtypes

    dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, data_type))
    return dtype


Dimension: TypeAlias = int | str | None
"""A number, an expression of named sizes (see :class:`Size`), or ``None`` when nothing
is known."""


@ordered_fact()
class TensorType:
    """A dense tensor.

    Attributes:
        dtype: element type; ``None`` when unknown.
        shape: one entry per dimension; ``None`` when the rank is unknown, which
            is not the same as ``()``, a scalar.
    """

    dtype: DataType | None = None
    shape: tuple[Dimension, ...] | None = None

    def shape_for(self, sizes: Mapping[str, int]) -> tuple[int | None, ...] | None:
        """The shape in numbers where names of sizes stand for *sizes*.

        A size that they do not tell is ``None``; so is the whole when the rank is
        unknown.  :func:`named_sizes` gives the sizes of shapes that are known.
        """
        if self.shape is None:
            return None
        return tuple(_evaluated(dimension, sizes) for dimension in self.shape)

    def __str__(self) -> str:
        return _in_words(self.dtype, self.shape)


@ordered_fact()
class SparseTensorType:
    """A sparse tensor; fields as in :class:`TensorType`."""

    dtype: DataType | None = None
    shape: tuple[Dimension, ...] | None = None

    def __str__(self) -> str:
        return f"sparse {_in_words(self.dtype, self.shape)}"


@ordered_fact()
class SequenceType:
    """A list of values of one type."""

    element: ValueType | None = None

    def __str__(self) -> str:
        return f"sequence({self.element or '?'})"


@ordered_fact()
class OptionalType:
    """A value that may be absent."""

    element: ValueType | None = None

    def __str__(self) -> str:
        return f"optional({self.element or '?'})"


@ordered_fact()
class MapType:
    """A dictionary from keys of one element type to values of one type."""

    key: DataType
    value: ValueType | None = None

    def __str__(self) -> str:
        return f"map({self.key}, {self.value or '?'})"


ValueType: TypeAlias = (
    TensorType | SparseTensorType | SequenceType | OptionalType | MapType
)


def _in_words(dtype: DataType | None, shape: tuple[Dimension, ...] | None) -> str:
    """A tensor's type as errors have it: ``float32[2, N, ?]``, of any rank ``[…]``."""
    if shape is None:
        sizes = "…"
    else:
        sizes = ", ".join("?" if size is None else escape(size) for size in shape)
    return f"{'?' if dtype is None else dtype}[{sizes}]"


def named_sizes(
    types: Iterable[ValueType | None], shapes: Iterable[tuple[int, ...] | None]
) -> dict[str, int]:
    """What the names of sizes in *types* stand for where values have *shapes*.

    Whole expressions (``past + seq``) are given like names.  What would have to be two
    sizes at once is left out; so is what only types say that are no dense tensors'.
    """
    sizes: dict[str, int] = {}
    several: set[str] = set()
    for type, shape in zip(types, shapes, strict=True):
        if not isinstance(type, TensorType) or type.shape is None:
            continue
        for stated, found in zip(type.shape, shape or (), strict=False):
            if isinstance(stated, str) and sizes.setdefault(stated, found) != found:
                several.add(stated)
    return {name: size for name, size in sizes.items() if name not in several}


def _evaluated(dimension: Dimension, sizes: Mapping[str, int]) -> int | None:
    if not isinstance(dimension, str):
        return dimension
    if dimension in sizes or dimension.isidentifier():
        return sizes.get(dimension)
    from onnxplug.authoring.sizes import Size

    size = Size.parse(dimension)
    return None if size is None else size.evaluate(sizes)
