"""The conformance kit of onnxplug finds no mistake in half a minute.

``onnxplug test acme`` looks for longer, and ``--html report.html`` shows what it tried.
"""

from __future__ import annotations

from pathlib import Path

from onnxplug_testing.conformance import Settings, examine
from onnxplug_testing.conformance.text import as_text

EP = "AcmeExecutionProvider"


def test_the_kit_finds_nothing(tmp_path: Path) -> None:
    report = examine(EP, settings=Settings(quick=True, folder=tmp_path))
    assert not report.findings, as_text(report)
    assert report.tried
