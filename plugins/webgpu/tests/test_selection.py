"""Elements that are chosen by their order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

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
