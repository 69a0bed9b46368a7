"""Operators on codes that are unfolded to what they stand for."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

from .lowered import lowered
from .test_quantization import NODE, model_of

Array = np.ndarray[Any, Any]

_SCALED = {"s": np.float32(0.05), "z": np.uint8(121)}


def of_products(**more: Array) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A product, the addition of its bias, and what may be more inputs than codes."""
    random = np.random.default_rng(4)
    feeds = {"x": random.integers(0, 256, (3, 7, 40)).astype(np.uint8), **more}
    constants: dict[str, Any] = {
        **_SCALED,
        "w": random.integers(-60, 60, (40, 33)).astype(np.int8),
        "sw": (random.random(33) / 300 + 1e-3).astype(np.float32),
        "zw": np.zeros(33, np.int8),
        "b": random.integers(0, 256, 33).astype(np.uint8),
    }
    constants = {name: each for name, each in constants.items() if name not in more}
    scaled = ["s", "z"]
    nodes = [
        NODE("QLinearMatMul", ["x", *scaled, "w", "sw", "zw", *scaled], ["p"]),
        NODE(
            "QLinearAdd",
            ["p", *scaled, "b", *scaled, *scaled],
            ["y"],
            domain="com.microsoft",
        ),
    ]
    return model_of(nodes, feeds, ["y"], constants), feeds


def test_what_follows_a_product_takes_its_sums() -> None:
    model, feeds = of_products()
    tested = lowered(model, threads=2)
    (command,) = tested.commands()
    assert command.startswith(
        "QuantizedMatMul + QuantizeLinear + DequantizeLinear + Add + QuantizeLinear "
    )
    (found,) = tested.session.run(None, feeds)
    (wanted,) = tested.expected.run(None, feeds)
    apart = np.abs(found.astype(int) - wanted.astype(int))
    assert apart.max() <= 1
    assert apart.mean() < 0.01


def test_what_has_scales_of_runs_stays_whole() -> None:
    model, feeds = of_products(s=np.full((), 0.05, np.float32))
    tested = lowered(model, threads=1)
    assert any("QLinearMatMul" in each for each in tested.commands())
    (found,) = tested.session.run(None, feeds)
    np.testing.assert_array_equal(found, tested.expected.run(None, feeds)[0])


def test_convolutions_with_bias() -> None:
    random = np.random.default_rng(5)
    for groups, channels in ((1, 6), (8, 1)):
        shape = (2, groups * channels, 9, 8)
        feeds = {"x": random.integers(0, 256, shape).astype(np.uint8)}
        constants: dict[str, Any] = {
            **_SCALED,
            "w": random.integers(-60, 60, (8, channels, 3, 2)).astype(np.int8),
            "sw": (random.random(8) / 200 + 1e-3).astype(np.float32),
            "zw": np.zeros(8, np.int8),
            "b": random.integers(-9999, 9999, 8).astype(np.int32),
        }
        inputs = ["x", "s", "z", "w", "sw", "zw", "s", "z", "b"]
        pads = {"pads": [1, 0, 1, 1], "group": groups}
        model = model_of([NODE("QLinearConv", inputs, ["y"], **pads)], feeds, ["y"],
                         constants)  # fmt: skip
        tested = lowered(model, threads=1)
        assert any("QuantizedConv + Quantize" in each for each in tested.commands())
        (found,) = tested.session.run(None, feeds)
        (wanted,) = ReferenceEvaluator(model).run(None, feeds)
        apart = np.abs(found.astype(int) - np.asarray(wanted).astype(int))
        assert apart.max() <= 1
        assert apart.mean() < 0.01


def test_a_gemm_with_floats_behind() -> None:
    random = np.random.default_rng(6)
    feeds = {"x": random.integers(0, 256, (5, 40)).astype(np.uint8)}
    constants: dict[str, Any] = {
        **_SCALED,
        "w": random.integers(-60, 60, (33, 40)).astype(np.int8),
        "sw": np.float32(0.002),
        "zw": np.int8(2),
        "b": random.integers(-9999, 9999, 33).astype(np.int32),
    }
    inputs = ["x", "s", "z", "w", "sw", "zw", "b"]
    node = helper.make_node(
        "QGemm", inputs, ["y"], domain="com.microsoft", transB=1, alpha=0.7
    )
    model = model_of([node], feeds, ["y"], constants)
    tested = lowered(model, threads=1)
    assert any("QuantizedMatMul" in each for each in tested.commands())
    (found,) = tested.session.run(None, feeds)
    x, w = feeds["x"].astype(int) - 121, constants["w"].astype(int) - 2
    wanted = 0.7 * 0.05 * 0.002 * (x @ w.T + constants["b"])
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
