"""Elements that are chosen by their order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import onnxplug

RNG = np.random.default_rng(0)


def elements(kind: str, *shape: int) -> np.ndarray[Any, Any]:
    """Many of them equal; of floats some infinite, some NaN."""
    dtype = np.dtype(kind)
    if dtype.kind == "f":
        x = RNG.standard_normal(shape).astype(dtype)
        special = [np.nan, np.inf, -np.inf, 0, -0.0, 1]
        return np.where(RNG.random(shape) < 0.3, RNG.choice(special, shape), x).astype(
            dtype
        )
    limits = np.iinfo(dtype)
    x = RNG.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    return np.where(RNG.random(shape) < 0.5, RNG.integers(0, 3, shape), x).astype(dtype)


def order(x: np.ndarray[Any, Any], largest: bool) -> np.ndarray[Any, Any]:
    """Places along the last axis, by element and place."""
    wide = x.astype(object) if x.dtype.kind in "iu" else x.astype(np.float64)
    isnan = x != x
    keys = np.where(isnan, 0, wide)
    if largest:
        keys, isnan = -keys, ~isnan
    found = np.empty(x.shape, np.int64)
    for line in np.ndindex(x.shape[:-1]):
        each = zip(isnan[line], keys[line], range(x.shape[-1]), strict=True)
        found[line] = [place for _, _, place in sorted(each)]
    return found


@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        ("float32", (3, 5, 7)),
        ("float32", (2, 1, 1)),
        ("float32", (1, 2, 2500)),
        ("float16", (2, 3, 40)),
        ("int8", (2, 3, 9)),
        ("uint16", (2, 3, 9)),
        ("int32", (2, 1, 70)),
        ("uint32", (2, 3, 4)),
        ("int64", (2, 2, 1100)),
        ("uint64", (2, 3, 33)),
    ],
)
def test_first_of_an_order(
    alone: Any, parse: Any, kind: str, shape: tuple[int, ...]
) -> None:
    """Along another axis than the last one, too."""
    size, element = shape[-1], {"float32": "float"}.get(kind, kind)
    some = min(size, 4)
    turned = f"{shape[0]}, {size}, {shape[1]}"
    whole = ", ".join(map(str, shape))
    session = alone(
        parse(
            "a = ArgMax<axis=1>(t) b = ArgMin<axis=-1, keepdims=0>(x) "
            "c = ArgMax<axis=-1, select_last_index=1>(x) "
            "v, i = TopK<axis=1>(t, some) w, j = TopK<largest=0>(x, all)",
            f"{element}[{whole}] x, {element}[{turned}] t",
            f"int64[{shape[0]}, 1, {shape[1]}] a, int64[{shape[0]}, {shape[1]}] b, "
            f"int64[{shape[0]}, {shape[1]}, 1] c, "
            f"{element}[{shape[0]}, {some}, {shape[1]}] v, "
            f"int64[{shape[0]}, {some}, {shape[1]}] i, "
            f"{element}[{whole}] w, int64[{whole}] j",
            weights=f"int64[1] some = {{{some}}}, int64[1] all = {{{size}}}",
        )
    )
    x = elements(kind, *shape)
    a, b, c, v, i, w, j = session.run(None, {"x": x, "t": x.swapaxes(1, 2)})
    down, up = order(x, True), order(x, False)
    np.testing.assert_array_equal(a[:, 0], down[..., 0])
    np.testing.assert_array_equal(b, np.argmin(x, -1))
    np.testing.assert_array_equal(c[..., 0], size - 1 - np.argmax(x[..., ::-1], -1))
    np.testing.assert_array_equal(i.swapaxes(1, 2), down[..., :some])
    np.testing.assert_array_equal(j, up)
    np.testing.assert_array_equal(
        v.swapaxes(1, 2), np.take_along_axis(x, down, -1)[..., :some]
    )
    np.testing.assert_array_equal(w, np.take_along_axis(x, up, -1))


def masked(size: int, kind: str) -> np.ndarray[Any, Any]:
    """Elements of which some are zeros, some minus zeros and NaN of floats."""
    x = elements(kind, size)
    return np.where(RNG.random(size) < 0.5, np.zeros(1, kind), x).astype(kind)


@pytest.mark.parametrize("kind", ["float32", "int64", "bool", "uint8"])
def test_places_that_are_not_zero(alone: Any, parse: Any, kind: str) -> None:
    """As many as there are, also none, and what reads them."""
    element = {"float32": "float"}.get(kind, kind)
    session = alone(
        parse(
            "p = NonZero(x) t = Transpose<perm=[1, 0]>(p) y = GatherND(z, t)",
            f"{element}[A, B] x, float[A, B] z",
            "int64[2, K] p, float[K] y",
        )
    )
    for shape in ((3, 5), (40, 70), (1, 1), (0, 4), (2, 0)):
        size = shape[0] * shape[1]
        if kind == "bool":
            x = RNG.random(shape) < 0.3
        else:
            x = masked(size, kind).reshape(shape)
        z = RNG.standard_normal(shape).astype(np.float32)
        for each in (x, np.zeros_like(x)):
            p, y = session.run(None, {"x": each, "z": z})
            np.testing.assert_array_equal(p, np.nonzero(each))
            np.testing.assert_array_equal(y, z[np.nonzero(each)])


def test_parts_that_a_condition_keeps(alone: Any, parse: Any) -> None:
    session = alone(
        parse(
            "a = Compress<axis=1>(x, c) b = Compress(x, c) d = Compress<axis=-1>(n, c)",
            "float[2, A, 3] x, bool[K] c, int64[2, A] n",
            "float[2, M, 3] a, float[M] b, int64[2, M] d",
        )
    )
    x, n = RNG.standard_normal((2, 7, 3)).astype(np.float32), elements("int64", 2, 7)
    for size in (7, 4, 1, 0):
        for condition in (RNG.random(size) < 0.5, np.zeros(size, bool)):
            a, b, d = session.run(None, {"x": x, "c": condition, "n": n})
            np.testing.assert_array_equal(a, np.compress(condition, x, 1))
            np.testing.assert_array_equal(b, np.compress(condition, x))
            np.testing.assert_array_equal(d, np.compress(condition, n, 1))


@pytest.mark.parametrize("kind", ["float32", "int64", "int8"])
def test_distinct_elements(alone: Any, parse: Any, kind: str) -> None:
    element = {"float32": "float"}.get(kind, kind)
    session = alone(
        parse(
            "y, i, v, c = Unique(x)",
            f"{element}[N] x",
            f"{element}[M] y, int64[M] i, int64[N] v, int64[M] c",
        )
    )
    for size in (1, 9, 1500, 0):
        x = masked(size, kind)
        y, i, v, c = session.run(None, {"x": x})
        for found, wanted in zip(
            (y, i, v, c), np.unique(x, True, True, True), strict=True
        ):
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("centers", [0, 1])
def test_boxes_that_share_little(alone: Any, parse: Any, centers: int) -> None:
    session = alone(
        parse(
            f"y = NonMaxSuppression<center_point_box={centers}>(b, s, most, o, l)",
            "float[2, N, 4] b, float[2, 3, N] s, int64[1] most, float[1] o, float l",
            "int64[K, 3] y",
        )
    )
    for size in (1, 40, 300):
        boxes = RNG.uniform(0, 10, (2, size, 4)).astype(np.float32)
        scores = RNG.choice([np.nan, *np.linspace(0, 1, 20)], (2, 3, size))
        for most, overlap, least in ((3, 0.5, 0.2), (1000, 0.1, -1), (-1, 0.5, 0)):
            feeds = {
                "b": boxes,
                "s": scores.astype(np.float32),
                "most": np.array([most]),
                "o": np.array([overlap], np.float32),
                "l": np.array(least, np.float32),
            }
            np.testing.assert_array_equal(
                session.run(None, feeds)[0], suppressed(feeds, centers)
            )
    with pytest.raises(onnxplug.errors.NodeError, match="no number from 0 to 1"):
        session.run(None, feeds | {"o": np.array([1.5], np.float32)})


def suppressed(feeds: dict[str, Any], centers: int) -> np.ndarray[Any, Any]:
    """The boxes as ONNX's NonMaxSuppression has them, one by one."""
    found = []
    for image, kind in np.ndindex(2, 3):
        scores, chosen = feeds["s"][image, kind], list[int]()
        order = sorted(
            np.flatnonzero(scores > feeds["l"]), key=lambda n: (-scores[n], n)
        )
        for box in order:
            if len(chosen) < feeds["most"][0] and all(
                share(*feeds["b"][image, [box, other]], centers) <= feeds["o"][0]
                for other in chosen
            ):
                chosen.append(int(box))
        found += [[image, kind, box] for box in chosen]
    return np.array(found, np.int64).reshape(-1, 3)


