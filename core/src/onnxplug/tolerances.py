"""How far two right results may be apart, by element type."""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import Final

from onnxplug.authoring.record import Record


class Tolerance(Record):
    """How far an element may be from the reference: ``absolute + relative * |it|``.

    As in ``numpy.allclose``.
    """

    relative: float
    absolute: float

    def __str__(self) -> str:
        return f"{self.absolute:g} + {self.relative:g} of the reference"


EXACT: Final = Tolerance(0.0, 0.0)

TOLERANCES: Final = MappingProxyType(
    {
        "float64": Tolerance(1e-7, 1e-9),
        "float32": Tolerance(1e-3, 1e-4),
        "float16": Tolerance(1e-2, 1e-2),
        "bfloat16": Tolerance(5e-2, 5e-2),
        "complex128": Tolerance(1e-7, 1e-9),
        "complex64": Tolerance(1e-3, 1e-4),
    }
)
"""By the element type's name in numpy.  Of any other type elements have to be equal.

They have room for sums in another order, through some hundred nodes, of numbers
about 1.
"""


def tolerance_for(
    dtype: str, relative: float | None = None, absolute: float | None = None
) -> Tolerance:
    """The tolerance for elements of *dtype*; what is given stands for the default.

    Raises:
        ValueError: one given is negative, infinite or NaN.
    """
    for name, bound in (("relative", relative), ("absolute", absolute)):
        if bound is not None and not 0 <= bound < math.inf:
            raise ValueError(f"the {name} tolerance is {bound}; expected 0 or more")
    default = TOLERANCES.get(dtype, EXACT)
    return Tolerance(
        default.relative if relative is None else relative,
        default.absolute if absolute is None else absolute,
    )
