"""The ONNX backend suite through the kernels, on the processor."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import onnxplug_cuda
from onnxplug_testing.nvrtc import ARCHITECTURES, find_nvrtc

TOOLS = Path(__file__).parents[1] / "tools"


def run(tool: str, file: Path, *words: str | Path) -> dict[str, Any]:
    """What a tool writes."""
    command = [sys.executable, TOOLS / tool, "--jobs", "2", "--json", file, *words]
    # also where the EP is not installed, as its tests register it
    path = [str(Path(onnxplug_cuda.__file__).parents[1]), os.environ.get("PYTHONPATH")]
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert file.exists(), done.stderr
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    assert done.returncode == 0, found
    return found


def counted(kernels: Path, folder: Path, every: int, *words: str) -> dict[str, Any]:
    """The suite's counts; texts of kernels are then in *folder*."""
    places = ["--kernels", kernels, "--texts", folder / "texts"]
    file = folder / "counts.json"
    found = run("run_suite.py", file, "--every", str(every), *places, *words)
    assert found["pass on the CPU EP only"] == {}
    assert found["fail on the EP alone only"] == {}
    return found


@pytest.mark.slow
def test_no_case_is_lost(kernels: Path, tmp_path: Path) -> None:
    counts = counted(kernels, tmp_path, 16)
    assert counts["cases"] > 120
    launched = (
        counts["pass wholly on the EP"] - counts["of these compute nothing on it"]
    )
    assert launched >= 100, counts


@pytest.mark.slow
def test_no_case_is_lost_on_the_stand_in(kernels: Path, tmp_path: Path) -> None:
    """With the EP's own memory, streams and copies."""
    counts = counted(kernels, tmp_path, 48, "--stand-in")
    assert counts["ep"] == "CUDAExecutionProvider"
    assert counts["cases"] > 40
    assert counts["pass wholly on the EP"] >= 30, counts


@pytest.mark.exhaustive
def test_no_case_of_all_is_lost_and_gpus_take_their_kernels(
    kernels: Path, tmp_path: Path
) -> None:
    counts = counted(kernels, tmp_path, 1)
    launched = (
        counts["pass wholly on the EP"] - counts["of these compute nothing on it"]
    )
    assert launched >= 1700, counts
    if find_nvrtc() is None:
        pytest.skip("NVRTC is not installed; make test-cuda-offline brings it")
    matrix = run("compile_kernels.py", tmp_path / "matrix.json", tmp_path / "texts")
    assert matrix["kernels"] > 800
    assert set(matrix["architectures"]) == set(ARCHITECTURES)
    assert matrix["wrong"] == {}
