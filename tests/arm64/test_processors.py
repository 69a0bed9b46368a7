"""ARM64 processors, each emulated in a process of its own, and what they share.

These tests run on aarch64, emulated or not (``make test-arm64``); each process is
another processor only where it is emulated.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

if platform.machine() != "aarch64":
    pytest.skip("for aarch64: make test-arm64", allow_module_level=True)

DEMO = Path(__file__).parents[2] / "demo"
HOST_PYTHON = os.environ.get("ONNXPLUG_HOST_PYTHON", "")
"""A Python of the machine that emulates, with onnxplug; empty if there is none."""

FEATURES = {
    "cortex-a72": set(),
    "neoverse-n1": {"lse", "dotprod"},
    "max": {"lse", "dotprod", "i8mm", "bf16"},
}
"""What the emulated processors have of what the EP asks for."""

PROGRAM = """
import json, sys, time
import numpy as np
import onnx
import onnxplug
from onnx import helper, numpy_helper
from onnxplug_cpu.compiler.machine.isa import host_isa
from onnxplug_cpu.compiler.runtime import jit

compiled = []
compile_object = jit.compile_object
jit.compile_object = lambda k, isa: (compiled.append(k.key), compile_object(k, isa))[1]

rng = np.random.default_rng(1)
a, b = (rng.standard_normal(s, np.float32) for s in ((130, 200), (200, 150)))
b /= 14  # for numbers whose exponentials are near each other
nodes = [
    helper.make_node("MatMul", ["a", "b"], ["c"]),
    helper.make_node("Softmax", ["c"], ["y"]),
]
value = lambda name, *shape: helper.make_tensor_value_info(name, 1, shape)
graph = helper.make_graph(
    nodes, "g", [value("a", 130, 200)], [value("y", 130, 150)],
    [numpy_helper.from_array(b, "b")],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
model.ir_version = 10
options = onnxplug.SessionOptions()
options.intra_op_num_threads = 2
bf16 = {"precision": "bf16"} if sys.argv[1] == "bf16" else {}
session = onnxplug.InferenceSession(
    model, options, providers=[("CPUExecutionProvider", bf16)]
)
worst = 0.0
for turn in range(20):
    time.sleep(0.01 * (turn % 4))  # threads sleep, and are woken
    (y,) = session.run(None, {"a": a})
    c = a.astype(np.float64) @ b
    e = np.exp(c - c.max(-1, keepdims=True))
    worst = max(worst, float(np.abs(y - e / e.sum(-1, keepdims=True)).max()))
isa = host_isa()
print(json.dumps({
    "name": isa.name,
    "features": isa.features.replace("+", "").split(","),
    "worst": worst,
    "compiled": len(compiled),
}))
"""


def run(
    cache: Path, cpu: str = "", python: str = sys.executable, way: str = ""
) -> dict[str, Any]:
    """What the program finds on a processor; with a host's Python, on the host."""
    environment = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("PYTHON", "ONNXPLUG_", "QEMU_"))
    }
    environment["ONNXPLUG_CACHE_DIR"] = str(cache)
    if cpu:
        environment["QEMU_CPU"] = cpu
    done = subprocess.run(
        [python, "-c", PROGRAM, way],
        env=environment,
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )
    assert done.returncode == 0, f"status {done.returncode}: {done.stderr}"
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that all processors of these tests share."""
    return tmp_path_factory.mktemp("cache")


@pytest.mark.skipif(not HOST_PYTHON, reason="nothing is emulated")
@pytest.mark.parametrize("cpu", ["max", "neoverse-n1", "cortex-a72"])
def test_each_processor_uses_what_it_has(cache: Path, cpu: str) -> None:
    """After one that has more, whose code would end the process."""
    found = run(cache, cpu)
    assert found["name"] == "neon"
    assert set(found["features"]) == {"neon", *FEATURES[cpu]}
    assert found["worst"] < 1e-6
    assert found["compiled"] > 0
    again = run(cache, cpu)
    assert again == found | {"compiled": 0}


def test_products_of_bfloat16(cache: Path) -> None:
    found = run(cache, way="bf16")
    if "bf16" not in found["features"]:
        pytest.skip("the processor does not multiply bfloat16")
    assert 1e-5 < found["worst"] < 0.05


@pytest.mark.skipif(not HOST_PYTHON, reason="there is one kind of processor")
def test_the_cache_may_be_shared_with_x86(tmp_path: Path) -> None:
    here, there = run(tmp_path), run(tmp_path, python=HOST_PYTHON)
    assert here["name"] == "neon" != there["name"]
    assert max(here["worst"], there["worst"]) < 1e-6
    assert min(here["compiled"], there["compiled"]) > 0
    assert run(tmp_path)["compiled"] == 0
    assert run(tmp_path, python=HOST_PYTHON)["compiled"] == 0


def test_the_demo_knows_its_digit(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from onnxplug_cli.main import main\n"
        "sys.exit(main(['run', *sys.argv[1:]]))"
    )
    files = [str(DEMO / name) for name in ("digits.onnx", "seven.png")]
    done = subprocess.run(
        [sys.executable, "-c", program, *files],
        env=os.environ | {"ONNXPLUG_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "7   95.2%" in done.stdout
