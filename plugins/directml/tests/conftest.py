"""A machine with Windows, for tests of the EP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .machine import provide, set_up
from .portable_executable import library
from .standin import Windows


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Windows]:
    """The stand-in for Windows, which the EP finds; in the end all is checked."""
    folders = set_up(monkeypatch, tmp_path)
    (folders.system / "DirectML.dll").write_bytes(library(version=(1, 15, 4, 0)))
    with Windows() as machine:
        provide(monkeypatch, machine)
        yield machine
