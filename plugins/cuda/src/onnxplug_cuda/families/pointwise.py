"""Convolutions of one place as products of matrices, with all that follows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnxplug_compiler.ir.epilogue import Epilogue
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.ir.windows import STILL, Slide
from onnxplug_cuda.families.products import Products


def record_pointwise(
    products: Products,
    recorder: Recorder[Any],
    x: View,
    weights: View,
    slides: Sequence[Slide],
    epilogue: Epilogue,
    label: str,
) -> bool:
    """Convolve by cuBLASLt, which adds what residual networks add behind, too.

    Args:
        x: [N, C, *spatial].
        weights: [M, C, *taps].
        slides: of the convolution, which is not transposed.
        epilogue: takes the result; its views are [N, M, *spatial].

    Returns:
        Whether it is of one place, in one group, of images with their channels last,
        and the library's.
    """
    if any(slide != STILL for slide in slides) or weights.shape[1] != x.shape[1]:
        return False
    rows = [_rows(view) for view in (x, *epilogue.operands, *epilogue.outputs)]
    found = [view for view in rows if view is not None]
    if len(found) < len(rows) or 1 not in (found[-1].strides[3], found[-1].shape[3]):
        return False
    a, *others = found
    count = len(epilogue.operands)
    after = Epilogue(epilogue.chain, tuple(others[:count]), tuple(others[count:]))
    filters, depth = weights.shape[:2]
    apart, step = weights.strides[:2]
    b = View(
        weights.buffer, weights.offset, weights.dtype, (1, 1, depth, filters),
        (0, 0, step, apart),
    )  # fmt: skip
    return products.record_product(recorder, a, b, after, label)


def _rows(view: View) -> View | None:
    """[N, C, *spatial] as [1, 1, rows, C]; ``None``: rows do not follow each other."""
    rows, step = 1, 0
    for axis in (*reversed(range(2, len(view.shape))), 0):
        size, stride = view.shape[axis], view.strides[axis]
        if size == 1:
            continue
        if rows == 1:
            step = stride
        elif stride != step * rows:
            return None
        rows *= size
    return View(
        view.buffer, view.offset, view.dtype, (1, 1, rows, view.shape[1]),
        (0, 0, step, view.strides[1]),
    )  # fmt: skip
