"""``onnxplug bench``."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from onnxplug import ep
from onnxplug_cli.energy import Meter
from onnxplug_cli.measure import Latency, Runner, measure, percentile
from onnxplug_testing import ToyExecutionProvider, ToyFactory

TOY = "ToyExecutionProvider"


@pytest.fixture(autouse=True)
def no_counters(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that tells nothing of energy."""
    meter = Meter(missing="no counters here")
    monkeypatch.setattr(Meter, "of_machine", lambda: meter)


@pytest.fixture
def bench(cli, toy):
    """Runs ``onnxplug bench MODEL …`` on the toy EP, three times."""

    def run(model: str, *argv: object):
        return cli("bench", model, "--no-memory", "--ep", toy, "--repeat", 3, *argv)

    return run


# Reports...


def test_json_has_stable_keys(bench, save_model) -> None:
    outcome = bench(save_model(), "--json", "--dim", "N=4")
    assert (outcome.code, outcome.err) == (0, "")
    found = outcome.json
    assert list(found) == [
        *("model", "inputs", "threads", "warmup", "energy_missing", "results")
    ]
    assert found["inputs"] == [
        {"name": "x", "type": "float32", "shape": [4, 3], "source": "random"}
    ]
    assert (found["threads"], found["warmup"]) == (1, 3)
    (result,) = found["results"]
    assert list(result) == [
        "providers",
        "nodes",
        "seconds",
        "runs",
        "runs_per_second",
        "ratio",
        "memory",
        "joules",
    ]
    assert result["providers"][0] == TOY
    assert result["nodes"] == {TOY: 1}
    seconds = result["seconds"]
    assert list(seconds) == [
        *("load", "first_run", "median", "spread", "min", "p90", "p99")
    ]
    assert 0 < seconds["min"] <= seconds["median"] <= seconds["p90"] <= seconds["p99"]
    assert result["runs"] == 3
    assert result["runs_per_second"] > 0
    assert result["ratio"] is None


def test_the_text_is_a_table_and_where_it_ran(bench, save_model) -> None:
    outcome = bench(save_model())
    assert (outcome.code, outcome.err) == (0, "")
    feed, _, header, row, _, where, energy = outcome.out.splitlines()
    assert feed == "random → x: float32[1, 3]"
    assert header.split() == [
        *("EP", "LOAD", "FIRST", "MEDIAN", "SPREAD", "MIN", "P90", "P99", "RUNS/S")
    ]
    assert row.startswith("toy ")
    assert where == f"1 node on {TOY}: 3 runs"
    assert energy == "energy: not known, as no counters here"


def test_the_same_options_feed_bench_and_run(cli, bench, save_model, tmp_path) -> None:
    np.save(tmp_path / "a.npy", np.ones((2, 3), np.float32))
    model = save_model(["Sub"], {"a": ["N", 3], "b": ["N", 3]})
    argv = ["--input", f"a={tmp_path / 'a.npy'}", "--dim", "N=2", "--json"]
    benched = bench(model, *argv).json["inputs"]
    ran = cli("run", model, "random", "--ep", TOY, *argv).json["inputs"]
    assert benched == ran
    assert [item["source"] for item in benched] == ["a.npy", "random"]


# How much is measured...


def test_a_time_can_be_given_instead_of_a_number(cli, toy, save_model) -> None:
    outcome = cli(
        *(
            "bench",
            save_model(),
            "--ep",
            toy,
            "--seconds",
            0.05,
            "--json",
            "--no-memory",
        ),
    )
    (result,) = outcome.json["results"]
    assert result["runs"] > 3
    assert result["runs"] / result["runs_per_second"] >= 0.05


@pytest.mark.parametrize("warmup", [0, 2])
def test_warm_runs_are_not_measured(bench, register, save_model, warmup: int) -> None:
    runs = []

    class Provider(ToyExecutionProvider):
        def find_kernel(self, graph, node):
            return lambda x: (runs.append(1), x)[1].copy()

    class Factory(ToyFactory):
        name = "CountingExecutionProvider"

        def supported_devices(self, devices):
            return [ep.EpDevice(ep_name=self.name, device=devices[0])]

        def create(self, devices, options, session):
            return Provider()

    name = register(Factory())
    found = bench(save_model(), "--warmup", warmup, "--json", "--ep", name).json
    assert found["warmup"] == warmup
    assert found["results"][0]["runs"] == 3
    assert len(runs) == 1 + warmup + 3


