"""Products of codes as commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from onnxplug_compiler.ir.elements import NARROW_FLOATS, element_of
from onnxplug_cpu.compiler.kernels.coded.integers import (
    MOST_ROW_AXES,
    MOST_SUM_AXES,
    record_integers,
)
from onnxplug_cpu.compiler.kernels.coded.quads import reads_quads

if TYPE_CHECKING:
    from onnxplug_compiler.ir.coded import Factor
    from onnxplug_compiler.ir.epilogue import Epilogue
    from onnxplug_compiler.ir.views import View
    from onnxplug_cpu.compiler.commands.recording import Recorder

_BATCHES: Final = 2


def record_coded(
    recorder: Recorder,
    a: Factor,
    b: Factor,
    out: View,
    *,
    epilogue: Epilogue | None = None,
    label: str = "MatMul",
) -> None:
    """See ``coded.CodedProducts.record_coded``.

    Of integers of 8 bits, and of 16 in the first factor if none exceeds 2¹⁵ - 1 when
    its zero point is subtracted, without scales; and of floats with codes of 2, 4 and 8
    bits that have scales.  Those of constant matrices, and those whose columns are
    consecutive, are multiplied as they are; others are made floats before.

    Raises:
        ValueError: shapes or elements do not fit.
    """
    _check(a, b, out)
    if 0 in out.shape:
        return
    if element_of(a.codes.view.dtype) in NARROW_FLOATS:
        from onnxplug_cpu.compiler.kernels.coded import dequantised, weight_product

        weights = dequantised.weights_of(recorder, a, b)
        if weights is None:
            dequantised.record_floats(recorder, a, b, out, epilogue, label)
            return
        given = (recorder, a, weights, out, epilogue, label)
        weight_product.WeightProduct(*given).record()
        return
    _check_integers(a, b, out)
    record_integers(recorder, a, b, out, epilogue, label)


def reads_codes(recorder: Recorder, a: Factor, b: Factor) -> bool:
    """See ``coded.CodedProducts.reads_codes``."""
    return reads_quads(recorder, a, b)


def takes_groups() -> bool:
    """See ``coded.CodedProducts.takes_groups``."""
    return True


def _check(a: Factor, b: Factor, out: View) -> None:
    left, right = a.codes.shape, b.codes.shape
    rows = len(out.shape) - _BATCHES - 1
    sums = len(right) - _BATCHES - 1
    if (
        not 1 <= rows <= MOST_ROW_AXES
        or not 1 <= sums <= MOST_SUM_AXES
        or len(left) != _BATCHES + rows + sums
        or out.shape != (*left[: _BATCHES + rows], right[-1])
        or left[_BATCHES + rows :] != right[_BATCHES:-1]
        or right[:_BATCHES] != left[:_BATCHES]
    ):
        raise ValueError(
            f"codes of shape {left} times codes of shape {right} do not give "
            f"{out.shape}"
        )


def _check_integers(a: Factor, b: Factor, out: View) -> None:
    if out.dtype != np.int32:
        raise ValueError(f"sums of integers are int32; got {out.dtype}")
    for factor in (a, b):
        if any(view.shape != factor.codes.shape for view in factor.views):
            raise ValueError(f"arrays of a factor have the shapes {factor.views}")
