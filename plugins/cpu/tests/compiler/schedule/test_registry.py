"""Where operations are found."""

from __future__ import annotations

import importlib
from unittest import mock

import pytest

from onnxplug_cpu.compiler.schedule.operations import registry
from onnxplug_cpu.compiler.schedule.operations.registry import OPERATORS


@pytest.mark.parametrize("module", OPERATORS)
def test_modules_register_what_is_said_of_them(module: str) -> None:
    found: list[str] = []
    name = f"onnxplug_cpu.compiler.schedule.operations.{module}"
    loaded = importlib.import_module(name)
    with mock.patch.object(
        registry, "register", lambda named, operation: found.extend(named.split())
    ):
        importlib.reload(loaded)
    assert found == OPERATORS[module].split()
