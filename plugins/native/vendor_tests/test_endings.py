"""The end of a process in which a library was used: its status is 0, in every order."""

from __future__ import annotations

import subprocess
import sys

import pytest

from .webgpu import adapter_environment

WEBGPU = "WebGpuExecutionProvider"

_SCRIPT = """
import sys
import numpy as np
import onnx.parser
import onnxplug
from onnxplug.plugins import registry
from onnxplug_testing.hardware import INTEL_CPU, presented

context = presented(INTEL_CPU)
context.__enter__()
ep = sys.argv[1]
model = onnx.parser.parse_model(
    '<ir_version: 8, opset_import: ["": 17]> '
    'g (float[2, 8] x, float[2, 8] z) => (float[2, 8] y) { y = Add(x, z) }'
)
session = onnxplug.InferenceSession(model.SerializeToString(), None, [ep])
feeds = {name: np.ones((2, 8), np.float32) for name in "xz"}
assert session.run(None, feeds)[0][0, 0] == 2
assert [node.ep for node in session.explain().nodes] == [ep]
"""

_FACTORY = "[r.factory.close() for r in registry.records() if r.name == ep]\n"

ENDS = {
    "all is left": "",
    "the session is closed": "session.close(); del session",
    "the session is of a module": "sys.kept = session",
    "the session is in a cycle": "cycle = [session]; cycle.append(cycle)",
    "the factory goes first": _FACTORY + "session.run(None, feeds); session.close()",
    "the factory goes first, and the session stays": _FACTORY,
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("ep", ["OpenVINOExecutionProvider", "cpu_ep", "ggml", WEBGPU])
def test_the_process_ends_well(ep, end) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _SCRIPT + ENDS[end], ep],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=adapter_environment() if ep == WEBGPU else None,
    )
    assert ended.returncode == 0, ended.stderr
