"""The conformance kit finds nothing on the stand-in, nor does the stand-in itself."""

from __future__ import annotations

import pytest

from onnxplug_testing.conformance import Settings, chosen_checks, examine
from onnxplug_testing.conformance.text import as_text

from .conftest import EP, StandInFactory

# what asks about many operators has g++ compile as many kernels
GROUPS = ("factory", "memory", "time", "failure", "options")
LEFT_OUT = {
    # the EP says of itself that NVIDIA's driver is missing, which it is
    "factory/facts",
    "memory/each-operator",
    "time/late-operators",
    # the stand-in's threads are not in the children of forks
    "failure/forks",
    "failure/forks-midway",
    "failure/exits",
    "failure/unloaded",
    "factory/closed-again",
}


@pytest.mark.parametrize("group", GROUPS)
def test_the_kit_finds_nothing(factory: StandInFactory, group: str) -> None:
    checks = [each.full_name for each in chosen_checks([group])]
    report = examine(
        EP,
        only=[name for name in checks if name not in LEFT_OUT],
        settings=Settings(quick=True, isolated=False, budget=5),
    )
    assert report.findings == [], as_text(report)
    assert report.tried
