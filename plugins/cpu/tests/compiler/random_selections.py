"""Nodes of random graphs that choose elements by their order."""

from __future__ import annotations

import numpy as np

from .random_graphs import BF16, BOOL, I64, RandomGraph, Value


def _ordered(g: RandomGraph) -> Value | None:
    """A value whose elements are the same in both computations."""
    return g.pick(lambda v: v.error == 0 and len(v.shape) > 0 and v.size > 0)


def arg_extreme(g: RandomGraph) -> None:
    x = _ordered(g)
    if x is None or x.dtype == BOOL:
        return
    axis, kept = g.choose.randrange(-len(x.shape), len(x.shape)), g.choose.randint(0, 1)
    shape = list(x.shape)
    shape[axis : axis % len(shape) + 1] = [1] if kept else []
    g.add(
        g.choose.choice(["ArgMax", "ArgMin"]),
        [x],
        shape,
        I64,
        x.shape[axis],
        axis=axis,
        keepdims=kept,
        select_last_index=g.choose.randint(0, 1),
    )


def top(g: RandomGraph) -> None:
    x = _ordered(g)
    if x is None or x.dtype in (BOOL, BF16):
        return
    axis = g.choose.randrange(-len(x.shape), len(x.shape))
    count = g.choose.randint(0, x.shape[axis])
    shape = list(x.shape)
    shape[axis] = count
    attributes = {name: g.choose.randint(0, 1) for name in ("largest", "sorted")}
    inputs = [x, g.literal(np.array([count]))]
    values, indices = g.node("TopK", inputs, 2, axis=axis, **attributes)
    found = tuple(shape)
    g.values.append(Value(values, x.dtype, found, x.magnitude))
    g.values.append(Value(indices, I64, found, x.shape[axis]))
