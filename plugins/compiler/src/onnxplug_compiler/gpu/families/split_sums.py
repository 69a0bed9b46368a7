"""Products of few tiles whose sums are long: parts of the sums are products of a batch,
so that they keep a GPU busy, and are added behind that, always in the same order."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from onnxplug_compiler.gpu.command import has_too_many_buffers
from onnxplug_compiler.gpu.families.elementwise import record_chain
from onnxplug_compiler.gpu.render.body import KINDS
from onnxplug_compiler.gpu.shapes import shapes_of
from onnxplug_compiler.ir.coded import Codes, Factor
from onnxplug_compiler.ir.elementwise import ChainBuilder
from onnxplug_compiler.ir.epilogue import Epilogue
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.views import View

_SIDE: Final = 64
"""Rows and columns of a tile, about."""

_LEAST: Final = 512
"""Products of a part: with fewer, to write and read its sum takes as long."""

_EACH: Final = 64
"""A part has a multiple of so many along the last axis of sums, as tiles have."""

_MOST: Final = 8
"""Parts."""

_DTYPES: Final = {
    kind: np.dtype(dtype)
    for kind, dtype in (("f32", np.float32), ("f64", np.float64), ("i32", np.int32))
}

Recording: TypeAlias = "Callable[[Factor, Factor, View], None]"
"""Records a product, by its factors and its result."""


def record_split(
    recorder: Recorder[Any],
    a: Factor,
    b: Factor,
    out: View,
    rows: int,
    after: Epilogue,
    label: str,
    record: Recording,
) -> bool:
    """Record parts of sums of products and what follows, if that is worth it; say
    whether it was.

    Args:
        a, b, out, rows, after, label: as of ``few_rows.record_few_rows``.
        record: records the products of parts.
    """
    element = after.chain.inputs[0]
    dtype = _DTYPES.get(KINDS.get(element, ""))
    parts = _parts_of(recorder, a, b, out, rows)
    if parts == 1 or dtype is None:
        return False
    batches = math.prod(out.shape[:2])
    sums = recorder.temporary(dtype, (batches, parts, *out.shape[2:]))
    if has_too_many_buffers(recorder, [sums, *after.operands, *after.outputs]):
        return False
    batch = 0 if out.shape[0] > 1 else 1
    left = _of_parts(a, len(a.codes.shape) - 1, batch, parts)
    right = _of_parts(b, len(b.codes.shape) - 2, batch, parts)
    record(left, right, sums)
    builder = ChainBuilder()
    kind = KINDS[element]
    values = [builder.input(kind) for _ in range(parts)]
    operands = [builder.input(each) for each in after.chain.inputs[1:]]
    while len(values) > 1:
        pairs = zip(values[::2], values[1::2], strict=True)
        values = [builder.step("Add", pair, kind) for pair in pairs]
    total = values[0]
    if element != kind:
        total = builder.step("Cast", [total], element)
    chain = builder.build(builder.append(after.chain, [total, *operands]))
    views = [_part(sums, number, out.shape) for number in range(parts)]
    record_chain(recorder, chain, [*views, *after.operands], after.outputs, label=label)
    return True


def _parts_of(
    recorder: Recorder[Any], a: Factor, b: Factor, out: View, rows: int
) -> int:
    """How many parts sums are split into; 1: none."""
    *lead, columns = out.shape
    if min(lead[:2]) > 1 or any(each.codes.bits for each in (a, b)):
        return 1
    if any(each.zero is not None and each.zero.bits for each in (a, b)):
        return 1
    sums = a.codes.shape[2 + rows :]
    count = math.prod(lead[2:])
    tiles = math.ceil(count / _SIDE) * math.ceil(columns / _SIDE) * max(lead[:2])
    parts = 1
    while (
        parts < _MOST
        and 2 * parts * tiles <= shapes_of(recorder).busy
        and math.prod(sums) >= 2 * parts * _LEAST
        and sums[-1] % (2 * parts * _EACH) == 0
    ):
        parts *= 2
    return parts


def _of_parts(factor: Factor, axis: int, batch: int, parts: int) -> Factor:
    """A factor whose second axis is one of parts of *axis*, and whose first one is the
    axis *batch*, as the other has one element."""

    def split(view: View) -> View:
        shape, strides = list(view.shape), list(view.strides)
        shape[axis] //= parts
        apart = shape[axis] * strides[axis]
        return View(
            view.buffer,
            view.offset,
            view.dtype,
            (shape[batch], parts, *shape[2:]),
            (strides[batch], apart, *strides[2:]),
        )

    zero = factor.zero
    return Factor(
        Codes(split(factor.codes.view)),
        None if zero is None else Codes(split(zero.view)),
        factor.offset,
        None if factor.scale is None else split(factor.scale),
    )


def _part(sums: View, number: int, shape: Sequence[int]) -> View:
    """The sums of a part, of a result's shape."""
    batch, apart, *strides = sums.strides
    return View(
        sums.buffer,
        sums.offset + number * apart * sums.dtype.itemsize,
        sums.dtype,
        tuple(shape),
        (batch, batch, *strides),
    )
