"""Convolutions of small groups of channels, beside the same in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import onnxplug

RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("operator", "x", "w", "attributes"),
    [
        ("Conv", (1, 6, 9), (6, 1, 3), "group=6, pads=[2, 0]"),
        ("Conv", (2, 8, 9, 7), (16, 1, 3, 2), "group=8, strides=[2, 1]"),
        ("Conv", (1, 8, 6, 5), (8, 4, 3, 3), "group=2, dilations=[2, 1]"),
        ("Conv", (1, 24, 5, 5), (24, 8, 1, 1), "group=3"),
        ("Conv", (1, 3, 4, 5, 6), (3, 1, 2, 2, 2), "group=3, pads=[1, 0, 0, 0, 1, 2]"),
        ("Conv", (2, 5, 1, 1), (5, 1, 3, 3), "group=5, pads=[1, 1, 1, 1]"),
        ("ConvTranspose", (1, 6, 5, 4), (6, 1, 3, 3), "group=6, strides=[2, 2]"),
    ],
)
def test_groups_of_few_channels(
    alone: Any,
    parse: Any,
    operator: str,
    x: tuple[int, ...],
    w: tuple[int, ...],
    attributes: str,
) -> None:
    """With what stands behind them, between other convolutions and not."""

    def model(element: str) -> Any:
        letters = [f"D{axis}" for axis in range(len(x))]
        return parse(
            f"c = {operator}<{attributes}>(x, w, b) r = Relu(c) y = Mul(r, c)",
            f"{element}[{', '.join(map(str, x))}] x, "
            f"{element}[{', '.join(map(str, w))}] w, {element}[B] b",
            f"{element}[{', '.join(letters)}] y, {element}[{', '.join(letters)}] c",
        )

    channels = w[0] if operator == "Conv" else x[1]
    feeds = {
        "x": RNG.standard_normal(x),
        "w": RNG.standard_normal(w),
        "b": RNG.standard_normal(channels),
    }
    cpu = onnxplug.InferenceSession(model("double"), providers=["CPUExecutionProvider"])
    single = {name: value.astype(np.float32) for name, value in feeds.items()}
    for found, wanted in zip(
        alone(model("float")).run(None, single), cpu.run(None, feeds), strict=True
    ):
        np.testing.assert_allclose(found, wanted, 1e-4, 1e-5)
