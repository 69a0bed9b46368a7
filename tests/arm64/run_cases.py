"""Runs cases that ``write_cases.py`` wrote, and says which are wrong.

    python tests/arm64/run_cases.py FOLDER [compiled | arrays]

Prints JSON: how many cases there are, and of those that are wrong in what.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import onnx
from onnx import numpy_helper

import onnxplug

_RTOL_OF_BF16: Final = 2**-6
"""As the suite's own runner has it, whose import takes emulators minutes."""


class Found(NamedTuple):
    """How many cases there are, and what is wrong with which."""

    cases: int
    wrong: dict[str, str]


def run_cases(folder: Path, *, compiles: bool) -> Found:
    """Run all, with kernels that are compiled or on arrays."""
    listed = json.loads((folder / "cases.json").read_text("utf-8"))
    wrong = {
        name: problem
        for name, counts in listed.items()
        if (problem := _problem(folder / name, compiles=compiles, counts=counts))
    }
    return Found(len(listed), wrong)


def _problem(folder: Path, *, compiles: bool, counts: list[Any]) -> str:
    """What is wrong with a case; empty if nothing is."""
    inputs, outputs, rtol, atol = counts
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the suite's own models overflow on purpose
        try:
            session = onnxplug.InferenceSession(
                folder / "model.onnx",
                providers=[("CPUExecutionProvider", {"compile": compiles})],
            )
            names = [value.name for value in session.get_inputs()]
            fed = _values(folder, "input", inputs)
            found = session.run(None, dict(zip(names, fed, strict=False)))
        except Exception as error:  # noqa: BLE001 (whatever a case raises is its result)
            return f"{type(error).__name__}: {error}"
    for number, expected in enumerate(_values(folder, "output", outputs)):
        got = np.asarray(found[number])
        if (got.dtype, got.shape) != (expected.dtype, expected.shape):
            return f"{got.dtype}{got.shape} for {expected.dtype}{expected.shape}"
        if expected.dtype.name == "bfloat16":
            rtol = max(rtol, _RTOL_OF_BF16)
        if expected.dtype.kind != "c":
            got, expected = got.astype(np.float64), expected.astype(np.float64)
        if not np.allclose(got, expected, rtol, atol, equal_nan=True):
            return f"off by {np.abs(got - expected).max()}"
    return ""


def _values(folder: Path, kind: str, count: int) -> list[Any]:
    return [
        numpy_helper.to_array(onnx.load_tensor(str(folder / f"{kind}{number}.pb")))
        for number in range(count)
    ]


if __name__ == "__main__":
    compiles = sys.argv[2:] != ["arrays"]
    print(json.dumps(run_cases(Path(sys.argv[1]), compiles=compiles)._asdict()))
