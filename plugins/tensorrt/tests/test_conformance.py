"""The conformance kit finds nothing on the stand-in, nor does the stand-in itself."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from onnxplug_testing.conformance import Settings, all_checks, examine
from onnxplug_testing.conformance.text import as_text

from .conftest import EP, StandInFactory

LEFT_OUT = {
    # the CUDA EP's kernels, which do not run here
    "memory/parts",
    # of sizes that do not fit TensorRT gives no shape, and the stand-in raises, with
    # the execution context in its frames
    "failure/refused-sizes",
    "specialisation/sizes",
    # the stand-in computes by the CPU EP, and what that raises of nodes that are drawn
    # at random, and none of ONNX's, is a lost device
    "operators/nodes",
    # the stand-in's threads are not in the children of forks
    "failure/forks",
    "failure/unloaded",
}


@pytest.mark.skipif(
    "tensorrt-bindings" not in os.environ.get("ONNXPLUG_REQUIRE", "").split(","),
    reason="half a minute of make test-tensorrt-offline",
)
def test_the_kit_finds_nothing(
    factory: StandInFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # some options have files written there
    checks = [each.full_name for each in all_checks()]
    report = examine(
        EP,
        only=[name for name in checks if name not in LEFT_OUT],
        settings=Settings(quick=True, isolated=False),
    )
    assert report.findings == [], as_text(report)
    assert report.tried > 500
