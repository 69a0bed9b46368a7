"""Windows of which it matters where their elements are, against torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import onnxplug

from .test_elements import model_of

RNG = np.random.default_rng(11)


def pooled(
    x: np.ndarray[Any, Any], kernel: Any, stride: Any, pads: Any, dilation: int
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The largest elements, the first of equal ones, one window after the other."""
    sizes = [
        (size + 2 * pad - dilation * (taps - 1) - 1) // step + 1
        for size, taps, step, pad in zip(x.shape[2:], kernel, stride, pads, strict=True)
    ]
    best = np.zeros((*x.shape[:2], *sizes), x.dtype)
    places = np.zeros(best.shape, np.int64)
    number = np.arange(x.size).reshape(x.shape)
    for at in np.ndindex(*best.shape):
        first = [
            n * step - pad for n, step, pad in zip(at[2:], stride, pads, strict=True)
        ]
        found: list[tuple[Any, int]] = []
        for tap in np.ndindex(*kernel):
            place = [a + dilation * t for a, t in zip(first, tap, strict=True)]
            if all(0 <= p < s for p, s in zip(place, x.shape[2:], strict=True)):
                where = (*at[:2], *place)
                found.append((x[where], number[where]))
        values = np.array([value for value, _ in found])
        best[at], places[at] = found[int(np.argmax(values))]
    return best, places


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.uint8, np.float16])
def test_the_largest_of_windows_and_where_they_are(alone: Any, dtype: Any) -> None:
    """Many are equal, some NaN; and what is larger than all that there is."""
    x = RNG.integers(0 if dtype is np.uint8 else -3, 4, (2, 3, 7, 9)).astype(dtype)
    if x.dtype.kind == "f":
        x[RNG.random(x.shape) < 0.1] = -np.inf
        x[0, 0, 2:4, 3] = np.nan
    how = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 1, 1, 1]}
    nodes = [
        helper.make_node("MaxPool", ["x"], ["y", "i"], dilations=[2, 2], **how),
        helper.make_node("MaxPool", ["x"], ["z"], dilations=[2, 2], **how),
        helper.make_node("MaxPool", ["x"], ["w", "j"], storage_order=1, **how),
    ]
    outputs = {"y": dtype, "i": np.int64, "z": dtype, "w": dtype, "j": np.int64}
    model = model_of(nodes, {"x": x}, outputs, 22)
    y, i, z, w, j = alone(model).run(None, {"x": x})
    wanted, places = pooled(x, (3, 2), (2, 1), (1, 1), 2)
    np.testing.assert_array_equal(y, wanted)
    np.testing.assert_array_equal(z, wanted)
    np.testing.assert_array_equal(i, places)
    wanted, places = pooled(x, (3, 2), (2, 1), (1, 1), 1)
    np.testing.assert_array_equal(w, wanted)
    image, row, column = places // 63, places % 63 // 9, places % 9
    np.testing.assert_array_equal(j, image * 63 + column * 7 + row)


