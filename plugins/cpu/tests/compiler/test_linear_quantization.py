"""ONNX Runtime's operators on bytes with a scale and a zero point, and pools of bytes,
compiled, against ONNX Runtime: to the bit, but for means of windows, which are summed
in another order."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest

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
    is_mean = operator == "QLinearAveragePool"
    assert apart.max() <= is_mean
    assert (apart > 0).mean() < 0.01
