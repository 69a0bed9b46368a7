"""Models of three sizes, for several sessions at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from .encoders import distilbert
from .graph import Case, Exporter, Graph
from .small import mlp


def small_mlp() -> Case:
    """A perceptron for one row of ten numbers."""
    return mlp(1, (10, 32, 3))


def mobile(size: int = 96) -> Case:
    """Six blocks of MobileNetV2's kind on a picture of *size* by *size*."""
    g = Graph(Exporter.DYNAMO)
    x = g.random.standard_normal((1, 3, size, size), np.float32)

    def conv(
        value: str, name: str, into: int, out: int, kernel: int, stride: int = 1,
        groups: int = 1,
    ) -> str:  # fmt: skip
        depth = into // groups
        scale = (2 / depth / kernel**2) ** 0.5
        weight = g.weight(f"{name}.weight", out, depth, kernel, kernel, scale=scale)
        return g.add(
            "Conv", value, weight, g.weight(f"{name}.bias", out),
            pads=[kernel // 2] * 4, strides=[stride] * 2, group=groups,
        )  # fmt: skip

    value = g.add("Relu", conv("x", "stem", 3, 16, 3, 2))
    channels = 16
    for block, (out, stride) in enumerate(
        ((24, 2), (24, 1), (32, 2), (32, 1), (64, 2), (64, 1))
    ):
        wide, before = 6 * channels, value
        value = g.add("Relu", conv(value, f"{block}.expand", channels, wide, 1))
        value = conv(value, f"{block}.depth", wide, wide, 3, stride, wide)
        value = conv(g.add("Relu", value), f"{block}.project", wide, out, 1)
        if out == channels:
            value = g.add("Add", value, before)
        channels = out
    return g.finish("mobile", {"x": x}, [g.add("GlobalAveragePool", value)])


MODELS: Final[Mapping[str, Callable[[], Case]]] = {
    "mlp": small_mlp,
    "mobile": mobile,
    "transformer": lambda: distilbert(layers=1, words=1000, length=64),
}
