"""Which weights are multiplied as codes, and products of those that are made floats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from onnxplug_compiler.ir.coded import Factor
from onnxplug_compiler.ir.elements import element_of
from onnxplug_compiler.ir.formula import Formula
from onnxplug_compiler.ir.quantization import dequantised
from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.kernels.coded.columns import in_columns
from onnxplug_cpu.compiler.kernels.coded.factors import BATCHES, first_of, with_line
from onnxplug_cpu.compiler.kernels.contraction.commands import record_contraction

if TYPE_CHECKING:
    from onnxplug_compiler.ir.epilogue import Epilogue
    from onnxplug_cpu.compiler.commands.recording import Recorder

_F32: Final = np.dtype(np.float32)


def weights_of(recorder: Recorder, a: Factor, b: Factor) -> Factor | None:
    """*b* as :class:`~.weight_product.WeightProduct` takes it; ``None`` if it does not
    take it, or *a*: there are windows, or batches."""
    rows = len(a.codes.shape) - len(b.codes.shape) + 1
    if rows != 1 or a.codes.shape[:BATCHES] != (1, 1):
        return None
    return in_columns(recorder, b)


def record_floats(
    recorder: Recorder,
    a: Factor,
    b: Factor,
    out: View,
    epilogue: Epilogue | None,
    label: str,
) -> None:
    """Record a product of floats with codes that are made floats first.

    Raises:
        ValueError: *b* has no scales, or codes that share bytes.
    """
    if b.scale is None or b.codes.bits:
        raise ValueError(f"weights {b} are not dequantised")
    repeated = [
        all(not view.strides[axis] for view in b.views)
        for axis in range(len(b.codes.shape))
    ]
    shape = tuple(
        1 if is_repeated else size
        for is_repeated, size in zip(repeated, b.codes.shape, strict=True)
    )
    right = recorder.temporary(_F32, shape)
    chain = Formula("f32")
    value, scale = (
        chain.read_wide(first_of(view, shape)) for view in (b.codes.view, b.scale)
    )
    zero = None
    if b.zero is not None:
        zero = chain.read_wide(first_of(b.zero.view, shape))
    elif b.offset:
        zero = chain.number(float(b.offset))
    chain.record(recorder, dequantised(chain, value, scale, zero), right, label)
    left = a.codes.view
    if element_of(left.dtype) != "f32":
        wide = recorder.temporary(_F32, left.shape)
        chain = Formula("f32")
        chain.record(recorder, chain.read_wide(left), wide, label)
        left = wide
    if len(left.shape) - len(b.codes.shape) == 0:
        left, out = with_line(left), with_line(out)
        epilogue = None if epilogue is None else epilogue.with_line()
    right = right.broadcast_to(b.codes.shape)
    record_contraction(recorder, left, right, out, epilogue=epilogue, label=label)
