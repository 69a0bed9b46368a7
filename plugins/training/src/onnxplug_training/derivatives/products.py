"""Rules of matrix products and of sums over axes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import numpy as np

from onnxplug_training.derivatives.emit import Emitter, Rule, Shape, Step


def _matmul(step: Step) -> Mapping[int, str]:
    """``dA = G Bᵀ`` and ``dB = Aᵀ G``, vectors being matrices with one row or column.

    Source: ``numpy.matmul``, which MatMul refers to.
    """
    e, g = step.emit, step.g
    shapes = [e.shape(step.x(0)), e.shape(step.x(1))]
    if shapes[0] is None or shapes[1] is None:
        step.refuse("the rank of its inputs must be known")
    ranks = len(shapes[0]), len(shapes[1])
    a, a_shape = step.x(0), shapes[0]
    b, b_shape = step.x(1), shapes[1]
    if ranks[0] == 1:
        a, a_shape = e.unsqueeze(a, [0]), (1, *a_shape)
    if ranks[1] == 1:
        b, b_shape = e.unsqueeze(b, [1]), (*b_shape, 1)
    added = [-2] * (ranks[0] == 1) + [-1] * (ranks[1] == 1)
    if added:
        g = e.unsqueeze(g, added)
    batch = _batch(step, len(a_shape), len(b_shape), len(added))
    made: dict[int, str] = {}
    if 0 in step.wanted:
        product = e("MatMul", g, _transposed(e, b, len(b_shape)))
        full = None if batch is None else (*batch, *a_shape[-2:])
        by_a = e.sum_to_shape(product, full, a, a_shape)
        made[0] = e.squeeze(by_a, [0]) if ranks[0] == 1 else by_a
    if 1 in step.wanted:
        product = e("MatMul", _transposed(e, a, len(a_shape)), g)
        full = None if batch is None else (*batch, *b_shape[-2:])
        by_b = e.sum_to_shape(product, full, b, b_shape)
        made[1] = e.squeeze(by_b, [1]) if ranks[1] == 1 else by_b
    return made


def _batch(step: Step, rank_a: int, rank_b: int, added: int) -> Shape:
    """What is known of the output's dimensions before the matrices."""
    if max(rank_a, rank_b) == 2:
        return ()
    shape = step.emit.shape(step.y)
    return None if shape is None else shape[: len(shape) - (2 - added)]


def _transposed(e: Emitter, value: str, rank: int) -> str:
    perm = (*range(rank - 2), rank - 1, rank - 2)
    return e("Transpose", value, attributes={"perm": perm})


def _gemm(step: Step) -> Mapping[int, str]:
    """``Y = alpha A' B' + beta C``, each gradient again one ``Gemm``."""
    e, a, b, g, made = step.emit, step.x(0), step.x(1), step.g, dict[int, str]()
    alpha = float(step.attribute("alpha", 1.0))
    trans_a = int(bool(step.attribute("transA", 0)))
    trans_b = int(bool(step.attribute("transB", 0)))

    def gemm(left: str, right: str, trans_left: int, trans_right: int) -> str:
        attributes = {"alpha": alpha, "transA": trans_left, "transB": trans_right}
        return e("Gemm", left, right, attributes=attributes)

    if 0 in step.wanted:
        made[0] = gemm(b, g, trans_b, 1) if trans_a else gemm(g, b, 0, 1 - trans_b)
    if 1 in step.wanted:
        made[1] = gemm(g, a, 1, trans_a) if trans_b else gemm(a, g, 1 - trans_a, 0)
    if 2 in step.wanted:
        beta = float(step.attribute("beta", 1.0))
        scaled = g if beta == 1 else e("Mul", g, e.scalar(beta, step.y))
        made[2] = step.sum_to(scaled, 2)
    return made


def _reduce_sum(step: Step) -> Mapping[int, str]:
    return {0: _spread(step)}


def _reduce_mean(step: Step) -> Mapping[int, str]:
    e, x, y = step.emit, step.x(), step.y
    spread = _spread(step)
    count = _count(e.shape(x), e.shape(y))
    if count is not None:
        return {0: e("Div", spread, e.scalar(count, x))}
    # whole numbers are divided, so that the count is exact in any element type
    e.need(12, "Max of sizes known only at run time")
    kept = e("Max", e("Size", y), e.add_constant(np.array(1, np.int64)))
    return {0: e("Div", spread, e.cast(e("Div", e("Size", x), kept), x))}


def _spread(step: Step) -> str:
    """The gradient of a sum: that of the output, at every element summed."""
    e, g = step.emit, step.g
    shape = e("Shape", step.x())
    if step.attribute("keepdims", 1):
        return e("Expand", g, shape)
    axes = step.optional(1)
    if axes is not None:  # no axes means all or none: either way g has the right rank
        g = e("Unsqueeze", g, axes)
    elif step.attribute("axes") is not None:
        g = e.unsqueeze(g, step.attribute("axes"))
    return e("Expand", g, shape)


def _count(shape: Shape, reduced: Shape) -> int | None:
    """How many elements go into one mean, if that is known."""
    sizes = [
        math.prod(size for size in known if isinstance(size, int))
        for known in (shape, reduced)
        if known is not None and all(isinstance(size, int) for size in known)
    ]
    return sizes[0] // max(sizes[1], 1) if len(sizes) == 2 else None


PRODUCTS: Final[Mapping[str, Rule]] = {
    "Gemm": Rule(11, _gemm),
    "MatMul": Rule(1, _matmul),
    "ReduceMean": Rule(1, _reduce_mean),
    "ReduceSum": Rule(1, _reduce_sum),
}
