"""The ONNX backend suite through the kernels, on the processor."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from onnxplug_testing.cuda_on_cpu import CompilerMissing, find_compiler
from onnxplug_testing.nvrtc import ARCHITECTURES, find_nvrtc

TOOLS = Path(__file__).parents[1] / "tools"
REQUIRED = os.environ.get("ONNXPLUG_REQUIRE", "").split(",")


def need(missing: str, what: str) -> None:
    """Skip the test if there is something *missing*, or fail if it is required."""
    if missing and what in REQUIRED:
        pytest.fail(missing)
    if missing:
        pytest.skip(missing)


@pytest.fixture(autouse=True)
def compiler() -> None:
    """g++, which each kernel is compiled by."""
    try:
        find_compiler()
    except CompilerMissing as error:
        need(str(error), "g++")


def run(tool: str, file: Path, *words: str | Path) -> dict[str, Any]:
    """What a tool writes."""
    command = [sys.executable, TOOLS / tool, "--jobs", "2", "--json", file, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert file.exists(), done.stderr
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    assert done.returncode == 0, found
    return found


def counted(request: pytest.FixtureRequest, folder: Path, every: int) -> dict[str, Any]:
    """The suite's counts; texts of kernels are then in *folder*."""
    kernels = request.config.cache.mkdir("cuda_on_cpu")
    words = ["--every", str(every), "--kernels", kernels, "--texts", folder / "texts"]
    found = run("run_suite.py", folder / "counts.json", *words)
    assert found["pass on the CPU EP only"] == {}
    assert found["fail on the EP alone only"] == {}
    return found


@pytest.mark.slow
def test_no_case_is_lost(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    counts = counted(request, tmp_path, 16)
    assert counts["cases"] > 120
    launched = (
        counts["pass wholly on the EP"] - counts["of these compute nothing on it"]
    )
    assert launched >= 80, counts


@pytest.mark.exhaustive
def test_no_case_of_all_is_lost_and_gpus_take_their_kernels(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    counts = counted(request, tmp_path, 1)
    launched = (
        counts["pass wholly on the EP"] - counts["of these compute nothing on it"]
    )
    assert launched >= 1000, counts
    need("" if find_nvrtc() else "NVRTC is not installed", "nvrtc")
    matrix = run("compile_kernels.py", tmp_path / "matrix.json", tmp_path / "texts")
    assert matrix["kernels"] > 500
    assert set(matrix["architectures"]) == set(ARCHITECTURES)
    assert matrix["wrong"] == {}
