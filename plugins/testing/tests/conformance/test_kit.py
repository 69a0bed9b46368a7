"""The kit finds mistakes, says what it tried, and outlives what it examines."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxplug import ep
from onnxplug.errors import InvalidArgument, NotFound
from onnxplug.plugins import registry
from onnxplug_testing import Knobs, SimulatedFactory, ToyFactory
from onnxplug_testing.conformance import (
    Report,
    Settings,
    all_checks,
    chosen_checks,
    examine,
    find_subject,
    fork_server,
    forked,
    isolation,
)
from onnxplug_testing.conformance.html import as_html
from onnxplug_testing.conformance.text import as_text
from onnxplug_testing.pytest_plugin import ConformanceItem, Processes
from onnxplug_testing.toy import ToyExecutionProvider

Kernel = Callable[..., Any]


class Faulty(ToyExecutionProvider):
    """The toy, some of whose kernels are others."""

    def __init__(self, kernels: dict[str, Kernel]) -> None:
        self._kernels = kernels

    def find_kernel(self, graph: ep.Graph, node: ep.Node) -> Kernel | ep.Reason:
        found = super().find_kernel(graph, node)
        if isinstance(found, ep.Reason):
            return found
        return self._kernels.get(node.op_type, found)


@pytest.fixture
def faulty() -> Iterator[Callable[..., str]]:
    """Makes an EP known that has other kernels than the toy, or another factory."""
    factories: list[ep.EpFactory] = []

    def make(kernels: dict[str, Kernel] | None = None, **members: Any) -> str:
        class Factory(ToyFactory):
            name = "FaultyExecutionProvider"

            def create(self, *_: Any) -> ep.ExecutionProvider:
                return Faulty(kernels or {})

        for key, value in members.items():
            setattr(Factory, key, value)
        factories.append(Factory())
        registry.add(factories[-1])
        return Factory.name

    yield make
    for factory in factories:
        registry.remove(factory.name)


def of(name: str, *only: str, budget: float = 3.0, **settings: Any) -> Report:
    return examine(name, only=only, settings=Settings(budget=budget, **settings))


@pytest.mark.exhaustive
def test_nothing_is_found_of_an_ep_without_mistakes(faulty, tmp_path: Path) -> None:
    report = of(faulty(), budget=6.0, quick=True, folder=tmp_path / "none")
    assert not report.findings, as_text(report)
    assert {each.full_name for each in report.checks} == {
        each.full_name for each in all_checks()
    }
    assert report.tried > 100
    # what was not tried is told, with the reason
    assert all(each.tried or each.untried for each in report.checks)
    assert not (tmp_path / "none").exists()


def test_a_wrong_result_is_told_with_all_that_is_needed(faulty, tmp_path: Path) -> None:
    def add(a: Any, b: Any) -> Any:
        wrong = 1 in np.shape(a) and np.shape(a) != np.shape(b)
        return np.asarray(np.add(a, b) + np.float32(wrong))

    name = faulty({"Add": add})
    report = of(name, "operators/nodes", budget=4.0, folder=tmp_path)
    assert report.findings
    finding = report.findings[0]
    assert finding.group == "operators"
    assert finding.node.startswith("Add-")
    assert set(finding.types.values()) == {"float32"}
    assert 1 in [size for shape in finding.shapes.values() for size in shape]
    assert {path.name for path in Path(finding.file).iterdir()} == {
        "model.onnx",
        "feeds.npz",
        "reproduce.py",
    }
    found = finding.as_json()
    assert found["sentence"]["link"] == "docs/reference/spi.md#compiledpartition"
    page, text = as_html(report), as_text(report)
    for part in (finding.node, finding.sentence.says, finding.file):
        assert part in page
        assert " ".join(part.split()) in " ".join(text.split())
    json.dumps(report.as_json())


@pytest.mark.parametrize(
    ("check", "members"),
    [
        ("factory/facts", {"engine_versions": lambda self, device: {"engine": 3}}),
        ("options/declarations", {"options": {"level": ep.Option(default=1)}}),
        (
            "options/declarations",
            {"options": {"level": ep.Option(default=1, doc="Effort; default: 2.")}},
        ),
        (
            "options/values",
            {"options": {"level": ep.Option(default=1, doc="How hard to try.")}},
        ),
        ("options/unknown-names", {"options": ep.OpenOptions()}),
    ],
)
def test_mistakes_of_a_factory(faulty, check: str, members: dict[str, Any]) -> None:
    report = of(faulty(**members), check)
    assert report.findings
    assert {f"{each.group}/{each.check}" for each in report.findings} == {check}


def test_costs_that_the_host_refuses_are_told_of(simulated) -> None:
    simulated(costs=ep.Costs(seconds_per_copy=-1.0))
    report = of("simulated", "costs")
    (finding,) = report.findings
    assert (finding.group, finding.check) == ("costs", "of-pairs")
    assert report.untried


@pytest.mark.skipif(not forked.CAN_FORK, reason="checks have no processes here")
def test_a_crash_is_a_finding_and_the_rest_is_tried(
    faulty, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # it may be run once before, to see whether it can be forked
    monkeypatch.setattr(fork_server, "run_once", lambda _: "")
    done = tmp_path / "done"

    def relu(x: Any) -> Any:
        if not done.exists():
            done.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return np.asarray(np.maximum(x, np.float32(0)))

    name = faulty({"Relu": relu})
    report = of(name, "operators/nodes", folder=tmp_path)
    (finding,) = report.findings
    assert "SIGKILL" in finding.what
    assert (Path(finding.file) / "reproduce.py").exists()
    assert report.tried > 20


@pytest.mark.skipif(not forked.CAN_FORK, reason="checks have no processes here")
def test_a_hang_is_a_finding(faulty, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "PATIENCE", 1.0)
    monkeypatch.setattr(isolation, "_DEATHS", 1)

    def sub(a: Any, b: Any) -> Any:
        time.sleep(600)

    name = faulty(dict.fromkeys(("Add", "Mul", "Relu", "Sub"), sub))
    report = of(name, "specialisation/changing-shapes", budget=0.5)
    assert any("did not end within" in each.what for each in report.findings)
    assert any("process that tried them ended" in w for w in report.checks[0].untried)


def test_a_reason_without_words_is_a_finding(simulated) -> None:
    refused = {"Relu": ep.Reason(ep.RefusalCode.OTHER)}
    simulated(refuse=refused)
    report = of("simulated", "claims/reasons")
    assert {each.node.partition("-")[0] for each in report.findings} == {"Relu"}


def test_the_same_seed_tries_the_same(faulty) -> None:
    name = faulty({"Mul": lambda a, b: np.asarray(np.multiply(a, b) * np.float32(2))})
    # the check of that group that finds it
    check = "specialisation/computed-sizes"
    reports = [of(name, check, seed=5, budget=30.0, quick=True) for _ in range(2)]
    first, second = ([f._asdict() for f in report.findings] for report in reports)
    assert first and first == second


def test_what_does_not_exist_is_refused(simulated) -> None:
    simulated()
    with pytest.raises(InvalidArgument, match="there is no check 'claim'"):
        chosen_checks(["claim"])
    with pytest.raises(InvalidArgument, match="out of range; there are 1"):
        find_subject("simulated", "1")
    with pytest.raises(NotFound, match="no device of SimulatedExecutionProvider"):
        find_subject("simulated", "gpu")
    assert find_subject("simulated", "npu").pair == find_subject("simulated", "0").pair


def test_a_script_reproduces(tmp_path: Path) -> None:
    from onnxplug_testing.conformance.cases import as_case, load_suite
    from onnxplug_testing.conformance.finding import Finding
    from onnxplug_testing.conformance.reproduction import save
    from onnxplug_testing.conformance.sentences import RESULTS

    case = as_case(load_suite()["Add"][0])
    finding = Finding("operators", "nodes", RESULTS, 'found "this" \\ not that')
    folder = save(case, tmp_path / "a", finding, find_subject("cpu"))
    ran = subprocess.run(
        [sys.executable, folder / "reproduce.py"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.count("CPUExecutionProvider") > 2


CONFTEST = """
import onnxplug
from onnxplug_testing import Knobs, SimulatedFactory
from onnxplug.plugins import registry

