"""``onnxplug calibrate``."""

from __future__ import annotations

from typing import Any

import pytest

import onnxplug
from onnxplug.calibration.plan import Plan, Share
from onnxplug.calibration.verdict import Measured, Verdict

CPU = "CPUExecutionProvider"
TOY = "ToyExecutionProvider"

PLANS = [
    Plan((Share(CPU),)),
    Plan((Share(TOY), Share(CPU))),
    Plan((Share(TOY, ((0, 4),)), Share(CPU))),
    Plan((Share("NoExecutionProvider"), Share(CPU))),
]


@pytest.fixture
def calibrated(monkeypatch: pytest.MonkeyPatch, toy) -> dict[str, Any]:
    """What the library is called with; it says that it measured four plans."""
    called: dict[str, Any] = {}

    def calibrate(model: str, options: Any, **named: Any) -> Verdict:
        called.update(named, model=model, options=options)
        measured = (
            Measured(PLANS[0], 2e-3, 1e-3, 7, 0.5, 0.1),
            Measured(PLANS[1], 1e-3, 9e-4, 9, 0.5, 0.1, difference="'y' is wrong"),
            Measured(PLANS[2], 1.5e-3, 1e-3, 9, 0.5, 0.1),
            Measured(PLANS[3], failure="it died"),
        )
        shapes = {"x": "float32[4×3]"}
        return Verdict(PLANS[2], PLANS[1], measured, shapes, "2026-11-27", "disk full")

    monkeypatch.setattr(onnxplug, "calibrate", calibrate)
    return called


def test_all_plans_are_listed_and_what_became_of_them(
    cli, calibrated, save_model
) -> None:
    outcome = cli("calibrate", save_model(), "--dim", "N=4", "--intra-op-threads", 2)
    assert (outcome.code, outcome.err) == (0, "")
    lines = outcome.out.splitlines()
    assert lines[0] == "random → x: float32[4, 3]"
    assert lines[2].split() == ["PLAN", "MEDIAN", "MIN", "RUNS", "LOAD"]
    assert lines[3].split() == ["cpu", "2", "ms", "1", "ms", "7", "500", "ms"]
    assert lines[5].startswith("toy (not nodes 0–3) + cpu")
    assert "toy gives other results: 'y' is wrong" in lines
    assert "failed: it died" in outcome.out
    assert "chosen: toy (not nodes 0–3) + cpu" in lines
    assert "the policy's first choice: toy" in lines
    assert "it is not kept for sessions: disk full" in lines
    assert calibrated["inputs"]["x"].shape == (4, 3)
    assert calibrated["options"].intra_op_num_threads == 2
    assert (calibrated["seconds"], calibrated["timeout"]) == (1, 300)


def test_json_has_stable_keys(cli, calibrated, save_model) -> None:
    argv = ("--seconds", 0.5, "--timeout", 9, "--ep-option", "cpu.compile=0")
    found = cli("calibrate", save_model(), *argv, "--json").json
    assert list(found) == [
        *("model", "inputs", "chosen", "static", "measured", "shapes", "date", "kept")
    ]
    assert found["chosen"] == [[TOY, [[0, 4]]], [CPU, []]]
    assert list(found["measured"][0]) == [
        *("plan", "median", "fastest", "runs", "load", "first_run", "failure"),
        *("difference", "words"),
    ]
    assert (calibrated["seconds"], calibrated["timeout"]) == (0.5, 9)


@pytest.mark.parametrize(
    "argv",
    [["--seconds", "0"], ["--timeout", "inf"], ["--ep", "cpu"], ["--dim", "Z=3"]],
)
def test_a_command_line_that_does_not_fit_exits_with_2(cli, save_model, argv) -> None:
    outcome = cli("calibrate", save_model(), *argv)
    assert (outcome.code, outcome.out) == (2, "")
