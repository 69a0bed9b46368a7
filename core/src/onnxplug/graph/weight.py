"""Tensors stored in a model: ranges of bytes that become arrays when asked for.

A weight is neither parsed nor copied until :attr:`Weight.array` is read, and where
its bytes lie in memory as numpy wants them, not even then.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from onnxplug.ep import DataType
from onnxplug.ep.arrays import usual_form
from onnxplug.graph.size import tensor_nbytes

if TYPE_CHECKING:
    import numpy as np

LARGE: Final = 1 << 20
"""Bytes from which on an array that can be made again is not kept."""


class Weight:
    """A constant tensor.

    Attributes:
        dtype: element type.
        shape: sizes; ``()`` for a scalar.
    """

    __slots__ = (
        "_array",
        "_is_copy",
        "_materialise",
        "_passing",
        "_raw",
        "dtype",
        "shape",
    )

    def __init__(
        self,
        dtype: DataType,
        shape: tuple[int, ...],
        materialise: Callable[[], np.ndarray[Any, Any]],
        raw: memoryview | None = None,
    ) -> None:
        self.dtype: Final = dtype
        self.shape: Final = shape
        self._raw: Final = raw
        self._is_copy = raw is not None
        self._materialise: Callable[[], np.ndarray[Any, Any]] | None = materialise
        self._array: np.ndarray[Any, Any] | None = None
        self._passing: weakref.ref[np.ndarray[Any, Any]] | None = None

    @classmethod
    def from_array(cls, array: np.ndarray[Any, Any]) -> Weight:
        """A weight that holds *array*, which is made read-only.

        It holds another one if *array* is not in the form that EPs take.

        Raises:
            TypeError: ONNX has no such element type.
        """
        dtype = DataType.from_numpy(array.dtype)
        if dtype is not DataType.STRING:
            array = usual_form(array, dtype.numpy)
        weight = cls(dtype, array.shape, lambda: array)
        array.flags.writeable = False
        weight._array = array
        weight._materialise = None
        return weight

    @classmethod
    def computed(
        cls,
        dtype: DataType,
        shape: tuple[int, ...],
        compute: Callable[[], np.ndarray[Any, Any]],
    ) -> Weight:
        """A weight that *compute* makes from others, each time that it is asked for."""
        weight = cls(dtype, shape, compute)
        weight._is_copy = True
        return weight

    @property
    def array(self) -> np.ndarray[Any, Any]:
        """The content, read-only; a view of the model's bytes where possible.

        A large copy of them lives as long as somebody uses it: an EP that puts weights
        into a form of its own should not keep two of each in memory.
        """
        if self._array is not None:
            return self._array
        if self._passing is not None:
            passing = self._passing()
            if passing is not None:
                return passing
        assert self._materialise is not None
        array = self._materialise()
        if array.flags.writeable:
            array.flags.writeable = False
        if self._is_copy and array.base is None and array.nbytes >= LARGE:
            self._passing = weakref.ref(array)
            return array
        self._array = array
        self._materialise = None
        return array

    def raw(self) -> np.ndarray[Any, Any]:
        """The bytes of ONNX's ``raw_data``, uint8 in one dimension; not for strings.

        They are a view of the model's bytes where those have this form, and of the
        array where it has; the array is then not even made.
        """
        import numpy as np

        if self._raw is not None:
            return np.frombuffer(self._raw, np.uint8)
        from onnxplug.graph.packing import to_raw

        return to_raw(self.array, self.dtype)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes that the elements take in a model file; 0 for strings."""
        return tensor_nbytes(self.dtype, self.shape)

    def __repr__(self) -> str:
        return f"Weight({self.dtype}{list(self.shape)})"
