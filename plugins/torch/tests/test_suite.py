"""The ONNX backend suite through the EP."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TOOL = Path(__file__).parents[1] / "tools" / "run_suite.py"

ROUNDED_OTHERWISE = {
    # each step rounds to float16, and torch adds up in another order
    "test_attention_4d_causal_fp16_expanded"
}
"""Cases that fail on the CPU EP, too."""


@pytest.mark.slow
def test_no_case_is_lost_and_most_run_wholly_on_torch(
    torch: Any, tmp_path: Path
) -> None:
    file = tmp_path / "counts.json"
    command = [sys.executable, TOOL, "--jobs", "2", "--json", file]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert file.exists(), done.stderr
    counts = json.loads(file.read_text(encoding="utf-8"))
    assert counts["cases"] > 2000
    assert counts["pass on the CPU EP only"] == {}
    wrong = counts["run wholly on the EP and fail"]
    assert wrong.keys() <= ROUNDED_OTHERWISE
    assert counts["pass wholly on the EP"] >= 1700, counts
    assert done.returncode == bool(wrong)
