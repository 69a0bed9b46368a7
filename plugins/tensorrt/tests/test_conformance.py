"""The conformance kit finds nothing on the stand-in, nor does the stand-in itself."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from onnxplug_testing.conformance import Settings, chosen_checks, examine
from onnxplug_testing.conformance.text import as_text

from .conftest import EP, StandInFactory

GROUPS = ("factory", "memory", "options", "epcontext", "costs")
"""Those that raise no errors within TensorRT, which the stand-in answers by losing the
device: what is asked after that says nothing."""

LEFT_OUT = {
    # the EP says of itself that TensorRT is missing, which it is
    "factory/facts",
    # the CUDA EP's kernels, which do not run here
    "memory/parts",
    "memory/counting",
    # the same operators as of other groups
    "memory/each-operator",
}


@pytest.mark.skipif(
    "tensorrt-bindings" not in os.environ.get("ONNXPLUG_REQUIRE", "").split(","),
    reason="half a minute of make test-tensorrt-offline",
)
def test_the_kit_finds_nothing(
    factory: StandInFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # some options have files written there
    checks = [each.full_name for each in chosen_checks(GROUPS)]
    report = examine(
        EP,
        only=[name for name in checks if name not in LEFT_OUT],
        settings=Settings(quick=True, isolated=False),
    )
    assert report.findings == [], as_text(report)
    assert report.tried > 300
