"""What the kit asks of work on a device that fails, waits, or is of memory that is gone
finds a mistake, and nothing where there is none."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator

import pytest

from onnxplug import ep
from onnxplug.plugins import registry
from onnxplug_testing import Knobs, SimulatedFactory
from onnxplug_testing.conformance import Finding, Settings, examine
from onnxplug_testing.conformance.groups import device_streams

from .planted.device_ep import DeviceFactory
from .planted.mistake import MISTAKES

for module in ("device_results", "device_runs"):
    importlib.import_module(f".planted.third.{module}", __package__)

PLANTED = {
    "takes-parts-of-what-goes": "memory/parts",
    "says-that-it-copies-to-any-device": "memory/pairs",
    "takes-events-of-others-for-done": "time/events-of-others",
    "waits-for-all-of-the-other-stream": "time/waiting-for-each-other",
    "goes-on-after-an-event-that-failed": "failure/told-of-again",
    "leaks-in-runs-that-fail": "failure/kept-by-failures",
    "goes-on-capturing-when-a-capture-failed": "failure/failed-captures",
}
CHECKS = sorted(set(PLANTED.values()))


@pytest.fixture
def found() -> Iterator[Callable[..., list[Finding]]]:
    """What checks find in an EP."""
    known: list[str] = []

    def look(factory: ep.EpFactory, *checks: str) -> list[Finding]:
        registry.add(factory)
        known.append(factory.name)
        settings = Settings(isolated=False, budget=3.0 * len(checks))
        report = examine(factory.name, only=checks, settings=settings)
        assert report.tried
        return report.findings

    yield look
    for name in known:
        registry.remove(name)


@pytest.mark.parametrize("mistake", PLANTED)
def test_a_mistake_is_found(
    found: Callable[..., list[Finding]], mistake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_streams, "_LONG", 0.5)  # for what waits for ever
    check = PLANTED[mistake]
    findings = found(MISTAKES[mistake].factory(), check)
    assert {f"{each.group}/{each.check}" for each in findings} == {check}


@pytest.mark.parametrize(
    "factory",
    [
        DeviceFactory(),
        SimulatedFactory(Knobs(captures=True)),
        SimulatedFactory(Knobs(captures=True, schedule="threaded")),
    ],
    ids=["threads", "late", "threaded"],
)
def test_nothing_is_found_where_there_is_no_mistake(
    found: Callable[..., list[Finding]], factory: ep.EpFactory
) -> None:
    assert found(factory, *CHECKS) == []
