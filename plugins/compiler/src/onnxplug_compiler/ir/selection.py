"""Which elements are the largest or smallest, and where they are."""

from __future__ import annotations

from typing import Any, Protocol

from onnxplug.authoring.record import Record
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.views import View


class Limits(Record):
    """What limits which boxes are selected; one element each.

    Attributes:
        most: of a class, int64; none are if it is negative.
        overlap: of their areas' intersection in their union, what two boxes have at
            most; float32.
        least: what the score of a box has to be above; float32.
    """

    most: View
    overlap: View
    least: View


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

    def record_suppression(
        self,
        recorder: Recorder[Any],
        boxes: View,
        scores: View,
        limits: Limits,
        out: View,
        count: View,
        *,
        centers: bool,
    ) -> None:
        """Of each image and class the boxes that share little with those of higher
        scores.

        An overlap that is not from 0 to 1 is a ``ValueError`` of the run.

        Args:
            boxes: [images, boxes, 4], float32: two corners.
            scores: [images, classes, boxes], float32.
            out: [most, 3], int64, in C order: image, class and box, of each class the
                best first.  As many rows are written as *count* says; there may be as
                many for each class as there are in *out* for one.
            count: one element, int64: how many boxes are selected.
            centers: boxes are a centre and two sizes.
        """

    def record_non_zero(
        self, recorder: Recorder[Any], x: View, out: View, count: View
    ) -> None:
        """Where elements are not zero, in the order of their places.

        Args:
            x: with one axis at least.
            out: int64, in C order, with room for as many places as *x* has.  Written
                is [axes, count].
            count: one element, int64: how many there are.
        """

    def record_compress(
        self,
        recorder: Recorder[Any],
        x: View,
        condition: View,
        out: View,
        count: View,
    ) -> None:
        """The parts of *x* along its second axis for which a condition is true.

        Args:
            x: [outer, size, inner], with elements next to each other along the last
                two axes.
            condition: bool, one axis, no longer than *size*.
            out: in C order, with room for all of them.  Written is [outer, count,
                inner].
            count: one element, int64: how many there are.
        """

    def record_distinct(
        self,
        recorder: Recorder[Any],
        x: View,
        values: View,
        firsts: View,
        inverse: View,
        counts: View,
        count: View,
    ) -> None:
        """The distinct elements, the smallest first; all NaN are one, the last.

        Args:
            x: one axis, elements next to each other.
            values, firsts, counts: with room for as many as *x* has, next to each
                other; x's dtype, and int64: each distinct element, where it is first,
                and how often.
            inverse: int64, of x's shape: which of these each element is.
            count: one element, int64: how many there are.
        """
