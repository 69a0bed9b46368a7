"""Poolings: constraints of the pages, and ONNX Runtime's results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from .examples import assert_documented, assert_rejected, evaluate, f32
from .reference import of_onnx

Array = np.ndarray[Any, Any]

CASES: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "plain": ((2, 3, 6, 5), {"kernel_shape": [2, 3]}),
    "pads": (
        (1, 2, 7, 6),
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 0, 1, 2]},
    ),
    "3D": (
        (1, 2, 5, 4, 4),
        {"kernel_shape": [2, 3, 2], "strides": [1, 2, 2], "pads": [1, 0, 0, 0, 1, 1]},
    ),
}
DILATED = (1, 2, 8, 7), {"kernel_shape": [2, 3], "dilations": [3, 2], "pads": [1] * 4}


def random(*sizes: int) -> Array:
    """Floats."""
    return np.random.default_rng(10).uniform(-2, 2, sizes).astype(np.float32)


def fields_of(attributes: dict[str, Any]) -> dict[str, Any]:
    """ONNX's attributes by the names of DirectML."""
    window = tuple(attributes["kernel_shape"])
    count = len(window)
    pads = attributes.get("pads", [0] * 2 * count)
    return {
        "DimensionCount": count,
        "Strides": tuple(attributes.get("strides", [1] * count)),
        "WindowSize": window,
        "StartPadding": tuple(pads[:count]),
        "EndPadding": tuple(pads[count:]),
    }


def assert_pooled(
    name: str, case: tuple[tuple[int, ...], dict[str, Any]], onnx: str, **more: Any
) -> None:
    """A pooling of floats gives what ONNX Runtime does."""
    sizes, attributes = case
    of_directml = more.pop("fields", {})
    expected = of_onnx(onnx, random(*sizes), **attributes, **more)
    fields: dict[str, Any] = {"InputTensor": random(*sizes), "OutputTensor": expected}
    fields |= fields_of(attributes) | of_directml
    if name.endswith("1"):
        fields["Dilations"] = tuple(
            attributes.get("dilations", (1,) * fields["DimensionCount"])
        )
    (found,) = evaluate(name, **fields)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("include", [True, False])
def test_average(name: str, include: bool) -> None:
    more = {"count_include_pad": int(include), "fields": {"IncludePadding": include}}
    assert_pooled("AVERAGE_POOLING", CASES[name], "AveragePool", **more)
    assert_pooled("AVERAGE_POOLING1", CASES[name], "AveragePool", **more)
    if name == "plain":
        assert_pooled("AVERAGE_POOLING1", DILATED, "AveragePool", **more)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("p", [1, 2, 3])
def test_lp(name: str, p: int) -> None:
    assert_pooled("LP_POOLING", CASES[name], "LpPool", p=p, fields={"P": p})
    if name == "plain":
        assert_pooled("LP_POOLING1", DILATED, "LpPool", p=p, fields={"P": p})


@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.int8])
@pytest.mark.parametrize("name", [*CASES, "dilated"])
def test_max(name: str, dtype: Any) -> None:
    sizes, attributes = CASES.get(name, DILATED)
    x = (random(*sizes) * 4).round().astype(np.int8).astype(dtype)
    expected, indices = of_onnx("MaxPool", x, outputs=2, **attributes)
    fields: dict[str, Any] = {"InputTensor": x, "OutputTensor": expected} | fields_of(
        attributes
    )
    ones = (1,) * fields["DimensionCount"]
    dilations = {"Dilations": tuple(attributes.get("dilations", ones))}
    with_indices = {"OutputIndicesTensor": indices.astype(np.uint32)}
    assert_documented("MAX_POOLING2", **fields, **dilations, **with_indices)
    assert_documented("MAX_POOLING2", **fields, **dilations)
    if dilations["Dilations"] == ones:
        assert_documented("MAX_POOLING", **fields)
        assert_documented("MAX_POOLING1", **fields, **with_indices)
        assert_documented("MAX_POOLING1", **fields)


def test_padding_is_never_the_largest() -> None:
    pads = {"StartPadding": (1, 1), "EndPadding": (0, 0)}
    fields: dict[str, Any] = {
        "DimensionCount": 2,
        "Strides": (1, 1),
        "WindowSize": (2, 2),
    }
    x = f32([[[[-np.inf]]]])
    assert_documented(
        "MAX_POOLING1",
        InputTensor=x,
        OutputTensor=x,
        OutputIndicesTensor=np.array([[[[0]]]], np.uint32),
        **fields,
        **pads,
    )


@pytest.mark.parametrize(
    ("reason", "change"),
    [
        ("OutputTensor has Sizes", {"EndPadding": (1, 0)}),
        ("at least 1", {"WindowSize": (0, 3)}),
        ("at least 1", {"Strides": (0, 1)}),
        ("is larger than", {"WindowSize": (9, 3)}),
        ("DimensionCount is 1", {"DimensionCount": 1}),
        ("DataType must be", {"InputTensor": random(2, 3, 6, 5).astype(np.float16)}),
        ("has 3 dim", {"InputTensor": random(3, 6, 5)}),
    ],
)
def test_what_poolings_do_not_take(reason: str, change: dict[str, Any]) -> None:
    sizes, attributes = CASES["plain"]
    fields: dict[str, Any] = {
        "InputTensor": random(*sizes),
        "OutputTensor": random(2, 3, 5, 3),
    }
    fields |= fields_of(attributes) | {"P": 2}
    evaluate("LP_POOLING", **fields)
    assert_rejected("LP_POOLING", reason, **fields | change)


def test_quantized_average() -> None:
    sizes, attributes = CASES["pads"]
    codes = np.random.default_rng(11).integers(0, 256, sizes, np.uint8)
    values = ((codes - 100.0) * 0.5).astype(np.float32)
    average = of_onnx("AveragePool", values, **attributes)
    expected = np.clip(np.rint(average / np.float32(0.3)) + 90, 0, 255).astype("u1")
    fields: dict[str, Any] = {
        "InputTensor": codes,
        "OutputTensor": expected,
        "IncludePadding": False,
    }
    fields |= {"InputScaleTensor": f32([0.5]), "OutputScaleTensor": f32([0.3])}
    fields["InputZeroPointTensor"] = np.array([100], np.uint8)
    fields["OutputZeroPointTensor"] = np.array([90], np.uint8)
    fields |= fields_of(attributes) | {"Dilations": (1, 1)}
    assert_documented("QUANTIZED_LINEAR_AVERAGE_POOLING", **fields)
    each = {"InputScaleTensor": f32([0.5, 0.5]).reshape(1, 2, 1, 1)}
    assert_documented("QUANTIZED_LINEAR_AVERAGE_POOLING", **fields | each)
