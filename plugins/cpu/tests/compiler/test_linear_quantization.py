"""ONNX Runtime's operators on bytes with a scale and a zero point, and pools of bytes,
compiled, against ONNX Runtime: to the bit, but for means of windows, which are summed
in another order, and for what is rounded as the numbers that codes stand for, to which
ONNX Runtime adds the zero point before."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest

from .differential import session
from .test_quantization import NODE, model_of, run

ONE = ["a", "sa", "za", "sy", "zy"]
TWO = ["a", "sa", "za", "b", "sb", "zb", "sy", "zy"]


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize(
    ("operator", "names", "attributes"),
    [
        ("QLinearAdd", TWO, {}),
        ("QLinearMul", TWO, {}),
        ("QLinearSigmoid", ONE, {}),
        ("QLinearLeakyRelu", ONE, {"alpha": 0.2}),
        ("QLinearGlobalAveragePool", ONE, {}),
        (
            "QLinearAveragePool",
            ONE,
            {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2]},
        ),
        ("QLinearSoftmax", ONE, {"axis": -1, "opset": 13}),
        (
            "QLinearConcat",
            ["sy", "zy", "a", "sa", "za", "b", "sb", "zb"],
            {"axis": 1},
        ),
        ("MaxPool", ["a"], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
        ("MaxPool", ["a"], {"kernel_shape": [2, 3], "strides": [2, 1]}),
    ],
)
def test_bytes_are_as_those_of_onnx_runtime(
    dtype: Any, operator: str, names: list[str], attributes: dict[str, Any]
) -> None:
    random = np.random.default_rng(9)
    limits = np.iinfo(dtype)
    feeds = {
        name: random.integers(limits.min, limits.max + 1, (2, 9, 8, 11)).astype(dtype)
        for name in "ab"
        if name in names
    }
    constants: dict[str, Any] = {}
    for name, scale in (("a", 0.05), ("b", 0.03), ("y", 0.07)):
        zero = dtype(random.integers(limits.min + 90, limits.max - 90))
        constants |= {f"s{name}": np.float32(scale), f"z{name}": zero}
    if operator == "QLinearSoftmax":
        constants |= {"sy": np.float32(1 / 256), "zy": dtype(limits.min)}
    constants = {name: value for name, value in constants.items() if name in names}
    domain = "" if operator == "MaxPool" else "com.microsoft"
    node = NODE(operator, names, ["y"], domain=domain, **attributes)
    model = model_of([node], feeds, ["y"], constants)
    model.opset_import[0].version = 17
    peer = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (wanted,) = peer.run(None, feeds)
    (found,) = run(model, feeds, threads=2)
    assert found.dtype == wanted.dtype
    apart = np.abs(found.astype(int) - wanted.astype(int))
    steps = {"QLinearAveragePool": 0.01, "QLinearAdd": 0.01, "QLinearMul": 0.03}
    assert apart.max() <= (operator in steps)
    assert (apart > 0).mean() <= steps.get(operator, 0)


def test_what_is_between_convolutions_of_bytes_lies_as_they_do() -> None:
    """As quantizers of ONNX Runtime write it: with scales of tensors, and of runs."""
    random = np.random.default_rng(10)
    feeds = {"x": random.standard_normal((2, 8, 12, 10)).astype(np.float32)}
    constants: dict[str, Any] = {
        "w": random.integers(-60, 60, (16, 8, 3, 3)).astype(np.int8),
        "v": random.integers(-60, 60, (8, 16, 1, 1)).astype(np.int8),
        "sw": np.float32(0.01),
        "zw": np.int8(0),
        "s": np.float32(0.05),
        "z": np.uint8(121),
    }
    scaled = ["s", "z"]
    more = {"domain": "com.microsoft"}
    pads = {"pads": [1, 1, 1, 1]}
    nodes = [
        NODE("QuantizeLinear", ["x", *scaled], ["q"]),
        NODE("QLinearConv", ["q", *scaled, "w", "sw", "zw", *scaled], ["c"], **pads),
        NODE("QLinearSigmoid", ["c", *scaled, *scaled], ["g"], **more),
        NODE("QLinearMul", ["c", *scaled, "g", *scaled, *scaled], ["m"], **more),
        NODE("QLinearAdd", ["m", *scaled, "c", *scaled, *scaled], ["a"], **more),
        NODE(
            "QLinearConcat",
            [*scaled, "a", *scaled, "c", *scaled],
            ["j"],
            axis=1,
            **more,
        ),
        NODE("QLinearGlobalAveragePool", ["j", *scaled, *scaled], ["y"], **more),
        NODE("DequantizeLinear", ["a", *scaled], ["b"]),
        NODE("DynamicQuantizeLinear", ["b"], ["e", "se", "ze"]),
        NODE("ConvInteger", ["e", "v", "ze", "zw"], ["i"]),
        NODE("Cast", ["i"], ["f"], to=1),
        NODE("Mul", ["se", "sw"], ["sf"]),
        NODE("Mul", ["f", "sf"], ["u"]),
    ]
    model = model_of(nodes, feeds, ["a", "y", "u"], constants)
    model.opset_import[0].version = 17
    peer = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    found = run(model, feeds, threads=2)
    for one, other in zip(found, peer.run(None, feeds), strict=True):
        assert one.dtype == other.dtype
        # codes may be a step from those of ONNX Runtime, which rounds sums and products
        # with their zero points added, and so may be those that a float is the sum of
        is_of_codes = one.dtype == np.uint8
        apart = np.abs(one.astype(float) - other.astype(float))
        assert apart.max() <= (1 if is_of_codes else 0.01 * np.abs(other).max())
        assert apart.mean() <= (0.1 if is_of_codes else 0.001 * np.abs(other).max())


def test_a_mean_of_more_codes_than_int32_sums_is_right() -> None:
    constants = {"s": np.float32(1), "z": np.uint8(0)}
    names = ["a", "s", "z", "s", "z"]
    node = NODE("QLinearGlobalAveragePool", names, ["y"], domain="com.microsoft")
    feeds = {"a": np.full((1, 1, 2912, 2912), 255, np.uint8)}
    made = session(model_of([node], feeds, ["y"], constants), compiled=True)
    (found,) = made.run(None, feeds)
    assert found.ravel().tolist() == [255]
