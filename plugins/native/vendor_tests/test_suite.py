"""The ONNX backend suite with a library before the CPU EP: what is lost by that."""

from __future__ import annotations

import json
from pathlib import Path

from onnxplug_testing.backend_suite import (
    CountingBackend,
    Lineup,
    count_cases,
    load_cases,
)

EVERY = 25

KNOWN = Path(__file__).with_name("lost_cases.json")
"""Cases that a library takes, and fails on or computes otherwise than ONNX says: in
ONNX Runtime 1.32.0, too."""


def test_no_case_is_lost_that_onnxruntime_runs(vendor) -> None:
    found = count_cases(Lineup(vendor, {}), every=EVERY)
    sample = list(load_cases(CountingBackend))[::EVERY]
    known = set(json.loads(KNOWN.read_text("utf-8"))[vendor])
    assert found["nodes that the EP ran"] > 50
    assert set(found["pass on the CPU EP only"]) == known & set(sample)
