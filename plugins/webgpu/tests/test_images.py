"""Images that are resized, sampled and pooled, beside onnx's reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import onnxplug

RNG = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.standard_normal(shape).astype(np.float32)


def agree(alone: Any, model: onnx.ModelProto, feeds: dict[str, Any]) -> None:
    for found, wanted in zip(
        alone(model).run(None, feeds),
        ReferenceEvaluator(model).run(None, feeds),
        strict=True,
    ):
        np.testing.assert_allclose(found, wanted, 1e-4, 1e-5)


def test_images_are_resized_in_all_modes(alone: Any, parse: Any) -> None:
    nodes = {
        "a": '<mode="linear", coordinate_transformation_mode="align_corners">',
        "b": '<mode="cubic", exclude_outside=1>',
        "c": '<mode="linear", antialias=1>',
        "d": '<mode="nearest", nearest_mode="ceil">',
        "e": '<mode="cubic", coordinate_transformation_mode="asymmetric">',
        "f": '<mode="linear", coordinate_transformation_mode="half_pixel_symmetric">',
    }
    body = " ".join(
        f"{name} = Resize{attributes}(x, , {'up' if name in 'abd' else 'down'})"
        for name, attributes in nodes.items()
    )
    model = parse(
        body,
        "float[1, 2, 5, 7] x",
        ", ".join(
            f"float[1, 2, {'8, 9' if name in 'abd' else '3, 1'}] {name}"
            for name in nodes
        ),
        weights="float[4] up = {1, 1, 1.6, 1.3}, float[4] down = {1, 1, 0.6, 0.2}",
    )
    agree(alone, model, {"x": normal(1, 2, 5, 7)})


def test_images_of_one_element_are_resized(alone: Any, parse: Any) -> None:
    model = parse(
        'y = Resize<mode="cubic">(x, , , sizes) '
        'z = Resize<mode="nearest">(x, , , some)',
        "float[N, 1, 1, 1] x",
        "float[N, 1, 3, 4] y, float[N, 1, 1, 2] z",
        weights="int64[4] sizes = {1, 1, 3, 4}, int64[4] some = {1, 1, 1, 2}",
    )
    for value in (3.5, np.inf, np.nan):
        x = np.full((1, 1, 1, 1), value, np.float32)
        y, z = alone(model).run(None, {"x": x})
        if np.isfinite(value):
            np.testing.assert_allclose(y, np.full((1, 1, 3, 4), value), 1e-6)
        assert not np.isfinite(value) or np.isfinite(y).all()
        np.testing.assert_array_equal(z, np.full((1, 1, 1, 2), value, np.float32))


@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
def test_images_are_read_at_points_wherever_they_are(
    alone: Any, parse: Any, mode: str
) -> None:
    """Inside as the reference has them; outside, infinite or NaN as the CPU EP."""
    body, outputs = [], []
    for padding in ("zeros", "border", "reflection"):
        for align in (0, 1):
            name = f"{padding}{align}"
            body.append(
                f'{name} = GridSample<mode="{mode}", padding_mode="{padding}", '
                f"align_corners={align}>(x, g)"
            )
            outputs.append(f"float[2, 3, A, B] {name}")
    model = parse(
        " ".join(body),
        "float[2, 3, H, W] x, float[2, A, B, 2] g",
        ", ".join(outputs),
    )
    session = alone(model)
    x, g = normal(2, 3, 4, 6), (1.3 * normal(2, 5, 3, 2)).clip(-1.9, 1.9)
    cpu = onnxplug.InferenceSession(model, providers=["CPUExecutionProvider"])
    expected: list[Any] = [*ReferenceEvaluator(model).run(None, {"x": x, "g": g})]
    if mode == "cubic":
        # for the border the reference moves points, rather than what is around them
        expected[2:4] = cpu.run(None, {"x": x, "g": g})[2:4]
    for found, wanted in zip(
        session.run(None, {"x": x, "g": g}), expected, strict=True
    ):
        np.testing.assert_allclose(found, wanted, 1e-4, 1e-5)
    g[0, 0] = [[np.nan, 0], [np.inf, -np.inf], [17.25, 0.1]]
    for image in (x, normal(2, 3, 1, 1), normal(2, 3, 1, 4)):
        feeds = {"x": image, "g": g}
        for found, wanted in zip(
            session.run(None, feeds), cpu.run(None, feeds), strict=True
        ):
            np.testing.assert_allclose(found, wanted, 1e-4, 1e-5)


@pytest.mark.parametrize("samples", [0, 3])
def test_regions_are_pooled(alone: Any, parse: Any, samples: int) -> None:
    names = [
        (m, c) for m in ("avg", "max") for c in ("half_pixel", "output_half_pixel")
    ]
    model = parse(
        " ".join(
            f'{m}_{c} = RoiAlign<mode="{m}", coordinate_transformation_mode="{c}", '
            f"output_height=3, output_width=2, sampling_ratio={samples}, "
            "spatial_scale=0.5>(x, r, i)"
            for m, c in names
        ),
        "float[2, 3, 6, 7] x, float[R, 4] r, int64[R] i",
        ", ".join(f"float[R, 3, 3, 2] {m}_{c}" for m, c in names),
    )
    session = alone(model)
    corners = RNG.uniform(0, 12, (6, 2))
    regions = np.hstack([corners, corners + RNG.uniform(0.5, 9, (6, 2))])
    # of no size, beyond the image, and larger than it
    regions[3:] = [[1, 1, 1, 1], [40, 40, 60, 60], [-30, -9, 50, 60]]
    feeds = {
        "x": normal(2, 3, 6, 7),
        "r": regions.astype(np.float32),
        "i": np.array([0, 1, 1, 0, 1, 0]),
    }
    cpu = onnxplug.InferenceSession(model, providers=["CPUExecutionProvider"])
    for found, wanted in zip(
        session.run(None, feeds), cpu.run(None, feeds), strict=True
    ):
        np.testing.assert_allclose(found, wanted, 1e-4, 1e-5)
    huge = feeds | {"r": np.array([[-1e8, -1e8, 1e8, 1e8]] * 6, np.float32)}
    assert np.isfinite(session.run(None, huge)[0]).all()
    for name, wrong, message in (
        ("i", np.array([0, 1, 2, 0, 0, 0]), "out of range"),
        ("i", np.array([0, 1, -1, 0, 0, 0]), "out of range"),
        ("r", np.full((6, 4), np.nan, np.float32), "not finite"),
    ):
        with pytest.raises(onnxplug.errors.NodeError, match=message):
            session.run(None, feeds | {name: wrong})


def test_local_responses_and_reversed_sequences(alone: Any, parse: Any) -> None:
    model = parse(
        "y = LRN<size=3, alpha=0.5, beta=0.6, bias=1.5>(x) "
        "z = ReverseSequence<time_axis=0, batch_axis=1>(x, n)",
        "float[4, 4, 2, 1] x, int64[4] n",
        "float[4, 4, 2, 1] y, float[4, 4, 2, 1] z",
    )
    x = normal(4, 4, 2, 1)
    agree(alone, model, {"x": x, "n": np.array([4, 1, 2, 3])})
    session = alone(model)
    for wrong in (6, -1):
        with pytest.raises(onnxplug.errors.NodeError, match=r"ReverseSequence of"):
            session.run(None, {"x": x, "n": np.array([4, 1, wrong, 3])})
