"""How models of Core AI are called, and what is kept from it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnxplug
from onnxplug import ep
from onnxplug_coreml.coreai import build, load
from onnxplug_coreml.lowering.program import Operation, Port, Program, Value
from onnxplug_coreml.options import Settings

SETTINGS = Settings("CoreAI", "ALL", narrow=False)
F32 = ep.DataType.FLOAT32


def relu(*shape: int) -> Program:
    x, y = Value("x", F32, shape), Value("y", F32, shape)
    operation = Operation("relu", ("x",), {}, (y,), 0)
    return Program([Port("x", F32, x)], {}, [operation], [Port("y", F32, y)])


def test_another_shape_never_reaches_the_engine(tmp_path: Path, coreai: Any) -> None:
    runner = load(build(relu(2, 3), SETTINGS, tmp_path), SETTINGS)
    with pytest.raises(ValueError, match=r"'x' is of shape \[6\].* made for \[2, 3\]"):
        runner({"x": np.zeros(6, np.float32)})


def test_a_tensor_beyond_the_memory_is_declined(tmp_path: Path, coreai: Any) -> None:
    with pytest.raises(ep.Declined, match=r"a tensor of \d+ bytes; the memory has"):
        build(relu(1 << 20, 1 << 20, 1 << 10), SETTINGS, tmp_path)


def test_a_loop_of_events_may_be_running(tmp_path: Path, coreai: Any) -> None:
    runner = load(build(relu(2), SETTINGS, tmp_path), SETTINGS)

    async def main() -> Any:
        return runner({"x": np.float32([-1, 2])})["y"]

    assert asyncio.run(main()).tolist() == [0, 2]


@pytest.mark.filterwarnings("ignore:.*runs no node:onnxplug.errors.EpWarning")
@pytest.mark.parametrize("op_type", ["Div", "Mod", "CumSum"])
def test_integers_that_end_the_process_are_not_taken(
    op_type: str, parse: Callable[..., Any], coreai: Any
) -> None:
    model = parse(
        f"y = {op_type} (x, n)", "int32[2] x, int32 n", "int32[2] y"
    )  # fmt: skip
    session = onnxplug.InferenceSession(model, providers=["coreml", "cpu"])
    assert {node.ep for node in session.explain().nodes} == {"CPUExecutionProvider"}


ALONE = """
import numpy as np, onnx, onnxplug
model = onnx.parser.parse_model('''
    <ir_version: 10, opset_import: ["": 21]>
    agraph (float[2] x) => (float[2] y) { y = Relu (x) }''')
session = onnxplug.InferenceSession(model, providers=[
    ("CoreMLExecutionProvider", {"ModelFormat": "CoreAI"})])
print(session.run(None, {"x": np.float32([-1, 2])})[0])
"""


def test_the_process_ends_quietly(coreai: Any) -> None:
    # the engine's threads let go of Python's objects after a run has ended
    for _ in range(3):
        ended = subprocess.run(
            [sys.executable, "-c", ALONE], capture_output=True, text=True, check=False
        )
        assert (ended.returncode, ended.stdout) == (0, "[0. 2.]\n"), ended.stderr
        assert ended.stderr == ""
