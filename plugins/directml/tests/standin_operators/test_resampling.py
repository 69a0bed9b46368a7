"""Resampling against ONNX's Resize, by its reference and by ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.reference
import pytest

from ..standin.operators import Desc
from .examples import Array, assert_documented, assert_rejected, evaluate, f32
from .reference import of_onnx

OFFSETS = {
    "half_pixel": (0.5, -0.5),
    "asymmetric": (0.0, 0.0),
    "align_corners": (0.0, 0.0),
}
"""InputPixelOffsets and OutputPixelOffsets for ONNX's formulas, by the pages' own."""

ROUNDING = {
    "floor": ("DECREASING", 0.0),
    "ceil": ("INCREASING", 0.0),
    "round_prefer_ceil": ("DECREASING", -0.5),
    "round_prefer_floor": ("INCREASING", 0.5),
}
"""RoundingDirection and what InputPixelOffsets get added, for ONNX's nearest_mode."""


def resize(values: Array, scales: list[float], **attributes: Any) -> Array:
    """ONNX's Resize by its reference."""
    node = onnx.helper.make_node("Resize", ["x", "", "scales"], ["y"], **attributes)
    result = onnx.reference.ReferenceEvaluator(node).run(
        None, {"x": values, "scales": f32(scales)}
    )[0]
    return np.asarray(result)


def fields(
    values: Array, expected: Array, scales: list[float], of: str
) -> dict[str, Any]:
    """The fields of RESAMPLE1 and 2 for a coordinate_transformation_mode."""
    if of == "align_corners":
        scales = [
            (after - 1) / (before - 1) if before > 1 else 1.0
            for before, after in zip(values.shape, expected.shape, strict=True)
        ]
    before, after = OFFSETS[of]
    return {
        "InputTensor": values,
        "OutputTensor": expected,
        "DimensionCount": values.ndim,
        "Scales": tuple(float(np.float32(scale)) for scale in scales),
        "InputPixelOffsets": (before,) * values.ndim,
        "OutputPixelOffsets": (after,) * values.ndim,
    }


SCALES = [[1, 1, 2, 3], [1, 1, 0.75, 0.5], [1, 1.5, 1.25, 1.5]]


@pytest.mark.parametrize("of", OFFSETS)
@pytest.mark.parametrize("scales", SCALES)
def test_linear(scales: list[float], of: str, rng: np.random.Generator) -> None:
    values = rng.standard_normal((1, 2, 4, 6)).astype(np.float32)
    expected = resize(
        values.astype(np.float64),
        scales,
        mode="linear",
        coordinate_transformation_mode=of,
    ).astype(np.float32)
    desc = fields(values, expected, scales, of) | {"InterpolationMode": "LINEAR"}
    rounded = {"RoundingDirection": "INCREASING"}
    for name, more in (
        ("RESAMPLE1", {}),
        ("RESAMPLE2", rounded),
        ("RESAMPLE3", rounded | {"Antialiased": False}),
    ):
        (found,) = evaluate(name, **desc, **more)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    if of == "half_pixel":
        plain = {n: v for n, v in desc.items() if "Offsets" not in n}
        (found,) = evaluate("RESAMPLE", **plain)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("nearest", ROUNDING)
@pytest.mark.parametrize("of", OFFSETS)
@pytest.mark.parametrize("scales", SCALES)
def test_nearest(
    scales: list[float], of: str, nearest: str, rng: np.random.Generator
) -> None:
    values = rng.standard_normal((1, 2, 4, 6)).astype(np.float32)
    expected = resize(
        values,
        scales,
        mode="nearest",
        coordinate_transformation_mode=of,
        nearest_mode=nearest,
    ).astype(np.float32)
    desc = fields(values, expected, scales, of)
    desc["InterpolationMode"] = "NEAREST_NEIGHBOR"
    if nearest == "round_prefer_ceil":
        assert_documented("RESAMPLE1", **desc)
    direction, more = ROUNDING[nearest]
    offsets = tuple(offset + more for offset in desc["InputPixelOffsets"])
    adjusted = desc | {"InputPixelOffsets": offsets}
    assert_documented("RESAMPLE2", **adjusted, RoundingDirection=direction)


def test_output_is_cropped_or_its_edges_clamped() -> None:
    one = {"InputTensor": f32([1, 2, 3]), "InterpolationMode": "NEAREST_NEIGHBOR"}
    assert_documented("RESAMPLE", **one, OutputTensor=f32([1, 1, 2]), Scales=(2.0,))
    longer = f32([1, 1, 2, 2, 3, 3, 3, 3])
    assert_documented("RESAMPLE", **one, OutputTensor=longer, Scales=(2.0,))
    assert_rejected("RESAMPLE", "Scales are", **one, OutputTensor=longer, Scales=(0.0,))
    assert_rejected("RESAMPLE", "Scales has", **one, OutputTensor=longer, Scales=())


def test_integers_of_8_bits_are_rounded() -> None:
    codes = np.array([0, 255], np.uint8)
    assert_documented(
        "RESAMPLE",
        InputTensor=codes,
        OutputTensor=np.array([0, 64, 191, 255], np.uint8),
        InterpolationMode="LINEAR",
        Scales=(2.0,),
    )
    old = {"InputTensor": codes, "OutputTensor": codes, "Scales": (1.0,)}
    assert_rejected("RESAMPLE", "is UINT8", (6, 1), **old, InterpolationMode="LINEAR")


def test_antialiased(rng: np.random.Generator) -> None:
    """As in ONNX where no edge is in reach; as without it from half the size up."""
    values = rng.standard_normal((1, 1, 1, 64)).astype(np.float32)
    scales = [1.0, 1.0, 1.0, 0.25]
    none = np.array([], np.float32)
    expected = of_onnx("Resize", values, none, f32(scales), mode="linear", antialias=1)
    desc = fields(values, expected, scales, "half_pixel")
    desc |= {"InterpolationMode": "LINEAR", "RoundingDirection": "DECREASING"}
    (found,) = evaluate("RESAMPLE3", **desc, Antialiased=True)
    np.testing.assert_allclose(found[..., 1:-1], expected[..., 1:-1], atol=1e-6)
    half = resize(values, [1, 1, 1, 0.5], mode="linear")
    desc |= fields(values, half.astype(np.float32), [1, 1, 1, 0.5], "half_pixel")
    (found,) = evaluate("RESAMPLE3", **desc, Antialiased=True)
    np.testing.assert_allclose(found, half, atol=1e-6)


@pytest.mark.parametrize("sizes", [(1, 2, 3, 4), (1, 2, 2, 3, 4)])
@pytest.mark.parametrize("mode", ["NEAREST_NEIGHBOR", "LINEAR"])
def test_upsample_2d(
    sizes: tuple[int, ...], mode: str, rng: np.random.Generator
) -> None:
    values = rng.standard_normal(sizes).astype(np.float32)
    images = values.reshape(1, -1, *sizes[-2:])
    larger = resize(images, [1, 1, 2, 3], mode=mode.partition("_")[0].lower())
    expected = larger.astype(np.float32)
    expected = expected.reshape(*sizes[:-2], sizes[-2] * 2, sizes[-1] * 3)
    scale = Desc("SIZE_2D", {"Width": 3, "Height": 2})
    desc = {"InputTensor": values, "OutputTensor": expected, "InterpolationMode": mode}
    (found,) = evaluate("UPSAMPLE_2D", **desc, ScaleSize=scale)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    none = Desc("SIZE_2D", {"Width": 3, "Height": 0})
    assert_rejected("UPSAMPLE_2D", "Height is 0", **desc, ScaleSize=none)
