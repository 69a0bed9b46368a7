"""Prints, after the tests, how much of the ONNX backend suite passes."""

from __future__ import annotations

import pytest

COUNTS = pytest.StashKey[dict[str, int]]()


@pytest.fixture(scope="session")
def suite_counts(request: pytest.FixtureRequest) -> dict[str, int]:
    """Where the tests of the suite count what passed."""
    return request.config.stash.setdefault(COUNTS, {})


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    for title, number in config.stash.get(COUNTS, {}).items():
        terminalreporter.write_line(f"ONNX backend suite, {title}: {number}")
