"""Normalisations and regions: constraints of the pages, and ONNX Runtime's results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ..standin.operators import OPERATORS, Desc, Rejected
from .examples import assert_documented, assert_rejected, described, evaluate, f32, u32
from .reference import of_onnx

Array = np.ndarray[Any, Any]

X = np.random.default_rng(12).uniform(-2, 3, (2, 4, 3, 5)).astype(np.float32)
STATISTICS = np.random.default_rng(13).uniform(0.5, 2, (4, 4)).astype(np.float32)
RELU = Desc("ACTIVATION_RELU", {"InputTensor": None, "OutputTensor": None})


def close(found: Array, expected: Array) -> None:
    """Equal but for the last bits."""
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=2e-6)


def test_batch_normalization() -> None:
    scale, bias, mean, variance = STATISTICS
    expected = of_onnx("BatchNormalization", X, *STATISTICS, epsilon=1e-3)
    values = {"Mean": mean, "Variance": variance, "Scale": scale, "Bias": bias}
    fields: dict[str, Any] = {
        f"{k}Tensor": v.reshape(1, 4, 1, 1) for k, v in values.items()
    }
    fields |= {"InputTensor": X, "OutputTensor": expected, "Spatial": True}
    fields |= {"Epsilon": 1e-3, "FusedActivation": None}
    (found,) = evaluate("BATCH_NORMALIZATION", **fields)
    close(found, expected)
    (found,) = evaluate("BATCH_NORMALIZATION", **fields | {"FusedActivation": RELU})
    close(found, expected.clip(0))
    name = "BATCH_NORMALIZATION"
    wrong = {"MeanTensor": f32([1, 2, 3]).reshape(1, 3, 1, 1)}
    assert_rejected(name, "does not broadcast", **fields | wrong)
    assert_rejected(name, "DimensionCount", **fields | {"MeanTensor": mean})
    desc = described(name, (6, 4), fields | {"Spatial": False})
    tensors = {f: getattr(desc, f) for f in OPERATORS[name].supported((6, 4))}
    OPERATORS[name].check_level(desc, tensors, (4, 0))
    with pytest.raises(Rejected, match="not Spatial"):
        OPERATORS[name].check_level(desc, tensors, (3, 1))


def mean_variance(**fields: Any) -> dict[str, Any]:
    """Fields that all versions have."""
    plain: dict[str, Any] = {"InputTensor": X, "OutputTensor": X, "Epsilon": 1e-5}
    plain |= {"NormalizeVariance": True, "FusedActivation": None}
    return plain | fields


def test_mean_variance_normalization() -> None:
    scale, bias = STATISTICS[:2]
    by_channel = {"ScaleTensor": scale.reshape(1, 4, 1, 1)}
    by_channel["BiasTensor"] = bias.reshape(1, 4, 1, 1)
    expected = of_onnx("InstanceNormalization", X, scale, bias, epsilon=1e-5)
    fields = mean_variance(**by_channel)
    (found,) = evaluate("MEAN_VARIANCE_NORMALIZATION", **fields, CrossChannel=False)
    close(found, expected)
    fields["Axes"] = (2, 3)
    (found,) = evaluate("MEAN_VARIANCE_NORMALIZATION1", **fields)
    close(found, expected)
    del fields["NormalizeVariance"]
    fields |= {"UseMean": True, "UseVariance": True}
    (found,) = evaluate("MEAN_VARIANCE_NORMALIZATION2", **fields)
    close(found, expected)


def test_mean_variance_normalization_across_channels() -> None:
    scale, bias = (
        np.random.default_rng(at).uniform(0.5, 2, (1, 4, 3, 5)).astype(np.float32)
        for at in (1, 2)
    )
    expected = of_onnx("LayerNormalization", X, scale[0], bias[0], axis=1, epsilon=1e-5)
    fields = mean_variance(ScaleTensor=scale, BiasTensor=bias)
    (found,) = evaluate("MEAN_VARIANCE_NORMALIZATION", **fields, CrossChannel=True)
    close(found, expected)
    (found,) = evaluate("MEAN_VARIANCE_NORMALIZATION1", **fields, Axes=(1, 2, 3))
    close(found, expected)


def test_mean_variance_normalization_without_one_of_them() -> None:
    fields = mean_variance(NormalizeVariance=False)
    (found,) = evaluate("MEAN_VARIANCE_NORMALIZATION", **fields, CrossChannel=False)
    close(found, X - X.mean((2, 3), keepdims=True))
    expected = X / np.sqrt((X.astype("f8") ** 2).mean(3, keepdims=True) + 1e-5)
    fields = mean_variance(Axes=(3,), UseMean=False, UseVariance=True)
    (found,) = evaluate("MEAN_VARIANCE_NORMALIZATION2", **fields)
    close(found, expected)


def test_scale_and_bias_of_levels() -> None:
    one = f32([2]).reshape(1, 1, 1, 1)
    name = "MEAN_VARIANCE_NORMALIZATION1"
    fields = mean_variance(ScaleTensor=one, Axes=(2, 3))
    desc = described(name, (6, 4), fields)
    tensors = {f: getattr(desc, f) for f in fields if f.endswith("Tensor")}
    check = OPERATORS[name].check_level
    check(desc, tensors, (5, 2))
    with pytest.raises(Rejected, match="does not come alone"):
        check(desc, tensors, (5, 1))
    with pytest.raises(Rejected, match="channels do not broadcast"):
        check(desc, tensors | {"BiasTensor": tensors["ScaleTensor"]}, (3, 1))
    wrong = fields | {"ScaleTensor": f32([1, 2]).reshape(1, 2, 1, 1)}
    assert_rejected(name, "does not broadcast", **wrong)
    assert_rejected(name, "Axes", **fields | {"Axes": (4,)})


@pytest.mark.parametrize("p", [1, 2])
def test_lp_normalization(p: int) -> None:
    expected = of_onnx("LpNormalization", X, axis=1, p=p)
    fields: dict[str, Any] = {
        "InputTensor": X,
        "OutputTensor": X,
        "Axis": 1,
        "Epsilon": 1e-5,
    }
    (found,) = evaluate("LP_NORMALIZATION", P=p, **fields)
    close(found, expected)
    assert_rejected("LP_NORMALIZATION", "neither 1 nor 2", P=3, **fields)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_local_response_normalization_across_channels(size: int) -> None:
    """ONNX Runtime's CPU EP has odd sizes only; of 2 the formula is ONNX's."""
    constants = {"Alpha": 0.5, "Beta": 0.75, "Bias": 1.5}
    fields: dict[str, Any] = {
        "InputTensor": X,
        "OutputTensor": X,
        "LocalSize": size,
    } | constants
    lower: dict[str, Any] = {k.lower(): v for k, v in constants.items()}
    if size % 2:
        expected = of_onnx("LRN", X, size=size, **lower)
    else:
        squares = X.astype("f8") ** 2
        squares[:, :-1] += X[:, 1:].astype("f8") ** 2
        expected = X / (1.5 + 0.25 * squares) ** 0.75
    name = "LOCAL_RESPONSE_NORMALIZATION"
    (found,) = evaluate(name, CrossChannel=True, **fields)
    close(found, expected)


def test_local_response_normalization_within_channels() -> None:
    fields: dict[str, Any] = {
        "Alpha": 3.0,
        "Beta": 1.0,
        "Bias": 1.0,
        "CrossChannel": False,
    }
    x = f32([[[[1, 2], [3, 4]]]])
    assert_documented(
        "LOCAL_RESPONSE_NORMALIZATION",
        InputTensor=x,
        OutputTensor=x / np.float32(1 + 30),
        LocalSize=3,
        **fields,
    )
    fields |= {"InputTensor": x, "OutputTensor": x, "LocalSize": 0}
    assert_rejected("LOCAL_RESPONSE_NORMALIZATION", "at least 1", **fields)


REGIONS = f32([[0, 0, 3, 2], [1, 0.5, 4, 2.5], [0.25, 0.25, 2, 1.75]])


def roi_align(**fields: Any) -> dict[str, Any]:
    """Fields of ``ROI_ALIGN1`` as ONNX's defaults have them."""
    plain: dict[str, Any] = {
        "InputTensor": X,
        "ROITensor": REGIONS,
        "BatchIndicesTensor": u32([0, 1, 1]),
        "OutputTensor": np.zeros((3, 4, 2, 3), np.float32),
        "ReductionFunction": "AVERAGE",
        "InterpolationMode": "LINEAR",
        "SpatialScaleX": 1.0,
        "SpatialScaleY": 1.0,
        "InputPixelOffset": 0.5,
        "OutputPixelOffset": -0.5,
        "OutOfBoundsInputValue": 0.0,
        "MinimumSamplesPerOutput": 1,
        "MaximumSamplesPerOutput": 2**32 - 1,
        "AlignRegionsToCorners": False,
    }
    return plain | fields


