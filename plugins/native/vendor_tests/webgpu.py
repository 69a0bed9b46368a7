"""An adapter for WebGPU's library: this machine's, or Mesa's software driver."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from pathlib import Path

import pytest

_TOOL = Path(__file__).parents[1] / "tools" / "with_adapter.py"
_TELL = "import json, os; print(json.dumps(dict(os.environ)))"


@functools.cache
def _find() -> dict[str, str] | str:
    """The environment in which there is one, or why there is none."""
    folder = Path(sys.prefix) / "lavapipe"
    done = subprocess.run(
        [sys.executable, _TOOL, folder, sys.executable, "-c", _TELL],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    lines = (done.stderr if done.returncode else done.stdout).strip().splitlines()
    said = (lines or [f"{_TOOL.name} ended with status {done.returncode}"])[-1]
    return said if done.returncode else dict(json.loads(said))


def adapter_environment() -> dict[str, str]:
    """The environment of processes in which WebGPU's library has an adapter.

    Without one the test is skipped, and says why.
    """
    found = _find()
    if isinstance(found, str):
        pytest.skip(found)
    return found