def share(a: Any, b: Any, centers: int) -> Any:
    """What two boxes have in common, in what they have together."""
    corners = []
    for box in (a, b):
        first, second = box[:2], box[2:]
        if centers:
            first, second = first - second / 2, first + second / 2
        corners.append((np.minimum(first, second), np.maximum(first, second)))
    (low, high), (start, end) = corners
    common = np.maximum(np.minimum(high, end) - np.maximum(low, start), 0).prod()
    union = (high - low).prod() + (end - start).prod() - common
    return common / union if common > 0 and union > 0 else 0.0


def test_what_follows_from_small_inputs_is_planned_for(alone: Any, parse: Any) -> None:
    """Axes and sizes that a run brings; what is too large for them is no such input."""
    session = alone(
        parse(
            "r = Reshape(x, shape) y = ReduceSum<keepdims=0>(x, axes) "
            "n = Add(k, one) v, i = TopK(r, n)",
            "float[A, B] x, int64[2] shape, int64[C] axes, int64[1] k",
            "float[D, E] r, float[F] y, float[D, G] v, int64[D, G] i",
            weights="int64 one = {1}",
        )
    )
    x = RNG.standard_normal((4, 6)).astype(np.float32)
    for shape, axes, k in (([3, 8], [0], 0), ([8, 3], [1], 2), ([3, 8], [0], 0)):
        feeds = {
            "x": x,
            "shape": np.array(shape),
            "axes": np.array(axes),
            "k": np.array([k]),
        }
        r, y, v, i = session.run(None, feeds)
        np.testing.assert_array_equal(r, x.reshape(shape))
        np.testing.assert_allclose(y, x.sum(axes[0]), 1e-5, 1e-6)
        np.testing.assert_array_equal(i, np.argsort(-r, -1)[:, : k + 1])
        np.testing.assert_array_equal(v, np.take_along_axis(r, i, -1))
    (partition,) = session.explain().partitions
    assert partition.counts["plans"] == 2
    for name, wrong in (("shape", [5, 5]), ("axes", [2]), ("k", [8]), ("k", [-2])):
        with pytest.raises(onnxplug.errors.NodeError):
            session.run(None, feeds | {name: np.array(wrong)})
    # which is no reason to leave the device
    tiers = {node.op_type: node.tier for node in session.explain().nodes}
    assert tiers == {
        "Reshape": "compiled",
        "ReduceSum": "compiled",
        "Add": "host",
        "TopK": "compiled",
    }
