"""Operators that a program gives to its sessions."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import onnxplug
from onnxplug import ep
from onnxplug.errors import Fail, NoSuchFile, PluginLoadError, UnassignedNode

MODEL = onnx.parser.parse_model(
    """
    < ir_version: 10, opset_import: ["" : 21, "com.mine" : 2] >
    g (float[N] x) => (float[N] y) { z = com.mine.Twice (x)  y = Relu (z) }
    """
)
FUNCTION = """
<domain: "com.mine", opset_import: ["": 17]> Twice (x) => (y) { y = Add (x, x) }
"""
LIBRARY = """
from onnxplug import ep

def twice(graph, node, xp):
    return lambda x: x * 2

@ep.hookimpl
def onnxplug_domains(host):
    operator = ep.Operator(
        op_type="Twice", kernel=twice, infer_types=lambda graph, node, types: types
    )
    return [ep.Domain(name="com.mine", spi_version=(0, 4), operators=[operator])]
"""


def run(library: Any) -> tuple[list[float], list[str]]:
    """The result, and the operators of the nodes that ran."""
    options = onnxplug.SessionOptions()
    options.register_custom_ops_library(library)
    with onnxplug.InferenceSession(MODEL, options) as session:
        (result,) = session.run(None, {"x": np.float32([-1, 2])})
        return result.tolist(), [node.op_type for node in session.explain().nodes]


def test_a_function_may_be_an_operator() -> None:
    function = onnx.parser.parse_function(FUNCTION)
    assert run(function) == ([0, 4], ["Add", "Relu"])
    of_onnxscript = SimpleNamespace(to_function_proto=lambda: function)
    assert run(of_onnxscript) == ([0, 4], ["Add", "Relu"])


def test_a_python_file_or_a_module_may_supply_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_operators.py").write_text(LIBRARY)
    assert run(tmp_path / "my_operators.py") == ([0, 4], ["Twice", "Relu"])
    monkeypatch.syspath_prepend(tmp_path)
    assert run("my_operators") == ([0, 4], ["Twice", "Relu"])


def test_the_newest_operator_that_the_model_knows_is_taken() -> None:
    def times(number: int) -> Any:
        return lambda graph, node, xp: lambda x: x * number

    operators = [
        ep.Operator(op_type="Twice", since=since, kernel=times(since))
        for since in (1, 2, 3)
    ]
    domain = ep.Domain(name="com.mine", spi_version=(0, 4), operators=operators)
    assert run(domain)[0] == [0, 4]


def test_operators_are_only_of_sessions_that_are_given_them() -> None:
    run(onnx.parser.parse_function(FUNCTION))
    with pytest.raises(UnassignedNode, match="no kernel of com"):
        onnxplug.InferenceSession(MODEL)


def test_native_libraries_are_refused(tmp_path: Path) -> None:
    disguised = tmp_path / "operators.bin"
    disguised.write_bytes(b"\x7fELF" + bytes(60))
    options = onnxplug.SessionOptions()
    for path in ("libcustom_ops.so", "custom_ops.dll", disguised):
        with pytest.raises(PluginLoadError, match="native library of custom operators"):
            options.register_custom_ops_library(path)
    with pytest.raises(NoSuchFile, match=r"at 'nowhere/operators\.py'"):
        options.register_custom_ops_library("nowhere/operators.py")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("raise ValueError('boom')", "ValueError: boom"),
        ("x = 3", r"nothing in it is marked with onnxplug\.ep\.hookimpl"),
        (LIBRARY.replace("(0, 4)", "(9, 0)"), r"cannot be used: .*9"),
    ],
)
def test_libraries_that_supply_nothing_are_refused(
    tmp_path: Path, content: str, message: str
) -> None:
    (tmp_path / "operators.py").write_text(content)
    options = onnxplug.SessionOptions()
    with pytest.raises(Fail, match=message):
        options.register_custom_ops_library(tmp_path / "operators.py")
    with pytest.raises(PluginLoadError, match="cannot be used"):
        options.register_custom_ops_library(3)


@pytest.mark.parametrize(
    ("coefficients", "intercepts", "labels"),
    [(9, 3, 3), (8, 2, 2), (4, 1, 2), (3, 1, 2), (6, 3, 3)],
)
def test_coefficients_that_are_left_over_are_not_used(
    coefficients: int, intercepts: int, labels: int
) -> None:
    node = helper.make_node(
        "LinearClassifier", ["x"], ["label", "scores"], domain="ai.onnx.ml",
        coefficients=[1.0 + n for n in range(coefficients)],
        intercepts=[0.5 / (1 + n) for n in range(intercepts)],
        classlabels_ints=[*range(labels)],
    )  # fmt: skip
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node],
        "g",
        [value("x", TensorProto.FLOAT, [None, 2])],
        [
            value("label", TensorProto.INT64, [None]),
            value("scores", TensorProto.FLOAT, [None, None]),
        ],
    )
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    feed = {"x": np.float32([[1, 2], [3, -4]])}
    expected, found = (
        runtime.InferenceSession(model.SerializeToString()).run(None, feed)
        for runtime in (onnxruntime, onnxplug)
    )
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-6)
