"""Codes that are moved before they are multiplied, as NNCF leaves it to who runs a
model, against arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from .differential import session
from .test_quantised_graphs import NODE, Array, Numbers, model_of

OF_X = Numbers("x", 0.03, np.uint8(120))
OF_W = Numbers("w", 0.01, np.int8(0))
MULTIPLIES = "multiplies codes"
RANDOM = np.random.default_rng(7)
FILTERS = RANDOM.integers(-100, 101, (8, 12, 3, 3)).astype(np.int8)


def difference(model: Any, feeds: dict[str, Array]) -> tuple[int, float]:
    """How many nodes multiply codes, and how far results are from those of arrays, in
    parts of the largest."""
    runner = session(model, compiled=True)
    found = runner.run(None, feeds)
    nodes = runner.explain().nodes
    assert all(node.tier == "compiled" for node in nodes)
    wanted = session(model, compiled=False).run(None, feeds)
    apart = [
        np.abs(one.astype(np.float64) - other).max() / np.abs(other).max()
        for one, other in zip(found, wanted, strict=True)
    ]
    return sum(MULTIPLIES in node.note for node in nodes), max(apart)


def dequantised(name: str, numbers: Numbers = OF_X) -> list[Any]:
    """Nodes that make ``d<name>`` of *name*, by codes ``q<name>``."""
    return [
        NODE("QuantizeLinear", [name, *numbers.names], [f"q{name}"]),
        NODE("DequantizeLinear", [f"q{name}", *numbers.names], [f"d{name}"]),
    ]


def convolved(name: str, to: str) -> list[Any]:
    return [
        NODE("DequantizeLinear", ["w", *OF_W.names], [f"w{to}"]),
        NODE("Conv", [name, f"w{to}"], [to], pads=[1] * 4),
    ]


CASES = {
    "Split": [
        NODE("Split", ["dx", "parts"], ["one", "other"], axis=1),
        *convolved("one", "y"),
        NODE("Relu", ["other"], ["z"]),
    ],
    "MaxPool": [
        NODE("Slice", ["dx", "first", "last", "axis"], ["s"]),
        NODE("MaxPool", ["s"], ["p"], kernel_shape=[3, 3], pads=[1] * 4),
        *convolved("p", "y"),
        NODE("Identity", ["p"], ["z"]),
    ],
    "Resize": [
        NODE("Slice", ["dx", "first", "last", "axis"], ["s"]),
        NODE(
            "Resize",
            ["s", "", "scales"],
            ["r"],
            mode="nearest",
            coordinate_transformation_mode="asymmetric",
        ),
        *convolved("r", "y"),
        NODE("Neg", ["s"], ["z"]),
    ],
    "Pad": [
        NODE("Split", ["dx", "parts"], ["one", "other"], axis=1),
        NODE("Pad", ["one", "pads"], ["p"]),
        NODE("Pad", ["p", "pads", "nothing"], ["r"], mode="reflect"),
        *convolved("r", "y"),
        NODE("Pad", ["other", "pads", "nothing"], ["z"]),
    ],
    "Concat": [
        NODE("Split", ["dx", "parts"], ["one", "other"], axis=1),
        NODE("Concat", ["one", "dw2"], ["c"], axis=2),
        *convolved("c", "y"),
        NODE("Add", ["other", "other"], ["z"]),
    ],
    "Transpose": [
        NODE("Slice", ["dx", "first", "last", "axis"], ["s"]),
        NODE("Transpose", ["s"], ["t"], perm=[0, 1, 3, 2]),
        NODE("Reshape", ["t", "shape"], ["r"]),
        NODE("DequantizeLinear", ["v", *OF_W.names], ["m"]),
        NODE("MatMul", ["r", "m"], ["y"]),
        NODE("Neg", ["t"], ["z"]),
    ],
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("is_stated", [True, False], ids=["stated", "unstated"])
def test_codes_are_moved_before_they_are_multiplied(case: str, is_stated: bool) -> None:
    feeds = {
        "x": RANDOM.standard_normal((2, 20, 6, 5)).astype(np.float32),
        "w2": RANDOM.standard_normal((2, 12, 3, 5)).astype(np.float32),
    }
    nodes = [*dequantised("x"), *dequantised("w2"), *CASES[case]]
    weights = {
        "w": FILTERS,
        "v": FILTERS.reshape(72, 12)[:60],
        "parts": np.int64([12, 8]),
        "pads": np.int64([0, 0, 1, 2, 0, 0, 0, 1]),
        "nothing": np.float32(0),
        "first": np.int64([0]),
        "last": np.int64([12]),
        "axis": np.int64([1]),
        "shape": np.int64([0, 6, 60]),
        "scales": np.float32([1, 1, 2, 2]),
        **OF_X.constants,
        **OF_W.constants,
    }
    model = model_of(nodes, feeds, ["y", "z"], weights)
    if not is_stated:
        for value in model.graph.input:
            value.type.tensor_type.shape.dim[0].dim_param = "batch"
    count, apart = difference(model, feeds)
    assert count == 1
    assert apart < 3e-6


@pytest.mark.parametrize("case", ["linear", "one", "unequal", "read outside"])
def test_what_computes_is_no_move(case: str) -> None:
    """Interpolation, and codes of two scales; weights stay what is best for them."""
    of_other = Numbers("o", 0.05 if case == "unequal" else 0.03, np.uint8(120))
    feeds = {
        "x": RANDOM.standard_normal((1, 12, 6, 5)).astype(np.float32),
        "w2": RANDOM.standard_normal((1, 12, 3, 5)).astype(np.float32),
    }
    nodes = [*dequantised("x"), *dequantised("w2", of_other)]
    if case == "one":
        nodes.append(NODE("Pad", ["dx", "pads", "added"], ["c"]))
    elif case == "linear":
        nodes.append(NODE("Resize", ["dx", "", "scales"], ["c"], mode="linear"))
    else:
        nodes.append(NODE("Concat", ["dx", "dw2"], ["c"], axis=2))
    nodes += convolved("c", "y")
    weights = {
        "w": FILTERS,
        "scales": np.float32([1, 1, 2, 2]),
        "pads": np.int64([0, 0, 1, 2, 0, 0, 0, 1]),
        "added": np.float32(1),
        **OF_X.constants,
        **OF_W.constants,
        **of_other.constants,
    }
    outputs = ["y", "c", "dx"] if case == "read outside" else ["y"]
    count, apart = difference(model_of(nodes, feeds, outputs, weights), feeds)
    assert count == (case == "read outside")
    assert apart < 3e-6


@pytest.mark.parametrize("zero", [np.int8(0), np.uint8(0), np.uint8(3)])
def test_channels_convolved_alone_may_have_steps_of_their_own(zero: Any) -> None:
    x = np.abs(RANDOM.standard_normal((2, 19, 9, 8))).astype(np.float32)
    of_x = Numbers("x", RANDOM.random(19) * 0.02 + 0.005, np.full(19, zero))
    of_w = Numbers("w", RANDOM.random(19) * 0.01 + 0.001, np.zeros(19, np.int8))
    w = RANDOM.integers(-127, 128, (19, 1, 3, 3)).astype(np.int8)
    nodes = [
        NODE("QuantizeLinear", ["x", *of_x.names], ["q"], axis=1),
        NODE("DequantizeLinear", ["q", *of_x.names], ["d"], axis=1),
        NODE("DequantizeLinear", ["w", *of_w.names], ["v"], axis=0),
        NODE("Conv", ["d", "v"], ["y"], group=19, pads=[1] * 4),
    ]
    weights = {"w": w, **of_x.constants, **of_w.constants}
    count, apart = difference(model_of(nodes, {"x": x}, ["y"], weights), {"x": x})
    assert count == (not zero)
    assert apart < 3e-6
