"""The command line where it needs the CPU EP."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from onnxplug.ep import EpFactory
from onnxplug.plugins import registry
from onnxplug_cli.main import main


class Outcome(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Runs a command in this process."""

    def run(*argv: object) -> Outcome:
        code = main([str(word) for word in argv])
        return Outcome(code, *capsys.readouterr())

    return run


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Callable[[EpFactory], str]:
    """Makes an EP known until the test ends; its name."""
    known = {record.name: record for record in registry.records()}
    monkeypatch.setattr(registry.table, "_records", known)
    return lambda factory: registry.add(factory).name
