"""The end of the process, with a library that calls the host until then."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from .conftest import product

_HEAD = """
import atexit, sys, threading
import numpy as np
import onnxplug
from onnxplug.plugins import registry

def run_late():
    if "session" in globals():
        feeds = {name: np.ones((2, 3), np.float32) for name in "xy"}
        try:
            assert session.run(None, feeds)[0][0, 0] == 2
        except onnxplug.errors.RunError as error:
            assert "closed" in str(error) or "is ending" in str(error)

atexit.register(run_late)  # before anything of the library was
model = open(sys.argv[1], "rb").read()
registry.register_ep_library("example", sys.argv[2])
providers = ["ExampleExecutionProvider", "cpu"]
session = onnxplug.InferenceSession(model, providers=providers)
run_late()
"""

_ENDS = {
    "all is left": "",
    "the session is closed": "session.close(); del session",
    "all is closed": (
        "session.close(); del session; registry.unregister_ep_library('example')"
    ),
    "the session is of a module": "sys.kept = session",
    "the session is in a cycle": "cycle = [session]; cycle.append(cycle)",
    "a thread goes on": (
        "work = lambda: [run_late() for _ in range(9999)]\n"
        "threading.Thread(target=work, daemon=True).start()"
    ),
    "an error ends it": "raise SystemExit(0)",
    "a factory is released before the session": (
        "[r.factory.close() for r in registry.records() if 'Example' in r.name]"
    ),
    "it is forked": (
        "import os, signal, warnings; warnings.simplefilter('ignore')\n"
        "child = os.fork()\n"
        # one that hangs would keep the pipes open, and who reads these
        "if not child: signal.alarm(30); atexit._clear(); run_late(); os._exit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0"
    ),
}


_EARLY = ("all is closed", "a factory is released before the session")
_DEVICE = ("LATE", "KERNELS", "DEVICE_MEMORY")


@pytest.mark.parametrize(
    ("end", "macros"),
    [*((end, ("LATE",)) for end in _ENDS), *((end, _DEVICE) for end in [*_ENDS][:3])],
)
def test_the_process_ends_well(compile_example, tmp_path, end, macros) -> None:
    model = tmp_path / "model.onnx"
    model.write_bytes(product(2, 3))
    script = _HEAD + _ENDS[end]
    ended = subprocess.run(
        [sys.executable, "-c", script, model, compile_example(*macros)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=os.environ | {"PYTHONWARNINGS": "ignore"},
    )
    assert ended.returncode == 0, ended.stderr
    if end != "a thread goes on":  # which may be told that it is the end
        assert ended.stderr == ""
    how = "before it" if end in _EARLY else "with the process"
    assert ended.stdout.splitlines()[-1] == f"the library ended {how}"
