"""Prints, after the tests, how many cases of ONNX's suite are right here, and on the
machine that emulates."""

from __future__ import annotations

from collections.abc import Callable

import pytest

TOLD = pytest.StashKey[list[str]]()


@pytest.fixture
def tell(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Adds a line to what is printed at the end."""
    return request.config.stash.setdefault(TOLD, []).append


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    for line in config.stash.get(TOLD, []):
        terminalreporter.write_line(f"ONNX backend suite, {line}")
