"""Primitives on Core AI's runtime, held against NumPy and ``onnx.reference``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mlprogram.primitive_cases import CASES, F32, Case

from onnxplug.authoring.sizes import named
from onnxplug_coreml.coreai import build, load
from onnxplug_coreml.lowering.program import Constant, Operation, Port, Program, Value
from onnxplug_coreml.options import Settings

SETTINGS = Settings("CoreAI", "ALL", narrow=False)


def is_lowered(case: Case) -> bool:
    """Whether lowering makes such an operation: transposed convolutions cut evenly."""
    return case.primitive != "conv_transpose" or all(
        before == after for before, after in case.attributes["pads"]
    )


@pytest.mark.parametrize("name", [name for name in CASES if is_lowered(CASES[name])])
def test_a_primitive_is_what_numpy_has(name: str, tmp_path: Path, coreai: Any) -> None:
    case = CASES[name]
    program = case.program()
    found = load(build(program, SETTINGS, tmp_path), SETTINGS)(case.feeds())
    expected = case.expected()
    expected = expected if isinstance(expected, tuple) else (expected,)
    for value, wanted in zip(program.results, expected, strict=True):
        array = found[value.name]
        assert (array.dtype, array.shape) == (value.dtype.numpy, np.shape(wanted))
        np.testing.assert_allclose(array, wanted, 2e-5, 2e-5)


def test_sizes_may_be_known_in_runs_only(tmp_path: Path, coreai: Any) -> None:
    rows = named("rows")
    x, w = Value("x", F32, (rows, 3)), Value("w", F32, (3, 2))
    product, y = Value("product", F32, (rows, 2)), Value("y", F32, (rows, 2))
    weight = np.arange(6, dtype=np.float32).reshape(3, 2)
    program = Program(
        inputs=[Port("x", F32, x)],
        constants={"w": Constant(w, weight)},
        operations=[
            Operation("matmul", ("x", "w"), {}, (product,), 0),
            Operation("softmax", ("product",), {"axis": 1}, (y,), 1),
        ],
        outputs=[Port("y", F32, y)],
    )
    runner = load(build(program, SETTINGS, tmp_path), SETTINGS)
    for count in (1, 5):
        given = np.linspace(0, 1, 3 * count, dtype=np.float32).reshape(count, 3)
        powers = np.exp(given @ weight)
        expected = powers / powers.sum(1, keepdims=True)
        np.testing.assert_allclose(runner({"x": given})["y"], expected, rtol=1e-5)
