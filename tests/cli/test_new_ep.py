"""What ``onnxplug new-ep`` writes works: built, installed, tested and used as it is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from onnxplug_cli.main import main
from onnxplug_cli.new_ep.styles import STYLES

pytestmark = pytest.mark.slow

MODEL = """
    <ir_version: 8, opset_import: ["": 17]>
    small (float[n, 2] x) => (float[n, 2] y) <float[2] bias = {-1, 2}> {
        product = Mul (x, x)
        sum = Add (product, bias)
        positive = Relu (sum)
        y = Sqrt (positive)
    }
"""


def done(*command: object, path: Mapping[str, str], folder: Path) -> str:
    """What a process prints that has only *path* besides what this one is made of."""
    finished = subprocess.run(
        [sys.executable, "-m", *map(str, command)],
        cwd=folder,
        env={**os.environ, **path},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


@pytest.fixture(params=STYLES)
def written(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The folder of an EP of each style."""
    folder = tmp_path / "fancy-ep"
    style = request.param
    assert main(["new-ep", "fancy-ep", "--style", style, "--folder", str(folder)]) == 0
    return folder


def python_path(*folders: Path) -> dict[str, str]:
    """A setting by which *folders* come first, and onnxplug is found as it is here."""
    own = [each for each in sys.path if each]
    return {"PYTHONPATH": os.pathsep.join([*map(str, folders), *own])}


def test_its_own_tests_pass(written: Path) -> None:
    words = ("pytest", "-q", "-p", "no:cacheprovider", "-k", "not kit")
    assert " passed" in done(*words, path=python_path(), folder=written)


@pytest.mark.exhaustive
def test_the_conformance_kit_finds_nothing(written: Path) -> None:
    words = ("pytest", "-q", "-p", "no:cacheprovider", "-k", "kit")
    assert "1 passed" in done(*words, path=python_path(), folder=written)


def test_its_types_are_strict(written: Path) -> None:
    pytest.importorskip("mypy")
    said = done("mypy", "src", "tests", path=python_path(), folder=written)
    assert said.startswith("Success: no issues found in ")


def test_a_session_and_the_commands_see_what_was_built(
    written: Path, tmp_path: Path
) -> None:
    pytest.importorskip("hatchling")
    wheel = ("wheel", "--no-deps", "--no-build-isolation", "--no-index", "--quiet")
    done("pip", *wheel, "-w", tmp_path, written, path=python_path(), folder=tmp_path)
    (built,) = tmp_path.glob("fancy_ep-0.1.0-*.whl")
    site = tmp_path / "site"
    install = ("install", "--no-deps", "--no-index", "--quiet", "--target", site)
    done("pip", *install, built, path=python_path(), folder=tmp_path)
    # no others, which take time to check
    path = {**python_path(site), "ONNXPLUG_PLUGINS": "fancy@fancy-ep,cpu@onnxplug-cpu"}

    def said(*command: object) -> Any:
        return json.loads(
            done("onnxplug", *command, "--json", path=path, folder=tmp_path)
        )

    (listed,) = [each for each in said("eps")["eps"] if "Fancy" in each["name"]]
    assert (listed["distribution"], listed["version"]) == ("fancy-ep", "0.1.0")

    onnx.save(onnx.parser.parse_model(MODEL), tmp_path / "small.onnx")
    nodes = said("explain", "small.onnx", "--ep", "fancy")["nodes"]
    assert [node["ep"] for node in nodes] == [
        *["FancyExecutionProvider"] * 3,
        "CPUExecutionProvider",
    ]
    x = np.array([[1, 2], [-3, 0.5]], np.float32)
    np.save(tmp_path / "x.npy", x)
    done(
        "onnxplug", "run", "small.onnx", "--input", "x=x.npy", "--ep", "fancy",
        "--output", "results.npz", path=path, folder=tmp_path,
    )  # fmt: skip
    with np.load(tmp_path / "results.npz") as results:
        wanted = np.sqrt(np.maximum(x.astype(np.float64) ** 2 + [-1, 2], 0))
        np.testing.assert_allclose(results["y"], wanted, rtol=1e-6)

    plugins = {each["ep"]: each for each in said("doctor")["plugins"]}
    assert plugins["FancyExecutionProvider"]["works"] is True
    assert plugins["FancyExecutionProvider"]["findings"] == []
