"""Programs with trained models from PyPI, on ONNX Runtime and on onnxplug.

Each is installed as it is, and run in two fresh processes: by ``python``, and by
``python -m onnxplug_onnxruntime``.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
import pytest

Results: TypeAlias = Mapping[str, np.ndarray[Any, Any]]

PROLOGUE = """
import sys
import numpy as np

results = {}
"""
EPILOGUE = """
import onnxruntime
assert results
np.savez(sys.argv[1], **results)
print(onnxruntime.InferenceSession.__module__)
"""
RUNTIMES = {
    "onnxruntime.capi.onnxruntime_inference_collection": (),
    "onnxplug_onnxruntime.session": ("-m", "onnxplug_onnxruntime"),
}
# nothing listens there, so that whatever would be downloaded is an error
OFFLINE = {
    **dict.fromkeys(("http_proxy", "https_proxy"), "http://127.0.0.1:9"),
    "HF_HUB_OFFLINE": "1",
}


class SameOnBoth(Protocol):
    """Runs a program on both runtimes; returns its results if they are the same."""

    def __call__(
        self, package: str, program: str, tolerances: Mapping[str, float] | None = None
    ) -> Results:
        """Run *program*, which puts arrays into ``results``.

        Args:
            package: what the program imports.
            tolerances: by how much floats of a result may differ, by its name.
        """


@pytest.fixture
def same_on_both(tmp_path: Path) -> SameOnBoth:
    """See :class:`SameOnBoth`.

    Without the package tests are skipped, or fail if ONNXPLUG_REQUIRE says
    ``programs``.
    """

    def same(
        package: str, program: str, tolerances: Mapping[str, float] | None = None
    ) -> Results:
        if importlib.util.find_spec(package) is None:
            message = f"{package} is not installed; make test-programs"
            if "programs" in os.environ.get("ONNXPLUG_REQUIRE", "").split(","):
                pytest.fail(message)
            pytest.skip(message)
        (tmp_path / "program.py").write_text(PROLOGUE + program + EPILOGUE)
        with ThreadPoolExecutor() as pool:
            expected, found = pool.map(partial(run, tmp_path), RUNTIMES)
        tolerances = tolerances or {}
        assert list(found) == list(expected) and set(tolerances) <= set(found)
        for name, value in found.items():
            wanted = expected[name]
            assert value.dtype.kind == wanted.dtype.kind, name
            if name in tolerances:
                np.testing.assert_allclose(
                    value, wanted, 0, tolerances[name], True, name
                )
            else:
                np.testing.assert_array_equal(value, wanted, name)
        return found

    return same


def run(folder: Path, runtime: str) -> Results:
    """The results of the program in *folder*."""
    results = folder / f"{runtime}.npz"
    done = subprocess.run(
        [sys.executable, *RUNTIMES[runtime], folder / "program.py", results],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, **OFFLINE, "PYTHONPATH": ""},
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == runtime
    with np.load(results) as arrays:
        return dict(arrays)
