"""Some cases of ONNX's backend suite on aarch64, compiled and on arrays.

The machine that emulates makes them, which takes an emulated processor minutes.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import onnxplug

if platform.machine() != "aarch64":
    pytest.skip("for aarch64: make test-arm64", allow_module_level=True)

WRITER = Path(__file__).with_name("write_cases.py")
ONE_IN = 25


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the cases."""
    folder = tmp_path_factory.mktemp("cases")
    python = os.environ.get("ONNXPLUG_HOST_PYTHON") or sys.executable
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith("PYTHON")
    }
    subprocess.run(
        [python, str(WRITER), str(folder), str(ONE_IN)],
        env=environment if python != sys.executable else None,
        check=True,
        timeout=1500,
    )
    return folder


def values(folder: Path, kind: str, count: int) -> list[Any]:
    return [
        numpy_helper.to_array(onnx.load_tensor(str(folder / f"{kind}{number}.pb")))
        for number in range(count)
    ]


def run(folder: Path, *, compiles: bool, counts: list[Any]) -> str:
    """What is wrong with the results of a case; empty if nothing is."""
    inputs, outputs, rtol, atol = counts
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the suite's own models overflow on purpose
        session = onnxplug.InferenceSession(
            folder / "model.onnx",
            providers=[("CPUExecutionProvider", {"compile": compiles})],
        )
        names = [value.name for value in session.get_inputs()]
        fed = values(folder, "input", inputs)
        found = session.run(None, dict(zip(names, fed, strict=False)))
    for number, expected in enumerate(values(folder, "output", outputs)):
        got = np.asarray(found[number])
        if (got.dtype, got.shape) != (expected.dtype, expected.shape):
            return f"{got.dtype}{got.shape} for {expected.dtype}{expected.shape}"
        if expected.dtype.kind != "c":
            got, expected = got.astype(np.float64), expected.astype(np.float64)
        if not np.allclose(got, expected, rtol, atol, equal_nan=True):
            return f"off by {np.abs(got - expected).max()}"
    return ""


@pytest.mark.parametrize("compiles", [True, False])
def test_a_sample_is_right(cases: Path, compiles: bool) -> None:
    listed = json.loads((cases / "cases.json").read_text("utf-8"))
    assert len(listed) > 50
    wrong = {
        name: problem
        for name, counts in listed.items()
        if (problem := run(cases / name, compiles=compiles, counts=counts))
    }
    assert wrong == {}