def test_threads_each_run_as_often_as_said(bench, save_model) -> None:
    outcome = bench(save_model(), "--threads", 4)
    assert outcome.out.splitlines()[-2].endswith("12 runs in 4 threads")
    found = bench(save_model(), "--threads", 4, "--json").json
    assert found["threads"] == 4
    assert found["results"][0]["runs"] == 12


class Session:
    """Runs what it is told to; stands in for a session."""

    def __init__(self, work) -> None:
        self._work = work

    def run(self, names, inputs):
        assert names is None
        self._work()


def test_threads_run_at_the_same_time() -> None:
    together = threading.Barrier(3, timeout=20)
    runner = Runner(Session(together.wait), {})  # would wait for ever in one thread
    runner.measure(5, threads=3)
    assert len(runner.seconds) == 15


def test_what_a_thread_raises_is_raised() -> None:
    def fail() -> None:
        raise ValueError("in a thread")

    with pytest.raises(ValueError, match="in a thread"):
        Runner(Session(fail), {}).measure(2, threads=2)


def test_sessions_take_turns_in_changing_order() -> None:
    order: list[str] = []
    told: list[tuple[str, float]] = []
    runners = [
        Runner(Session(lambda name=name: order.append(name)), {}) for name in "ab"
    ]
    measure(
        runners,
        warmup=0,
        threads=1,
        repeat=20,
        seconds=0,
        report=lambda *how_far: told.append(how_far),
    )
    assert "".join(order[2:]) == "aabbbbaa" * 5
    assert told[-1] == ("measuring: 20 of 20 runs", 1.0)


# Comparisons...


@pytest.mark.parametrize("form", ["--compare", "--ep"])
def test_eps_are_compared_each_by_itself(cli, toy, simulated, save_model, form) -> None:
    said = ["--compare", f"{toy},{simulated}"]
    if form == "--ep":
        said = ["--ep", toy, "--ep", simulated]
    model = save_model(["Mul"], {"a": [4], "b": [4]})
    argv = ("bench", model, "--no-memory", *said, "--repeat", 4)
    outcome = cli(*argv, "--json")
    assert outcome.code == 0
    first, second = outcome.json["results"]
    assert first["nodes"] == {toy: 1}
    assert second["nodes"] == {simulated: 1}
    assert first["ratio"] == 1
    ratio = second["seconds"]["median"] / first["seconds"]["median"]
    assert second["ratio"] == pytest.approx(ratio)

    _, _, _, header, *rows, _, on_first, on_second, _ = cli(*argv).out.splitlines()
    assert header.split()[-1] == "RATIO"
    assert [row.split()[0] for row in rows] == ["toy", "simulated"]
    assert rows[0].split()[-1] == "1.00"
    assert (on_first, on_second) == (
        f"1 node on {toy}: 4 runs",
        f"1 node on {simulated}: 4 runs",
    )


def test_an_ep_can_be_compared_with_itself(cli, toy, save_model) -> None:
    said = ("--compare", f"{toy},{toy}", "--no-memory")
    argv = ("bench", save_model(), *said, "--repeat", 2)
    assert len(cli(*argv, "--json").json["results"]) == 2


def test_an_ep_that_is_missing_cannot_be_compared(cli, toy, save_model) -> None:
    outcome = cli("bench", save_model(), "--compare", f"{toy},missing")
    assert outcome.code == 1
    assert outcome.out == ""
    assert "missing" in outcome.err


@pytest.mark.parametrize(
    "argv",
    [
        ["--compare", "cpu", "--ep", "cpu"],
        ["--compare", "cpu", "--policy", "default"],
        ["--compare", "cpu,"],
        ["--repeat", "0"],
        ["--repeat", "1", "--seconds", "1"],
        ["--seconds", "-1"],
        ["--seconds", "nan"],
        ["--threads", "0"],
        ["--warmup", "-1"],
    ],
)
def test_a_command_line_that_does_not_fit_exits_with_2(cli, argv) -> None:
    outcome = cli("bench", "m.onnx", *argv)
    assert (outcome.code, outcome.out) == (2, "")
    assert "usage: onnxplug bench" in outcome.err


# Numbers...


def test_percentiles_lie_between_measured_values() -> None:
    assert percentile([1.0], 0.99) == 1
    assert percentile([1.0, 2.0, 3.0], 0.5) == 2
    assert percentile([0.0, 10.0], 0.9) == pytest.approx(9)


def test_latency_is_that_of_numpy() -> None:
    values = np.random.default_rng(0).random(101)
    found = Latency.of(list(values))
    spread = np.subtract(*np.percentile(values, [75, 25]))
    high = np.percentile(values, [90, 99])
    expected = [np.median(values), spread, values.min(), *high]
    np.testing.assert_allclose(found, expected)
