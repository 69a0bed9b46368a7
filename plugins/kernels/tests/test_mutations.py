"""Nodes of the ONNX backend suite with one wrong number or shape, many of them.

Whatever a kernel makes of one, it comes back: with a result or an error.  Those that
read memory which is not theirs mostly crash, and those that never come back are ended.

``ONNXPLUG_MUTANTS=20`` in the environment tries 20 mutants of every kind, of 20 models
of every operator, instead of two, and ``ONNXPLUG_MUTANTS_SEED=1`` other ones.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

EACH = int(os.environ.get("ONNXPLUG_MUTANTS", "2"))
MODELS = EACH
SEED = int(os.environ.get("ONNXPLUG_MUTANTS_SEED", "0"))
PROGRAM = Path(__file__).with_name("run_mutants.py")


def test_kernels_come_back_from_wrong_numbers() -> None:
    ran = subprocess.run(
        [sys.executable, PROGRAM, str(SEED), str(EACH), str(MODELS)],
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [json.loads(line) for line in ran.stdout.splitlines()]
    assert ran.returncode == 0, f"{lines[-1:]}: {ran.returncode} {ran.stderr[-2000:]}"
    outcomes = dict(zip(lines[::2], lines[1::2], strict=True))
    counts = Counter(outcomes.values())
    wrong = {
        case: what
        for case, what in outcomes.items()
        if what not in ("ok", "refused", "no memory")
    }
    assert not wrong
    # most of the mutants are no valid nodes, but many are
    assert counts["ok"] > 1000, counts
    assert counts["refused"] > 1000, counts
