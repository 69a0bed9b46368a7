"""The conformance kit finds nothing on the stand-in, nor does the stand-in itself."""

from __future__ import annotations

import os

import pytest

from onnxplug_directml.factory import DmlFactory
from onnxplug_testing.conformance import Settings, all_checks, examine
from onnxplug_testing.conformance.text import as_text

from .conftest import EP

LEFT_OUT = {
    # Windows has no forks, and the stand-in's threads are not in the children of any
    "failure/forks",
    "failure/forks-midway",
    "failure/exits",
    "failure/unloaded",
    "factory/closed-again",
    # a run that is profiled waits for its times, which a capture forbids
    "profiling/captured-runs",
    # the stand-in looks at all of a constant
    "speed/large-constants",
}


@pytest.mark.skipif(
    "win32more" not in os.environ.get("ONNXPLUG_REQUIRE", "").split(","),
    reason="half a minute of make test-directml-offline",
)
def test_the_kit_finds_nothing(factory: DmlFactory) -> None:
    checks = [each.full_name for each in all_checks()]
    report = examine(
        EP,
        only=[name for name in checks if name not in LEFT_OUT],
        settings=Settings(quick=True, isolated=False),
    )
    assert report.findings == [], as_text(report)
    assert report.tried > 500
