"""Nodes of random graphs that give elements another place, shape or extent."""

from __future__ import annotations

import math

import numpy as np

from .random_graphs import RandomGraph


def transpose(g: RandomGraph) -> None:
    x = g.pick(lambda v: len(v.shape) > 1)
    if x is None:
        return
    perm = g.choose.sample(range(len(x.shape)), len(x.shape))
    g.moved("Transpose", x, [x.shape[axis] for axis in perm], perm=perm)


def reshape(g: RandomGraph) -> None:
    x = g.pick()
    if x is None:
        return
    sizes = list(x.shape)
    for _ in range(g.choose.randint(1, 3)):
        place = g.choose.randrange(len(sizes) + 1)
        if g.choose.random() < 0.3:
            sizes.insert(place, 1)
        elif place + 1 < len(sizes):
            sizes[place : place + 2] = [sizes[place] * sizes[place + 1]]
        elif place < len(sizes) and sizes[place] % 2 == 0 and sizes[place]:
            sizes[place : place + 1] = [2, sizes[place] // 2]
    if len(sizes) > 5:
        return
    wanted = list(sizes)
    for axis, size in enumerate(wanted):
        if axis < len(x.shape) and size == x.shape[axis] and g.choose.random() < 0.4:
            wanted[axis] = 0
    if wanted and 0 not in x.shape and g.choose.random() < 0.5:
        wanted[g.choose.randrange(len(wanted))] = -1
    if 0 in x.shape and any(size == 0 for size in sizes):
        wanted = list(sizes)
        if any(a >= len(x.shape) or x.shape[a] for a, n in enumerate(wanted) if n == 0):
            return
    g.moved("Reshape", x, sizes, [g.integers(wanted)])


def reshape_by_shape(g: RandomGraph) -> None:
    """To the shape of another value, or to sizes taken from it."""
    x = g.pick(lambda v: len(v.shape) > 1 and 0 not in v.shape)
    if x is None:
        return
    (shape,) = g.node("Shape", [x], 1)
    (first,) = g.node("Gather", [shape, g.literal(np.int64(0))], 1, axis=0)
    (row,) = g.node("Unsqueeze", [first, g.integers([0])], 1)
    (sizes,) = g.node("Concat", [row, g.integers([-1])], 2 - 1, axis=0)
    flat = g.moved("Reshape", x, (x.shape[0], x.size // x.shape[0]), [sizes])
    if g.choose.random() < 0.5:
        flat = g.moved("Relu", flat, flat.shape) if flat.is_float else flat
    if g.choose.random() < 0.7:
        g.moved("Reshape", flat, x.shape, [shape])


def squeeze(g: RandomGraph) -> None:
    x = g.pick(lambda v: 1 in v.shape)
    if x is None:
        return
    ones = [axis for axis, n in enumerate(x.shape) if n == 1]
    gone = g.choose.sample(ones, g.choose.randint(1, len(ones)))
    shape = [n for axis, n in enumerate(x.shape) if axis not in gone]
    g.moved("Squeeze", x, shape, [g.integers(gone)])


def unsqueeze(g: RandomGraph) -> None:
    x = g.pick(lambda v: len(v.shape) < 5)
    if x is None:
        return
    axis = g.choose.randrange(len(x.shape) + 1)
    shape = [*x.shape[:axis], 1, *x.shape[axis:]]
    given = axis if g.choose.random() < 0.5 else axis - len(shape)
    g.moved("Unsqueeze", x, shape, [g.integers([given])])


def flatten(g: RandomGraph) -> None:
    x = g.pick(lambda v: len(v.shape) > 0)
    if x is None:
        return
    axis = g.choose.randrange(len(x.shape) + 1)
    shape = (math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))
    g.moved("Flatten", x, shape, axis=axis)


def slice(g: RandomGraph) -> None:
    x = g.pick(lambda v: bool(v.shape))
    if x is None:
        return
    axis = g.choose.randrange(len(x.shape))
    size = x.shape[axis]
    step = g.choose.choice([1, 1, 2, -1, -2])
    # backwards, ONNX starts at 0 if the start is before it, and Python nowhere
    start = g.choose.randint(-size - (step > 0), size)
    end = g.choose.randint(-size - 1, size)
    if g.choose.random() < 0.4:
        start, end = (-1, -(2**40)) if step < 0 else (0, 2**40)
    count = len(range(size)[start:end:step])
    if count == 0 and g.choose.random() < 0.8:
        return
    shape = [*x.shape[:axis], count, *x.shape[axis + 1 :]]
    more = [g.integers([start]), g.integers([end]), g.integers([axis])]
    g.moved("Slice", x, shape, [*more, g.integers([step])])


def split(g: RandomGraph) -> None:
    x = g.pick(lambda v: any(n > 1 for n in v.shape))
    if x is None:
        return
    axis = g.choose.choice([a for a, n in enumerate(x.shape) if n > 1])
    first = g.choose.randint(1, x.shape[axis] - 1)
    pieces = [first, x.shape[axis] - first]
    names = g.node("Split", [x, g.integers(pieces)], 2, axis=axis)
    for name, piece in zip(names, pieces, strict=True):
        shape = (*x.shape[:axis], piece, *x.shape[axis + 1 :])
        g.values.append(x._replace(name=name, shape=shape))


def concat(g: RandomGraph) -> None:
    x = g.pick(lambda v: bool(v.shape))
    if x is None:
        return
    axis = g.choose.randrange(len(x.shape))
    rest = (*x.shape[:axis], *x.shape[axis + 1 :])
    parts = [x]
    for _ in range(g.choose.randint(1, 2)):
        y = g.pick(
            lambda v: (
                v.dtype == x.dtype
                and len(v.shape) == len(x.shape)
                and (*v.shape[:axis], *v.shape[axis + 1 :]) == rest
            )
        )
        assert y is not None
        parts.append(y)
    size = sum(part.shape[axis] for part in parts)
    if size * math.prod(rest) > g.max_size:
        return
    shape = (*x.shape[:axis], size, *x.shape[axis + 1 :])
    bound, error = max(p.magnitude for p in parts), max(p.error for p in parts)
    g.add("Concat", parts, shape, x.dtype, bound, error, axis=axis)


def gather(g: RandomGraph) -> None:
    x = g.pick(lambda v: bool(v.shape) and 0 not in v.shape)
    if x is None:
        return
    axis = g.choose.randrange(len(x.shape))
    rank = g.choose.choice([0, 0, 1, 2]) if len(x.shape) < 5 else 0
    index_shape = g.shape(rank)
    shape = (*x.shape[:axis], *index_shape, *x.shape[axis + 1 :])
    if math.prod(shape) > g.max_size:
        return
    low = -x.shape[axis] if g.choose.random() < 0.3 else 0
    indices = g.numbers.integers(low, x.shape[axis], index_shape)
    dtype = g.choose.choice([np.int64, np.int32])
    array = np.asarray(indices).astype(dtype)
    if g.choose.random() < 0.5:
        g.moved("Gather", x, shape, [g.literal(array)], axis=axis)
        return
    name = f"in{len(g.feeds)}"
    g.feeds[name] = array
    g.moved("Gather", x, shape, [name], axis=axis)


def expand(g: RandomGraph) -> None:
    x = g.pick(lambda v: len(v.shape) < 5)
    if x is None:
        return
    wanted = [
        g.choose.choice(g.sizes) if n == 1 else g.choose.choice([1, n]) for n in x.shape
    ]
    if g.choose.random() < 0.3:
        wanted.insert(0, g.choose.choice(g.sizes))
    shape = np.broadcast_shapes(x.shape, tuple(wanted))
    if math.prod(shape) > g.max_size:
        return
    g.moved("Expand", x, shape, [g.integers(wanted)])


def tile(g: RandomGraph) -> None:
    x = g.pick(lambda v: len(v.shape) > 0)
    if x is None:
        return
    repeats = [g.choose.choice([1, 1, 2, 3]) for _ in x.shape]
    shape = [n * size for n, size in zip(repeats, x.shape, strict=True)]
    if math.prod(shape) <= g.max_size:
        g.moved("Tile", x, shape, [g.integers(repeats)])


def pad(g: RandomGraph) -> None:
    x = g.pick(lambda v: len(v.shape) > 0)
    if x is None:
        return
    rank = len(x.shape)
    axes = [a for a in range(rank) if g.choose.random() < 0.5] or [0]
    before, after = ([g.choose.randint(-1, 3) for _ in axes] for _ in range(2))
    shape = list(x.shape)
    for axis, low, high in zip(axes, before, after, strict=True):
        kept = shape[axis] + min(low, 0) + min(high, 0)
        shape[axis] += low + high
        if kept < 1:
            return
    if math.prod(shape) > g.max_size:
        return
    value, options = None, {}
    if g.choose.random() < 0.5 and 0 not in x.shape:
        options["mode"] = g.choose.choice(["edge", "reflect", "wrap"])
    elif g.choose.random() < 0.5:
        value = g.literal(np.array(1, x.dtype))
    more = [g.integers(before + after), value, g.integers(axes)]
    g.moved("Pad", x, shape, more, **options)


def trilu(g: RandomGraph) -> None:
    x = g.pick(lambda v: len(v.shape) > 1)
    if x is None:
        return
    more = []
    if g.choose.random() < 0.6:
        more.append(g.literal(np.int64(g.choose.randint(-3, 3))))
    g.moved("Trilu", x, x.shape, more, upper=g.choose.randint(0, 1))


def depth_to_space(g: RandomGraph) -> None:
    x = g.pick(lambda v: len(v.shape) == 4)
    if x is None:
        return
    batch, channels, height, width = x.shape
    size = g.choose.choice([1, 2, 3, 4])
    if channels % size**2 == 0 and g.choose.random() < 0.7:
        shape = (batch, channels // size**2, height * size, width * size)
        mode = g.choose.choice(["DCR", "CRD"])
        g.moved("DepthToSpace", x, shape, blocksize=size, mode=mode)
    elif height % size == width % size == 0:
        shape = (batch, channels * size**2, height // size, width // size)
        g.moved("SpaceToDepth", x, shape, blocksize=size)
