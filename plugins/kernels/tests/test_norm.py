"""Normalisations against their formulas in float64, in all opset versions."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from onnxplug_kernels import find_kernel

EPSILON = float(np.float32(1e-5))


def run(
    op_type: str,
    *inputs: Any,
    version: int = 28,
    output_count: int = 1,
    **attributes: Any,
) -> Any:
    kernel = find_kernel("", op_type, version)
    assert kernel is not None
    return kernel.bind(np, attributes, output_count=output_count)(*inputs)


def values(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(1, 2, size=shape).astype(np.float32)


def standardized(x: Any, axes: tuple[int, ...]) -> Any:
    wide = x.astype(float)
    variance = wide.var(axis=axes, keepdims=True)
    return (wide - wide.mean(axis=axes, keepdims=True)) / np.sqrt(variance + EPSILON)


def close(y: Any, expected: Any, dtype: Any = np.float32) -> None:
    assert isinstance(y, np.ndarray)
    assert y.dtype == dtype and y.shape == expected.shape
    tolerance = 4 * float(ml_dtypes.finfo(dtype).eps)  # type: ignore[no-untyped-call]
    np.testing.assert_allclose(y.astype(float), expected, tolerance, 10 * tolerance)


def channels(parameter: Any, rank: int) -> Any:
    return parameter.astype(float).reshape(-1, *[1] * (rank - 2))


@pytest.mark.parametrize("shape", [(4, 3), (2, 3, 5), (2, 3, 4, 5), (0, 3, 2)])
@pytest.mark.parametrize("version", [1, 6, 7, 9, 14, 15])
def test_batch_normalization_by_given_statistics(
    shape: tuple[int, ...], version: int
) -> None:
    x, (scale, b, mean) = values(*shape), values(3, 3, seed=1)
    variance = abs(values(3, seed=2))
    options: dict[str, Any] = {"epsilon": 0.1, "version": version}
    if version < 7:
        options |= {"is_test": 1}
    y = run("BatchNormalization", x, scale, b, mean, variance, **options)
    s, shift, m, v = (channels(p, len(shape)) for p in (scale, b, mean, variance))
    close(y, s * (x - m) / np.sqrt(v + 0.1) + shift)


@pytest.mark.parametrize(("version", "count"), [(6, 5), (7, 5), (9, 5), (14, 3)])
def test_batch_normalization_in_training(version: int, count: int) -> None:
    x, (scale, b, mean) = values(4, 3, 5), values(3, 3, seed=1)
    variance = abs(values(3, seed=2))
    options: dict[str, Any] = {"momentum": 0.75, "version": version}
    if version >= 14:
        options |= {"training_mode": 1}
    results = run(
        "BatchNormalization", x, scale, b, mean, variance, output_count=count, **options
    )
    assert len(results) == count
    own_mean, own_variance = x.mean(axis=(0, 2)), x.var(axis=(0, 2))
    expected = [
        standardized(x, (0, 2)) * channels(scale, 3) + channels(b, 3),
        0.75 * mean + 0.25 * own_mean,
        0.75 * variance + 0.25 * own_variance,
        own_mean,
        own_variance,
    ]
    for result, value in zip(results, expected, strict=False):
        close(result, value)


def test_batch_normalization_of_one_axis() -> None:
    x, one = values(6), np.ones(1, np.float32)
    results = run("BatchNormalization", x, one, one, one, one, training_mode=1)
    close(results[0], standardized(x, (0,)) + 1)
    assert results[1].shape == (1,)
    close(run("BatchNormalization", x, one, one, one, one), (x - 1) / 1.000005 + 1)


@pytest.mark.parametrize("version", [6, 7])
def test_batch_normalization_of_each_feature(version: int) -> None:
    x, scale, b = values(4, 3, 2), values(3, 2, seed=1), values(3, 2, seed=2)
    given = values(3, 2, seed=3)
    y = run(
        "BatchNormalization",
        *(x, scale, b, given, abs(given)),
        spatial=0,
        version=version,
        output_count=5,
    )
    close(y[0], standardized(x, (0,)) * scale + b)
    close(y[3], x.mean(axis=0))
    options: dict[str, Any] = {"spatial": 0, "version": version}
    if version == 6:
        options |= {"is_test": 1, "epsilon": EPSILON}
    y = run("BatchNormalization", x, scale, b, given, abs(given), **options)
    close(y, scale * (x - given) / np.sqrt(abs(given) + EPSILON) + b)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_batch_normalization_of_mixed_types(dtype: Any) -> None:
    x = values(2, 3, 4).astype(dtype)
    parameters = np.ones(3, dtype), np.zeros(3, dtype)
    statistics = np.full(3, 1e-3, np.float32), np.full(3, 3.0, np.float32)
    y = run("BatchNormalization", x, *parameters, *statistics)
    close(y, (x.astype(float) - 1e-3) / np.sqrt(3 + EPSILON), dtype)
    _, mean, variance = run(
        "BatchNormalization", x, *parameters, *statistics, training_mode=1
    )
    assert mean.dtype == variance.dtype == np.float32
    assert mean.dtype != y.dtype


@pytest.mark.parametrize("version", [1, 6, 22])
@pytest.mark.parametrize("shape", [(2, 3, 5), (2, 3, 4, 5)])
def test_instance_normalization(version: int, shape: tuple[int, ...]) -> None:
    x, (scale, b) = values(*shape), values(2, 3, seed=1)
    legacy: dict[str, Any] = {"consumed_inputs": (0, 0, 0)} if version == 1 else {}
    y = run("InstanceNormalization", x, scale, b, version=version, **legacy)
    plain = standardized(x, tuple(range(2, len(shape))))
    close(y, plain * channels(scale, len(shape)) + channels(b, len(shape)))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("version", [18, 21])
def test_group_normalization(dtype: Any, version: int) -> None:
    x = values(2, 4, 3, 2).astype(dtype)
    size = 2 if version == 18 else 4
    scale, b = values(2, size, seed=1).astype(dtype)
    y = run("GroupNormalization", x, scale, b, num_groups=2, version=version)
    plain = standardized(x.reshape(2, 2, -1), (2,)).reshape(x.shape)
    scale, b = (np.repeat(p.astype(float), 4 // size) for p in (scale, b))
    close(y, plain * channels(scale, 4) + channels(b, 4), dtype)
    with pytest.raises(ValueError, match="4 channels are not a multiple"):
        run("GroupNormalization", x, scale, b, num_groups=3)


def test_group_normalization_of_no_images() -> None:
    ones = np.ones(4, np.float32)
    y = run("GroupNormalization", values(0, 4, 3), ones, ones, num_groups=2)
    assert y.shape == (0, 4, 3)


@pytest.mark.parametrize(
    "dtype", [np.float32, np.float16, np.float64, ml_dtypes.bfloat16]
)
@pytest.mark.parametrize("axis", [-1, 1, 0])
def test_layer_normalization(dtype: Any, axis: int) -> None:
    x = values(2, 3, 4).astype(dtype)
    scale, b = values(2, 3, 4, seed=1).astype(dtype)
    axes = tuple(range(axis % 3, 3))
    y, mean, inverse = run("LayerNormalization", x, scale, b, axis=axis, output_count=3)
    expected = standardized(x, axes) * scale.astype(float)
    close(y, expected + b.astype(float), dtype)
    close(mean, x.astype(float).mean(axis=axes, keepdims=True))
    variance = x.astype(float).var(axis=axes, keepdims=True)
    close(inverse, 1 / np.sqrt(variance + EPSILON))
    close(run("LayerNormalization", x, scale, axis=axis), expected, dtype)


def test_layer_normalization_stashes_in_another_type() -> None:
    x, scale = values(2, 4), np.ones(4, np.float32)
    y, mean, inverse = run(
        "LayerNormalization", x, scale, stash_type=16, output_count=3
    )
    close(y, standardized(x, (1,)))
    close(mean, x.mean(axis=1, keepdims=True), ml_dtypes.bfloat16)
    assert inverse.dtype == ml_dtypes.bfloat16


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("axis", [-1, -2])
def test_rms_normalization(dtype: Any, axis: int) -> None:
    x, scale = values(2, 3, 4).astype(dtype), values(3, 4, seed=1).astype(np.float32)
    wide = x.astype(float)
    axes = tuple(range(axis, 0))
    expected = wide / np.sqrt((wide**2).mean(axis=axes, keepdims=True) + EPSILON)
    close(run("RMSNormalization", x, scale, axis=axis), expected * scale)
    y = run("RMSNormalization", x, scale.astype(dtype), axis=axis)
    close(y, expected * scale.astype(dtype).astype(float), dtype)


def test_norms_of_large_halves_do_not_overflow() -> None:
    x = np.array([[60000, -60000]], np.float16)
    one = np.ones(2, np.float16)
    for op_type in ("LayerNormalization", "RMSNormalization", "LpNormalization"):
        y = run(op_type, x, *[one] * (op_type != "LpNormalization"))
        expected = 1 if op_type != "LpNormalization" else np.sqrt(0.5)
        close(y, np.array([[expected, -expected]]), np.float16)


@pytest.mark.parametrize("version", [9, 13])
def test_mean_variance_normalization(version: int) -> None:
    x = values(2, 3, 4, 2)
    cases: list[tuple[dict[str, Any], tuple[int, ...]]] = [
        ({}, (0, 2, 3)),
        ({"axes": (1, 2)}, (1, 2)),
        ({"axes": ()}, (0, 1, 2, 3)),
    ]
    for attributes, axes in cases:
        y = run("MeanVarianceNormalization", x, version=version, **attributes)
        centered = x - x.mean(axis=axes, keepdims=True, dtype=float)
        close(y, centered / (x.std(axis=axes, keepdims=True, dtype=float) + 1e-9))
    flat = np.full((1, 2, 3, 3), 5, np.float32)
    close(run("MeanVarianceNormalization", flat, version=version), np.zeros(flat.shape))


@pytest.mark.parametrize("axis", [-1, 0, 1])
@pytest.mark.parametrize("p", [1, 2])
def test_lp_normalization(axis: int, p: int) -> None:
    x = values(3, 4, 2)
    x[:, 1] = 0  # a whole line of zeros along two of the axes stays zero
    norm = np.linalg.norm(x.astype(float), p, axis=axis, keepdims=True)
    expected = np.divide(x, norm, out=np.zeros(x.shape), where=norm != 0)
    close(run("LpNormalization", x, axis=axis, p=p), expected)
    with pytest.raises(ValueError, match="p 3, expected 1 or 2"):
        run("LpNormalization", x, p=3)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 12])
@pytest.mark.parametrize("shape", [(2, 5), (2, 5, 3), (1, 5, 2, 2)])
def test_lrn_sums_over_neighbouring_channels(size: int, shape: tuple[int, ...]) -> None:
    x = values(*shape)
    y = run("LRN", x, size=size, alpha=0.5, beta=0.6, bias=2.0)
    squares = np.zeros(shape)
    for c in range(5):
        first = max(0, c - (size - 1) // 2)
        last = min(4, c + size // 2)
        squares[:, c] = (x[:, first : last + 1].astype(float) ** 2).sum(axis=1)
    close(y, x / (2.0 + 0.5 / size * squares) ** 0.6)
