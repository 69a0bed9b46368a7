"""Some cases of ONNX's backend suite on aarch64, compiled and on arrays.

The machine that emulates makes them, which takes an emulated processor minutes, and
runs them, too, so that the counts are beside each other.  With ``--suite-one-in 1`` of
the plugin ``sample``, all are run.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from . import run_cases
from .run_cases import Found

if platform.machine() != "aarch64":
    pytest.skip("for aarch64: make test-arm64", allow_module_level=True)

FOLDER = Path(__file__).parent
HOST_PYTHON = os.environ.get("ONNXPLUG_HOST_PYTHON", "")

KNOWN = {
    "test_dft_inverse": "numpy's transform, which computes both, rounds otherwise",
    "test_dft_inverse_opset19": "the same",
}
"""What is right on x86-64 only, where the cases are made."""


def on_host(script: str, *arguments: str) -> str:
    """What a script writes, on the machine that emulates if there is one."""
    python = HOST_PYTHON or sys.executable
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    done = subprocess.run(
        [python, str(FOLDER / script), *arguments],
        env=environment if HOST_PYTHON else None,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=3600,
    )
    return done.stdout


@pytest.fixture(scope="module")
def cases(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Path:
    """The folder of the cases."""
    folder = tmp_path_factory.mktemp("cases")
    distance = request.config.getoption("suite_one_in", 25)
    on_host("write_cases.py", str(folder), str(distance))
    return folder


@pytest.mark.parametrize("way", ["compiled", "arrays"])
def test_a_sample_is_right(cases: Path, way: str, tell: Callable[[str], None]) -> None:
    here = run_cases.run_cases(cases, compiles=way == "compiled")
    tell(f"{way}, aarch64: {here.cases - len(here.wrong)} of {here.cases}")
    if HOST_PYTHON:
        there = Found(**json.loads(on_host("run_cases.py", str(cases), way)))
        tell(f"{way}, this machine: {there.cases - len(there.wrong)} of {there.cases}")
        assert there.wrong == {}
    assert here.cases > 50
    wrong = {name: how for name, how in here.wrong.items() if name not in KNOWN}
    assert wrong == {}
