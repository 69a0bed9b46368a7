"""Softmax and norms of the compiled tier against their formulas."""

from __future__ import annotations

import functools

import numpy as np

from ....kernels.tests.properties.comparison import assert_near, wide
from ....kernels.tests.properties.formulas import Normalized
from ....kernels.tests.properties.strategies import Draw, examples
from .compiled import Compiled, Node, shapes

FLOAT32 = np.dtype(np.float32)
EPSILON = float(np.float32(1e-5))


@functools.cache
def softmaxes() -> Compiled:
    nodes = {
        f"{name} {axis}": Node(name, ("x",), FLOAT32, {"axis": axis})
        for name in ("Softmax", "LogSoftmax")
        for axis in (-1, 0, 1)
    }
    return Compiled(nodes, {"x": FLOAT32})


@examples(30)
def test_softmax(draw: Draw) -> None:
    values = draw.one_of(["any", "special", "ordinary"])
    x = draw.array(FLOAT32, draw.one_of(shapes(2, 4)), values)
    for name, result in softmaxes().run(x=x).items():
        op_type, text = name.split()
        axis = int(text)
        with np.errstate(all="ignore"):
            exact = wide(x) - wide(x).max(axis=axis, keepdims=True, initial=-np.inf)
            # the distance from the largest is rounded, and the logarithm's sum
            away = np.maximum(np.nan_to_num(np.abs(exact), posinf=0), 1)
            exact = exact - np.log(np.exp(exact).sum(axis=axis, keepdims=True))
            if op_type == "Softmax":
                exact = np.exp(exact)
                away = np.maximum(exact, 1e-30) * away
        assert_near(result, exact, FLOAT32, 16, away)


@functools.cache
def norms() -> Compiled:
    layer, root = "LayerNormalization", "RMSNormalization"
    nodes = {
        "layer of row": Node(layer, ("x", "row"), FLOAT32),
        "shifted": Node(layer, ("x", "row", "shift"), FLOAT32, {"axis": -1}),
        "layer of plane": Node(layer, ("x", "plane"), FLOAT32, {"axis": -2}),
        "root of row": Node(root, ("x", "row"), FLOAT32),
        "root of plane": Node(root, ("x", "plane"), FLOAT32, {"axis": -2}),
    }
    return Compiled(nodes, dict.fromkeys(("x", "row", "shift", "plane"), FLOAT32))


@examples(30)
def test_norms(draw: Draw) -> None:
    values = draw.one_of(["ordinary", "ordinary", "special"])
    x = draw.array(FLOAT32, draw.one_of(shapes(2, 4, empty=False)), values)
    row, shift = (draw.array(FLOAT32, x.shape[-1:], "ordinary") for _ in range(2))
    plane = draw.array(FLOAT32, x.shape[-2:], "ordinary")
    found = norms().run(x=x, row=row, shift=shift, plane=plane)
    for name, result in found.items():
        axes = (-2, -1) if "plane" in name else (-1,)
        scale = wide(plane if "plane" in name else row)
        if name.startswith("root"):
            with np.errstate(all="ignore"):
                square = (wide(x) ** 2).mean(axis=axes, keepdims=True)
                exact = wide(x) / np.sqrt(square + EPSILON) * scale
            size = np.abs(exact)
        else:
            normalized = Normalized(wide(x), axes, EPSILON)
            bias = wide(shift) if name == "shifted" else None
            exact, size = normalized.scaled(scale, bias)
        assert_near(result, exact, FLOAT32, 32, np.nan_to_num(size, posinf=0))