@pytest.mark.parametrize(
    ("attributes", "fields"),
    [
        ({}, {}),
        ({"spatial_scale": 0.75}, {"SpatialScaleX": 0.75, "SpatialScaleY": 0.75}),
        (
            {"sampling_ratio": 3},
            {"MinimumSamplesPerOutput": 3, "MaximumSamplesPerOutput": 3},
        ),
        (
            {"coordinate_transformation_mode": "output_half_pixel"},
            {"InputPixelOffset": 0.0},
        ),
        ({"spatial_scale": 2.0}, {"SpatialScaleX": 2.0, "SpatialScaleY": 2.0}),
    ],
)
def test_roi_align(attributes: dict[str, Any], fields: dict[str, Any]) -> None:
    batches = np.array([0, 1, 1])
    sizes = {"output_height": 2, "output_width": 3}
    expected = of_onnx("RoiAlign", X, REGIONS, batches, **sizes, **attributes)
    (found,) = evaluate("ROI_ALIGN1", **roi_align(**fields))
    close(found, expected)


def test_roi_align_of_the_first_version_has_half_pixels() -> None:
    fields = roi_align(ReductionFunction="MAX", InterpolationMode="NEAREST_NEIGHBOR")
    (expected,) = evaluate("ROI_ALIGN1", **fields)
    for name in ("InputPixelOffset", "OutputPixelOffset", "AlignRegionsToCorners"):
        del fields[name]
    (found,) = evaluate("ROI_ALIGN", **fields)
    np.testing.assert_array_equal(found, expected)
    whole = roi_align(
        ROITensor=f32([[0, 0, 5, 3]]),
        BatchIndicesTensor=u32([1]),
        OutputTensor=X[1:],
        InterpolationMode="NEAREST_NEIGHBOR",
    )
    assert_documented("ROI_ALIGN1", **whole)
    mirrored = {"ROITensor": f32([[5, 0, 0, 3]]), "OutputTensor": X[1:, ..., ::-1]}
    assert_documented("ROI_ALIGN1", **whole | mirrored)


