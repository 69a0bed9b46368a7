"""Programs that say ``import onnxruntime``, unchanged, on onnxplug."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

PROGRAM = """
import importlib.metadata
import importlib.util
import sys

assert importlib.util.find_spec("onnxruntime") is not None
assert importlib.util.find_spec("onnxruntime.capi") is not None
print(importlib.metadata.version("onnxruntime"))

import numpy as np
import onnxruntime
import onnxruntime as ort
import onnxruntime.backend
from onnxruntime import GraphOptimizationLevel, InferenceSession, SessionOptions
from onnxruntime.capi import _pybind_state as C
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument, NotFound
from onnxruntime.capi.onnxruntime_inference_collection import OrtDevice, OrtValue
from onnxruntime.capi.onnxruntime_validation import version

assert C.InvalidArgument is InvalidArgument
options = SessionOptions()
options.graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_ALL
session = InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
x = np.float32([-1, 2])
print(session.run(None, {"x": x})[0].tolist())
(value,) = session.run_with_ort_values(None, {"x": OrtValue.ortvalue_from_numpy(x)})
print(value._get_c_value().numpy().tolist())
try:
    session.run(None, {"x": x, "z": x})
except InvalidArgument as error:
    print(error.code)
print(onnxruntime.backend.prepare(session).run([x])[0].tolist())
print(type(session).__module__, [n for n in sys.modules if n.startswith("onnxruntime")])
print(ort.__version__, version, "native code" if "libonnxruntime" in open(
    "/proc/self/maps").read() or "pybind11_state.c" in open("/proc/self/maps").read()
    else "no native code")
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    text = (
        '<ir_version: 10, opset_import: ["": 21]> g (float[N] x) => (float[N] y) '
        "{ y = Relu (x) }"
    )
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def python(*words: object, path: object = "", check: bool = True) -> str:
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(path)},
        timeout=120,
    )
    assert (done.returncode == 0) is check, done.stdout + done.stderr
    return done.stdout + ("" if check else done.stderr)


STANDING_IN = ("-m", "onnxplug_onnxruntime")


def test_a_program_runs_unchanged(tmp_path: Path, model: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    lines = python(*STANDING_IN, tmp_path / "program.py", model).splitlines()
    assert lines[:5] == ["1.32.0", "[0.0, 2.0]", "[0.0, 2.0]", "2", "[0.0, 2.0]"]
    assert lines[5].startswith("onnxplug_onnxruntime.session ['onnxruntime',")
    assert lines[6] == "1.32.0 1.32.0 no native code"


def test_a_module_and_code_run_unchanged(tmp_path: Path, model: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__main__.py").write_text(
        "import sys, onnxruntime; print(onnxruntime.__file__, sys.argv[1:])"
    )
    said = python(*STANDING_IN, "-m", "package", "-m", "x", path=tmp_path)
    assert "onnxplug_onnxruntime" in said and "['-m', 'x']" in said
    code = "import sys, onnxruntime; print(sys.argv, onnxruntime.get_device())"
    assert "['-c', 'x']" in python(*STANDING_IN, "-c", code, "x")
    assert "usage:" in python(*STANDING_IN, check=False)
    assert "usage:" in python(*STANDING_IN, "--help")


def test_it_stands_in_where_onnxruntime_is_not_installed(
    tmp_path: Path, model: Path
) -> None:
    """Its folder is hidden by a path in which it cannot be found."""
    program = (
        "import sys\n"
        "from importlib.machinery import PathFinder\n"
        "find = PathFinder.find_spec\n"
        "def hidden(name, path=None, target=None):\n"
        "    return None if name == 'onnxruntime' else find(name, path, target)\n"
        "PathFinder.find_spec = hidden\n"
        "import onnxplug_onnxruntime\n"
        "onnxplug_onnxruntime.install()\n"
        "onnxplug_onnxruntime.install()\n"
        "import onnxruntime, importlib.util\n"
        "assert list(onnxruntime.__path__) == []\n"
        "assert importlib.util.find_spec('onnxruntime.quantization') is None\n"
        "print(onnxruntime.InferenceSession(sys.argv[1]).get_providers())\n"
    )
    assert python("-c", program, model) == "['CPUExecutionProvider']\n"


def test_an_onnxruntime_that_was_imported_before_is_an_error() -> None:
    program = (
        "import onnxruntime, onnxplug, onnxplug_onnxruntime\n"
        "try:\n"
        "    onnxplug_onnxruntime.install()\n"
        "except (onnxplug.errors.Fail, ImportError) as error:\n"
        "    print(type(error).__name__, error)\n"
    )
    said = python("-c", program)
    assert said.startswith("ImportedBefore onnxruntime is imported already, from")
    assert "onnxruntime/__init__.py" in said


def test_names_that_are_missing_are_missing_by_name(model: Path) -> None:
    code = "from onnxruntime import LoraAdapter"
    said = python(*STANDING_IN, "-c", code, check=False)
    assert "cannot import name 'LoraAdapter' from 'onnxruntime'" in said


QUANTIZE = """
import sys
import numpy as np
from onnxruntime.quantization import (
    CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static
)
import onnxruntime as ort

class Reader(CalibrationDataReader):
    def __init__(self):
        self.left = iter([{"x": np.float32(np.eye(4) * n)} for n in range(1, 4)])
    def get_next(self):
        return next(self.left, None)

source, target = sys.argv[1:]
quantize_dynamic(source, target + ".dynamic", weight_type=QuantType.QInt8)
quantize_static(source, target + ".static", Reader(), quant_format=QuantFormat.QDQ)
for kind in ("dynamic", "static"):
    session = ort.InferenceSession(f"{target}.{kind}")
    print(np.abs(session.run(None, {"x": np.eye(4, dtype="f")})[0]).max().round(1))
print(type(session).__module__)
"""


def test_the_quantizer_of_onnxruntimes_wheel_runs(tmp_path: Path) -> None:
    weights = onnx.numpy_helper.from_array(np.float32(np.eye(4) * 2), "w")
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [value("x", 1, [4, 4])],
        [value("y", 1, [4, 4])],
        [weights],
    )
    imports = [onnx.helper.make_opsetid("", 21)]
    onnx.save(
        onnx.helper.make_model(graph, ir_version=10, opset_imports=imports),
        tmp_path / "m.onnx",
    )
    (tmp_path / "program.py").write_text(QUANTIZE)
    said = python(
        *STANDING_IN, tmp_path / "program.py", tmp_path / "m.onnx", tmp_path / "q"
    )
    assert said.splitlines() == ["2.0", "2.0", "onnxplug_onnxruntime.session"]
