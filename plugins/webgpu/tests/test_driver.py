"""What becomes of sessions when calls of the driver fail, one by one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SOURCE = Path(__file__).with_name("faulty_driver.cpp")
CALLS = (
    "vkCreateBuffer vkCreateShaderModule vkCreateComputePipelines "
    "vkAllocateDescriptorSets"
).split()
"""Those that wgpu 0.32 survives if there is no memory for them."""

TEXT = (
    '<ir_version: 10, opset_import: ["": 21]> g (float[N, 16] x) => (float[N, 16] y) '
    "<int64 t = {1}> { a = Softmax(x) b = CumSum(a, t) y = Neg(b) }"
)

SCRIPT = """
import ctypes, json, logging, os, sys
import numpy as np, onnx, onnxplug

logging.disable(logging.WARNING)
OUT_OF_MEMORY = -2
FUNCTIONS = {
    "Neg": np.negative, "Abs": np.abs, "Exp": np.exp, "Sin": np.sin, "Cos": np.cos,
    "Tanh": np.tanh, "Sqrt": np.sqrt, "Atan": np.arctan, "Log": np.log,
}
text, path, *names = sys.argv[1:]
library = ctypes.CDLL(path)
told, fired = [], []

def make(operator):
    model = onnx.parser.parse_model(text.replace("Neg", operator))
    eps = ["WebGpuExecutionProvider", "CPUExecutionProvider"]
    return onnxplug.InferenceSession(model, providers=eps)

def check(session, operator, rows, binds):
    x = np.random.default_rng(rows).standard_normal((rows, 16)).astype(np.float32)
    shares = np.exp(x) / np.exp(x).sum(-1, keepdims=True)
    if binds:
        binding = session.io_binding()
        value = onnxplug.OrtValue.ortvalue_from_numpy(x, "webgpu", 0)
        binding.bind_ortvalue_input("x", value)
        binding.bind_output("y", "webgpu")
        session.run_with_iobinding(binding)
        found = binding.get_outputs()[0].numpy()
    else:
        found = session.run(None, {"x": x})[0]
    right = FUNCTIONS[operator](np.cumsum(shares, -1))
    np.testing.assert_allclose(found, right, 1e-3, 1e-5)

def attempt(what, *given):
    try:
        return what(*given)
    except onnxplug.errors.OnnxplugError as error:
        told.append(f"{type(error).__name__}: {error}")

first = make("Neg")
check(first, "Neg", 2, False)
operators = list(FUNCTIONS)
for name in names:
    for binds in (False, True):
        operator = operators.pop()
        rows = 3 + 1000 * len(operators)  # a new plan, and other memory
        assert library.faulty_plant(name.encode(), OUT_OF_MEMORY, int(binds))
        session = attempt(make, operator)
        for _ in range(2):
            attempt(check, first, "Neg", rows, binds)
            if session is not None:
                attempt(check, session, operator, rows, binds)
        if library.faulty_take_back():
            fired.append(name)
        check(first, "Neg", rows, binds)
        check(session or make(operator), operator, rows, binds)
print(json.dumps({"told": told, "fired": fired}), flush=True)
os._exit(0)
"""


def test_calls_of_the_driver_fail_one_by_one(adapter: Any, tmp_path: Path) -> None:
    """For want of memory: what a run finds is right, or it says what failed, and when
    there is memory again it is right."""
    driver = _driver()
    library = tmp_path / "libfaulty.so"
    built = ["g++", "-std=c++17", "-shared", "-fPIC", SOURCE, "-o", library, "-ldl"]
    subprocess.run(built, check=True)
    manifest = tmp_path / "faulty_icd.json"
    described = {"library_path": str(library), "api_version": "1.1.230"}
    written = {"ICD": described, "file_format_version": "1.0.0"}
    manifest.write_text(json.dumps(written), "utf-8")
    environment = os.environ | {
        "FAULTY_DRIVER_OF": str(driver),
        "VK_DRIVER_FILES": str(manifest),
        "VK_ICD_FILENAMES": str(manifest),
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, TEXT, library, *CALLS],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert {*found["fired"]} == {*CALLS}
    assert found["told"]
    for text in found["told"]:
        assert text.startswith(("DeviceLost: ", "OutOfMemory: ")), text


def _driver() -> Path:
    """The library of Mesa's driver, which tests run on where it is unpacked."""
    manifest = Path(os.environ.get("VK_DRIVER_FILES", ""))
    if sys.platform != "linux" or shutil.which("g++") is None:
        pytest.skip("it needs g++, on Linux")
    if not manifest.is_file():
        pytest.skip("the driver is not one that with_lavapipe.py unpacked")
    described = json.loads(manifest.read_text("utf-8"))
    return Path(described["ICD"]["library_path"])
