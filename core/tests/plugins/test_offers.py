"""Selection policies and hardware that plugins supply besides EPs."""

from __future__ import annotations

import sys

import pytest

from onnxplug import ep
from onnxplug.errors import PluginConflict, PluginLoadError, PluginNotFound
from onnxplug.plugins import PluginRegistry
from onnxplug_testing import ToyFactory

POLICIES = """
asked = []
@ep.hookimpl
def onnxplug_selection_policies():
    asked.append(1)
    return {{name: lambda devices, model: devices for name in {names!r}}}
"""

DEVICES = """
@ep.hookimpl
def onnxplug_probe_hardware(host):
    host.logger.debug("asked")
    yield ep.HardwareDevice(type=ep.DeviceType.NPU, vendor="acme", device_id={number})
"""


@pytest.fixture
def supply(site):
    """Install an EP with something more in its module."""

    def make(name: str, extra: str) -> str:
        return site.install(name, site.code(name, extra=extra), distribution=name)

    return make


def test_policies_of_loaded_plugins_are_known(registry, supply) -> None:
    module = supply("x-one", POLICIES.format(names=["greenest", "coolest"]))
    supply("x-two", POLICIES.format(names=["quietest"]))
    supply("x-none", "")
    assert registry.policies() == {}
    registry.factory("x-one")
    registry.factory("x-none")
    assert list(registry.policies()) == ["coolest", "greenest"]
    registry.factory("x-two")
    assert list(registry.policies()) == ["coolest", "greenest", "quietest"]
    assert registry.policy("greenest") is registry.policies()["greenest"]
    assert sys.modules[module].asked == [1]


def test_policies_of_a_library_of_several_eps_are_no_conflict(registry, site) -> None:
    code = site.code("XOne", "XTwo", extra=POLICIES.format(names=["greenest"]))
    site.install(["XOne", "XTwo"], code, distribution="x-both")
    registry.factory("XOne")
    assert list(registry.policies()) == ["greenest"]


def test_a_factory_registered_alone_offers_nothing_else(registry) -> None:
    registry.add(ToyFactory())
    assert registry.policies() == {}
    assert registry.probe_hardware() == []


def test_policies_of_registered_libraries_are_known(registry, site, tmp_path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(site.code("XMine", extra=POLICIES.format(names=["greenest"])))
    registry.register_ep_library("mine", path)
    try:
        assert list(registry.policies()) == ["greenest"]
    finally:
        registry.unregister_ep_library("mine")
    assert registry.policies() == {}


def test_a_policy_that_two_supply_is_an_error_for_who_asks_for_it(
    registry, supply
) -> None:
    supply("x-one", POLICIES.format(names=["greenest", "coolest"]))
    supply("x-two", POLICIES.format(names=["greenest"]))
    registry.automatic_factories()
    told = (
        r"x-one \(x-one 1.2\) and plugin x-two \(x-two 1.2\) both supply .*'greenest'"
    )
    with pytest.raises(PluginConflict, match=told) as raised:
        registry.policy("greenest")
    assert "ONNXPLUG_BLOCK" in str(raised.value)
    assert list(registry.policies()) == ["coolest"]
    assert registry.policy("coolest")


def test_an_unknown_policy_brings_the_nearest(registry, supply) -> None:
    supply("x-one", POLICIES.format(names=["greenest"]))
    registry.factory("x-one")
    with pytest.raises(PluginNotFound, match=r"Did you mean 'greenest'\?"):
        registry.policy("grenest")


BROKEN = {
    "raises": "raise ValueError('no luck')",
    "exits": "raise SystemExit('no luck')",
    "returns something else": "return ['no luck']",
    "returns no policies": "return {'no luck': 3}",
}


@pytest.mark.parametrize("body", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize(
    ("hook", "ask"),
    [
        ("onnxplug_selection_policies", "policies"),
        ("onnxplug_probe_hardware", "probe_hardware"),
    ],
)
def test_a_broken_hook_is_recorded_and_the_rest_works(
    registry, supply, caplog, hook: str, ask: str, body: str
) -> None:
    supply("x-bad", f"@ep.hookimpl\ndef {hook}(): {body}")
    supply("x-good", POLICIES.format(names=["greenest"]) + DEVICES.format(number=7))
    factory = registry.factory("x-bad")
    registry.factory("x-good")
    assert len(getattr(registry, ask)()) == 1
    record = registry.resolve("x-bad")
    assert list(record.problems) == [hook]
    assert "no luck" in record.problems[hook]
    assert "no luck" in caplog.text
    assert (str(record.state), registry.factory("x-bad")) == ("ready", factory)
    assert registry.resolve("x-good").problems == {}

    strict = PluginRegistry({"ONNXPLUG_STRICT": "1"})
    strict.factory("x-bad")
    for _ in range(2):
        with pytest.raises(ExceptionGroup) as raised:
            getattr(strict, ask)()
        (error,) = raised.value.exceptions
        assert isinstance(error, PluginLoadError)
        assert error.__cause__ is not None


def test_hardware_of_loaded_plugins_is_known_without_repeats(registry, supply) -> None:
    supply("x-one", DEVICES.format(number=1))
    supply("x-two", DEVICES.format(number=2))
    supply("x-same", DEVICES.format(number=2))
    assert registry.probe_hardware() == []
    for name in ("x-two", "x-same", "x-one"):
        registry.factory(name)
    found = registry.probe_hardware()
    assert [device.device_id for device in found] == [1, 2]
    assert {device.type for device in found} == {ep.DeviceType.NPU}


def test_probes_are_given_the_host_of_the_caller(registry, supply) -> None:
    hook = "hosts = []\n@ep.hookimpl\ndef onnxplug_probe_hardware(host):\n"
    module = supply("x-one", f"{hook}    hosts.append(host)")
    registry.factory("x-one")
    host = object()
    assert registry.probe_hardware(host) == []
    registry.probe_hardware()
    given, own = sys.modules[module].hosts
    assert given is host
    assert own.logger.name == f"onnxplug.plugin.{module}"
