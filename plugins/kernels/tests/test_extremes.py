"""Odd numbers and values that are allowed, at the limits of what a type can hold."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest

from .node_oracles import ML, run

HUGE: Final = 1 << 62
MOST: Final = (1 << 63) - 1
NAN, INF = float("nan"), float("inf")


def f32(*shape: int) -> Any:
    return np.ones(shape, np.float32)


def scalar(number: Any, dtype: Any = np.int64) -> Any:
    return np.array(number, dtype)


IMAGE = f32(1, 2, 4, 4)

TREE: dict[str, Any] = {
    "n_targets": 1,
    "nodes_falsenodeids": (2, 0, 0),
    "nodes_featureids": (0, 0, 0),
    "nodes_modes": ("BRANCH_LEQ", "LEAF", "LEAF"),
    "nodes_nodeids": (0, 1, 2),
    "nodes_treeids": (0, 0, 0),
    "nodes_truenodeids": (1, 0, 0),
    "nodes_values": (0.5, 0.0, 0.0),
    "target_ids": (0, 0),
    "target_nodeids": (1, 2),
    "target_treeids": (0, 0),
    "target_weights": (1.0, 2.0),
}


def test_one_window_whose_stride_is_beyond_any_address() -> None:
    far = {"strides": (MOST, MOST), "dilations": (1, 1)}
    assert run("Conv", IMAGE, f32(2, 2, 2, 2), **far).shape == (1, 2, 1, 1)
    one = {"dilations": (MOST, MOST)}
    assert run("Conv", IMAGE, f32(2, 2, 1, 1), **one).shape == (1, 2, 4, 4)
    assert run("MaxPool", IMAGE, kernel_shape=(1, 1), **one).shape == (1, 2, 4, 4)


def test_no_windows_of_billions_of_elements() -> None:
    none = IMAGE[:, :, :, :0]
    y, indices = run(
        "MaxPool", none, kernel_shape=(1, 1 << 40), output_count=2, strides=(1, 1)
    )
    assert y.shape == indices.shape == (1, 2, 4, 0)


def test_reach_of_normalization_beyond_all_channels() -> None:
    with_all = run("LRN", IMAGE, size=99)
    np.testing.assert_array_equal(
        run("LRN", IMAGE, size=HUGE, alpha=0.0), run("LRN", IMAGE, size=99, alpha=0.0)
    )
    assert with_all.shape == IMAGE.shape


def test_diagonals_beyond_the_corners() -> None:
    for k in (MOST, -MOST - 1):
        assert not run("EyeLike", f32(2, 3), k=k).any()


@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
def test_points_without_a_place(mode: str, padding_mode: str) -> None:
    """NaN, infinities and what no index can hold read zeros or a border."""
    image = np.arange(1, 17, dtype=np.float32).reshape(1, 1, 4, 4)
    places = np.array([NAN, INF, -INF, 1e30, -1e30], np.float32)
    grid = np.stack(np.meshgrid(places, places), axis=-1)[None]
    y = run("GridSample", image, grid, mode=mode, padding_mode=padding_mode)
    assert y.shape == (1, 1, 5, 5)
    assert np.isfinite(y).all()
    if padding_mode == "zeros":
        assert not y.any()
    elif mode != "cubic":
        assert ((y >= 1) & (y <= 16)).all()


def test_deformed_windows_without_a_place_read_zeros() -> None:
    x, w = f32(1, 1, 4, 4), f32(1, 1, 2, 2)
    offset = np.full((1, 8, 3, 3), NAN, np.float32)
    assert not run("DeformConv", x, w, offset).any()
    assert not run("DeformConv", x, w, np.full_like(offset, 1e30)).any()


def test_indices_that_are_no_numbers_are_no_class() -> None:
    places = np.array([NAN, INF, -INF, 1e30, 1], np.float32)
    hot = run("OneHot", places, scalar(3), np.array([0, 1]))
    assert hot.tolist() == [[0, 0, 0]] * 4 + [[0, 1, 0]]


def test_ids_of_nodes_may_be_any_integers() -> None:
    """Also those whose sums and products no integer holds."""
    ids = (MOST, -MOST - 1, 5)
    trees = {
        **TREE,
        "nodes_nodeids": ids,
        "nodes_treeids": (MOST,) * 3,
        "nodes_truenodeids": (ids[1], 0, 0),
        "nodes_falsenodeids": (ids[2], 0, 0),
        "target_nodeids": ids[1:],
        "target_treeids": (MOST,) * 2,
    }
    y = run(
        "TreeEnsembleRegressor",
        np.array([[0.0], [1.0]], np.float32),
        domain=ML,
        version=3,
        **trees,
    )
    assert y.tolist() == [[1.0], [2.0]]


def test_a_long_chain_of_nodes_is_checked_in_one_pass() -> None:
    """Not once for every node on the way: that took minutes."""
    count = 20_000
    numbers = tuple(range(count))
    cycle = {
        **TREE,
        "nodes_nodeids": (*numbers, count),
        "nodes_treeids": (0,) * (count + 1),
        "nodes_modes": ("BRANCH_LEQ",) * count + ("LEAF",),
        "nodes_featureids": (0,) * (count + 1),
        "nodes_values": (0.5,) * (count + 1),
        "nodes_truenodeids": (*numbers[1:], 0, 0),
        "nodes_falsenodeids": (count,) * (count + 1),
        "target_ids": (0,),
        "target_nodeids": (count,),
        "target_treeids": (0,),
        "target_weights": (1.0,),
    }
    with pytest.raises(ValueError, match="back to one of themselves"):
        run("TreeEnsembleRegressor", f32(1, 2), domain=ML, version=3, **cycle)


def test_a_range_of_integers_is_counted_exactly() -> None:
    """In float64 the quotient of these rounds down to one element."""
    found = run("Range", scalar(0), scalar((1 << 62) + 1), scalar(1 << 62))
    assert found.tolist() == [0, 1 << 62]
    ends = scalar(MOST), scalar(-MOST - 1), scalar(-(1 << 62))
    assert run("Range", *ends).tolist() == [MOST, (1 << 62) - 1, -1, -(1 << 62) - 1]
