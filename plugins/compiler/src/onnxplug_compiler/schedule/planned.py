"""What a plan is when it is made."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from onnxplug.authoring.record import Record
from onnxplug_compiler.ir.pieces import Work


class Result(Record):
    """One output of a plan.

    Attributes:
        dtype, shape: of the array that the caller provides.
        content: the output itself, when it does not depend on what is fed.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    content: np.ndarray[Any, Any] | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return math.prod(self.shape) * self.dtype.itemsize


class Planned(Record):
    """A segment for one set of input shapes."""

    work: Work
    results: tuple[Result, ...]