def test_the_largest_go_back_where_they_were(alone: Any) -> None:
    """Into an array of the size that windows have, and into a larger one."""
    torch = pytest.importorskip("torch")
    x = RNG.standard_normal((2, 3, 8, 6)).astype(np.float32)
    pool = torch.nn.functional.max_pool2d
    y, places = pool(torch.tensor(x), 2, return_indices=True)
    offsets = torch.arange(6).reshape(2, 3, 1, 1) * 48
    flat = (places + offsets).numpy()
    how = {"kernel_shape": [2, 2], "strides": [2, 2]}
    nodes = [
        helper.make_node("MaxUnpool", ["y", "i"], ["a"], **how),
        helper.make_node("MaxUnpool", ["y", "i", "shape"], ["b"], **how),
    ]
    feeds = {"y": y.numpy(), "i": flat}
    weights = {"shape": np.array([2, 3, 9, 10])}
    model = model_of(nodes, feeds, {"a": np.float32, "b": np.float32}, 22, weights)
    session = alone(model)
    wanted = torch.nn.functional.max_unpool2d(y, places, 2).numpy()
    a, b = session.run(None, feeds)
    np.testing.assert_array_equal(a, wanted)
    np.testing.assert_array_equal(b[:, :, :8, :6], wanted)
    assert not b[:, :, 8:].any() and not b[..., 6:].any()
    for wrong in (-1, x.size):
        feeds["i"] = np.where(flat == flat.max(), wrong, flat)
        with pytest.raises(onnxplug.errors.NodeError, match="out of range"):
            session.run(None, feeds)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_windows_are_added_up(alone: Any, rank: int) -> None:
    image, kernel = (9, 7, 6)[:rank], (3, 2, 2)[:rank]
    how = {
        "strides": [2, 1, 2][:rank],
        "dilations": [1, 2, 1][:rank],
        "pads": [1, 0, 1][:rank] * 2,
    }
    counts = [
        (size + 2 * pad - dilation * (taps - 1) - 1) // step + 1
        for size, taps, step, dilation, pad in zip(
            image, kernel, how["strides"], how["dilations"], how["pads"], strict=False
        )
    ]
    taps = int(np.prod(kernel))
    x = RNG.standard_normal((2, 3 * taps, int(np.prod(counts)))).astype(np.float32)
    node = helper.make_node("Col2Im", ["x", "image", "block"], ["y"], **how)
    weights = {"image": np.array(image), "block": np.array(kernel)}
    model = model_of([node], {"x": x}, {"y": np.float32}, 22, weights)
    (found,) = alone(model).run(None, {"x": x})
    wanted = np.zeros((2, 3, *image))
    apart = x.reshape(2, 3, *kernel, *counts)
    for at in np.ndindex(*kernel, *counts):
        place = [
            window * step + tap * dilation - pad
            for tap, window, step, dilation, pad in zip(
                at[:rank], at[rank:], *how.values(), strict=False
            )
        ]
        if all(0 <= p < s for p, s in zip(place, image, strict=True)):
            wanted[(..., *place)] += apart[(..., *at)]
    np.testing.assert_allclose(found, wanted, 1e-5, 1e-5)


