"""How windows slide along an axis, and what their elements become."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from onnxplug.authoring.record import Record
from onnxplug_compiler.ir.parameters import Parameters


class Slide(Record):
    """How windows slide along an axis.

    Attributes:
        taps: elements of a window.
        stride: how far apart windows are.
        dilation: how far apart elements of a window are.
        before, after: padding, which no kernel reads.
    """

    taps: int
    stride: int
    dilation: int
    before: int
    after: int


MOST_CODED_TERMS: Final = 258
"""Terms of a sum of products of two differences of codes, which have nine bits with
their sign, that float32 holds exactly."""

STILL: Final = Slide(1, 1, 1, 0, 0)
"""Each element is a window."""


def slides_of(
    taps: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int],
) -> list[Slide]:
    """How windows slide along each axis; *pads* are all beginnings, then all ends."""
    rank = len(taps)
    numbers = zip(taps, strides, dilations, pads[:rank], pads[rank:], strict=True)
    return [Slide(*each) for each in numbers]


class Combining(Parameters):
    """How the elements of a window become one.

    Attributes:
        change: what is done to an element first: ``""``, ``weigh`` (it is multiplied
            with a weight), ``magnitude``, ``square`` or ``power`` (of the magnitude).
        fold: ``add`` or ``max``, in which NaN is the largest.
        finish: what is done to the result: ``""``, ``mean`` (it is divided by how many
            elements count), ``square_root`` or ``root``.
        p: the exponent of ``power``, and of what ``root`` takes.
    """

    change: str
    fold: str
    finish: str
    p: float = 0.0

    @property
    def weighs(self) -> bool:
        """Whether there are weights."""
        return self.change == "weigh"

    @property
    def divides(self) -> bool:
        """Whether it matters how many elements count."""
        return self.finish == "mean"

    def part(self, *, first: bool, last: bool) -> Combining:
        """What is done along one axis, if axes are combined one after the other."""
        # a mean is one of means, as windows of all lines count as many elements
        finishes = last or self.divides
        return self._replace(
            change=self.change if first else "", finish=self.finish if finishes else ""
        )


WEIGHED: Final = Combining("weigh", "add", "")
SUM: Final = Combining("", "add", "")
MEAN: Final = Combining("", "add", "mean")
LARGEST: Final = Combining("", "max", "")


def norm(p: float) -> Combining:
    """The p-norm, for a finite *p* above 0."""
    if p == 1:
        return Combining("magnitude", "add", "")
    if p == 2:
        return Combining("square", "add", "square_root")
    return Combining("power", "add", "root", float(p))
