"""A multilayer perceptron, and models where the runtime's own cost is all there is."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from .graph import Case, Exporter, Graph


def mlp(rows: int = 64, widths: Sequence[int] = (1024, 4096, 4096, 1024, 1000)) -> Case:
    """``Linear`` layers with ReLU between them."""
    g = Graph(Exporter.DYNAMO)
    x = g.random.standard_normal((rows, widths[0]), np.float32)
    value = "x"
    for layer, (into, out) in enumerate(pairwise(widths)):
        if layer:
            value = g.add("Relu", value)
        value = g.add(
            "Gemm", value,
            g.weight(f"{layer}.weight", out, into, scale=(2 / into) ** 0.5),
            g.weight(f"{layer}.bias", out),
            alpha=1.0, beta=1.0, transB=1,
        )  # fmt: skip
    return g.finish("mlp", {"x": x}, [value])


def one_add() -> Case:
    """One ``Add`` of two vectors of one element."""
    g = Graph(Exporter.DYNAMO)
    a, b = np.ones((2, 1), np.float32)
    return g.finish("add", {"a": a, "b": b}, [g.add("Add", "a", "b")])


def chain(operators: int = 200, width: int = 16) -> Case:
    """Operators on ``[1, width]``, one after another; each fifth is a ``MatMul``."""
    g = Graph(Exporter.DYNAMO)
    x = g.random.standard_normal((1, width), np.float32)
    value = "x"
    for number in range(operators):
        match number % 5:
            case 0:
                matrix = g.weight(f"{number}", width, width, scale=width**-0.5)
                value = g.add("MatMul", value, matrix)
            case 1:
                value = g.add("Add", value, g.weight(f"{number}", width))
            case 2:
                value = g.add("Tanh", value)
            case 3:
                value = g.add("Mul", value, g.weight(f"{number}", width, mean=1))
            case _:
                value = g.add("Sub", value, "x")
    return g.finish("chain", {"x": x}, [value])
