"""The stand-in is called as TensorRT is: by its names, its arguments, its numbers."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from . import bindings
from .standin import building, enums, module, parsing, running

CLASSES = (
    *building.CLASSES,
    *parsing.CLASSES,
    *running.CLASSES,
    building.IHostMemory,
    building.IOptimizationProfile,
    building.ITimingCache,
    parsing.ILayer,
    parsing.ITensor,
    parsing.ParserError,
    module.IPluginRegistry,
)

NOT_REAL = set("world fail fill compute dtype host size read PROPERTIES".split())
"""What the stand-in has for itself."""


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return bindings.load(tmp_path_factory.mktemp("libraries"))


def signatures(documented: str | None, name: str) -> Iterator[list[str]]:
    """The names of arguments, of each form that a function has."""
    for found in re.finditer(rf"(?:\d\. )?{name}\((.*?)\) ->", documented or ""):
        given = re.sub(r"\[[^\[\]]*\]|<[^<>]*>", "", found[1])
        names = [each.split(":")[0].strip() for each in given.split(",")]
        yield [each for each in names if each and each != "self"]


def test_its_classes_are_those_of_the_bindings(real: Any) -> None:
    checked = 0
    for own in CLASSES:
        theirs = getattr(real, own.__name__)
        for name, value in vars(own).items():
            if name in NOT_REAL or (name.startswith("_") and name != "__init__"):
                continue
            assert hasattr(theirs, name), f"{own.__name__}.{name}"
            if not inspect.isfunction(value):
                continue
            forms = list(signatures(getattr(theirs, name).__doc__, name))
            if name == "__init__" and not forms:
                continue  # TensorRT makes it
            parameters = list(inspect.signature(value).parameters)[1:]
            assert parameters in forms, f"{own.__name__}.{name}{parameters}: {forms}"
            checked += 1
    assert checked > 50


def test_its_properties_are_those_of_the_bindings(real: Any) -> None:
    for name in building.IBuilderConfig.PROPERTIES:
        assert isinstance(getattr(real.IBuilderConfig, name), property), name
    for name in ("name", "shape", "dtype", "is_shape_tensor"):
        assert isinstance(getattr(real.ITensor, name), property), name
    for name in ("type", "num_outputs"):
        assert isinstance(getattr(real.ILayer, name), property), name
    assert isinstance(real.IConstantLayer.weights, property)


def test_its_numbers_are_those_of_the_bindings(real: Any) -> None:
    severity = real.ILogger.Severity.__members__
    assert {each.name: each.value for each in enums.Severity} == {
        name: int(value) for name, value in severity.items()
    }
    for own in enums.ALL:
        members = getattr(real, own.__name__).__members__
        for each in own:
            assert int(members[each.name]) == each.value, each


def test_its_short_names_are_those_of_the_bindings(real: Any) -> None:
    for name, dtype in enums.SHORT_NAMES.items():
        assert int(getattr(real, name)) == dtype.value, name


def test_its_functions_are_those_of_the_bindings(real: Any) -> None:
    for name in (
        "init_libnvinfer_plugins",
        "get_plugin_registry",
        "get_nv_onnx_parser_version",
    ):
        own = list(inspect.signature(getattr(module.TensorRT, name)).parameters)[1:]
        assert own in list(signatures(getattr(real, name).__doc__, name)), name


def test_what_is_called_back_has_the_bases_of_the_bindings(real: Any) -> None:
    import logging

    from onnxplug_tensorrt.callbacks import (
        messages_of,
        new_output_memory,
        new_progress,
    )

    logger = logging.getLogger("test")
    made = [
        messages_of(real),
        new_progress(real, logger, "nothing", bool),
        new_output_memory(real, lambda nbytes: nbytes),
    ]
    bases = real.ILogger, real.IProgressMonitor, real.IOutputAllocator
    for each, base in zip(made, bases, strict=True):
        assert isinstance(each, base)
    # the bindings find them by these names, which they do not tell of allocators
    for name in ("phase_start", "phase_finish", "step_complete"):
        forms = list(signatures(getattr(real.IProgressMonitor, name).__doc__, name))
        own = getattr(type(made[1]), name)
        assert list(inspect.signature(own).parameters)[1:] in forms


def test_the_bindings_call_what_the_ep_gives_them(real: Any, tmp_path: Path) -> None:
    """Nothing is raised through them, and what Python returns is what they get."""
    script = Path(__file__).with_name("called_back.py")
    done = subprocess.run(
        [sys.executable, script, tmp_path],
        # where pytest finds what is not installed
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "said": "said",
        "goes on": [True, False, False],
        "kept": "ZeroDivisionError",
        "found": [True, False],
        "asked": [100],
        "shape": [3, 4],
        "lacks": "ZeroDivisionError",
    }
