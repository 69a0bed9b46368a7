"""Elements that are put where indices say, of which the last for a place is kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

import onnxplug

from .test_elements import model_of

RNG = np.random.default_rng(2)


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint8, np.bool_])
@pytest.mark.parametrize("indexed", [np.int32, np.int64])
def test_the_last_update_of_each_place_is_kept(
    alone: Any, dtype: Any, indexed: Any
) -> None:
    """Few lanes for many updates, and many for few; from the end, too."""
    shape = (3, 40, 2)
    data = RNG.integers(0, 2 if dtype is np.bool_ else 200, shape).astype(dtype)
    other = (2, 90, 2)
    updates = RNG.integers(0, 200, other).astype(dtype)
    places = RNG.integers(-40, 40, other).astype(indexed)
    vectors = np.stack([RNG.integers(-n, n, 300) for n in shape[:2]], 1)
    slices = RNG.integers(0, 200, (300, 2)).astype(dtype)
    feeds = {"d": data, "i": places, "u": updates, "v": vectors, "s": slices}
    nodes = [
        helper.make_node("ScatterElements", ["d", "i", "u"], ["a"], axis=1),
        helper.make_node("ScatterND", ["d", "v", "s"], ["b"]),
        helper.make_node("ScatterElements", ["d", "few", "three"], ["c"], axis=1),
    ]
    weights = {"few": places[:, :3], "three": updates[:, :3]}
    model = model_of(nodes, feeds, dict.fromkeys("abc", dtype), 21, weights)
    session = alone(model)
    a, b, c = session.run(None, feeds)
    for found, count in ((a, 90), (c, 3)):
        wanted = data.copy()
        for at in np.ndindex(2, count, 2):
            wanted[at[0], places[at], at[2]] = updates[at]
        np.testing.assert_array_equal(found, wanted)
    wanted = data.copy()
    for vector, each in zip(vectors, slices, strict=True):
        wanted[tuple(vector)] = each
    np.testing.assert_array_equal(b, wanted)
    feeds["v"][17] = [0, 40]
    with pytest.raises(onnxplug.errors.NodeError, match="out of range"):
        session.run(None, feeds)
