"""What may be chosen of how a contraction is computed, without changing a bit of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from onnxplug_cpu.compiler.ir.recorder import Recorder
    from onnxplug_cpu.compiler.kernels.contraction.division import Division
    from onnxplug_cpu.compiler.kernels.contraction.product import Product

ROWS, PANELS = "rows", "panels"


class Schedule(NamedTuple):
    """How a contraction is computed, where that is not as sizes and caches suggest.

    No choice changes the order in which an element's products are added up, so all give
    the same bits.

    Attributes:
        tile: rows of a tile, and vectors in each; of B in panels only.
        row_parts, column_parts: parts of the matrix at least; 0 for what is suggested.
        chunks: how many are wanted; 0 for what is suggested.
        order: what is outermost of a chunk: ``rows`` of tiles or ``panels``.
        passes: over a chunk, each with a part of K; 0 for what is suggested.
    """

    tile: tuple[int, int] | None = None
    row_parts: int = 0
    column_parts: int = 0
    chunks: int = 0
    order: str = ""
    passes: int = 0


SUGGESTED: Final = Schedule()


def record_product(
    recorder: Recorder, make: Callable[[Recorder, Schedule], Product]
) -> None:
    """Record a contraction, by the fastest schedule if schedules are measured.

    Args:
        make: the contraction by a schedule, which the recorder will receive.
    """
    product = make(recorder, SUGGESTED)
    if recorder.choose is not None:
        schedule, note = recorder.choose(
            (SUGGESTED, *product.schedules()),
            lambda other, schedule: make(other, schedule).record(),
            (product.contraction.a.buffer,),
        )
        product = make(recorder, schedule)
        product.note = note
    product.record()


def other_divisions(division: Division, workers: int) -> Iterator[Schedule]:
    """Schedules that differ from the suggested one in the parts of the matrix."""
    rows, columns = division.row_parts, division.column_parts
    for more in (2, 4):
        yield Schedule(row_parts=more * rows)
        yield Schedule(column_parts=more * columns)
    if rows > 1 and columns == 1:
        yield Schedule(row_parts=-(-rows // 2))
    if workers > 1 and rows * columns > 1:
        for fewer in (2, 4):
            yield Schedule(chunks=-(-rows * columns // fewer))
