"""``onnxplug explain --against``: what is otherwise in one plan than in another."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

import onnxplug


@pytest.fixture
def model(save_model) -> str:
    return str(save_model(["Mul", "Relu"], {"a": ["N"], "b": ["N"]}))


@pytest.mark.usefixtures("no_others")
def test_another_list_of_eps_moves_nodes_and_tells_why(
    cli, model, simulated, toy
) -> None:
    outcome = cli("explain", model, "--ep", f"{simulated},{toy}", "--against", toy)
    assert outcome.code == 0
    assert outcome.out.splitlines() == [
        "partitions: 1 → 2",
        "copies: 0 → 3",
        "Mul×1: ToyExecutionProvider → SimulatedExecutionProvider "
        "(taken: SimulatedExecutionProvider is preferred)",
    ]


def test_eps_said_one_by_one_are_a_list(cli, model, simulated, toy) -> None:
    apart = cli("explain", model, "--ep", simulated, "--ep", toy)
    assert apart.out == cli("explain", model, "--ep", f"{simulated},{toy}").out
    assert "2 partitions; 3 copies of unknown size in each run" in apart.out


def test_a_plan_of_a_file_is_compared(
    cli, model, simulated, toy, tmp_path: Path
) -> None:
    before = tmp_path / "before.json"
    before.write_text(cli("explain", model, "--ep", toy, "--json").out)
    same = cli("explain", model, "--ep", toy, "--against", before)
    assert (same.code, same.out) == (0, "no difference\n")
    found = cli(
        "explain", model, "--ep", simulated, "--ep", toy, "--against", before, "--json"
    ).json
    assert [(each["node"], each["before"]) for each in found["moved"]] == [
        ("Mul 'node0'", "ToyExecutionProvider")
    ]
    assert found["partitions"] == [1, 2]


def test_other_sizes_change_types(cli, model, toy) -> None:
    outcome = cli("explain", model, "--ep", toy, "--dim", "N=8", "--against-dim", "N=1")
    assert outcome.out == "2 nodes of other types or shapes\n"


@pytest.mark.parametrize("text", ["[]", "{", '{"nodes": [{"graph": 1}]}', '"x"'])
def test_what_is_no_plan_is_refused(cli, model, toy, tmp_path: Path, text: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    outcome = cli("explain", model, "--ep", toy, "--against", path)
    assert outcome.code == 1
    assert "plan.json" in outcome.err
    assert "Traceback" not in outcome.err


def test_options_that_exclude_each_other_are_refused(
    cli, model, toy, tmp_path: Path
) -> None:
    for words in (
        ["--against-dim", "N=1", "--nodes"],
        ["--against", tmp_path / "x.json", "--against-dim", "N=1"],
        ["--against", "a,,b"],
    ):
        assert cli("explain", model, "--ep", toy, *words).code == 2


def test_nodes_of_one_name_are_told_apart(toy) -> None:
    """Which of two is meant by a name does not make one of them new."""
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["": 21]>
        twins (float[4] x) => (float[4] z) {
            [same] y = Mul (x, x)
            [same] z = Mul (y, y)
        }
    """)
    with onnxplug.InferenceSession(model, providers=[toy]) as session:
        explanation = session.explain()
    saved = json.loads(json.dumps(explanation.to_dict()))
    assert not explanation.difference(saved)
    del saved["nodes"][1]
    assert explanation.difference(saved).new == ("Mul 'same'",)
