"""The life of plugins, on distributions made up in a folder of ``sys.path``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from onnxplug.errors import (
    PluginConflict,
    PluginIncompatible,
    PluginLoadError,
    PluginNotFound,
)
from onnxplug.plugins import PluginRegistry, PluginState

FACTORY = """
from onnxplug import ep

class Factory(ep.EpFactory):
    spi_version = {version}
    name = {name!r}
    version = "1.0"
    def supported_devices(self, devices):
        return []
    def create(self, devices, options, session):
        raise NotImplementedError

@ep.hookimpl
def onnxplug_ep_factories(host):
    return [Factory()]
"""

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Put a distribution with one entry point on ``sys.path``, without installing."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def make(ep: str, code: str, *, distribution: str = "") -> None:
        distribution = distribution or f"onnxplug-{ep.lower()}"
        module = distribution.replace("-", "_")
        (tmp_path / f"{module}.py").write_text(code)
        info = tmp_path / f"{module}-1.2.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.2\n"
        )
        (info / "entry_points.txt").write_text(
            f"[onnxplug.execution_providers]\n{ep} = {module}\n"
        )
        monkeypatch.delitem(sys.modules, module, raising=False)

    return make


def test_listing_reads_metadata_only(install: Install) -> None:
    install("ListedExecutionProvider", "raise SystemExit('imported')")
    records = {record.name: record for record in PluginRegistry().records()}
    record = records["ListedExecutionProvider"]
    assert record.state is PluginState.FOUND
    assert (record.distribution, record.version) == (
        "onnxplug-listedexecutionprovider",
        "1.2",
    )


def test_a_plugin_is_loaded_when_its_factory_is_asked_for(install: Install) -> None:
    name = "GoodExecutionProvider"
    install(name, FACTORY.format(name=name, version=(0, 1)))
    registry = PluginRegistry()
    factory = registry.factory(name)
    assert factory.name == name
    assert registry.factory("good") is factory
    assert registry.factory("goodexecutionprovider") is factory
    assert registry.resolve(name).state is PluginState.READY


def test_the_suffix_of_the_distribution_is_a_name_too(install: Install) -> None:
    name = "DmlExecutionProvider"
    code = FACTORY.format(name=name, version=(0, 1))
    install(name, code, distribution="onnxplug-directml")
    assert PluginRegistry().factory("directml").name == name


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("import no_such_module", "ModuleNotFoundError: No module named"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("x = 1", "supplies no EP"),
        (FACTORY.format(name="OtherExecutionProvider", version=(0, 1)), "Other"),
        (
            "from onnxplug import ep\n@ep.hookimpl\ndef onnxplug_ep_factorys(): 0",
            "hook",
        ),
    ],
)
def test_a_broken_plugin_fails_alone_and_tells_why(
    install: Install, code: str, found: str
) -> None:
    good = "GoodExecutionProvider"
    install("BadExecutionProvider", code)
    install(good, FACTORY.format(name=good, version=(0, 1)))
    registry = PluginRegistry()
    for _ in range(2):  # the second time it is told again, not tried again
        with pytest.raises(PluginLoadError, match=found) as raised:
            registry.factory("bad")
        assert raised.value.plugin == "BadExecutionProvider"
        assert raised.value.__cause__ is not None
    assert registry.resolve("bad").state is PluginState.FAILED
    assert registry.factory("good").name == good


@pytest.mark.parametrize(
    ("version", "remedy"),
    [((1, 0), "upgrade onnxplug"), ((0, 99), "upgrade onnxplug")],
)
def test_a_plugin_for_another_spi_is_incompatible(
    install: Install, version: tuple[int, int], remedy: str
) -> None:
    name = "FutureExecutionProvider"
    install(name, FACTORY.format(name=name, version=version))
    registry = PluginRegistry()
    with pytest.raises(PluginIncompatible, match=remedy):
        registry.factory(name)
    assert registry.resolve(name).state is PluginState.INCOMPATIBLE


def test_two_suppliers_of_one_name_are_a_conflict(install: Install) -> None:
    name = "TwiceExecutionProvider"
    code = FACTORY.format(name=name, version=(0, 1))
    install(name, code, distribution="first-twice")
    install(name, code, distribution="second-twice")
    registry = PluginRegistry()
    with pytest.raises(PluginConflict, match="first-twice and second-twice"):
        registry.factory(name)
    assert registry.resolve(name).state is PluginState.CONFLICT


def test_an_unknown_name_brings_the_nearest_and_the_installed(
    install: Install,
) -> None:
    install("CudaLikeExecutionProvider", "")
    with pytest.raises(PluginNotFound, match=r"Did you mean 'cudalike'\?") as raised:
        PluginRegistry().factory("cudalik")
    assert "CudaLikeExecutionProvider" in str(raised.value)
    assert isinstance(raised.value, LookupError)


def test_a_plugin_that_asks_for_itself_is_stopped(install: Install) -> None:
    code = """
import test_registry_under_test
test_registry_under_test.factory("loop")
"""
    install("LoopExecutionProvider", code)
    registry = PluginRegistry()
    sys.modules["test_registry_under_test"] = registry  # type: ignore[assignment]
    try:
        with pytest.raises(PluginLoadError, match="asked for itself"):
            registry.factory("loop")
    finally:
        del sys.modules["test_registry_under_test"]
