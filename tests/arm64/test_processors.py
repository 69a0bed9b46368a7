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

CPUS = ("max", "neoverse-n1", "cortex-a72")

PROGRAM = Path(__file__).with_name("small_models.py")

LARGEST = {
    "product": 1e-6,
    "convolutions": 1e-5,
    "attention": 1e-5,
    "codes": 0.0,
    "halves": 1e-3,
}
"""How far the models may be from float64: by rounding of float32, and of float16."""


def run(
    cache: Path,
    cpu: str = "",
    python: str = sys.executable,
    way: str = "",
    *,
    by_host: bool = False,
) -> dict[str, Any]:
    """What the program finds on a processor; with a host's Python, on the host.

    Args:
        by_host: kernels are compiled by the machine that emulates.
    """
    environment = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("PYTHON", "ONNXPLUG_", "QEMU_"))
    }
    environment["ONNXPLUG_CACHE_DIR"] = str(cache)
    if by_host:
        environment |= {
            "ONNXPLUG_HOST_PYTHON": HOST_PYTHON,
            "ONNXPLUG_TEST_COMPILE": "host",
        }
    if cpu:
        environment["QEMU_CPU"] = cpu
    done = subprocess.run(
        [python, str(PROGRAM), way],
        env=environment,
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )
    assert done.returncode == 0, f"status {done.returncode}: {done.stderr}"
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def wrong(found: dict[str, Any]) -> dict[str, float]:
    """The models that are too far from what they should compute."""
    assert found["worst"].keys() == LARGEST.keys()
    return {
        name: deviation
        for name, deviation in found["worst"].items()
        if not deviation <= LARGEST[name]
    }


@pytest.mark.skipif(not HOST_PYTHON, reason="nothing is emulated")
def test_processors_share_a_cache(tmp_path: Path) -> None:
    """Each uses what it has, after one that has more, whose code would end the
    process, and after one of another kind; and finds again what it compiled."""
    there = run(tmp_path, python=HOST_PYTHON)
    assert there["name"] != "neon"
    found = {}
    for cpu in CPUS:
        found[cpu] = run(tmp_path, cpu, by_host=True)
        assert wrong(found[cpu]) == {}, cpu
        assert found[cpu]["name"] == "neon"
        assert set(found[cpu]["features"]) == {"neon", *FEATURES[cpu]}
        assert found[cpu]["compiled"] > 0
    for cpu in ("max,sve-default-vector-length=256", *CPUS[1:]):
        again = run(tmp_path, cpu)
        assert again == found[cpu.partition(",")[0]] | {"compiled": 0}, cpu
    assert run(tmp_path, python=HOST_PYTHON) == there | {"compiled": 0}


def test_products_of_bfloat16(tmp_path: Path) -> None:
    """And LLVM makes the same code where it is emulated as on the host, so that tests
    of kernels may have the host compile."""
    found = run(tmp_path / "here", way="bf16")
    assert found["compiled"] > 0
    if "bf16" in found["features"]:
        assert 1e-5 < found["worst"]["product"] < 0.05
    else:
        assert found["worst"]["product"] <= LARGEST["product"]
    if not HOST_PYTHON:
        return
    assert run(tmp_path / "there", way="bf16", by_host=True) == found
    here, there = (
        {path.name: path.read_bytes() for path in (tmp_path / where).rglob("*-*.entry")}
        for where in ("here", "there")
    )
    assert len(here) >= found["compiled"]
    assert here == there


CANCELLED = """
import sys, threading, time
import numpy as np, onnx, onnxplug
from onnxplug.errors import RunCancelled

options = onnxplug.SessionOptions()
options.intra_op_num_threads = int(sys.argv[1])
session = onnxplug.InferenceSession(onnx.parser.parse_model('''
    <ir_version: 10, opset_import: ["": 21]>
    product (float[n, n] a, float[n, n] b) => (float[n, n] c) { c = MatMul (a, b) }
'''), options)
large, small = np.ones((4000, 4000), np.float32), np.ones((60, 60), np.float32)
timed, ended = onnxplug.RunOptions(), onnxplug.RunOptions()
timed.timeout = 0.2
for run_options in (timed, ended):
    threading.Timer(0.2, setattr, (ended, "terminate", True)).start()
    began = time.perf_counter()
    try:
        session.run(None, {"a": large, "b": large}, run_options)
    except RunCancelled:
        print(time.perf_counter() - began)
    (found,) = session.run(None, {"a": small, "b": small})
    assert (found == 60).all()
"""


@pytest.mark.parametrize("threads", ["1", "2"])
def test_a_run_is_cancelled(threads: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CANCELLED, threads],
        env=os.environ | {"ONNXPLUG_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )
    assert done.stderr == ""
    late = [float(line) for line in done.stdout.split()]
    # an emulator takes minutes for 128 GFLOP, and is as busy as its machine
    assert len(late) == 2
    assert max(late) < 30


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
