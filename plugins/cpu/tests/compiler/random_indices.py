"""Nodes of random graphs that find elements by indices."""

from __future__ import annotations

import math

import numpy as np

from .random_graphs import F32, F64, I32, I64, Array, RandomGraph, Value, inexact


def _placed(g: RandomGraph, indices: Array, *, narrow: bool = True) -> Value:
    """Indices, known or not."""
    dtype = np.int32 if narrow and g.choose.random() < 0.5 else np.int64
    array = np.asarray(indices, dtype)
    return g.literal(array) if g.choose.random() < 0.3 else g.given(array)


def _along(g: RandomGraph, x: Value) -> tuple[int, tuple[int, ...], Array]:
    """An axis, and for elements of a part of *x* other places on that axis.

    No place is there twice, for which scattering has no order.
    """
    axis = g.choose.randrange(len(x.shape))
    shape = tuple(
        n if a == axis or g.choose.random() < 0.6 else g.choose.randint(1, n)
        for a, n in enumerate(x.shape)
    )
    count = g.choose.randint(1, x.shape[axis])
    order = np.argsort(g.numbers.random(shape), axis).take(range(count), axis)
    if g.choose.random() < 0.3:
        order -= x.shape[axis]
    return axis, order.shape, order


def gather_elements(g: RandomGraph) -> None:
    x = g.pick(lambda v: len(v.shape) > 0 and v.size > 0)
    if x is None:
        return
    axis, shape, order = _along(g, x)
    g.moved("GatherElements", x, shape, [_placed(g, order)], axis=axis)


def scatter_elements(g: RandomGraph) -> None:
    x = g.pick(lambda v: len(v.shape) > 0 and v.size > 0)
    if x is None:
        return
    axis, shape, order = _along(g, x)
    updates = g.input(shape, x.dtype)
    inputs = [_placed(g, order), updates]
    g.moved("ScatterElements", x, x.shape, inputs, axis=axis)


def gather_nd(g: RandomGraph) -> None:
    x = g.pick(lambda v: len(v.shape) > 0 and v.size > 0)
    if x is None:
        return
    batch = g.choose.choice([0, 0, 1]) if len(x.shape) > 1 else 0
    count = g.choose.randint(1, len(x.shape) - batch)
    rows = g.choose.choice([(1,), (3,), (2, 4)])
    lead, rest = x.shape[:batch], x.shape[batch + count :]
    shape = (*lead, *rows, *rest)
    if math.prod(shape) > g.max_size or len(shape) > 5:
        return
    limits = np.array(x.shape[batch : batch + count])
    indices = g.numbers.integers(-limits, limits, (*lead, *rows, count))
    g.moved("GatherND", x, shape, [_placed(g, indices, narrow=False)], batch_dims=batch)


def scatter_nd(g: RandomGraph) -> None:
    x = g.pick(lambda v: len(v.shape) > 0 and v.size > 0)
    if x is None:
        return
    count = g.choose.randint(1, len(x.shape))
    sizes, rest = x.shape[:count], x.shape[count:]
    rows = g.choose.randint(1, min(4, math.prod(sizes)))
    flat = g.numbers.permutation(math.prod(sizes))[:rows]
    indices = np.stack(np.unravel_index(flat, sizes), -1)
    updates = g.input((rows, *rest), x.dtype)
    g.moved("ScatterND", x, x.shape, [_placed(g, indices, narrow=False), updates])


def cumsum(g: RandomGraph) -> None:
    x = g.pick(lambda v: v.dtype in (F32, F64, I32, I64) and len(v.shape) > 0)
    if x is None:
        return
    axis = g.choose.randrange(-len(x.shape), len(x.shape))
    count = max(x.shape[axis], 1)
    bound = count * x.magnitude
    if bound > 1e3:
        return
    error = inexact(count * x.error, x, bound, 4 + count) if x.is_float else 0
    g.add(
        "CumSum",
        [x, g.literal(np.int64(axis))],
        x.shape,
        x.dtype,
        bound,
        error,
        exclusive=g.choose.randint(0, 1),
        reverse=g.choose.randint(0, 1),
    )
