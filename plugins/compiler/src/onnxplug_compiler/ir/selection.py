"""Which elements are the largest or smallest, and where they are."""

from __future__ import annotations

from typing import Any, Protocol

from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.views import View


class Selection(Protocol):
    """Elements that are chosen by their order: NaN is larger than all numbers, zeros
    are equal, and of equal elements the first comes first."""

    def record_arg_extreme(
        self,
        recorder: Recorder[Any],
        x: View,
        out: View,
        axis: int,
        *,
        largest: bool,
        last: bool = False,
    ) -> None:
        """Where the largest or smallest element along an axis is; of the smallest, too,
        NaN is preferred.

        Args:
            x: with elements along *axis*.
            out: int64, of x's shape but for a size of 1 along *axis*.
            axis: from 0.
            last: of equal elements, and of NaN, take the last, not the first.
        """

    def record_top(
        self,
        recorder: Recorder[Any],
        x: View,
        values: View,
        indices: View,
        axis: int,
        *,
        largest: bool,
    ) -> None:
        """The largest or smallest elements along an axis, in order.

        Args:
            values, indices: as many along *axis* as are wanted, no more than *x* has;
                of x's dtype, and int64.
            axis: from 0.
        """
