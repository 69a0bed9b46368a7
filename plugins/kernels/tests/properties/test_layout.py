"""Operators that place blocks, against where each element comes from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ..node_oracles import reference
from .comparison import assert_same, result_of
from .formulas import sliced
from .strategies import Array, Draw, Dtype, examples

POWERS = np.dtype(ml_dtypes.float8_e8m0fnu)
FAR = [2**62, -(2**62), 2**63 - 1, -(2**63)]


def zero_of(dtype: Dtype) -> Any:
    return "" if dtype.kind == "O" else np.zeros((), dtype)[()]


def gathered(
    x: Array, shape: tuple[int, ...], source: Callable[[tuple[int, ...]], Any]
) -> Array:
    """An array of *shape*; *source* tells where in *x* an element is from, if it is."""
    result = np.empty(shape, x.dtype)
    for place in np.ndindex(shape):
        origin = source(place)
        result[place] = zero_of(x.dtype) if origin is None else x[origin]
    return result


@examples(35)
def test_transpose(draw: Draw) -> None:
    x = draw.array(draw.dtype("Transpose"), draw.shape())
    perm = [axis % x.ndim for axis in draw.axes(x.ndim, fewest=x.ndim)]
    given = draw.flag()
    if not given:
        perm = list(range(x.ndim))[::-1]
    expected = gathered(
        x,
        tuple(x.shape[axis] for axis in perm),
        lambda place: tuple(place[perm.index(axis)] for axis in range(x.ndim)),
    )
    assert_same(
        result_of("Transpose", x, **({"perm": perm} if given else {})), expected
    )


@examples(50)
def test_concat(draw: Draw) -> None:
    dtype, shape = draw.dtype("Concat"), draw.shape(1)
    axis = draw.axis(len(shape))
    at = axis % len(shape)
    sizes = [draw.integer(0, 4) for _ in range(draw.integer(1, 4))]
    parts = [draw.array(dtype, (*shape[:at], n, *shape[at + 1 :])) for n in sizes]
    pieces = [piece for part in parts for piece in np.moveaxis(part, at, 0)]
    expected = np.empty((*shape[:at], sum(sizes), *shape[at + 1 :]), dtype)
    for n, piece in enumerate(pieces):
        np.moveaxis(expected, at, 0)[n] = piece
    assert_same(result_of("Concat", *parts, axis=axis), expected)


@examples(100)
def test_slice(draw: Draw) -> None:
    x = draw.array(draw.dtype("Slice"), draw.shape(1))
    axes = draw.axes(x.ndim)
    ends_of_axes = [*range(-9, 10), *FAR]
    starts, ends = ([draw.one_of(ends_of_axes) for _ in axes] for _ in range(2))
    steps = [draw.one_of([1, 2, -1, -2, 3, -3, *FAR]) for _ in axes]
    kind = draw.one_of([np.int64, np.int64, np.int32])
    if kind == np.int32:
        starts, ends, steps = (
            np.clip(n, -(2**31), 2**31 - 1).tolist() for n in (starts, ends, steps)
        )
    more = [axes, steps]
    if draw.flag():
        axes, more = list(range(len(axes))), [None, steps]
        if draw.flag():
            steps, more = [1] * len(axes), []
    positions = [list(range(size)) for size in x.shape]
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        positions[axis] = sliced(start, end, step, x.shape[axis])
    expected = x[np.ix_(*positions)]
    inputs = [None if n is None else np.array(n, kind) for n in (starts, ends, *more)]
    assert_same(result_of("Slice", x, *inputs), expected)


@examples(50)
def test_split(draw: Draw) -> None:
    dtype, shape = draw.dtype("Split"), draw.shape(1)
    x = draw.array(dtype, shape)
    axis = draw.axis(x.ndim)
    size = x.shape[axis]
    if draw.flag():
        ends = sorted(draw.integer(0, size) for _ in range(draw.integer(0, 3)))
        ends = [0, *ends, size]
        given: dict[str, Any] = {}
        lengths = [np.diff(ends)]
    else:
        count = draw.integer(1, max(1, size))
        chunk = -(-size // count)
        # the last part is smaller, and some parts would be left with nothing
        count = -(-size // chunk) if chunk else count
        ends = [min(n * chunk, size) for n in range(count + 1)]
        given, lengths = {"num_outputs": count}, []
    found = result_of(
        "Split", x, *lengths, axis=axis, output_count=len(ends) - 1, **given
    )
    assert len(found) == len(ends) - 1
    for part, start, end in zip(found, ends, ends[1:], strict=False):
        expected = np.moveaxis(np.moveaxis(x, axis, 0)[start:end], 0, axis)
        assert_same(part, expected)


@examples(60)
def test_pad_with_a_constant(draw: Draw) -> None:
    """Negative amounts remove elements."""
    dtype = draw.dtype("Pad")
    x = draw.array(dtype, draw.shape())
    axes = draw.axes(x.ndim, fewest=1)
    before = [draw.integer(-x.shape[axis], 3) for axis in axes]
    after = [
        draw.integer(-(x.shape[axis] + min(0, b)), 3)
        for axis, b in zip(axes, before, strict=True)
    ]
    # without a value it is zero, which a type of powers of two does not have
    value = draw.array(dtype, ()) if draw.flag() or dtype == POWERS else None
    starts, shape = [0] * x.ndim, list(x.shape)
    for axis, b, a in zip(axes, before, after, strict=True):
        starts[axis] = b
        shape[axis] += b + a

    def source(place: tuple[int, ...]) -> tuple[int, ...] | None:
        origin = tuple(n - start for n, start in zip(place, starts, strict=True))
        inside = all(0 <= n < size for n, size in zip(origin, x.shape, strict=True))
        return origin if inside else None

    expected = gathered(x, tuple(shape), source)
    if value is not None:
        mask = gathered(np.ones(x.shape, bool), tuple(shape), source)
        expected[~mask] = value[()]
    pads = np.array([*before, *after], np.int64)
    kind = draw.one_of([np.int64, np.int32])
    assert_same(result_of("Pad", x, pads, value, np.array(axes, kind)), expected)


@pytest.mark.parametrize("mode", ["edge", "reflect", "wrap"])
@examples(35)
def test_pad_from_elements(mode: str, draw: Draw) -> None:
    """By fewer than there are: beyond, the text does not say."""
    dtype = draw.dtype("Pad")
    x = draw.array(dtype, draw.shape(empty=False))
    most = [size - 1 if mode == "reflect" else size for size in x.shape]
    before, after = ([draw.integer(0, min(n, 3)) for n in most] for _ in range(2))

    def source(place: tuple[int, ...]) -> tuple[int, ...]:
        origin = []
        for n, b, size in zip(place, before, x.shape, strict=True):
            n -= b
            if not 0 <= n < size:
                match mode:
                    case "edge":
                        n = 0 if n < 0 else size - 1
                    case "reflect":
                        n = -n if n < 0 else 2 * (size - 1) - n
                    case "wrap":
                        n %= size
            origin.append(n)
        return tuple(origin)

    shape = [sum(sizes) for sizes in zip(before, x.shape, after, strict=True)]
    expected = gathered(x, tuple(shape), source)
    pads = np.array([*before, *after], np.int64)
    assert_same(result_of("Pad", x, pads, mode=mode), expected)


@examples(40)
def test_center_crop_pad(draw: Draw) -> None:
    # types that ONNX's reference pads
    dtype = draw.one_of([np.dtype(n) for n in ("float32", "int64", "uint8", "bool")])
    x = draw.array(dtype, draw.shape(1, empty=False))
    axes = draw.axes(x.ndim, fewest=1)
    given = {"axes": axes}
    if draw.flag():
        axes, given = list(range(x.ndim)), {}
    wanted = np.array([draw.integer(1, 9) for _ in axes], np.int64)
    (expected,) = reference("CenterCropPad", x, wanted, **given)
    assert_same(result_of("CenterCropPad", x, wanted, **given), expected)


@examples(40)
def test_depth_to_space_and_back(draw: Draw) -> None:
    dtype, block = draw.dtype("DepthToSpace"), draw.integer(1, 3)
    batch, depth, height, width = (draw.integer(0, 3) for _ in range(4))
    x = draw.array(dtype, (batch, depth * block**2, height, width))
    mode = draw.one_of(["DCR", "CRD"])

    def source(place: tuple[int, ...]) -> tuple[int, ...]:
        n, c, y, z = place
        inner = y % block * block + z % block
        channel = inner * depth + c if mode == "DCR" else c * block**2 + inner
        return n, channel, y // block, z // block

    expected = gathered(x, (batch, depth, height * block, width * block), source)
    found = result_of("DepthToSpace", x, blocksize=block, mode=mode)
    assert_same(found, expected)
    assert_same(result_of("SpaceToDepth", found, blocksize=block, mode=mode), x)


@examples(40)
def test_trilu(draw: Draw) -> None:
    dtype = draw.dtype("Trilu", kind=lambda dtype: dtype != POWERS)
    x = draw.array(dtype, draw.shape(2))
    k = np.array(draw.one_of([0, *range(-5, 6), *FAR]), np.int64)
    given = {"upper": draw.integer(0, 1)} if draw.flag() else {}
    upper = given.get("upper", 1)

    def source(place: tuple[int, ...]) -> tuple[int, ...] | None:
        diagonal = place[-1] - place[-2]
        kept = diagonal >= int(k) if upper else diagonal <= int(k)
        return place if kept else None

    expected = gathered(x, x.shape, source)
    assert_same(result_of("Trilu", x, k, **given), expected)


@examples(40)
def test_reverse_sequence(draw: Draw) -> None:
    x = draw.array(draw.dtype("ReverseSequence"), draw.shape(2))
    time = draw.integer(0, 1)
    steps, batch = x.shape[time], x.shape[1 - time]
    lengths = draw.integers(min(steps, 1), steps, (batch,))

    def source(place: tuple[int, ...]) -> tuple[int, ...]:
        length = int(lengths[place[1 - time]])
        step = place[time]
        origin = list(place)
        origin[time] = length - 1 - step if step < length else step
        return tuple(origin)

    found = result_of(
        "ReverseSequence", x, lengths, batch_axis=1 - time, time_axis=time
    )
    assert_same(found, gathered(x, x.shape, source))
