"""Pools against windows looked at one by one, and what the padding counts for."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from onnxplug_kernels import find_kernel
from onnxplug_kernels.windows import Windows, place_windows


def run(
    op_type: str,
    *inputs: Any,
    version: int = 22,
    output_count: int = 1,
    **attributes: Any,
) -> Any:
    kernel = find_kernel("", op_type, version)
    assert kernel is not None
    return kernel.bind(np, attributes, output_count=output_count)(*inputs)


def values(*shape: int) -> Any:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def look(x: Any, windows: Windows) -> Iterator[tuple[Any, list[tuple[int, ...]], int]]:
    """(window, the positions of its elements in the input, how many are in padding)."""
    for at in np.ndindex(*windows.count):
        inside, padding = [], 0
        for tap in itertools.product(*map(range, windows.kernel)):
            source = tuple(
                i * s + t * d - p
                for i, s, t, d, p in zip(
                    at,
                    windows.strides,
                    tap,
                    windows.dilations,
                    windows.begin,
                    strict=True,
                )
            )
            if all(0 <= i < n for i, n in zip(source, x.shape[2:], strict=True)):
                inside.append(source)
            elif all(
                -b <= i < n + e
                for i, n, b, e in zip(
                    source, x.shape[2:], windows.begin, windows.end, strict=True
                )
            ):
                padding += 1
        yield at, inside, padding


CASES: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((2, 3, 7), {"kernel_shape": [3], "strides": [2], "pads": [1, 1]}),
    ((1, 2, 6, 5), {"kernel_shape": [2, 3], "dilations": [2, 1]}),
    ((2, 2, 5, 6), {"kernel_shape": [3, 2], "pads": [1, 0, 2, 1], "strides": [2, 2]}),
    ((1, 2, 6, 6), {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
    (
        (1, 2, 4, 7),
        {
            "kernel_shape": [2, 3],
            "strides": [2, 3],
            "pads": [1, 1, 1, 1],
            "dilations": [1, 2],
            "ceil_mode": 1,
        },
    ),
    ((1, 1, 3, 4, 4), {"kernel_shape": [2, 2, 3], "pads": [1, 0, 1, 0, 1, 1]}),
    ((1, 2, 5, 5), {"kernel_shape": [2, 4], "auto_pad": "SAME_UPPER"}),
    (
        (1, 2, 5, 6),
        {"kernel_shape": [2, 4], "auto_pad": "SAME_LOWER", "strides": [2, 2]},
    ),
    ((1, 2, 5, 5), {"kernel_shape": [1, 1], "auto_pad": "VALID"}),
    ((0, 2, 5, 5), {"kernel_shape": [2, 2]}),
]


@pytest.mark.parametrize(("shape", "attributes"), CASES)
@pytest.mark.parametrize("storage_order", [0, 1])
def test_max_pool_and_its_indices(
    shape: tuple[int, ...], attributes: dict[str, Any], storage_order: int
) -> None:
    x = np.round(values(*shape), 1)  # with ties, of which the first counts
    windows = place_windows(shape[2:], **attributes)
    y, indices = run(
        "MaxPool", x, storage_order=storage_order, output_count=2, **attributes
    )
    assert indices.dtype == np.int64
    assert y.shape == indices.shape == (*shape[:2], *windows.count)
    np.testing.assert_array_equal(run("MaxPool", x, **attributes), y)
    size = int(np.prod(shape[2:]))
    for n, c in np.ndindex(*shape[:2]):
        image = x[n, c]
        for at, inside, _ in look(x, windows):
            best = max(inside, key=lambda source: image[source])
            assert y[(n, c, *at)] == image[best]
            flat = np.ravel_multi_index(
                best, shape[2:], order="F" if storage_order else "C"
            )
            assert indices[(n, c, *at)] == (n * shape[1] + c) * size + flat


def test_max_pool_never_takes_the_padding() -> None:
    x = np.full((1, 1, 3), -np.inf, np.float32)
    y, indices = run("MaxPool", x, kernel_shape=[2], pads=[1, 1], output_count=2)
    np.testing.assert_array_equal(y, np.full((1, 1, 4), -np.inf))
    np.testing.assert_array_equal(indices, [[[0, 0, 1, 2]]])


def test_max_pool_keeps_nan() -> None:
    x = np.array([[[1, np.nan, 3, 4]]], np.float32)
    expected = [[[np.nan, np.nan, 4]]]
    np.testing.assert_array_equal(run("MaxPool", x, kernel_shape=[2]), expected)
    y, indices = run("MaxPool", x, kernel_shape=[2], output_count=2)
    np.testing.assert_array_equal(y, expected)
    np.testing.assert_array_equal(indices, [[[1, 1, 3]]])


@pytest.mark.parametrize(
    "dtype", [np.int8, np.uint8, np.float16, np.float64, ml_dtypes.bfloat16]
)
def test_max_pool_of_other_types(dtype: Any) -> None:
    x = np.arange(-8, 8).astype(np.int8).astype(dtype).reshape(1, 1, 4, 4)
    y = run("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2], pads=[1, 1, 1, 1])
    assert y.dtype == dtype
    for at, inside, _ in look(
        x, place_windows((4, 4), [2, 2], strides=[2, 2], pads=[1, 1, 1, 1])
    ):
        assert y[(0, 0, *at)] == max(x[(0, 0, *source)] for source in inside)


@pytest.mark.parametrize(("shape", "attributes"), CASES)
@pytest.mark.parametrize("count_include_pad", [0, 1])
def test_average_pool_counts_what_is_asked(
    shape: tuple[int, ...], attributes: dict[str, Any], count_include_pad: int
) -> None:
    x = values(*shape)
    windows = place_windows(shape[2:], **attributes)
    y = run("AveragePool", x, count_include_pad=count_include_pad, **attributes)
    assert y.shape == (*shape[:2], *windows.count) and y.dtype == np.float32
    for at, inside, padding in look(x, windows):
        count = len(inside) + padding * count_include_pad
        total = sum(x[(..., *source)].astype(float) for source in inside)
        np.testing.assert_allclose(y[(..., *at)], total / count, atol=1e-6)


@pytest.mark.parametrize(("shape", "attributes"), CASES)
@pytest.mark.parametrize("p", [1, 2, 3])
def test_lp_pool_is_the_norm_of_each_window(
    shape: tuple[int, ...], attributes: dict[str, Any], p: int
) -> None:
    x = values(*shape)
    windows = place_windows(shape[2:], **attributes)
    y = run("LpPool", x, p=p, **attributes)
    assert y.shape == (*shape[:2], *windows.count) and y.dtype == np.float32
    for at, inside, _ in look(x, windows):
        total = sum(abs(x[(..., *source)].astype(float)) ** p for source in inside)
        np.testing.assert_allclose(y[(..., *at)], total ** (1 / p), rtol=1e-5)


def test_lp_pool_1_takes_a_fractional_p() -> None:
    x = values(1, 1, 4)
    y = run("LpPool", x, p=2.5, kernel_shape=[2], strides=[2], version=1)
    expected = np.sum(abs(x.reshape(1, 1, 2, 2)) ** 2.5, axis=3) ** 0.4
    np.testing.assert_allclose(y, expected, rtol=1e-5)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize("shape", [(2, 3, 5), (2, 3, 4, 5), (0, 3, 4, 5)])
def test_global_pools(dtype: Any, shape: tuple[int, ...]) -> None:
    x = values(*shape).astype(dtype)
    wide = x.astype(float)
    axes = tuple(range(2, len(shape)))
    for op_type, expected in (
        ("GlobalMaxPool", wide.max(axis=axes, keepdims=True)),
        ("GlobalAveragePool", wide.mean(axis=axes, keepdims=True)),
        ("GlobalLpPool", np.sqrt((wide**2).sum(axis=axes, keepdims=True))),
    ):
        y = run(op_type, x)
        assert y.dtype == dtype and y.shape == expected.shape
        tolerance = float(ml_dtypes.finfo(dtype).eps)  # type: ignore[no-untyped-call]
        np.testing.assert_allclose(y.astype(float), expected, tolerance, 1e-6)


def test_max_unpool_undoes_max_pool() -> None:
    x = np.random.default_rng(0).permutation(72).reshape(2, 1, 6, 6).astype(np.float32)
    window: dict[str, Any] = {"kernel_shape": [2, 2], "strides": [2, 2]}
    y, indices = run("MaxPool", x, output_count=2, **window)
    back = run("MaxUnpool", y, indices, **window)
    assert back.shape == x.shape
    np.testing.assert_array_equal(run("MaxPool", back, **window), y)
    np.testing.assert_array_equal(back[back > 0], x[np.isin(x, y) & (x > 0)])
    larger = run("MaxUnpool", y, indices, np.array([2, 1, 7, 8]), **window)
    np.testing.assert_array_equal(larger[:, :, :6, :6], back)
    assert larger.shape == (2, 1, 7, 8) and larger.sum() == back.sum()


def test_a_window_larger_than_the_input_averages_it_where_sizes_are_rounded_up() -> (
    None
):
    x = np.arange(8, dtype=np.float32).reshape(1, 2, 2, 2)
    found = run("AveragePool", x, kernel_shape=[64, 64], strides=[64, 64], ceil_mode=1)
    np.testing.assert_array_equal(found, x.mean(axis=(2, 3), keepdims=True))


@pytest.mark.parametrize("op_type", ["AveragePool", "MaxPool", "LpPool"])
def test_windows_cost_what_the_input_costs(op_type: str) -> None:
    """Padded to its windows, the input would take 8 GB, and one by one the elements of
    the windows of a line would take minutes."""
    x = values(1, 1280, 7, 7)
    y = run(op_type, x, kernel_shape=[1280, 1280], strides=[1280, 1280], ceil_mode=1)
    expected = {
        "AveragePool": x.mean((2, 3), dtype=float),
        "MaxPool": x.max((2, 3)),
        "LpPool": np.sqrt((x.astype(float) ** 2).sum((2, 3))),
    }[op_type]
    np.testing.assert_allclose(y[..., 0, 0], expected, rtol=1e-6, atol=1e-7)

    x = values(1, 1, 1_000_000)
    y = run(op_type, x, kernel_shape=[300_000], pads=[299_999, 5])
    assert y.shape == (1, 1, 1_000_005)
    for place in (0, 1, 299_999, 500_000, 1_000_000, 1_000_004):
        window = x[0, 0, max(0, place - 299_999) : place + 1].astype(float)
        exact = {
            "AveragePool": window.mean(),
            "MaxPool": window.max(),
            "LpPool": np.sqrt((window**2).sum()),
        }[op_type]
        np.testing.assert_allclose(y[0, 0, place], exact, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("count_include_pad", [0, 1])
@pytest.mark.parametrize("dilation", [1, 2, 3])
def test_large_windows_are_looked_at_element_by_element(
    count_include_pad: int, dilation: int
) -> None:
    for taps, stride, begin, end, size in [
        (7, 1, 6, 6, 20),
        (20, 1, 19, 0, 21),
        (33, 5, 32, 20, 40),
        (64, 3, 10, 63, 50),
        (100, 7, 80, 80, 9),
    ]:
        extent = (taps - 1) * dilation + 1
        pads = [begin, max(end, extent - size - begin)]
        attributes: dict[str, Any] = {
            "kernel_shape": [taps],
            "strides": [stride],
            "dilations": [dilation],
            "pads": [min(pad, extent - 1) for pad in pads],
        }
        x = np.round(values(1, 2, size), 1)
        windows = place_windows((size,), **attributes)
        mean = run("AveragePool", x, count_include_pad=count_include_pad, **attributes)
        largest = run("MaxPool", x, **attributes)
        both, indices = run("MaxPool", x, output_count=2, **attributes)
        norm = run("LpPool", x, **attributes)
        for at, inside, padding in look(x, windows):
            if not inside:
                continue
            elements = np.stack([x[(..., *source)] for source in inside]).astype(float)
            count = len(inside) + padding * count_include_pad
            np.testing.assert_allclose(
                mean[(..., *at)], elements.sum(0) / count, rtol=1e-5, atol=1e-6
            )
            np.testing.assert_array_equal(largest[(..., *at)], elements.max(0))
            np.testing.assert_array_equal(both[(..., *at)], elements.max(0))
            first = [inside[i][0] for i in elements.argmax(0)[0]]
            np.testing.assert_array_equal(
                indices[(0, slice(None), *at)], [first[0], first[1] + size]
            )
            np.testing.assert_allclose(
                norm[(..., *at)], np.sqrt((elements**2).sum(0)), rtol=1e-5
            )