@pytest.mark.parametrize(
    ("reason", "change"),
    [
        ("BatchIndicesTensor has", {"BatchIndicesTensor": u32([0, 1])}),
        ("ROITensor has", {"ROITensor": np.zeros((2, 3, 4), np.float32)}),
        ("OutputTensor has", {"OutputTensor": np.zeros((3, 3, 2, 3), np.float32)}),
        ("ReductionFunction SUM", {"ReductionFunction": "SUM"}),
        ("above the maximum", {"MaximumSamplesPerOutput": 0}),
        ("not documented", {"AlignRegionsToCorners": True}),
    ],
)
def test_what_roi_align_does_not_take(reason: str, change: dict[str, Any]) -> None:
    assert_rejected("ROI_ALIGN1", reason, **roi_align(**change))


def test_roi_pooling() -> None:
    x = f32(np.arange(24).reshape(1, 1, 4, 6))
    regions = f32([[[[0, 0, 0, 5, 3], [0, 1, 2, 3, 3], [0, 4, 0, 9, 9]]]])
    expected = of_onnx(
        "MaxRoiPool", x, regions[0, 0], pooled_shape=[2, 2], spatial_scale=1.0
    )
    fields: dict[str, Any] = {
        "InputTensor": x,
        "ROITensor": regions,
        "OutputTensor": expected,
    }
    fields["SpatialScale"] = 1.0
    fields["PooledSize"] = Desc("SIZE_2D", {"Width": 2, "Height": 2})
    assert_documented("ROI_POOLING", **fields)
    wrong = {"PooledSize": Desc("SIZE_2D", {"Width": 3, "Height": 2})}
    assert_rejected("ROI_POOLING", "OutputTensor has Sizes", **fields | wrong)
