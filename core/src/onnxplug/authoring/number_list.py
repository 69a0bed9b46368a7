"""Long lists of numbers, which are arrays as well."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    import numpy as np


class NumberList(tuple[Any, ...]):
    """A tuple of numbers, and the same as an array.

    An attribute of a tree ensemble has a million of them.  Who wants an array has it,
    as ``np.asarray`` takes it from here, and nobody has to ask each element what it is.

    Attributes:
        array: int64 or float64 [n]; it cannot be written to.
        element: the class of the elements, ``int`` or ``float``.
    """

    array: np.ndarray[Any, Any]
    element: type

    def __new__(cls, array: np.ndarray[Any, Any]) -> Self:
        made = super().__new__(cls, array.tolist())
        made.array = array.view()
        made.array.flags.writeable = False
        made.element = int if array.dtype.kind == "i" else float
        return made

    def __array__(
        self, dtype: Any = None, copy: bool | None = None
    ) -> np.ndarray[Any, Any]:
        return self.array.astype(dtype or self.array.dtype, copy=bool(copy))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.array,)
