"""Resampling against ONNX's reference and ONNX Runtime, and formulas point by point."""

from __future__ import annotations

import itertools
import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from onnxplug_kernels import find_kernel

ITEM: dict[Any, int] = {np.float32: TensorProto.FLOAT, np.int64: TensorProto.INT64}


def run(op_type: str, *inputs: Any, version: int = 22, **attributes: Any) -> Any:
    kernel = find_kernel("", op_type, version)
    assert kernel is not None
    return kernel.bind(np, attributes, output_count=1)(*inputs)


def values(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def model(
    op_type: str, inputs: tuple[Any, ...], version: int, **attributes: Any
) -> Any:
    names = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    graph = helper.make_graph(
        [helper.make_node(op_type, names, ["y"], **attributes)],
        "graph",
        [
            helper.make_tensor_value_info(name, ITEM[x.dtype.type], x.shape)
            for name, x in zip(names, inputs, strict=True)
            if x is not None
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    opset = helper.make_opsetid("", version)
    feeds = {n: x for n, x in zip(names, inputs, strict=True) if x is not None}
    return helper.make_model(graph, opset_imports=[opset], ir_version=8), feeds


def reference(op_type: str, *inputs: Any, version: int = 20, **attributes: Any) -> Any:
    proto, feeds = model(op_type, inputs, version, **attributes)
    outputs: Any = ReferenceEvaluator(proto).run(None, feeds)
    return outputs[0]


def onnx_runtime(op_type: str, *inputs: Any, version: int, **attributes: Any) -> Any:
    runtime = pytest.importorskip("onnxruntime")
    proto, feeds = model(op_type, inputs, version, **attributes)
    session = runtime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, feeds)[0]


def floats(*numbers: float) -> Any:
    return np.array(numbers, np.float32)


MODES: list[dict[str, Any]] = [
    {"mode": "nearest", "nearest_mode": "round_prefer_floor"},
    {"mode": "nearest", "nearest_mode": "round_prefer_ceil"},
    {"mode": "nearest", "nearest_mode": "floor"},
    {"mode": "nearest", "nearest_mode": "ceil"},
    {"mode": "linear"},
    {"mode": "linear", "exclude_outside": 1},
    {"mode": "linear", "antialias": 1},
    {"mode": "cubic"},
    {"mode": "cubic", "cubic_coeff_a": -0.5},
    {"mode": "cubic", "exclude_outside": 1},
    {"mode": "cubic", "antialias": 1},
    {"mode": "cubic", "antialias": 1, "exclude_outside": 1},
]
TRANSFORMS = ("half_pixel", "half_pixel_symmetric", "align_corners", "asymmetric")
SCALES = [(1, 1, 2, 2), (1, 1, 0.6, 0.7), (1, 1, 1.7, 0.35), (2, 1, 0.4, 3)]


@pytest.mark.parametrize("attributes", MODES)
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_resize_by_scales(attributes: dict[str, Any], transform: str) -> None:
    x = values(2, 1, 7, 6)
    options = attributes | {"coordinate_transformation_mode": transform}
    for scales in SCALES:
        y = run("Resize", x, None, floats(*scales), **options)
        assert y.dtype == np.float32
        expected = reference("Resize", x, None, floats(*scales), **options)
        np.testing.assert_allclose(
            y, expected, rtol=1e-4, atol=1e-5, err_msg=str(scales)
        )


@pytest.mark.parametrize("attributes", MODES)
@pytest.mark.parametrize("policy", ["stretch", "not_larger", "not_smaller"])
def test_resize_to_sizes(attributes: dict[str, Any], policy: str) -> None:
    x = values(1, 2, 5, 6)
    for sizes in ((3, 9), (12, 4), (7, 7)):
        inputs = (x, None, None, np.array(sizes))
        options = attributes | {"axes": [2, 3], "keep_aspect_ratio_policy": policy}
        expected = reference("Resize", *inputs, **options)
        options["axes"] = [-2, 3]
        y = run("Resize", *inputs, **options)
        np.testing.assert_allclose(
            y, expected, rtol=1e-4, atol=1e-5, err_msg=str(sizes)
        )


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("target", [(4, 3), (8, 9), (1, 5)])
def test_resize_of_a_crop(mode: str, target: tuple[int, int]) -> None:
    x = values(1, 1, 6, 5)
    roi = floats(0.2, -0.3, 0.7, 1.4)
    y = run(
        "Resize",
        *(x, roi, None, np.array(target)),
        mode=mode,
        axes=(2, 3),
        coordinate_transformation_mode="tf_crop_and_resize",
        extrapolation_value=9.0,
    )
    expected = reference(
        "Resize",
        *(x, roi, None, np.array(target)),
        mode=mode,
        axes=[2, 3],
        coordinate_transformation_mode="tf_crop_and_resize",
        extrapolation_value=9.0,
    )
    assert (y == 9).any()
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)


def test_resize_to_one_element() -> None:
    x = values(1, 1, 1, 5)
    for transform, point in (
        ("pytorch_half_pixel", 0.0),
        ("half_pixel", 2.0),
        ("align_corners", 0.0),
        ("tf_half_pixel_for_nn", 2.5),
    ):
        y = run(
            "Resize",
            *(x, None, None, np.array([1, 1, 1, 1])),
            mode="linear",
            coordinate_transformation_mode=transform,
            version=11,
        )
        low = math.floor(point)
        expected = x[..., low] + (point - low) * (x[..., low + 1] - x[..., low])
        np.testing.assert_allclose(y[..., 0], expected, rtol=1e-6)


def test_the_scaled_length_is_that_of_shape_inference() -> None:
    # 10 * 0.7 is 7 in float32, but its float32 factor times 10 is less in float64
    assert run("Resize", values(10), None, floats(0.7)).shape == (7,)


@pytest.mark.parametrize("shape", [(5,), (4, 3, 5)])
def test_resize_of_other_ranks(shape: tuple[int, ...]) -> None:
    scales = floats(*[1.5] * len(shape))
    for mode in ("nearest", "linear", "cubic"):
        y = run("Resize", values(*shape), None, scales, mode=mode)
        expected = reference("Resize", values(*shape), None, scales, mode=mode)
        np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "dtype", [np.uint8, np.int8, np.int64, np.float16, np.float64, ml_dtypes.bfloat16]
)
def test_resize_of_other_types(dtype: Any) -> None:
    x = np.array([0, 100, 0, 120]).astype(dtype)
    y = run("Resize", x, None, floats(2), mode="cubic")
    exact = run("Resize", x.astype(np.float64), None, floats(2), mode="cubic")
    assert y.dtype == dtype
    if np.dtype(dtype).kind in "iu":
        # rounded and cut off, not wrapped around
        limits = np.iinfo(dtype)
        exact = np.clip(np.rint(exact), limits.min, limits.max)
    np.testing.assert_allclose(y.astype(float), exact, rtol=1e-2)
    y = run("Resize", x, None, floats(2))
    np.testing.assert_array_equal(y, np.repeat(x, 2))


