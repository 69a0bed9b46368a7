"""Convolutions against sums written out in float64."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from onnxplug_kernels import find_kernel
from onnxplug_kernels.windows import place_windows


def run(op_type: str, *inputs: Any, version: int = 22, **attributes: Any) -> Any:
    kernel = find_kernel("", op_type, version)
    assert kernel is not None
    return kernel.bind(np, attributes, output_count=1)(*inputs)


def values(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def spelled_out(
    x: Any, w: Any, b: Any | None, group: int = 1, **attributes: Any
) -> Any:
    windows = place_windows(x.shape[2:], w.shape[2:], **attributes)
    filters, depth = w.shape[:2]
    y = np.zeros((len(x), filters, *windows.count))
    for index in np.ndindex(*y.shape):
        n, m, *at = index
        total = 0.0 if b is None else float(b[m])
        for c, *tap in np.ndindex(*w.shape[1:]):
            source = [
                i * s + t * d - p
                for i, s, t, d, p in zip(
                    at,
                    windows.strides,
                    tap,
                    windows.dilations,
                    windows.begin,
                    strict=True,
                )
            ]
            if all(0 <= i < size for i, size in zip(source, x.shape[2:], strict=True)):
                channel = m // (filters // group) * depth + c
                total += float(x[(n, channel, *source)]) * float(w[(m, c, *tap)])
        y[index] = total
    return y


CASES: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 3, 7), (4, 3, 3), {"strides": [2], "pads": [2, 1]}),
    ((1, 4, 6, 5), (6, 2, 3, 2), {"group": 2, "dilations": [2, 1]}),
    ((2, 3, 5, 5), (3, 1, 3, 3), {"group": 3, "pads": [1, 1, 1, 1]}),
    (
        (2, 3, 6, 5),
        (6, 1, 3, 3),
        {"group": 3, "dilations": [2, 1], "pads": [2, 0, 1, 1]},
    ),
    ((1, 2, 6, 6), (4, 1, 3, 2), {"group": 2, "strides": [2, 3], "pads": [0, 1, 1, 0]}),
    ((2, 5, 4, 4), (3, 5, 1, 1), {}),
    ((2, 5, 5, 4), (3, 5, 1, 1), {"strides": [2, 2]}),
    ((1, 2, 4, 3, 5), (3, 2, 2, 2, 3), {"pads": [1, 0, 2, 0, 1, 0]}),
    ((1, 2, 5, 6), (2, 2, 3, 4), {"auto_pad": "SAME_UPPER", "strides": [2, 1]}),
    ((1, 2, 5, 6), (2, 2, 2, 4), {"auto_pad": "SAME_LOWER", "strides": [1, 3]}),
    ((1, 2, 5, 6), (2, 2, 2, 4), {"auto_pad": "VALID"}),
]


@pytest.mark.parametrize(("x_shape", "w_shape", "attributes"), CASES)
@pytest.mark.parametrize("version", [1, 11, 22])
def test_conv_is_the_sum_over_windows(
    x_shape: tuple[int, ...],
    w_shape: tuple[int, ...],
    attributes: dict[str, Any],
    version: int,
) -> None:
    x, w, b = values(*x_shape), values(*w_shape, seed=1), values(w_shape[0], seed=2)
    y = run("Conv", x, w, b, version=version, kernel_shape=w_shape[2:], **attributes)
    assert y.dtype == np.float32
    np.testing.assert_allclose(y, spelled_out(x, w, b, **attributes), atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_conv_rounds_once(dtype: Any) -> None:
    x, w = values(1, 8, 4, 4).astype(dtype), values(2, 8, 3, 3).astype(dtype)
    y = run("Conv", x, w)
    assert y.dtype == dtype
    exact = spelled_out(x, w, None)
    tolerance = float(ml_dtypes.finfo(dtype).eps)  # type: ignore[no-untyped-call]
    np.testing.assert_allclose(y.astype(float), exact, rtol=tolerance, atol=1e-5)


@pytest.mark.parametrize("group", [1, 3])
def test_conv_of_no_images(group: int) -> None:
    y = run("Conv", values(0, 3, 5, 5), values(6, 3 // group, 3, 3), group=group)
    assert y.shape == (0, 6, 3, 3) and y.dtype == np.float32


@pytest.mark.parametrize("group", [1, 2])
def test_conv_of_no_channels_is_the_bias(group: int) -> None:
    x, w, b = values(2, 0, 4, 5), values(4, 0, 2, 3), values(4)
    y = run("Conv", x, w, b, group=group)
    np.testing.assert_array_equal(y, spelled_out(x, w, b, group))


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("elements", [1, 250, 700])
def test_conv_in_parts(
    group: int, elements: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, w = values(5, 4, 6, 5), values(4, 4 // group, 3, 3, seed=1)
    monkeypatch.setattr("onnxplug_kernels.conv._COLUMN_ELEMENTS", elements)
    y = run("Conv", x, w, group=group)
    np.testing.assert_allclose(y, spelled_out(x, w, None, group=group), atol=1e-5)


@pytest.mark.parametrize("strides", [[1, 1], [2, 1]])
def test_depthwise_conv_in_parts(
    strides: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    x, w = values(2, 7, 6, 6), values(14, 1, 3, 3, seed=1)
    monkeypatch.setattr("onnxplug_kernels.conv._TERM_ELEMENTS", 150)
    y = run("Conv", x, w, group=7, strides=strides)
    expected = spelled_out(x, w, None, group=7, strides=strides)
    np.testing.assert_allclose(y, expected, atol=1e-5)


def test_conv_says_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match="expected 4 input channels"):
        run("Conv", values(1, 3, 5, 5), values(2, 4, 3, 3))
    with pytest.raises(ValueError, match=r"kernel_shape is \(2, 2\)"):
        run("Conv", values(1, 4, 5, 5), values(2, 4, 3, 3), kernel_shape=[2, 2])


def scattered(x: Any, w: Any, group: int, strides: Any, dilations: Any) -> Any:
    """The transposed convolution before anything is cropped."""
    filters = w.shape[1]
    spatial = [
        (size - 1) * s + (k - 1) * d + 1
        for size, s, k, d in zip(
            x.shape[2:], strides, w.shape[2:], dilations, strict=True
        )
    ]
    y = np.zeros((len(x), filters * group, *spatial))
    for n, c, *at in np.ndindex(*x.shape):
        for m, *tap in np.ndindex(*w.shape[1:]):
            target = [
                i * s + t * d
                for i, s, t, d in zip(at, strides, tap, dilations, strict=True)
            ]
            channel = c // (x.shape[1] // group) * filters + m
            y[(n, channel, *target)] += float(x[(n, c, *at)]) * float(w[(c, m, *tap)])
    return y


@pytest.mark.parametrize(
    ("x_shape", "w_shape", "group", "strides", "dilations"),
    [
        ((2, 3, 4), (3, 2, 3), 1, [2], [1]),
        ((1, 4, 3, 4), (4, 2, 3, 2), 2, [2, 3], [1, 2]),
        ((1, 2, 3, 3), (2, 3, 2, 2), 1, [3, 3], [1, 1]),
        ((1, 2, 2, 3, 2), (2, 2, 2, 2, 3), 1, [2, 2, 1], [1, 1, 2]),
    ],
)
def test_conv_transpose_scatters(
    x_shape: tuple[int, ...],
    w_shape: tuple[int, ...],
    group: int,
    strides: list[int],
    dilations: list[int],
) -> None:
    x, w = values(*x_shape), values(*w_shape, seed=1)
    full: Any = scattered(x, w, group, strides, dilations)
    rank = len(strides)
    same: dict[str, Any] = {"group": group, "strides": strides, "dilations": dilations}
    np.testing.assert_allclose(run("ConvTranspose", x, w, **same), full, atol=1e-5)

    pads = [1] + [0] * (rank - 1) + [0] * (rank - 1) + [1]
    crop = tuple(
        slice(pads[i], full.shape[2 + i] - pads[rank + i]) for i in range(rank)
    )
    y = run("ConvTranspose", x, w, pads=pads, **same)
    np.testing.assert_allclose(y, full[(..., *crop)], atol=1e-5)

    # the additional elements are computed ones where pads have cut some off, else zero
    y = run("ConvTranspose", x, w, pads=pads, output_padding=[1] * rank, **same)
    wider: Any = np.pad(full, [(0, 0)] * 2 + [(0, 1)] * rank)
    crop = tuple(
        slice(pads[i], full.shape[2 + i] - pads[rank + i] + 1) for i in range(rank)
    )
    np.testing.assert_allclose(y, wider[(..., *crop)], atol=1e-5)


@pytest.mark.parametrize(
    ("auto_pad", "first"), [("NOTSET", 1), ("SAME_LOWER", 1), ("SAME_UPPER", 0)]
)
def test_conv_transpose_to_a_given_shape(auto_pad: str, first: int) -> None:
    x, w, b = values(1, 2, 4), values(2, 3, 3, seed=1), values(3, seed=2)
    full = scattered(x, w, 1, [2], [1]) + b[:, None]
    for output_shape in ([8], [1, 3, 8]):
        y = run(
            "ConvTranspose",
            x,
            w,
            b,
            strides=[2],
            auto_pad=auto_pad,
            output_shape=output_shape,
        )
        np.testing.assert_allclose(y, full[..., first : first + 8], atol=1e-5)


def test_conv_transpose_with_same_padding_multiplies_the_size() -> None:
    y = run(
        "ConvTranspose",
        values(1, 2, 4),
        values(2, 3, 3),
        strides=[2],
        auto_pad="SAME_UPPER",
    )
    assert y.shape == (1, 3, 8)


def deformed(x: Any, w: Any, offset: Any, mask: Any, groups: int, pads: int) -> Any:
    """2-D, stride 1, one weight group."""
    _, _, height, width = x.shape
    filters, channels, rows, columns = w.shape
    y = np.zeros((len(x), filters, *offset.shape[2:]))

    def pixel(n: int, c: int, i: int, j: int) -> float:
        inside = 0 <= i < height and 0 <= j < width
        return float(x[n, c, i, j]) if inside else 0.0

    for n, m, i, j in np.ndindex(*y.shape):
        for c, r, s in np.ndindex(channels, rows, columns):
            g = c // (channels // groups)
            tap = (g * rows + r) * columns + s
            py = i + r - pads + float(offset[n, 2 * tap, i, j])
            px = j + s - pads + float(offset[n, 2 * tap + 1, i, j])
            top, left = int(np.floor(py)), int(np.floor(px))
            value = sum(
                pixel(n, c, top + dy, left + dx)
                * (1 - abs(py - top - dy))
                * (1 - abs(px - left - dx))
                for dy, dx in itertools.product((0, 1), repeat=2)
            )
            y[n, m, i, j] += value * float(w[m, c, r, s]) * float(mask[n, tap, i, j])
    return y


@pytest.mark.parametrize(("groups", "pads"), [(1, 0), (2, 1)])
def test_deform_conv_reads_between_elements(groups: int, pads: int) -> None:
    x, w = values(2, 4, 5, 4), values(3, 4, 2, 3, seed=1)
    size = (4 + 2 * pads, 2 + 2 * pads)
    offset = 1.5 * values(2, groups * 12, *size, seed=2)
    mask = values(2, groups * 6, *size, seed=3)
    attributes: dict[str, Any] = {"offset_group": groups, "pads": [pads] * 4}
    y = run("DeformConv", x, w, offset, None, mask, **attributes)
    expected = deformed(x, w, offset, mask, groups, pads)
    np.testing.assert_allclose(y, expected, atol=1e-5)
    y = run("DeformConv", x, w, offset, **attributes)
    expected = deformed(x, w, offset, np.ones_like(mask), groups, pads)
    np.testing.assert_allclose(y, expected, atol=1e-5)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_deform_conv_without_offsets_is_conv(rank: int) -> None:
    x, w, b = values(2, 4, *[5] * rank), values(6, 2, *[2] * rank), values(6)
    attributes: dict[str, Any] = {
        "group": 2,
        "strides": [2] * rank,
        "dilations": [2] * rank,
    }
    expected = run("Conv", x, w, b, **attributes)
    offset = np.zeros((2, 2**rank * rank, *expected.shape[2:]), np.float32)
    y = run("DeformConv", x, w, offset, b, **attributes)
    np.testing.assert_allclose(y, expected, atol=1e-5)


@pytest.mark.parametrize("activation", ["none", "silu", "swish"])
@pytest.mark.parametrize("channels", [1, 3])
def test_causal_conv_goes_on_from_its_state(activation: str, channels: int) -> None:
    x, w, b = values(2, channels, 6), values(channels, 1, 4), values(channels)
    options: dict[str, Any] = {"version": 27, "activation": activation}
    whole, last = run("CausalConvWithState", x, w, b, **options)
    padded = np.pad(x, [(0, 0), (0, 0), (3, 0)])
    plain = spelled_out(padded, w, b, group=channels)
    expected = plain if activation == "none" else plain / (1 + np.exp(-plain))
    np.testing.assert_allclose(whole, expected, atol=1e-5)
    np.testing.assert_array_equal(last, x[..., 3:])

    first, state = run("CausalConvWithState", x[..., :2], w, b, **options)
    np.testing.assert_array_equal(state, padded[..., 2:5])
    rest, end = run("CausalConvWithState", x[..., 2:], w, b, state, **options)
    np.testing.assert_allclose(np.concatenate([first, rest], 2), whole, atol=1e-6)
    np.testing.assert_array_equal(end, last)


@pytest.mark.parametrize("dtype", [np.float32, np.int32, ml_dtypes.bfloat16])
def test_col2im_adds_overlapping_blocks(dtype: Any) -> None:
    image, block = np.array([5, 4]), np.array([2, 3])
    attributes: dict[str, Any] = {
        "strides": [2, 1],
        "dilations": [1, 1],
        "pads": [0, 1, 1, 1],
    }
    windows = place_windows(image.tolist(), block.tolist(), **attributes)
    x = np.random.default_rng(0).integers(-9, 9, (2, 3 * 6, 3 * 4)).astype(dtype)
    expected = np.zeros((2, 3, 5, 4))
    elements = x.reshape(2, 3, 2, 3, *windows.count)
    for n, c, r, s, i, j in np.ndindex(*elements.shape):
        row, column = 2 * i + r, j + s - 1
        if row < 5 and 0 <= column < 4:
            expected[n, c, row, column] += float(elements[n, c, r, s, i, j])
    y = run("Col2Im", x, image, block, **attributes)
    assert y.dtype == dtype
    np.testing.assert_array_equal(y.astype(float), expected)


def test_col2im_says_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match=r"expected \[N, C \* 4, 9\]"):
        run("Col2Im", values(1, 4, 8), np.array([4, 4]), np.array([2, 2]))
