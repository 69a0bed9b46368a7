"""Factors of products that are small integers, a zero point and a scale apart from
what they stand for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeAlias

from onnxplug.authoring.record import Record
from onnxplug_compiler.ir.epilogue import Epilogue
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.views import View

PIXEL: Final = 4
"""Channels of codes of a byte that are one number of 32 bits."""


class Codes(Record):
    """An array of integers, of which bytes may hold several.

    Attributes:
        view: the array, or its bytes as uint8.
        bits: of an element, unsigned: 2 or 4; 0 for elements of the view's own.
        axis: along which elements share bytes, the first in the lowest bits.
    """

    view: View
    bits: int = 0
    axis: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """How many elements there are; some of the last byte may be none."""
        if not self.bits:
            return self.view.shape
        sizes = list(self.view.shape)
        sizes[self.axis] *= 8 // self.bits
        return tuple(sizes)


class Factor(Record):
    """``(codes - zero - offset) * scale``, all of one shape.

    Attributes:
        codes: may be floats, too.
        zero: the zero points, repeated by strides of 0; may be floats.
        offset: a zero point of all.
        scale: floats; likewise.
        rounds: floats may be rounded to bytes, with a scale for each block of those of
            the other factor that share one.
    """

    codes: Codes
    zero: Codes | None = None
    offset: int = 0
    scale: View | None = None
    rounds: bool = False

    @property
    def views(self) -> Sequence[View]:
        """All arrays, in the order of the attributes."""
        zero = None if self.zero is None else self.zero.view
        return [each for each in (self.codes.view, zero, self.scale) if each]


class CodedProducts(Protocol):
    """Products of such factors, which stay in memory as they are."""

    def record_coded(
        self,
        recorder: Recorder[Any],
        a: Factor,
        b: Factor,
        out: View,
        *,
        epilogue: Epilogue | None = None,
        label: str = "MatMul",
    ) -> None:
        """The product of *a* and *b*, batch by batch.

        Args:
            a: ``[batch0, batch1, *rows, *sums]``, one or two axes of rows, up to four
                of sums; elements share bytes along the axes of sums only.
            b: ``[batch0, batch1, *sums, columns]``; likewise.
            out: ``[batch0, batch1, *rows, columns]``; of int32 the sums are of int32,
                and wrap, of floats they are of float32.
            epilogue: takes the result instead of *out*; its value 0 is of int32 or of
                a float, and says so in *out*'s place.
            label: for profiles, the sizes not included.
        """

    def reads_codes(self, recorder: Recorder[Any], a: Factor, b: Factor) -> bool:
        """Whether codes of windows in *a*, of 8 bits, are best multiplied as they are;
        otherwise their differences from zero points are, as int16.

        Args:
            a, b: as :meth:`record_coded` takes them.
        """

    def takes_groups(self) -> bool:
        """Whether convolutions in groups, whose filters are constant and have a
        multiple of :data:`PIXEL` channels, are best computed of codes."""


RecordRows: TypeAlias = "Callable[[Recorder[Any], View, View], None]"
"""Records what is computed of rows of float32, [rows, columns], which may be where they
were: ``record(recorder, x, out)``."""


class CodedRows(Protocol):
    """What is computed row by row between codes."""

    def record_between_codes(
        self,
        recorder: Recorder[Any],
        codes: View,
        scale: View,
        zero: View | None,
        record: RecordRows,
        epilogue: Epilogue,
        *,
        label: str = "",
    ) -> None:
        """What is computed of rows of ``(codes - zero) * scale``.

        Args:
            codes: [rows, columns].
            scale, zero: one number each.
            record: of each row by itself.
            epilogue: takes the result, of float32; its views are of the shape of
                *codes*.
            label: for profiles, the sizes not included.
        """