def pytest_configure(config):
    registry.add(SimulatedFactory(Knobs(seconds={"Relu": -1.0, "Add": -1.0})))
"""


def test_pytest_has_a_test_for_each_check(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    words = "-p onnxplug_testing.pytest_plugin -p no:cacheprovider --ep simulated"
    only = "costs/of-pairs,costs/estimates"
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *words.split(), "--ep-only", only, "-v"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )
    assert ran.returncode == 1
    assert "costs/of-pairs PASSED" in ran.stdout
    assert "costs/estimates FAILED" in ran.stdout
    assert "finite and not less than 0" in ran.stdout
    assert "Traceback" not in ran.stdout
    assert SimulatedFactory(Knobs()).name in ran.stdout


def test_tests_share_the_time_of_a_run(request: pytest.FixtureRequest) -> None:
    checks, subject, settings = (
        chosen_checks(["costs"]),
        find_subject("cpu"),
        Settings(),
    )
    shared = Processes(subject, checks)
    items = [
        ConformanceItem.from_parent(
            request.session,
            name=each.name,
            check=each,
            subject=subject,
            settings=settings,
            processes=shared,
        )
        for each in checks
    ]
    allotment, now = shared.allotment(settings, items), time.monotonic()
    part = checks[0].share / sum(each.share for each in checks)
    given = allotment.next(checks[0].share, now)
    assert given == pytest.approx(part * settings.seconds)
    assert allotment.until(now) == pytest.approx(now + settings.clock, abs=5)
    assert shared.allotment(settings, items) is allotment
