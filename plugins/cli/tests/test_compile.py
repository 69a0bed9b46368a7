"""``onnxplug compile``."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest


@pytest.fixture
def model(save_model) -> str:
    return save_model(["Mul", "Relu"], {"a": [4], "b": [4]})


def test_what_was_compiled_is_told_and_what_is_left(cli, model, simulated, toy) -> None:
    outcome = cli("compile", model, "--ep", f"{simulated},{toy}")
    assert outcome.code == 0, outcome.err
    path = model.removesuffix(".onnx") + "_ctx.onnx"
    first, *rest = outcome.out.splitlines()
    assert first.startswith(f"wrote {path} (")
    assert rest == [
        "  compiled by SimulatedExecutionProvider: 1 node",
        f"  left as they are: 1 node of {toy} (the EP serialises nothing)",
    ]
    kinds = [node.op_type for node in onnx.load(path).graph.node]
    assert kinds == ["EPContext", "Relu"]
    assert cli("run", path, "random", "--ep", f"{simulated},{toy}").code == 0


def test_the_same_as_json_into_one_file(
    cli, model, simulated, toy, tmp_path: Path
) -> None:
    target = tmp_path / "here" / "c.onnx"
    target.parent.mkdir()
    outcome = cli(
        "compile",
        model,
        "--ep",
        f"{simulated},{toy}",
        "-o",
        target,
        "--embed",
        "--json",
    )
    assert outcome.json == {
        "model": str(target),
        "compiled": [{"ep": simulated, "nodes": 1}],
        "left": [{"ep": toy, "nodes": 1, "reason": "the EP serialises nothing"}],
    }
    assert [path.name for path in target.parent.iterdir()] == ["c.onnx"]


def test_nothing_compiled_is_a_failure(cli, model, toy) -> None:
    outcome = cli("compile", model, "--ep", toy)
    assert outcome.code == 1
    assert "Unable to compile any nodes" in outcome.err
    assert "ToyExecutionProvider: the EP serialises nothing" in outcome.err
