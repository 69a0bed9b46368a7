"""What a plan is when it is made."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from onnxplug.authoring.record import Record

if TYPE_CHECKING:
    from onnxplug_compiler.frontend.call import Abstract
    from onnxplug_compiler.ir.pieces import Work
    from onnxplug_compiler.ir.recorder import PackedConstants, Recorder
    from onnxplug_compiler.ir.target import Target


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


class Planning(Protocol):
    """What makes plans of calls."""

    def make(
        self,
        inputs: Sequence[Abstract],
        recorder: Recorder[Target],
        packed: PackedConstants,
        look: Callable[[], None],
    ) -> Planned:
        """The plan for inputs of these dtypes and shapes."""

    def forget_latest(self) -> None:
        """Look at all parts of the next plans, as a constant may have been refused."""


class Planned(Record):
    """A segment for one set of input shapes."""

    work: Work
    results: tuple[Result, ...]