@pytest.mark.parametrize(("groups", "offset_groups"), [(1, 1), (2, 2), (1, 4)])
def test_windows_whose_elements_are_moved(
    alone: Any, groups: int, offset_groups: int
) -> None:
    """Against ONNX's reference, in float64; some are moved far outside, or nowhere."""
    x = RNG.standard_normal((2, 4, 7, 6)).astype(np.float32)
    w = RNG.standard_normal((6, 4 // groups, 3, 2)).astype(np.float32)
    count = (3, 5)
    offset = RNG.uniform(-3, 3, (2, offset_groups * 12, *count)).astype(np.float32)
    offset[0, 0, 0, :3] = [1e9, -1e30, -np.inf]
    feeds = {
        "x": x,
        "w": w,
        "o": offset,
        "b": RNG.standard_normal(6).astype(np.float32),
        "m": RNG.random((2, offset_groups * 6, *count)).astype(np.float32),
    }
    how = {
        "kernel_shape": [3, 2],
        "strides": [2, 1],
        "pads": [0, 0, 0, 0],
        "group": groups,
        "offset_group": offset_groups,
    }
    node = helper.make_node("DeformConv", ["x", "w", "o", "b", "m"], ["y"], **how)
    model = model_of([node], feeds, {"y": np.float32}, 22)
    (found,) = alone(model).run(None, feeds)
    offset[0, 0, 0, :3] = [100, -100, -100]
    wanted = deformed(feeds, groups, offset_groups)
    np.testing.assert_allclose(found, wanted, 1e-4, 1e-4)
    feeds["o"][0, 0, 0, 0] = np.nan
    (again,) = alone(model).run(None, feeds)
    np.testing.assert_allclose(again, wanted, 1e-4, 1e-4)


def deformed(
    feeds: dict[str, Any], groups: int, offset_groups: int
) -> np.ndarray[Any, Any]:
    """One element after the other, in float64."""
    x, w, offset, bias, mask = (each.astype(np.float64) for each in feeds.values())
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    out = np.zeros((2, 6, 3, 5)) + bias[:, None, None]
    offset = offset.reshape(2, offset_groups, 6, 2, 3, 5)
    mask = mask.reshape(2, offset_groups, 6, 3, 5)
    for n, channel, row, column in np.ndindex(2, 4, 3, 5):
        group = channel // (4 // offset_groups)
        for number, tap in enumerate(np.ndindex(3, 2)):
            moved = offset[n, group, number, :, row, column]
            at = np.array([row * 2 + tap[0], column + tap[1]]) + moved
            at = np.clip(at, -1, (7, 6))
            low = np.minimum(np.floor(at).astype(int), (6, 5))
            rest = at - low
            corners = padded[n, channel][low[0] + 1 :, low[1] + 1 :][:2, :2]
            weights = np.outer([1 - rest[0], rest[0]], [1 - rest[1], rest[1]])
            value = (corners * weights).sum() * mask[n, group, number, row, column]
            half = channel // (4 // groups)
            of = slice(half * (6 // groups), (half + 1) * (6 // groups))
            out[n, of, row, column] += (
                value * w[of, channel % (4 // groups)][(..., *tap)]
            )
    return out


@pytest.mark.parametrize("mode", ["linear", "circular"])
def test_updates_of_a_cache(alone: Any, mode: str) -> None:
    past = RNG.standard_normal((2, 3, 6, 4)).astype(np.float32)
    update = RNG.standard_normal((2, 3, 3, 4)).astype(np.float32)
    starts = np.array([0, 3 if mode == "linear" else 11])
    node = helper.make_node("TensorScatter", ["p", "u", "s"], ["y"], mode=mode)
    feeds = {"p": past, "u": update, "s": starts}
    session = alone(model_of([node], feeds, {"y": np.float32}, 24))
    (found,) = session.run(None, feeds)
    wanted = past.copy()
    for sequence, start in enumerate(starts):
        for step in range(3):
            wanted[sequence, :, (start + step) % 6] = update[sequence, :, step]
    np.testing.assert_array_equal(found, wanted)
    for wrong in (-1, 2**40) if mode == "linear" else (-1,):
        feeds["s"] = np.array([0, wrong])
        why = "rows that a cache of 6 has not" if mode == "linear" else "out of range"
        with pytest.raises(onnxplug.errors.NodeError, match=why):
            session.run(None, feeds)


def test_arrays_that_are_made_of_numbers(alone: Any) -> None:
    """What a vector of a run says of their sizes, and what bits say as others."""
    x = RNG.standard_normal((5, 7)).astype(np.float32)
    value = helper.make_tensor("value", onnx.TensorProto.INT64, [1], [-7])
    nodes = [
        helper.make_node("EyeLike", ["x"], ["e"], k=-2),
        helper.make_node("EyeLike", ["x"], ["f"], k=99, dtype=onnx.TensorProto.INT64),
        helper.make_node("ConstantOfShape", ["s"], ["c"], value=value),
        helper.make_node("BitCast", ["x"], ["b"], to=onnx.TensorProto.INT32),
        helper.make_node("Neg", ["b"], ["n"]),
        helper.make_node("BitCast", ["n"], ["z"], to=onnx.TensorProto.FLOAT),
    ]
    feeds = {"x": x, "s": np.array([2, 3])}
    kinds = {
        "e": np.float32,
        "f": np.int64,
        "c": np.int64,
        "b": np.int32,
        "z": np.float32,
    }
    e, f, c, b, z = alone(model_of(nodes, feeds, kinds, 26)).run(None, feeds)
    np.testing.assert_array_equal(e, np.eye(5, 7, -2, np.float32))
    np.testing.assert_array_equal(f, np.zeros((5, 7)))
    np.testing.assert_array_equal(c, np.full((2, 3), -7))
    np.testing.assert_array_equal(b, x.view(np.int32))
    np.testing.assert_array_equal(z.view(np.int32), -x.view(np.int32))
