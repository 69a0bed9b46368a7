"""EPs written for another version of the SPI are accepted, or refused with why."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import onnxplug
from onnxplug import ep
from onnxplug.authoring.kernels import KernelExecutionProvider
from onnxplug.errors import EpError, PluginIncompatible
from onnxplug.plugins import PluginRegistry, PluginState
from onnxplug.plugins.versions import REMOVED

NAME = "OldExecutionProvider"
METHODS = ["create_allocator", "create_data_transfer", "create_stream"]
OLDER = [(0, 1), (0, 2), (0, 3)]

MODEL = onnx.parser.parse_model(
    """
    < ir_version: 10, opset_import: ["" : 21] >
    old (float[2] x) => (float[2] y) { y = Neg (x) }
    """
)


class Old(ep.EpFactory):
    """Works in host memory."""

    name = NAME

    def supported_devices(self, devices: Any) -> Any:
        return [ep.EpDevice(ep_name=NAME, device=devices[0])]

    def create(self, devices: Any, options: Any, session: Any) -> Any:
        class Provider(KernelExecutionProvider):
            def find_kernel(self, graph: ep.Graph, node: ep.Node) -> Any:
                return np.negative

        return Provider()


def factory(version: tuple[int, int], **members: Any) -> ep.EpFactory:
    made = type("Made", (Old,), {"spi_version": version, **members})
    return made()  # type: ignore[no-any-return]


@pytest.fixture
def empty() -> PluginRegistry:
    return PluginRegistry({}, find=lambda group: [])


@pytest.mark.parametrize("version", [*OLDER, (0, 7), ep.SPI_VERSION])
def test_an_ep_in_host_memory_needs_no_change(empty, version) -> None:
    empty.add(factory(version))
    session = onnxplug.InferenceSession(MODEL, providers=[NAME], registry=empty)
    (y,) = session.run(None, {"x": np.array([1, -2], np.float32)})
    np.testing.assert_array_equal(y, [-1, 2])


@pytest.mark.parametrize("version", OLDER)
@pytest.mark.parametrize("method", METHODS)
def test_an_ep_that_defines_what_is_gone_is_told_what_there_is(
    empty, version, method: str
) -> None:
    old = factory(version, **{method: lambda self, *location: None})
    for register in (empty.add, lambda old: empty.register_ep_library("old", old)):
        with pytest.raises(PluginIncompatible) as caught:
            register(old)
        assert str(caught.value) == (
            f"{NAME} is incompatible: written for SPI {version[0]}.{version[1]}, it "
            f"defines EpFactory.{method}, which SPI 0.4 replaced by "
            "EpFactory.memory_spaces; upgrade the plugin to a "
            "release for SPI 0.4, or ask its makers for one"
        )
        assert caught.value.plugin == NAME
    assert empty.records() == []


def test_what_a_base_or_an_instance_defines_counts(empty) -> None:
    class Base:
        def create_stream(self, location: ep.MemoryLocation) -> None:
            return None

    inherits = type("Inherits", (Base, Old), {"spi_version": (0, 3)})()
    assigned = factory((0, 3))
    assigned.create_data_transfer = lambda: None
    for old, method in ((inherits, METHODS[2]), (assigned, METHODS[1])):
        with pytest.raises(PluginIncompatible, match=rf"defines EpFactory\.{method},"):
            empty.add(old)


def test_all_that_is_gone_is_told_at_once(empty) -> None:
    old = factory((0, 1), **dict.fromkeys(METHODS, lambda self, *location: None))
    with pytest.raises(PluginIncompatible, match=", ".join(METHODS)):
        empty.add(old)


def test_an_installed_ep_that_defines_what_is_gone_is_incompatible(
    site, registry
) -> None:
    extra = "Factory.create_stream = lambda self, location: None"
    site.install("XGood", site.code("XGood", version=(0, 3), extra=extra))
    with pytest.raises(PluginIncompatible) as caught:
        registry.factory("XGood")
    assert str(caught.value).startswith(
        "plugin XGood (onnxplug-xgood 1.2) is incompatible: written for SPI 0.3, it "
        "defines EpFactory.create_stream, which SPI 0.4 replaced by"
    )
    assert registry.resolve("XGood").state is PluginState.INCOMPATIBLE


def test_nothing_is_said_to_be_gone_in_a_version_that_there_is_not() -> None:
    assert all((0, 1) < version <= ep.SPI_VERSION for version in REMOVED)


class OldCompiled(ep.CompiledPartition):
    """As SPI 0.5 had it."""

    def run(self, inputs: Any, outputs: Any, context: Any) -> Any:
        return [-inputs[0]]

    def serialize(self) -> bytes:
        return b""


class OldProvider(ep.ExecutionProvider):
    compiled: type[ep.CompiledPartition] = OldCompiled

    def get_capability(self, graph: ep.Graph) -> ep.CapabilityReport:
        return ep.CapabilityReport.per_node(graph, lambda node: None)

    def compile(self, partition: ep.Partition) -> ep.CompiledPartition:
        return self.compiled()


@pytest.mark.parametrize(
    ("provider", "told"),
    [
        (
            type("Specialising", (OldProvider,), {"specialises": 8, "pads": True}),
            f"{NAME} failed in create: PluginIncompatible: it defines "
            "ExecutionProvider.specialises, pads, which SPI 0.6 replaced by "
            "ExecutionProvider.specialiser; upgrade the plugin to a release for SPI "
            "0.6, or ask its makers for one",
        ),
        (
            OldProvider,
            f"{NAME} failed to compile Neg giving 'y': PluginIncompatible: it defines "
            "CompiledPartition.serialize, which SPI 0.6 replaced by "
            "ExecutionProvider.serialiser; upgrade the plugin to a release for SPI "
            "0.6, or ask its makers for one",
        ),
    ],
    ids=["an EP", "a compiled partition"],
)
def test_what_a_session_never_calls_is_told(empty, provider: Any, told: str) -> None:
    empty.add(factory((0, 5), create=lambda self, *arguments: provider()))
    with pytest.raises(EpError) as caught:
        onnxplug.InferenceSession(MODEL, providers=[NAME], registry=empty)
    assert str(caught.value).startswith(told)


@pytest.mark.parametrize("name", ["KernelExecutionProvider", "fill_bound"])
def test_what_moved_is_told_where_it_is(name: str) -> None:
    home = rf"onnxplug\.authoring\.\w+\.{name} now; upgrade the plugin"
    with pytest.raises(PluginIncompatible, match=home):
        exec(f"from onnxplug.ep import {name}")


@pytest.mark.parametrize(
    "kind", ["EpFactory", "ExecutionProvider", "CompiledPartition"]
)
def test_what_is_gone_is_in_no_base(kind: str) -> None:
    gone = {name for removed in REMOVED.values() for name in removed.get(kind, ())}
    assert gone
    assert not gone & {*dir(getattr(ep, kind))}
