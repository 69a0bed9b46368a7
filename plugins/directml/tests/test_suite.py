"""The ONNX backend suite through the EP, on the stand-in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import onnxplug_directml

from . import definitions

TOOL = Path(__file__).parents[1] / "tools" / "run_suite.py"


def counted(folder: Path, every: int, *words: str) -> dict[str, Any]:
    """The suite's counts; no case is lost, no rule broken, and nothing left."""
    definitions.find("IUnknown")  # skips tests where they are not
    file = folder / "counts.json"
    command = [sys.executable, TOOL, "--jobs", "2", "--every", str(every)]
    # also where the EP is not installed, as its tests register it
    path = [str(Path(onnxplug_directml.__file__).parents[1])]
    path += filter(None, [os.environ.get("PYTHONPATH")])
    done = subprocess.run(
        [*command, "--json", file, *words],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert file.exists(), done.stderr
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    assert found["pass on the CPU EP only"] == {}
    assert found["fail on the EP alone only"] == {}
    assert done.returncode == 0, done.stderr
    return found


def launched(found: dict[str, Any]) -> int:
    """How many cases the EP runs wholly, and computes something of."""
    return found["pass wholly on the EP"] - found["of these compute nothing on it"]


@pytest.mark.slow
def test_no_case_is_lost(tmp_path: Path) -> None:
    counts = counted(tmp_path, 16)
    assert counts["cases"] > 120
    assert launched(counts) >= 70, counts


@pytest.mark.slow
def test_no_case_is_lost_on_the_least_that_the_ep_takes(tmp_path: Path) -> None:
    """An NPU, by a DirectML of the lowest feature level."""
    counts = counted(tmp_path, 48, "--level", "5.0", "--device", "npu")
    assert counts["cases"] > 40
    assert launched(counts) >= 15, counts


@pytest.mark.exhaustive
def test_no_case_of_all_is_lost(tmp_path: Path) -> None:
    counts = counted(tmp_path, 1)
    assert launched(counts) >= 1250, counts
