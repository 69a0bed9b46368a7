"""Operators of the compiled tier that move elements, against NumPy's indexing."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
import pytest

from ....kernels.tests.properties.comparison import assert_same
from ....kernels.tests.properties.formulas import sliced
from ....kernels.tests.properties.strategies import Array, Draw, Dtype, examples
from .compiled import Compiled, Node, shapes

DTYPES = [np.dtype(name) for name in ("float32", "int64", "float16", "uint8", "bool")]
ORDERS = [*itertools.permutations(range(3))]
# starts, ends, axes, steps
SLICES = [
    ([1], [9], [0], [1]),
    ([0, -3], [-1, 99], [1, 2], [2, 1]),
    ([-1], [-99], [2], [-1]),
    ([99, 1, 0], [0, 30, 2**62], [0, 1, -1], [-2, 3, 4]),
    ([5], [2], [1], [1]),
]
# of each axis, before and after
PADS = [[1, 0, 2, 0, 3, 1], [0, 0, 17, 0, 0, 0], [0, 0, 0, 0, 0, 1]]
REPEATS = [[2, 1, 1], [1, 3, 2], [1, 1, 17], [1, 0, 1]]
DIAGONALS = [0, 1, -2, 99]


def integers(numbers: Any) -> Array:
    return np.array(numbers, np.int64)


@functools.cache
def moves(dtype: Dtype) -> Compiled:
    nodes = {}

    def add(name: str, op_type: str, *inputs: Any, **attributes: Any) -> None:
        nodes[name] = Node(op_type, inputs, dtype, attributes)

    for number, order in enumerate(ORDERS):
        add(f"transpose {number}", "Transpose", "x", perm=order)
    for number, parts in enumerate(SLICES):
        add(f"slice {number}", "Slice", "x", *map(integers, parts))
    for number, pads in enumerate(PADS):
        add(f"pad {number}", "Pad", "x", integers(pads), np.array(1, dtype))
    for number, repeats in enumerate(REPEATS):
        add(f"tile {number}", "Tile", "x", integers(repeats))
    for number, diagonal in enumerate(DIAGONALS):
        add(f"trilu {number}", "Trilu", "x", integers(diagonal), upper=number % 2)
    for axis in range(3):
        add(f"concat {axis}", "Concat", "x", "x", "y", axis=axis - 3)
        add(f"unsqueeze {axis}", "Unsqueeze", "x", integers([axis, -1]))
        add(f"flatten {axis}", "Flatten", "x", axis=axis)
    add("expand 0", "Expand", "x", integers([2, 1, 1, 1]))
    add("reshape 0", "Reshape", "x", integers([0, -1]))
    add("reshape 1", "Reshape", "x", integers([-1]))
    return Compiled(nodes, {"x": dtype, "y": dtype})


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@examples(12)
def test_moves(dtype: Dtype, draw: Draw) -> None:
    shape = draw.one_of(shapes(3, 3))
    x, y = (draw.array(dtype, shape) for _ in range(2))
    for name, result in moves(dtype).run(x=x, y=y).items():
        kind, number = name.split()
        if kind == "reshape" and not x.size:
            continue  # what is inferred of nothing is not told
        assert_same(result, np.asarray(moved(kind, int(number), x, y), dtype))


def moved(kind: str, number: int, x: Array, y: Array) -> Array:
    match kind:
        case "transpose":
            return x.transpose(ORDERS[number])
        case "slice":
            places = [list(range(size)) for size in x.shape]
            for start, end, axis, step in zip(*SLICES[number], strict=True):
                places[axis] = sliced(start, end, step, x.shape[axis])
            return np.asarray(x[np.ix_(*places)])
        case "pad":
            pads = PADS[number]
            widths = list(zip(pads[:3], pads[3:], strict=True))
            return np.pad(x, widths, constant_values=x.dtype.type(1))
        case "tile":
            return np.tile(x, REPEATS[number])
        case "trilu":
            cut = np.triu if number % 2 else np.tril
            return cut(x, DIAGONALS[number])
        case "concat":
            return np.concatenate([x, x, y], axis=number)
        case "unsqueeze":
            return np.expand_dims(x, (number, 4))
        case "flatten":
            return x.reshape(
                int(np.prod(x.shape[:number])), int(np.prod(x.shape[number:]))
            )
        case "expand":
            return np.broadcast_to(x, (2, *x.shape))
    return x.reshape([(len(x), -1), (-1,)][number])


@functools.cache
def gathers(dtype: Dtype, axis: int) -> Compiled:
    nodes = {
        "gather": Node("Gather", ("x", "i"), dtype, {"axis": axis}),
        "elements": Node("GatherElements", ("x", "e"), dtype, {"axis": axis}),
        "put": Node("ScatterElements", ("x", "e", "u"), dtype, {"axis": axis - 3}),
    }
    kinds = {"x": dtype, "i": np.int64, "e": np.int32, "u": dtype}
    return Compiled(nodes, kinds)


@pytest.mark.parametrize("dtype", DTYPES[:4], ids=str)
@examples(15)
def test_gathers(dtype: Dtype, draw: Draw) -> None:
    axis = draw.integer(0, 2)
    x = draw.array(dtype, draw.one_of(shapes(3, 3, empty=False)))
    size = x.shape[axis]
    indices = draw.integers(
        -size, size - 1, draw.one_of([(), (3,), (2, 5), (17,), (0,)])
    )
    # of each line other elements, none twice
    lengths = [draw.integer(1, n) for n in x.shape]
    lengths[axis] = size
    first = draw.integers(
        0, size - 1, [n if a != axis else 1 for a, n in enumerate(lengths)]
    )
    steps = np.arange(size).reshape([-1 if a == axis else 1 for a in range(3)])
    places = ((first + steps) % size).astype(np.int32)
    kept = draw.integer(1, size)
    places = places.take(range(kept), axis=axis)
    places = np.where(places % 2, places - size, places).astype(np.int32)
    updates = draw.array(dtype, places.shape)
    found = gathers(dtype, axis).run(x=x, i=indices, e=places, u=updates)
    # where each element is, but along the axis
    grid = list(np.indices(places.shape))
    grid[axis] = places
    expected = x.copy()
    expected[tuple(grid)] = updates
    assert_same(found["gather"], np.asarray(x.take(indices, axis=axis), dtype))
    assert_same(found["elements"], x[tuple(grid)])
    assert_same(found["put"], expected)


@functools.cache
def by_tuples(dtype: Dtype, batch_dims: int) -> Compiled:
    nodes = {"y": Node("GatherND", ("x", "i"), dtype, {"batch_dims": batch_dims})}
    if not batch_dims:
        nodes["z"] = Node("ScatterND", ("x", "i", "u"), dtype)
    return Compiled(nodes, {"x": dtype, "i": np.int64, "u": dtype})


@pytest.mark.parametrize("dtype", DTYPES[:4], ids=str)
@examples(15)
def test_tuples(dtype: Dtype, draw: Draw) -> None:
    x = draw.array(dtype, draw.one_of(shapes(3, 3, empty=False)))
    batch = draw.integer(0, 1)
    length = draw.integer(1, 3 - batch)
    sizes = x.shape[batch : batch + length]
    count = draw.integer(1, min(17, int(np.prod(sizes))))
    # some of all tuples, none twice
    start = draw.integer(0, int(np.prod(sizes)) - 1)
    chosen = (start + np.arange(count)) % int(np.prod(sizes))
    table = np.stack(np.unravel_index(chosen, sizes), axis=-1)
    table = np.where(draw.flag(), table - np.array(sizes), table)
    indices = np.broadcast_to(table, (*x.shape[:batch], *table.shape))
    expected = (
        np.stack([np.stack([image[tuple(t)] for t in table]) for image in x])
        if (batch)
        else np.stack([x[tuple(t)] for t in table])
    )
    updates = draw.array(dtype, (count, *x.shape[length:])) if not batch else x
    found = by_tuples(dtype, batch).run(x=x, i=indices, u=updates)
    assert_same(found["y"], expected)
    if not batch:
        put = x.copy()
        for place, update in zip(table, updates, strict=True):
            put[tuple(place)] = update
        assert_same(found["z"], put)
