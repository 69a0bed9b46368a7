"""``onnxplug bench --profile``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from onnxplug_cli.profile import print_profile, read_profile
from onnxplug_testing import ToyFactory

TOY = "ToyExecutionProvider"
Event = dict[str, Any]


def event(name: str, ts: float, dur: float, cat: str = "Node", **facts: Any) -> Event:
    if cat == "Node":
        name += "_kernel_time"
    return {
        "cat": cat, "pid": 1, "tid": 2, "dur": dur, "ts": ts, "ph": "X", "name": name,
        "args": facts,
    }  # fmt: skip


def run(ts: float, dur: float) -> list[Event]:
    """A run with a kernel of 40 µs, one of 20 µs twice, and a node on arrays."""
    fast = {"provider": "P", "tier": "compiled", "kernel": "k"}
    return [
        event("small", ts + 50, 20, flops=0, bytes=2000, share_of_peak=0.25, **fast),
        event("small", ts + 70, 20, flops=0, bytes=2000, share_of_peak=0.75, **fast),
        event("large", ts + 10, 40, flops=80_000, bytes=8, share_of_peak=0.9, **fast),
        event("n1", ts + 90, 5, op_name="Odd", tier="array", provider="P", note="why"),
        event("partition 0", ts + 5, 91, "Partition", provider="P"),
        event("SequentialExecutor::Execute", ts + 2, 96, "Session"),
        event("model_run", ts, dur, "Session"),
    ]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    events = [
        event("session_initialization", 0, 900, "Session"),
        *run(1000, 500),  # a first run
        *run(2000, 100),
        *run(3000, 400),  # disturbed
        *run(4000, 100),
        {"ph": "M", "name": "process_name", "args": {}},
    ]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(events))
    return path


def test_the_faster_half_is_summed_up(trace: Path) -> None:
    profile = read_profile(trace, 3)
    assert profile.runs == 2
    assert profile.seconds == pytest.approx(200e-6)
    rows = {row.name: row for row in profile.rows}
    assert [row.name for row in profile.rows[:2]] in (
        ["large", "small"],
        ["small", "large"],
    )
    large, small = rows["large"], rows["small"]
    assert (large.calls, small.calls) == (2, 4)
    assert large.seconds == pytest.approx(80e-6)
    assert large.share == small.share == pytest.approx(0.4)
    assert large.rate == "2 GFLOP/s"
    assert small.rate == "0.1 GB/s"
    assert large.share_of_peak == pytest.approx(0.9)
    assert small.share_of_peak == pytest.approx(0.5)
    odd = rows["Odd"]
    assert (odd.tier, odd.provider, odd.calls, odd.rate) == ("array", "P", 2, "")
    assert odd.share_of_peak is None
    assert rows["between kernels"].seconds == pytest.approx(2 * 6e-6)
    assert rows["checks and steps"].seconds == pytest.approx(2 * 9e-6)
    assert sum(row.seconds for row in profile.rows) == pytest.approx(profile.seconds)
    assert sum(row.share for row in profile.rows) == pytest.approx(1)
    (remark,) = profile.remarks
    assert (remark.tier, remark.op_type, remark.note) == ("array", "Odd", "why")
    assert remark.nodes == ("n1",)


def test_the_table(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    print_profile(read_profile(trace, 3), usual=90e-6)
    title, _, header, *rows = capsys.readouterr().out.splitlines()
    assert "the 2 fastest runs, each of 100 µs (90 µs when nothing" in title
    assert header.split() == [
        "KERNEL", "TIER", "CALLS", "TIME", "SHARE", "RATE", "OF", "PEAK"
    ]  # fmt: skip
    assert any(
        row.split()
        == ["large", "compiled", "1", "40", "µs", "40.0%", "2", "GFLOP/s", "90%"]
        for row in rows
    )
    assert rows[-4].startswith("each run: 3 calls of kernels, which read and write ")
    assert rows[-2:] == ["on the array tier:", "  Odd: why"]


def test_an_ep_of_kernels_is_profiled(cli, toy, save_model) -> None:
    outcome = cli(
        "bench", save_model(["Relu", "Relu"]), "--ep", toy, "--repeat", 4, "--profile"
    )
    assert (outcome.code, outcome.err) == (0, "")
    assert "where the time goes, in the 2 fastest runs, each of" in outcome.out
    (relu,) = (ln for ln in outcome.out.splitlines() if ln.startswith("Relu "))
    assert relu.split()[1] == "2"


def test_json(cli, toy, save_model, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = save_model()
    before = sorted(tmp_path.iterdir())
    outcome = cli("bench", model, "--ep", toy, "--repeat", 3, "--profile", "--json")
    (result,) = outcome.json["results"]
    profile = result["profile"]
    assert list(profile) == ["runs", "seconds", "rows", "remarks"]
    assert profile["runs"] == 2
    (relu,) = (row for row in profile["rows"] if row["name"] == "Relu")
    assert list(relu) == [
        "name", "provider", "tier", "calls", "seconds", "share", "flops", "bytes",
        "share_of_peak",
    ]  # fmt: skip
    assert (relu["provider"], relu["calls"]) == (TOY, 2)
    assert sum(row["seconds"] for row in profile["rows"]) == pytest.approx(
        profile["seconds"]
    )
    assert sorted(tmp_path.iterdir()) == before  # the trace is not left behind


def test_each_ep_that_is_compared_is_profiled(cli, register, save_model) -> None:
    class Other(ToyFactory):
        name = "OtherExecutionProvider"

    names = [register(ToyFactory()), register(Other())]
    outcome = cli(
        "bench", save_model(), "--compare", ",".join(names), "--repeat", 2, "--profile"
    )
    assert outcome.code == 0, outcome.err
    for name in names:
        assert f"{name}: where the time goes" in outcome.out
