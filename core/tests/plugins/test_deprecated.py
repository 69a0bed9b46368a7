"""What the next major version of the SPI will not have warns, and works until then."""

from __future__ import annotations

import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import onnx
import pytest

import onnxplug
from onnxplug import ep
from onnxplug.ep.version import DEPRECATED, Deprecation
from onnxplug.plugins import PluginRegistry

NAME = "AgingExecutionProvider"

MODEL = onnx.parser.parse_model(
    """
    < ir_version: 10, opset_import: ["" : 21] >
    aging (float[2] x) => (float[2] y) { y = Neg (x) }
    """
)


class Compiled(ep.CompiledPartition):
    def run(self, inputs: Any, outputs: Any, context: Any) -> Any:
        return [np.negative(inputs[0])]


class Keeper(ep.Serialiser):
    caches = False

    def serialise(self, compiled: ep.CompiledPartition) -> bytes:
        return b""

    def restore(self, partition: ep.Partition, data: memoryview) -> Any:
        return Compiled()


class Provider(ep.ExecutionProvider):
    serialiser = Keeper()

    def get_capability(self, graph: ep.Graph) -> ep.CapabilityReport:
        return ep.CapabilityReport.per_node(graph, lambda node: None)

    def compile(self, partition: ep.Partition) -> ep.CompiledPartition:
        compiled = Compiled()
        compiled.max_concurrent_runs = 1  # on the object, as some write it
        return compiled


class Aging(ep.EpFactory):
    spi_version = ep.SPI_VERSION
    name = NAME
    vendor = "Aging"

    def supported_devices(self, devices: Any) -> Any:
        return [ep.EpDevice(ep_name=NAME, device=devices[0])]

    def create(self, devices: Any, options: Any, session: Any) -> Any:
        return Provider()


@pytest.fixture
def registry() -> PluginRegistry:
    return PluginRegistry({}, find=lambda group: [])


def deprecate(patch: pytest.MonkeyPatch, *names: str) -> None:
    for name in names:
        patch.setitem(DEPRECATED, name, Deprecation((0, 6), "another"))  # type: ignore[arg-type]
    # what this module has warned of already
    patch.setitem(globals(), "__warningregistry__", {})


def use(registry: PluginRegistry) -> list[str]:
    """Load the EP and run it twice; what that warns of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        registry.add(Aging())
        for _ in range(2):
            session = onnxplug.InferenceSession(
                MODEL, providers=[NAME], registry=registry
            )
            (y,) = session.run(None, {"x": np.array([1, -2], np.float32)})
            np.testing.assert_array_equal(y, [-1, 2])
    assert all(each.filename == __file__ for each in caught)
    assert all(each.category is DeprecationWarning for each in caught)
    return [str(each.message) for each in caught]


@pytest.mark.parametrize(
    ("member", "by"),
    [
        ("EpFactory.vendor", "Aging"),
        ("ExecutionProvider.serialiser", "Provider"),
        ("CompiledPartition.max_concurrent_runs", "Compiled"),
        ("Serialiser.caches", "Keeper"),
    ],
)
def test_who_defines_a_member_is_told_once(
    registry, monkeypatch, member: str, by: str
) -> None:
    deprecate(monkeypatch, member)
    assert use(registry) == [
        f"{by}: {member} is deprecated since SPI 0.6, and SPI 1.0 will not have it; "
        "use another instead"
    ]


def test_who_does_not_define_it_is_not_told(registry, monkeypatch) -> None:
    deprecate(monkeypatch, "EpFactory.vendor_id", "CompiledPartition.in_place", "Costs")
    assert use(registry) == []


def test_nothing_warns_where_nothing_is_deprecated(registry) -> None:
    assert use(registry) == []


def test_authors_can_make_it_an_error(registry, monkeypatch) -> None:
    deprecate(monkeypatch, "EpFactory.vendor")
    with warnings.catch_warnings():
        warnings.filterwarnings("error", module=__name__.replace(".", r"\."))
        with pytest.raises(
            DeprecationWarning, match=r"EpFactory\.vendor is deprecated"
        ):
            registry.add(Aging())


def test_a_device_s_context_and_streams_are_looked_at(monkeypatch, simulated) -> None:
    deprecate(
        monkeypatch, "DeviceContext.create_stream", "Stream.close", "MemorySpaces.owned"
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        name = simulated().name
        session = onnxplug.InferenceSession(MODEL, providers=[name])
        session.run(None, {"x": np.zeros(2, np.float32)})
    told = {str(each.message).split(" is ")[0].split(": ")[1] for each in caught}
    assert told == {
        "DeviceContext.create_stream", "Stream.close", "MemorySpaces.owned"
    }  # fmt: skip


def test_who_asks_for_a_name_is_told_where(tmp_path) -> None:
    script = tmp_path / "author.py"
    script.write_text(
        "from onnxplug.ep.version import DEPRECATED, Deprecation\n"
        "DEPRECATED['Costs'] = Deprecation((0, 6), 'Prices')\n"
        "from onnxplug import ep\n"
        "from onnxplug.ep import Costs\n"
        "assert ep.Costs is Costs\n"
    )
    command = [sys.executable, "-W", "default", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    for line in (4, 5):
        assert (
            f"author.py:{line}: DeprecationWarning: onnxplug.ep.Costs is deprecated "
            "since SPI 0.6, and SPI 1.0 will not have it; use Prices instead"
        ) in done.stderr
