"""The comparison with other runtimes, on its smallest models."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import compare
import numpy as np
import pytest

SCRIPT = Path(compare.__file__)


def run(*words: str) -> str:
    command = [sys.executable, str(SCRIPT), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_measures_prints_and_writes_json(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    options = ["--threads", "1", "--repeats", "1", "--seconds", "0.06", "--no-start"]
    models = ["--models", "add", "chain"]
    printed = run(*models, *options, "--peers", "onnxruntime", "--json", str(path))
    assert "geometric mean, tiny models" in printed
    report = json.loads(path.read_text(encoding="utf-8"))
    assert report["machine"].keys() >= {"processor", "cores", "versions", "commit"}
    measured = report["threads"]["1"]["models"]
    assert measured.keys() == {"add", "chain"}
    for result in measured.values():
        assert result["failed"] == {}
        assert 0 < result["seconds"]["onnxplug"] < 1
        assert len(result["ratio of each repeat"]["onnxruntime"]) == 1
        assert result["largest difference"]["onnxruntime"] < 1e-5


def test_a_runtime_that_fails_is_shown_with_its_reason(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    options = ["--threads", "1", "--repeats", "1", "--seconds", "0.06", "--no-start"]
    wrong = ["--option", "no_such_option=1", "--peers", "onnxruntime"]
    printed = run("--models", "add", *options, *wrong, "--json", str(path))
    assert "onnxplug failed: " in printed
    report = json.loads(path.read_text(encoding="utf-8"))
    result = report["threads"]["1"]["models"]["add"]
    assert "no_such_option" in result["failed"]["onnxplug"]
    assert result["ratio"] == {}
    assert result["seconds"]["onnxruntime"] > 0


def test_geometric_means_keep_tiny_models_apart() -> None:
    def result(ours: float, ort: float, openvino: float) -> dict[str, dict[str, float]]:
        return {
            "seconds": {"onnxplug": ours, "onnxruntime": ort, "openvino": openvino},
            "ratio": {"onnxruntime": ort / ours, "openvino": openvino / ours},
        }

    means = compare.summary(
        [result(1, 4, 2), result(2, 2, 1), result(1e-5, 3e-5, 5e-5)]
    )
    large, tiny = means["models of 1 ms and more"], means["tiny models"]
    assert large["onnxruntime"] == pytest.approx(2)
    assert large["openvino"] == pytest.approx(1)
    assert large["the better one"] == pytest.approx(1)
    assert tiny["onnxruntime"] == pytest.approx(3)
    assert tiny["the better one"] == pytest.approx(3)


def test_errors_are_relative_and_never_lost(tmp_path: Path) -> None:
    def stored(name: str, *arrays: object) -> Path:
        np.savez(tmp_path / name, *map(np.array, arrays))
        return tmp_path / f"{name}.npz"

    right = stored("right", [0.0, 200.0], [1.0])
    assert compare._error(stored("a", [0.0, 202.0], [1.0]), right) == 0.01
    assert compare._error(stored("b", [0.0, math.nan], [1.0]), right) == math.inf
    assert compare._error(stored("c", [0.0], [1.0]), right) == math.inf
