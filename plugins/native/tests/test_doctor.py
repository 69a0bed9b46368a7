"""``onnxplug doctor`` on a library: with options of its EP, and what is to be done."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

EP = "ExampleExecutionProvider"

# other EPs, and wheels of vendors that are installed, take long to try
ALONE = {"ONNXPLUG_BLOCK": "cpu,openvino,webgpu,ggml,cpu_ep"}


def doctor(path: Path, *words: str) -> dict[str, Any]:
    """What the doctor says of the example's EP."""
    command = [sys.executable, "-m", "onnxplug", "doctor", "--json", "--library", path]
    done = subprocess.run(
        [*command, *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=os.environ | ALONE,
    )
    assert done.stdout, done.stderr
    plugins = json.loads(done.stdout)["plugins"]
    (found,) = [each for each in plugins if each["ep"] == EP]
    return dict(found)


@pytest.mark.parametrize("isolated", [[], ["--isolate"]])
def test_the_doctor_computes_with_the_options_that_are_said(
    compile_example: Callable[..., Path], isolated
) -> None:
    path = compile_example()
    option = f"{EP}.mode=missing_entry"
    (device, *_) = doctor(path, *isolated)["devices"]
    assert [each["verdict"] for each in device["checks"]] == ["refused", "refused"]
    (device, *_) = doctor(path, *isolated, "--ep-option", option)["devices"]
    for check in device["checks"]:
        assert check["verdict"] == "failed"
        assert "CreateSession (entry 7) is not implemented" in check["detail"]
        assert check["remedy"].startswith("tell the makers of onnxplug which")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--ep-option", "nobody.mode=x"], "is for nobody, which is not installed"),
        (["--verify", "cpu", "--ep-option", "cpu.x=1"], "leave out --ep-option"),
    ],
)
def test_options_that_say_nothing_are_refused(words, told) -> None:
    command = [sys.executable, "-m", "onnxplug", "doctor", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and told in done.stderr
