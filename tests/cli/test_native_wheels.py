"""Wheels with native EPs made for ONNX Runtime, which the command line looks at."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

# found where onnxplug-native, which hosts such libraries, is installed
MODULE = """
import os

def get_library_path():
    os.abort()

def get_ep_names():
    return ["ExampleExecutionProvider"]
"""


@pytest.mark.skipif(sys.platform != "linux", reason="signals")
def test_the_doctor_survives_a_wheel_that_ends_the_process(tmp_path: Path) -> None:
    package = tmp_path / "onnxruntime_ep_example"
    package.mkdir()
    (package / "__init__.py").write_text(MODULE)
    facts = tmp_path / "onnxruntime_ep_example-1.2.3.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: onnxruntime-ep-example\nVersion: 1.2.3\n"
    )
    paths = [str(tmp_path), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    done = subprocess.run(
        [sys.executable, "-m", "onnxplug", "doctor", "--isolate"],
        env=os.environ
        | {
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "ONNXPLUG_PLUGINS": "example",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "it was killed by SIGABRT while being loaded" in done.stdout
    assert "tell the makers of onnxruntime-ep-example" in done.stdout
