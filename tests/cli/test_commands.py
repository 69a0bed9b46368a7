"""What commands tell of the CPU EP, beside others."""

from __future__ import annotations

from pathlib import Path

import onnx

from onnxplug_testing import Knobs, SimulatedFactory


def saved(folder: Path, graph: str) -> Path:
    """A model in a file."""
    text = f'<ir_version: 10, opset_import: ["": 21]> g {graph}'
    onnx.save(onnx.parser.parse_model(text), folder / "model.onnx")
    return folder / "model.onnx"


def test_a_policy_tells_who_was_passed_over_and_who_was_not_needed(
    cli, register, tmp_path: Path
) -> None:
    simulated = register(SimulatedFactory(Knobs(ops=frozenset({"Mul"}))))
    model = saved(tmp_path, "(float[N, 3] x) => (float[N, 3] y) { y = Relu (x) }")
    passed = cli("explain", model, "--policy", "prefer_npu").out
    assert "  EPs by the policy prefer_npu:\n" in passed
    assert f"{simulated} passed over: claims nothing of this model: op: Relu" in passed
    why = cli("explain", model, "--policy", "prefer_npu", "--why", "Relu").out
    assert f"not on {simulated}: op: Relu" in why
    model = saved(
        tmp_path, "(float[4] a, float[4] b) => (float[4] y) { y = Mul (a, b) }"
    )
    used = cli("explain", model, "--policy", "max_efficiency").out
    assert f"{simulated} used: claims 1 node\n" in used
    assert "CPUExecutionProvider not needed\n" in used


def test_it_tells_of_each_set_and_partition(cli, tmp_path: Path) -> None:
    model = saved(tmp_path, "(float[N, 4] a) => (float[N, 4] y) { y = Relu (a) }")
    outcome = cli("prepare", model, "--shape", "a=2,4", "--shape", "a=3,4")
    assert (outcome.code, outcome.err) == (0, "")
    first, header, row, second, *_ = outcome.out.splitlines()
    assert first.startswith("a[2, 4]: 1 of 1 partitions ready in ")
    assert header.split() == ["PARTITION", "EP", "STATE"]
    assert row.split() == ["0", "cpu", "ready"]
    assert second.startswith("a[3, 4]: 1 of 1 partitions ready in ")


def test_pins_are_said_by_options(cli, register, tmp_path: Path) -> None:
    register(SimulatedFactory(Knobs(ops=frozenset({"Mul", "Add"}))))
    graph = "(float[3] x) => (float[3] y) { [one] a = Mul (x, x) [two] y = Add (a, x) }"
    model = saved(tmp_path, graph)
    on = ("--ep", "simulated,cpu")
    pinned = ("--place", "name:one=cpu", "--place", "op:Add=simulated")
    why = cli("explain", model, *on, *pinned, "--why", "one").out
    assert "decided by session.place name:one=CPUExecutionProvider\n" in why
    found = cli("explain", model, *on, *pinned, "--json").json
    assert [node["ep"] for node in found["nodes"]] == [
        "CPUExecutionProvider", "SimulatedExecutionProvider",
    ]  # fmt: skip
    assert [pin["pattern"] for pin in found["pinned"]] == ["name:one", "op:Add"]
    for command in ("run", "bench"):
        few = ("--repeat", "1", "--json", *on, *pinned)
        assert cli(command, model, "random", *few).code == 0
    refused = cli("run", model, "random", "--require", "op:Sub=cpu")
    assert refused.code == 2 and "matches no node of the model" in refused.err
    unmet = cli("run", model, "random", *on, "--require", "op:Mul=cuda")
    assert unmet.code == 2 and "not in the session" in unmet.err


def test_what_is_no_pin_is_refused(cli, tmp_path: Path) -> None:
    model = saved(tmp_path, "(float[3] x) => (float[3] y) { y = Relu (x) }")
    refused = cli("explain", model, "--require", "Relu=cpu")
    assert refused.code == 2 and "begins with 'op:'" in refused.err
