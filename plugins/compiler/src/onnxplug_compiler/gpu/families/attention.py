"""Scaled dot-product attention: tile by tile, or as products and a softmax."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from onnxplug_compiler.gpu.command import launch, operand
from onnxplug_compiler.gpu.families.contractions import record_matmul
from onnxplug_compiler.gpu.families.flash import FlashKernel, tile_of
from onnxplug_compiler.gpu.families.movement import record_copy
from onnxplug_compiler.gpu.families.rows import record_softmax
from onnxplug_compiler.gpu.families.tensor_flash import by_tensor_cores
from onnxplug_compiler.ir.elementwise import ChainBuilder
from onnxplug_compiler.ir.epilogue import Epilogue
from onnxplug_compiler.ir.families import Undefined
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.views import View

_F32: Final = np.dtype(np.float32)


def record_attention(
    recorder: Recorder[Any],
    q: View,
    k: View,
    v: View,
    out: View,
    *,
    scale: float,
    mask: View | None = None,
    causal: bool = False,
    past_length: int = 0,
    softcap: float = 0.0,
    undefined: Undefined = "masked_zero",
    hides: bool = False,
    fill: float = -math.inf,
    label: str = "Attention",
) -> None:
    """See ``ir.families.Attention``.

    Scores are in no memory, but where a lane would have too many sums: then they are
    there between products, in float32.
    """
    if not out.size:
        return
    batch, heads, queries, depth = q.shape
    groups, keys = k.shape[1], k.shape[2]
    if not keys:
        raise ValueError("attention to no keys")
    if mask is not None:
        mask = mask.broadcast_to((batch, heads, queries, keys))
    rows = heads // groups * queries
    tile = tile_of(rows, depth, v.shape[-1])
    if tile is not None:
        masks = "" if mask is None else operand(mask).element
        kernel = FlashKernel(
            operand(q).element, tile, depth, v.shape[-1], masks, causal, float(scale),
            float(softcap), hides, float(fill), undefined,
        )  # fmt: skip
        kernel, factors = by_tensor_cores(recorder, kernel, rows, [q, k, v])
        blocks = -(-rows // kernel.tile.rows)
        count = batch * groups * blocks
        launch(
            recorder,
            kernel,
            [*factors, out, *([] if mask is None else [mask])],
            (count, blocks, groups, heads // groups, queries, keys, past_length, 0, 0),
            count,
            label,
            2 * batch * heads * queries * keys * (depth + v.shape[-1]),
        )
        return
    scores = recorder.temporary(_F32, (batch, heads, queries, keys))
    operands, builder = [], ChainBuilder()
    found = builder.step(
        "Mul", [builder.input("f32"), builder.constant("f32", scale)], "f32"
    )
    if softcap:
        cap = builder.constant("f32", softcap)
        found = builder.step("Div", [found, cap], "f32")
        found = builder.step("Tanh", [found], "f32")
        found = builder.step("Mul", [found, cap], "f32")
    if mask is not None:
        operands.append(mask)
        if mask.dtype == np.bool_:
            number, filled = builder.input("i1"), builder.constant("f32", fill)
            choice = [number, filled, found] if hides else [number, found, filled]
            found = builder.step("Where", choice, "f32")
        else:
            added = builder.input(operand(mask).element)
            if builder.element(added) != "f32":
                added = builder.step("Cast", [added], "f32")
            found = builder.step("Add", [found, added], "f32")
    if causal:
        last = np.arange(queries)[:, None] + past_length
        seen = recorder.constant(np.arange(keys) <= last)
        operands.append(seen.broadcast_to(scores.shape))
        nothing = builder.constant("f32", -math.inf)
        found = builder.step("Where", [builder.input("i1"), found, nothing], "f32")
    chain = builder.build([found])
    together = (batch, groups, heads // groups * queries)
    folded = [_folded(recorder, view, together) for view in (q, *operands)]
    place = scores.reshape((*together, keys))
    assert place is not None
    after = Epilogue(chain, tuple(folded[1:]), (place,))
    turned = k.transpose((0, 1, 3, 2))
    record_matmul(recorder, folded[0], turned, place, epilogue=after, label=label)
    record_softmax(recorder, place, place, label=label, undefined=undefined)
    shape = (*together, v.shape[-1])
    results = out.reshape(shape)
    if results is None:
        results = View.contiguous(
            recorder.temporary(out.dtype, out.shape).buffer, out.dtype, shape
        )
    record_matmul(recorder, place, v, results, label=label)
    if results.buffer is not out.buffer:
        found_there = results.reshape(out.shape)
        assert found_there is not None
        record_copy(recorder, found_there, out, label=label)


def _folded(recorder: Recorder[Any], view: View, together: tuple[int, ...]) -> View:
    """Queries of all heads that share keys as rows of one matrix."""
    shape = (*together, view.shape[-1])
    folded = view.reshape(shape)
    if folded is None:
        whole = recorder.temporary(view.dtype, view.shape)
        record_copy(recorder, view, whole)
        folded = whole.reshape(shape)
    assert folded is not None
    return folded
