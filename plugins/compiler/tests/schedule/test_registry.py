"""Where operations are found."""

from __future__ import annotations

import importlib
import importlib.util
from unittest import mock

import pytest

from onnxplug_compiler.schedule.operations import registry
from onnxplug_compiler.schedule.operations.registry import OPERATORS


@pytest.mark.parametrize("module", OPERATORS)
def test_modules_register_what_is_said_of_them(module: str) -> None:
    found: list[str] = []
    name = f"onnxplug_compiler.schedule.operations.{module}"
    spec = importlib.import_module(name).__spec__
    assert spec is not None
    assert spec.loader is not None
    # once more, beside the module that others have imported: a reload would give it
    # types that theirs are not instances of
    again = importlib.util.module_from_spec(spec)
    with mock.patch.object(
        registry, "register", lambda named, operation: found.extend(named.split())
    ):
        spec.loader.exec_module(again)
    assert found == OPERATORS[module].split()
