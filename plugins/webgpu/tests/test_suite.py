"""The ONNX backend suite through the EP."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TOOL = Path(__file__).parents[1] / "tools" / "run_suite.py"


@pytest.mark.slow
def test_no_case_is_lost(adapter: Any, tmp_path: Path) -> None:
    file = tmp_path / "counts.json"
    command = [sys.executable, TOOL, "--jobs", "2", "--every", "8", "--json", file]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert file.exists(), done.stderr
    counts = json.loads(file.read_text(encoding="utf-8"))
    assert counts["cases"] > 250
    assert counts["pass on the CPU EP only"] == {}
    assert counts["fail on the EP alone only"] == {}
    assert counts["pass wholly on the EP"] >= 60, counts
    assert done.returncode == 0
