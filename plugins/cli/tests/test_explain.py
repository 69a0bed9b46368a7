"""``onnxplug explain``."""

from __future__ import annotations

import pytest


@pytest.fixture
def mixed(save_model, simulated, toy) -> list[str]:
    """The arguments for a model of which two EPs each run a part."""
    model = save_model(["Mul", "Relu"], {"a": [4], "b": [4]})
    return ["explain", model, "--ep", f"{simulated},{toy}"]


def test_the_summary_tells_partitions_and_copies(cli, mixed) -> None:
    outcome = cli(*mixed)
    assert outcome.code == 0
    assert outcome.err == ""
    assert "partition 0: SimulatedExecutionProvider on npu, 1 node (Mul)" in outcome.out
    assert "partition 1: ToyExecutionProvider on cpu, 1 node (Relu)" in outcome.out
    assert "border value0: partition 0 → partition 1, 16 bytes, copied" in outcome.out
    assert "copy value0: simulated:0 → host, 16 bytes" in outcome.out


def test_every_node_is_listed_with_who_was_passed_over(cli, mixed) -> None:
    outcome = cli(*mixed, "--nodes")
    header, first, second = outcome.out.split("\n\n")[1].splitlines()
    assert header.split() == ["NODE", "EP", "PARTITION", "PASSED", "OVER"]
    assert first.split() == ["Mul", "'node0'", "simulated", "0"]
    assert second.startswith("Relu 'node1'  toy ")
    assert "simulated: op" in second


@pytest.mark.parametrize("wanted", ["node1", "Relu", "Relu 'node1'"])
def test_why_tells_of_one_node(cli, mixed, wanted: str) -> None:
    outcome = cli(*mixed, "--why", wanted)
    assert outcome.code == 0
    where, why, *_ = outcome.out.splitlines()
    assert where == "Relu 'node1' runs on ToyExecutionProvider, partition 1"
    assert why.startswith("  not on SimulatedExecutionProvider: op")


def test_why_tells_what_crosses_a_border(cli, mixed) -> None:
    assert cli(*mixed, "--why", "node0").out.splitlines()[-1] == (
        "  makes value0: partition 0 → partition 1, 16 bytes, copied (float32[4])"
    )


def test_why_of_the_first_choice_tells_who_was_not_needed(cli, mixed) -> None:
    lines = cli(*mixed, "--why", "node0").out.splitlines()
    assert lines[1].startswith("  not on ToyExecutionProvider: taken")


@pytest.mark.usefixtures("no_others")
def test_why_of_the_only_choice_says_so(cli, save_model, toy) -> None:
    outcome = cli("explain", save_model(), "--ep", toy, "--why", "Relu")
    assert outcome.out.splitlines()[1] == "  no other EP was asked"


def test_why_of_an_unknown_node_suggests_one(cli, mixed) -> None:
    outcome = cli(*mixed, "--why", "nodo1")
    assert outcome.code == 2
    assert "Did you mean 'node1'?" in outcome.err


def test_json_is_the_whole_explanation(cli, mixed) -> None:
    found = cli(*mixed, "--json").json
    assert list(found) == [
        "model",
        "policy",
        "calibration",
        "eps",
        "partitions",
        "nodes",
        "borders",
        "copies",
        "pinned",
        "given_back",
        "expanded",
        "computed_once",
        "rewritten",
        "laid_out",
        "passes",
        "not_folded",
        "not_written",
    ]
    assert [node["name"] for node in found["nodes"]] == ["node0", "node1"]
    assert found["nodes"][1]["passed_over"][0]["code"] == "op"


def test_json_can_be_of_one_node(cli, mixed) -> None:
    found = cli(*mixed, "--why", "node1", "--json").json
    assert [node["name"] for node in found["nodes"]] == ["node1"]
    assert len(found["partitions"]) == 2


@pytest.mark.usefixtures("no_others")
def test_a_node_that_no_ep_takes_is_an_error_with_the_reasons(
    cli, save_model, simulated
) -> None:
    model = save_model(["Mul", "Erf"], {"a": [4], "b": [4]})
    outcome = cli("explain", model, "--ep", simulated)
    assert outcome.code == 1
    assert "Erf 'node1'" in outcome.err
    assert "Traceback" not in outcome.err
