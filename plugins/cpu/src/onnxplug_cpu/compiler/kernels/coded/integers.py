"""Products of integers of 8 bits: which way each takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from onnxplug_compiler.ir.coded import Codes, Factor
from onnxplug_cpu.compiler.kernels.coded.computed_quads import (
    record_computed_quads,
    takes_computed_quads,
)
from onnxplug_cpu.compiler.kernels.coded.factors import (
    BATCHES,
    LEAD,
    changed,
    is_stretched,
    widened,
    with_line,
)
from onnxplug_cpu.compiler.kernels.coded.pairs import record_pairs
from onnxplug_cpu.compiler.kernels.coded.quads import record_quads, takes_quads
from onnxplug_cpu.compiler.kernels.contraction import long_sums
from onnxplug_cpu.compiler.kernels.contraction.commands import (
    MOST_TAP_AXES,
    fewest_sums,
    sizes_of,
)

if TYPE_CHECKING:
    from onnxplug_compiler.ir.epilogue import Epilogue
    from onnxplug_compiler.ir.views import View
    from onnxplug_cpu.compiler.commands.recording import Recorder

MOST_ROW_AXES: Final = 2
MOST_SUM_AXES: Final = MOST_TAP_AXES + 1


def record_integers(
    recorder: Recorder,
    a: Factor,
    b: Factor,
    out: View,
    epilogue: Epilogue | None,
    label: str,
) -> None:
    """Record a product; all is as ``CodedProducts.record_coded`` takes it."""
    if len(out.shape) < BATCHES + MOST_ROW_AXES + 1:
        a, out = changed(a, with_line), with_line(out)
        epilogue = epilogue.with_line() if epilogue else None
    same = _repeated(a, b)
    parts = fewest_sums(a.codes.view, out)
    if not same and parts == 1:
        sized = f"{label} {sizes_of(a.codes.view, out)}"
        record_one = record_pairs
        if takes_quads(recorder, a, b):
            record_one = record_quads
        elif takes_computed_quads(recorder, a, b):
            record_one = record_computed_quads
        record_one(recorder, a, b, out, epilogue, sized)
        return

    def record(a: View, b: View, out: View) -> None:
        factors = Factor(Codes(a)), Factor(Codes(b))
        record_integers(recorder, *factors, out, None, label)

    given = (widened(recorder, a), widened(recorder, b), out, epilogue, label)
    if same:
        long_sums.record_repeated_sum(recorder, record, same, *given)
    else:
        long_sums.record_long_sum(recorder, record, parts, *given)


def _repeated(a: Factor, b: Factor) -> tuple[int, ...]:
    """The axes of sums, numbered as those of *a*, along which both are stretched."""
    sizes = a.codes.shape
    return tuple(
        axis
        for axis in range(LEAD, len(sizes))
        if sizes[axis] > 1
        and is_stretched(a, axis)
        and is_stretched(b, axis - LEAD + BATCHES)
    )
