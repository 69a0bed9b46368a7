"""Hardmax, and Dropout where nothing is dropped, compiled, against onnx's reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import onnxplug


def model(body: str, opset: int, outputs: str, inputs: str = "float[A, B, C] x") -> Any:
    return onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : {opset}]> '
        f"graph ({inputs}) => ({outputs}) {{ {body} }}"
    )


def compiled(proto: Any, feeds: dict[str, Any]) -> list[Any]:
    session = onnxplug.InferenceSession(proto, providers=["CPUExecutionProvider"])
    found = session.run(None, feeds)
    assert {node.tier for node in session.explain().nodes} == {"compiled"}
    return found


@pytest.mark.parametrize(("opset", "axis"), [(13, 0), (13, 1), (13, -1), (11, 1)])
def test_the_first_largest_element_is_one(opset: int, axis: int) -> None:
    proto = model(f"y = Hardmax<axis={axis}>(x)", opset, "float[A, B, C] y")
    rng = np.random.default_rng(0)
    for shape in ((3, 4, 5), (1, 1, 1), (2, 50, 3)):
        x = rng.integers(0, 4, shape).astype(np.float32)
        rows = x if opset > 12 else x.reshape(shape[0], -1)
        places = rows.argmax(axis)
        wanted = np.zeros_like(rows)
        np.put_along_axis(wanted, np.expand_dims(places, axis), 1, axis)
        (y,) = compiled(proto, {"x": x})
        np.testing.assert_array_equal(y, wanted.reshape(shape))


@pytest.mark.parametrize(
    ("opset", "attributes", "mask"),
    [(6, "<is_test=1>", "float"), (9, "", "float"), (11, "", "bool"), (13, "", "bool")],
)
def test_nothing_is_dropped(opset: int, attributes: str, mask: str) -> None:
    proto = model(
        f"y, m = Dropout{attributes}(x)", opset, f"float[A, B, C] y, {mask}[A, B, C] m"
    )
    x = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
    y, m = compiled(proto, {"x": x})
    np.testing.assert_array_equal(y, x)
    assert m.dtype == (np.bool_ if mask == "bool" else np.float32)
    np.testing.assert_array_equal(m, np.ones(x.shape, m.dtype))


def test_a_ratio_that_is_none_is_refused() -> None:
    proto = model(
        "y = Dropout(x, r)", 13, "float[A, B, C] y", "float[A, B, C] x, float r"
    )
    session = onnxplug.InferenceSession(proto, providers=["CPUExecutionProvider"])
    x = np.zeros((1, 1, 1), np.float32)
    with pytest.raises(onnxplug.errors.NodeError, match="ratio"):
        session.run(None, {"x": x, "r": np.float32(1.5)})


def test_statistics_are_given_where_an_old_model_says_so() -> None:
    names = ("s", "b", "m", "v")
    proto = model(
        "y = BatchNormalization<is_test=1>(x, s, b, m, v)",
        6,
        "float[A, B, C] y",
        "float[A, B, C] x, " + ", ".join(f"float[B] {name}" for name in names),
    )
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 3, 4)).astype(np.float32)
    feeds = {name: rng.uniform(0.5, 2, 3).astype(np.float32) for name in names}
    (y,) = compiled(proto, {"x": x, **feeds})
    s, b, m, v = (feeds[name][:, None] for name in names)
    np.testing.assert_allclose(y, (x - m) / np.sqrt(v + 1e-5) * s + b, 1e-5, 1e-5)


def test_scatter_is_what_it_is_called_now() -> None:
    proto = model(
        "y = Scatter<axis=1>(x, i, u)",
        10,
        "float[A, B] y",
        "float[A, B] x, int64[A, K] i, float[A, K] u",
    )
    later = model(
        "y = ScatterElements<axis=1>(x, i, u)",
        11,
        "float[A, B] y",
        "float[A, B] x, int64[A, K] i, float[A, K] u",
    )
    rng = np.random.default_rng(0)
    feeds = {
        "x": rng.standard_normal((3, 5)).astype(np.float32),
        "i": np.array([[0, 4], [1, 2], [3, 0]]),
        "u": rng.standard_normal((3, 2)).astype(np.float32),
    }
    (y,) = compiled(proto, feeds)
    np.testing.assert_array_equal(y, ReferenceEvaluator(later).run(None, feeds)[0])
