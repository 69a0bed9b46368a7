"""The comparison with other runtimes, on its smallest models."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import compare
import numpy as np
import onnx
import pytest
from comparison.arithmetic import operations, shares_of
from comparison.bounds import Work, work
from comparison.errors import Error, error
from comparison.table import summary
from onnx import helper

SCRIPT = Path(compare.__file__)
QUICK = ["--threads", "1", "--repeats", "1", "--seconds", "0.06"]


ONE_PROCESS = """
import os, runpy, sys

del sys.argv[0]
sys.path.insert(0, os.path.dirname(sys.argv[0]))
from comparison import bounds

bounds.PROCESSES = 1
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Runs the script, with one process that measures what the machine can do."""


def run(*words: str, whole: bool = False) -> str:
    script = [str(SCRIPT)] if whole else ["-c", ONE_PROCESS, str(SCRIPT)]
    command = [sys.executable, *script, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_measures_prints_and_writes_json(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    models = ["--models", "add", "chain", *QUICK, "--no-start"]
    words = [*models, "--peers", "onnxruntime", "--json", str(path)]
    printed = run(*words, whole=True)
    assert "geometric mean, tiny models" in printed
    report = json.loads(path.read_text(encoding="utf-8"))
    assert report["machine"].keys() >= {"processor", "amx", "versions", "commit"}
    assert report["threads"]["1"]["peaks"].keys() == {"GFLOP/s", "GB/s"}
    measured = report["threads"]["1"]["models"]
    assert measured.keys() == report["work"].keys() == {"add", "chain"}
    for result in measured.values():
        assert result["failed"] == {}
        assert 0 < result["seconds"]["onnxplug"] < 1
        repeats = result["ratio of each repeat"]["onnxplug"]["onnxruntime"]
        assert len(repeats) == 1
        assert result["largest difference"]["onnxruntime"] < 1e-5
        assert "start" not in result


def test_starts_with_an_empty_cache_and_with_a_filled_one(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    printed = run("--models", "chain", *QUICK, "--peers", "", "--json", str(path))
    assert "onnxplug, cold" in printed
    report = json.loads(path.read_text(encoding="utf-8"))
    start = report["threads"]["1"]["models"]["chain"]["start"]
    for found in start.values():
        assert 0 < found["load"] + found["first run"] < found["start"] < 60
        assert 2**23 < found["peak memory"] < 2**31
    # compiling its kernels takes tenths of a second
    assert start["onnxplug"]["load"] < start["onnxplug, cold"]["load"]


def test_a_runtime_that_fails_is_shown_with_its_reason(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    wrong = ["--option", "no_such_option=1", "--peers", "onnxruntime"]
    printed = run("--models", "add", *QUICK, *wrong, "--json", str(path))
    assert "onnxplug failed: " in printed
    report = json.loads(path.read_text(encoding="utf-8"))
    result = report["threads"]["1"]["models"]["add"]
    assert "no_such_option" in result["failed"]["onnxplug"]
    assert result["ratio"] == {}
    assert result["seconds"]["onnxruntime"] > 0


def test_another_checkout_takes_turns(tmp_path: Path) -> None:
    python = tmp_path / "before" / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    path = tmp_path / "report.json"
    before = ["--against", str(tmp_path / "before"), "--peers", "", "--no-start"]
    run("--models", "add", *QUICK, *before, "--json", str(path))
    report = json.loads(path.read_text(encoding="utf-8"))
    result = report["threads"]["1"]["models"]["add"]
    # each to the other, and no peer; with AMX, times without it stand beside
    assert result["ratio"].keys() - {"onnxplug, fma"} == {"onnxplug", "onnxplug before"}
    ratio = result["ratio"]["onnxplug"]["onnxplug before"]
    assert 0.1 < ratio < 10  # the same code
    means = report["threads"]["1"]["geometric means"]["tiny models"]
    assert means["onnxplug"]["onnxplug before"] == pytest.approx(ratio)


def test_geometric_means_keep_tiny_models_apart() -> None:
    def result(ours: float, ort: float, openvino: float) -> dict[str, object]:
        return {
            "seconds": {"onnxplug": ours, "onnxruntime": ort, "openvino": openvino},
            "ratio": {
                "onnxplug": {"onnxruntime": ort / ours, "openvino": openvino / ours}
            },
        }

    results = [result(1, 4, 2), result(2, 2, 1), result(1e-5, 3e-5, 5e-5)]
    means = summary(results, ["onnxruntime", "openvino"])
    large = means["models of 1 ms and more"]["onnxplug"]
    tiny = means["tiny models"]["onnxplug"]
    assert large["onnxruntime"] == pytest.approx(2)
    assert large["openvino"] == pytest.approx(1)
    assert large["the better one"] == pytest.approx(1)
    assert tiny["onnxruntime"] == pytest.approx(3)
    assert tiny["the better one"] == pytest.approx(3)


def test_errors_are_relative_and_never_lost(tmp_path: Path) -> None:
    def stored(name: str, *arrays: object) -> Path:
        np.savez(tmp_path / name, *map(np.array, arrays))
        return tmp_path / f"{name}.npz"

    right = stored("right", [0.0, 200.0], [1.0])
    found = error(stored("a", [0.0, 202.0], [1.0]), right)
    assert found == pytest.approx((0.01, 0.01 / 2**0.5))
    lost = Error(math.inf, math.inf)
    assert error(stored("b", [0.0, math.nan], [1.0]), right) == lost
    assert error(stored("c", [0.0], [1.0]), right) == lost


def test_work_reads_of_a_table_what_is_gathered() -> None:
    table = onnx.numpy_helper.from_array(np.zeros((1000, 4), np.float32), "table")
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "rows"], ["y"])],
        "gather",
        [helper.make_tensor_value_info("rows", onnx.TensorProto.INT64, [3])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [3, 4])],
        [table],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    assert work(model) == Work(0, 3 * 8 + 2 * (3 * 4 * 4))


def test_work_is_what_products_and_convolutions_multiply() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["y"], group=2, strides=[2, 2]),
        helper.make_node("ConvTranspose", ["y", "v"], ["z"], strides=[2, 2]),
        helper.make_node("Flatten", ["z"], ["rows"]),
        helper.make_node("Gemm", ["rows", "g"], ["out"], transB=1),
    ]
    weights = {"w": (6, 2, 3, 3), "v": (6, 4, 2, 2), "g": (5, 144)}
    graph = helper.make_graph(
        nodes,
        "all",
        [helper.make_tensor_value_info("x", 1, [1, 4, 7, 7])],
        [helper.make_tensor_value_info("out", 1, [1, 5])],
        [
            onnx.numpy_helper.from_array(np.zeros(shape, np.float32), name)
            for name, shape in weights.items()
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    convolution = 2 * (6 * 3 * 3) * (2 * 3 * 3)
    transposed = 2 * (6 * 3 * 3) * (4 * 2 * 2)
    product = 2 * 5 * 144
    nbytes = 4 * (4 * 7 * 7 + 5 + 6 * 2 * 3 * 3 + 6 * 4 * 2 * 2 + 5 * 144)
    assert work(model) == Work(convolution + transposed + product, nbytes)


def test_operations_are_those_of_products_or_one_for_each_element() -> None:
    sizes = {
        "q": (1, 4, 3, 8), "k": (1, 2, 5, 8), "v": (1, 2, 5, 6), "p": (1, 2, 7, 8),
        "a": (1, 4, 3, 6), "x": (2, 64), "b": (16, 2, 16), "y": (2, 16), "m": (2, 1),
        "s": (2,), "z": (2, 64),
    }  # fmt: skip
    wanted = {
        "Attention q k v _ p _ -> a": 2 * 4 * 3 * (5 + 7) * (8 + 6),
        "MatMulNBits x b -> y": 2 * 2 * 16 * 64,
        "ReduceMax x -> m": 128,
        "Shape x -> s": 2,
        "Add x m -> z": 128,
    }
    for text, count in wanted.items():
        (operator, *given), (result,) = (part.split() for part in text.split("->"))
        names = [name.strip("_") for name in given]
        assert operations(helper.make_node(operator, names, [result]), sizes) == count


def test_shares_are_of_nodes_and_of_arithmetic() -> None:
    text = """
    < ir_version: 10, opset_import: ["": 18] >
    graph (float[2, N] x, float[2, 2] v) => (float[2, 2] y)
    {
        [shape] n = Shape(x)
        [turned] t = Transpose(x)
        [large] a = MatMul(x, t)
        [positive] b = Relu(a)
        [small] y = MatMul(b, v)
    }
    """
    model = onnx.parser.parse_model(text)
    feeds = {"x": np.ones((2, 100), np.float32), "v": np.ones((2, 2), np.float32)}
    places = [
        SimpleNamespace(
            name="shape", ep="A", tier="host", note="it follows from shapes"
        ),
        SimpleNamespace(name="turned", ep="A", tier="compiled", note=""),
        SimpleNamespace(name="large", ep="A", tier="compiled", note=""),
        SimpleNamespace(name="positive", ep="A", tier="host", note="for now"),
        SimpleNamespace(name="small", ep="B", tier="compiled", note=""),
    ]
    there, elsewhere = 200 + 2 * 2 * 100 * 2, 2 + 4 + 2 * 2 * 2 * 2
    found = shares_of(places, model, feeds, "A")
    assert found == (2 / 4, there / (there + elsewhere))
    with pytest.raises(ValueError, match="bodies of control flow"):
        shares_of(places[1:], model, feeds, "A")