def test_resize_says_what_does_not_fit() -> None:
    x = values(1, 1, 4, 4)
    with pytest.raises(ValueError, match="neither sizes nor scales"):
        run("Resize", x)
    with pytest.raises(ValueError, match="2 scales"):
        run("Resize", x, None, floats(1, 2))
    with pytest.raises(ValueError, match="nearest_mode is 'round'"):
        run("Resize", x, None, floats(1, 1, 2, 2), nearest_mode="round")
    with pytest.raises(ValueError, match="mode is 'area'"):
        run("Resize", x, None, floats(1, 1, 2, 2), mode="area")


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("scales", [(1, 1, 2, 3), (1, 1, 1.5, 2.5), (1, 1, 0.6, 0.5)])
def test_versions_before_11_are_asymmetric(
    mode: str, scales: tuple[float, ...]
) -> None:
    x = values(2, 3, 5, 4)
    expected = onnx_runtime("Resize", x, floats(*scales), mode=mode, version=10)
    y = run("Resize", x, floats(*scales), mode=mode, version=10)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)
    for found in (
        run("Upsample", x, floats(*scales), mode=mode, version=9),
        run("Upsample", x, scales=scales, mode=mode, version=7),
        run(
            "Upsample",
            x,
            height_scale=scales[2],
            width_scale=scales[3],
            mode="bilinear" if mode == "linear" else mode,
            version=6,
        ),
    ):
        np.testing.assert_allclose(found, y, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align_corners", [0, 1])
@pytest.mark.parametrize("spatial", [(4, 5), (3, 4, 3), (6,)])
def test_grid_sample(
    mode: str, padding_mode: str, align_corners: int, spatial: tuple[int, ...]
) -> None:
    x = values(2, 2, *spatial)
    grid = 1.5 * values(2, *[3] * len(spatial), len(spatial), seed=1)
    options: dict[str, Any] = {
        "mode": mode,
        "padding_mode": padding_mode,
        "align_corners": align_corners,
    }
    y = run("GridSample", x, grid, **options)
    assert y.dtype == np.float32
    if mode == "cubic" and padding_mode == "border":
        if len(spatial) != 2:
            pytest.skip("the reference moves points, unlike PyTorch and ONNX Runtime")
        expected = onnx_runtime("GridSample", x, grid, version=20, **options)
    else:
        expected = reference("GridSample", x, grid, **options)
    np.testing.assert_allclose(y, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_grid_sample_16_has_other_names(mode: str) -> None:
    x, grid = values(1, 2, 4, 5), values(1, 3, 3, 2, seed=1)
    y = run("GridSample", x, grid, mode=mode, version=16)
    expected = onnx_runtime("GridSample", x, grid, mode=mode, version=16)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)


def test_grid_sample_of_other_types() -> None:
    x = np.array([[[[0, 10], [20, 31]]]], np.uint8)
    # the exact centre, one far outside, and no number at all
    grid = np.array([[[[0, 0], [9e30, 0], [np.nan, 0]]]], np.float32)
    y = run("GridSample", x, grid)
    assert y.dtype == np.uint8
    np.testing.assert_array_equal(y, [[[[15, 0, 0]]]])
    for dtype in (np.float16, ml_dtypes.bfloat16, np.float64):
        y = run("GridSample", x.astype(dtype), grid)
        assert y.dtype == dtype
        np.testing.assert_allclose(y.astype(float), [[[[15.25, 0, 0]]]], rtol=1e-2)
    names = np.array([[[["a", "b"]]]], object)
    grid = np.array([[[[0.5, 0], [5, 0]]]], np.float32)
    y = run("GridSample", names, grid, mode="nearest")
    assert y.tolist() == [[[["b", ""]]]]


def test_grid_sample_does_not_read_beside_the_image() -> None:
    x = np.full((1, 1, 2, 2), np.inf, np.float32)
    y = run("GridSample", x, np.array([[[[5, 0]]]], np.float32))
    np.testing.assert_array_equal(y, [[[[0]]]])


def test_grid_sample_of_no_points() -> None:
    y = run("GridSample", values(2, 3, 4, 4), np.zeros((2, 0, 5, 2), np.float32))
    assert y.shape == (2, 3, 0, 5)


@pytest.mark.parametrize("align_corners", [0, 1])
@pytest.mark.parametrize("spatial", [(2, 3), (2, 1, 4)])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_affine_grid_moves_centres(
    align_corners: int, spatial: tuple[int, ...], dtype: Any
) -> None:
    rank = len(spatial)
    theta = values(2, rank, rank + 1).astype(dtype)
    grid = run(
        "AffineGrid", theta, np.array([2, 1, *spatial]), align_corners=align_corners
    )
    assert grid.dtype == dtype and grid.shape == (2, *spatial, rank)
    tolerance = 4 * float(ml_dtypes.finfo(dtype).eps)  # type: ignore[no-untyped-call]
    for n, *at in itertools.product(range(2), *map(range, spatial)):
        point = [
            -1 + 2 * i / max(size - 1, 1) if align_corners else -1 + (2 * i + 1) / size
            for i, size in zip(at, spatial, strict=True)
        ]
        moved = theta[n].astype(float) @ [*reversed(point), 1.0]
        found = grid[(n, *at)].astype(float)
        np.testing.assert_allclose(found, moved, tolerance, tolerance)
