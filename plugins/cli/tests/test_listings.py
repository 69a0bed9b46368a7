"""``onnxplug devices`` and ``onnxplug eps``."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from onnxplug import ep
from onnxplug.plugins import GROUP, registry
from onnxplug_testing import ToyFactory


def test_devices_lists_hardware_and_who_drives_it(cli, toy) -> None:
    outcome = cli("devices")
    assert outcome.code == 0
    hardware, eps = outcome.out.split("\n\n")
    assert hardware.splitlines()[0].startswith("HARDWARE")
    assert hardware.splitlines()[1].startswith("cpu ")
    assert any(line.startswith("toy ") and " cpu" in line for line in eps.splitlines())


class TwiceFactory(ToyFactory):
    """Offers the EP on each CPU several times."""

    ways: tuple[dict[str, dict[str, str]], ...] = ()

    def supported_devices(
        self, devices: Sequence[ep.HardwareDevice]
    ) -> Iterable[ep.EpDevice]:
        return [
            replace(pair, **way)
            for pair in super().supported_devices(devices)
            for way in self.ways
        ]


TWO_WAYS = (
    {"metadata": {"mode": "fast", "version": "1"}},
    {"metadata": {"mode": "exact", "version": "1"}, "default_options": {}},
)
COMMANDS = (("devices",), ("doctor",), ("doctor", "--verify", "toy"), ("eps", "toy"))


@pytest.mark.parametrize("command", COMMANDS)
def test_pairs_on_one_device_are_told_apart(cli, register, command) -> None:
    factory = TwiceFactory()
    factory.ways = TWO_WAYS
    register(factory)
    shown = cli(*command).out
    assert shown.count("mode=fast") == shown.count("mode=exact") > 0, shown
    assert "version=1" not in shown


@pytest.mark.parametrize("command", COMMANDS)
def test_pairs_that_differ_in_nothing_are_numbered(cli, register, command) -> None:
    factory = TwiceFactory()
    factory.ways = ({}, {})
    register(factory)
    shown = cli(*command).out
    assert shown.count("#1") == shown.count("#2") > 0 == shown.count("#3"), shown


def test_the_doctors_json_tells_pairs_apart(doctor, register) -> None:
    factory = TwiceFactory()
    factory.ways = TWO_WAYS
    _, plugin = doctor(register(factory))
    told = [driven["distinction"] for driven in plugin["devices"]]
    assert told == ["mode=fast", "mode=exact"]


def test_devices_as_json(cli, toy) -> None:
    found = cli("devices", "--json").json
    assert list(found) == ["hardware", "ep_devices", "refused_devices"]
    keys = ["type", "vendor", "vendor_id", "device_id", "metadata"]
    assert list(found["hardware"][0]) == keys
    (pair,) = (
        pair for pair in found["ep_devices"] if pair["ep"] == "ToyExecutionProvider"
    )
    assert list(pair) == ["ep", "ep_vendor", "device", "metadata", "default_options"]
    assert pair["device"] == found["hardware"][0]


def test_eps_lists_what_is_installed(cli, toy) -> None:
    outcome = cli("eps")
    assert outcome.code == 0
    header, *rows = outcome.out.splitlines()
    assert header.split() == ["EP", "STATE", "DISTRIBUTION", "VERSION"]
    assert ["toy", "ready", "registered", "0"] in map(str.split, rows)


def test_eps_as_json(cli, toy) -> None:
    found = cli("eps", "--json").json["eps"]
    assert {
        "name": "ToyExecutionProvider",
        "distribution": "registered",
        "version": "0",
        "state": "ready",
        "reason": "",
    } in found


@pytest.fixture
def broken(tmp_path: Path, monkeypatch) -> None:
    """An installed EP, whose plugin cannot be imported, and no other."""
    info = tmp_path / "onnxplug_bad-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: onnxplug-bad\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(f"[{GROUP}]\nBadEP = missing_module\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(registry.table, "_records", None)
    others = [record for record in registry.records() if record.name != "BadEP"]
    for record in others:
        registry.remove(record.name)


@pytest.mark.usefixtures("broken")
def test_eps_tells_why_a_plugin_is_not_usable(cli) -> None:
    assert cli("eps").out.splitlines()[1].split()[1] == "found"
    outcome = cli("eps", "--load")
    assert outcome.code == 0
    assert outcome.out.splitlines()[1].split()[1] == "failed"
    assert "could not be loaded: ModuleNotFoundError" in outcome.out


@pytest.mark.usefixtures("broken")
def test_hardware_that_no_ep_drives_is_listed_all_the_same(cli) -> None:
    outcome = cli("devices")
    assert outcome.code == 0
    assert "No installed EP drives any of it" in outcome.out


@pytest.mark.usefixtures("no_others")
def test_no_ep_at_all_names_one_to_install(cli) -> None:
    outcome = cli("eps")
    assert outcome.code == 0
    assert "onnxplug-cpu" in outcome.out
