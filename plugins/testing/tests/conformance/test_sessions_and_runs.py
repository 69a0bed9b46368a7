"""What the kit asks of sessions and runs beside each other tells right from wrong."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from onnxplug import ep
from onnxplug.plugins import registry
from onnxplug_testing.conformance import Finding, Settings, examine
from onnxplug_testing.conformance.groups import growth
from onnxplug_testing.conformance.groups.recorders import Recorder

from .planted.compile_ep import GeneratedFactory
from .planted.device_ep import DeviceFactory
from .planted.mistake import MISTAKES

for _module in ("compile_results", "compile_runs", "device_results", "device_runs"):
    importlib.import_module(f".planted.third.{_module}", __package__)


@pytest.fixture
def found_of() -> Iterator[Callable[[ep.EpFactory, str], Sequence[Finding]]]:
    """What a check finds of an EP."""
    factories: list[ep.EpFactory] = []

    def ask(factory: ep.EpFactory, check: str) -> Sequence[Finding]:
        factories.append(factory)
        registry.add(factory)
        report = examine(factory.name, only=[check], settings=Settings(budget=3.0))
        (outcome,) = report.checks
        assert outcome.tried or outcome.untried
        registry.remove(factories.pop().name)
        return report.findings

    yield ask
    for factory in factories:
        registry.remove(factory.name)


@pytest.mark.parametrize(
    ("check", "mistake"),
    [
        ("factory/sessions", "has-one-session-at-a-time"),
        ("factory/sessions", "releases-with-a-session-what-all-share"),
        ("options/side-by-side", "reads-the-options-of-the-latest-session"),
        ("options/suggested", "prefers-the-options-of-the-device"),
        ("time/runs-within-runs", "shares-scratch-between-sessions"),
        ("time/far-deadlines", "compares-deadlines-with-the-calendar"),
        ("profiling/records", "records-what-JSON-cannot-hold"),
        ("profiling/records", "profiles-when-the-run-has-ended"),
        ("speed/waiting", "sleeps-where-it-waits"),
        ("preferences/merged", "takes-two-transposes-for-none"),
    ],
)
def test_a_check_finds_one_mistake_and_no_other(
    found_of: Callable[..., Any], check: str, mistake: str
) -> None:
    planted = MISTAKES[mistake]
    assert found_of(planted.factory(), check)
    base = DeviceFactory if planted.is_of_the_device else GeneratedFactory
    assert not found_of(base(), check)


class Rewrites(GeneratedFactory):
    """Asks for a rewrite, which changes nothing."""

    class provider(GeneratedFactory.provider):
        preferences = ep.Preferences(layout="NHWC", rewrite=lambda editor, nodes: [])


def test_pairs_that_nobody_merges_are_right(found_of: Callable[..., Any]) -> None:
    assert not found_of(Rewrites(), "preferences/merged")


class Suggests(GeneratedFactory):
    """Suggests an option, and has another by default."""

    def supported_devices(self, devices: Sequence[ep.HardwareDevice]) -> Any:
        for pair in super().supported_devices(devices):
            yield replace(pair, default_options={"accumulate": "double"})


def test_what_is_suggested_may_be_heeded(found_of: Callable[..., Any]) -> None:
    assert not found_of(Suggests(), "options/suggested")


class Slow(DeviceFactory):
    """Says that a byte takes a second."""

    def supported_devices(self, devices: Sequence[ep.HardwareDevice]) -> Any:
        for pair in super().supported_devices(devices):
            yield replace(pair, costs=ep.Costs(seconds_per_byte=1.0))


def test_a_byte_takes_no_second(found_of: Callable[..., Any]) -> None:
    (finding,) = found_of(Slow(), "costs/of-pairs")
    assert "seconds_per_byte" in finding.what


@pytest.mark.parametrize(
    ("of", "is_blamed"),
    [
        (lambda n: 1e-6 * 2**n, True),
        (lambda n: 0.01 + 1e-7 * 2**n, True),
        (lambda n: 1e-4 * n**3, False),
        (lambda n: 1e-5 * n**4, False),
        (lambda n: 3.0, False),
        (lambda n: 0.01 if n < 20 else 5.0, False),
    ],
)
def test_only_what_doubles_is_exponential(
    of: Callable[[int], float], is_blamed: bool
) -> None:
    seconds: list[float] = []
    verdicts = []
    for length in growth._LENGTHS:
        seconds.append(of(length))
        verdicts.append(growth._doubles(seconds))
    assert any(verdicts) is is_blamed


def test_what_is_told_when_the_work_is_done_is_not_late() -> None:
    recorder = Recorder(stream=object())  # type: ignore[arg-type]

    def record() -> None:
        recorder.record(
            "a", category="Node", start_ns=0, duration_ns=1, details={"share": math.pi}
        )

    recorder.when_done(record)
    recorder.has_ended = True
    recorder.tell()
    assert not recorder.late
    record()
    assert recorder.late == ["a"]
