"""Programs in MIL: validated, read back, and interpreted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from mil_interpreter import Interpreter
from mlprogram.primitive_cases import CASES

pytest.importorskip("coremltools")

from onnxplug_coreml.mlprogram.package import build_package


def run(program, feeds, folder: Path, *, narrow: bool = False):
    interpreter = Interpreter(build_package(program, folder, narrow=narrow))
    given = {
        name: np.atleast_1d(feeds[name]).astype(feature.dtype)
        for name, feature in interpreter.package.inputs.items()
    }
    found = interpreter(given)
    assert list(found) == [value.name for value in program.results]
    return interpreter, list(found.values())


@pytest.mark.parametrize("name", CASES)
def test_a_primitive_is_what_numpy_has(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    program = case.program()
    _, found = run(program, case.feeds(), tmp_path)
    expected = case.expected()
    expected = expected if isinstance(expected, tuple) else (expected,)
    for port, array, wanted in zip(program.outputs, found, expected, strict=True):
        assert array.reshape(wanted.shape).shape == wanted.shape
        np.testing.assert_allclose(
            array.reshape(port.value.numbers), wanted, 3e-6, 3e-6
        )
