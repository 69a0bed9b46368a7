"""What the tests of the EP need: a machine with Windows that there is not."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest

import onnxplug
from onnxplug import ep
from onnxplug.plugins import registry
from onnxplug_directml.com.libraries import Libraries
from onnxplug_directml.device.adapters import find_adapters
from onnxplug_directml.device.device import DmlDevice
from onnxplug_directml.factory import DmlFactory
from onnxplug_testing.hardware import presented

from .machine import provide, set_up
from .portable_executable import library
from .standin import AdapterDescription, Windows

EP = "DmlExecutionProvider"

CPU = ep.HardwareDevice(type=ep.DeviceType.CPU, vendor="AMD", vendor_id=0x1022)


def install(windows: Windows, monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
    """Have the EP find itself on *windows*, with folders below *root*."""
    folders = set_up(monkeypatch, root)
    (folders.system / "DirectML.dll").write_bytes(library(version=(1, 15, 4, 0)))
    provide(monkeypatch, windows)


def hardware(adapter: AdapterDescription, number: int) -> ep.HardwareDevice:
    """What the host tells of one of the stand-in's adapters."""
    facts = {"Description": adapter.name, "LUID": str(adapter.luid)}
    if adapter.kind == "gpu":
        facts |= {"DxgiAdapterNumber": str(number), "DxgiHighPerformanceIndex": "0"}
    facts["Discrete"] = "0" if adapter.integrated else "1"
    return ep.HardwareDevice(
        type=ep.DeviceType(adapter.kind),
        vendor_id=adapter.vendor,
        device_id=adapter.device,
        metadata=facts,
    )


@pytest.fixture(autouse=True)
def uninstalled() -> Iterator[None]:
    """Tests register the EP themselves, also where it is installed."""
    is_installed = EP in [record.name for record in registry.records()]
    if is_installed:
        registry.remove(EP)
    yield
    if is_installed:
        registry.refresh()


@pytest.fixture
def make_windows(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Callable[..., Windows]]:
    """Makes the machine that the EP finds itself on.

    In the end no rule of Direct3D's or DirectML's was broken, and every object that
    Windows has handed out is released.
    """
    monkeypatch.setenv("ONNXPLUG_CACHE_DIR", str(tmp_path / "cache"))
    made: list[Windows] = []

    def make(*arguments: Any, **settings: Any) -> Windows:
        windows = Windows(*arguments, **settings)
        install(windows, monkeypatch, tmp_path / f"machine {len(made)}")
        made.append(windows)
        return windows

    yield make
    for windows in made:
        windows.resume()
        windows.check()


@pytest.fixture
def windows(make_windows: Callable[..., Windows]) -> Windows:
    """A machine with a GPU, an NPU and the Basic Render Driver."""
    return make_windows()


@pytest.fixture
def device(windows: Windows) -> Iterator[DmlDevice]:
    """The GPU's."""
    found = Libraries()
    made = DmlDevice(found, find_adapters(found)[0])
    yield made
    made.close()


@pytest.fixture
def register(
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Callable[[Windows], DmlFactory]]:
    """Registers the EP on a machine, whose sessions are closed in the end."""
    monkeypatch.setattr(DmlFactory, "verification", None)
    ends: list[Callable[[], object]] = []

    def do(windows: Windows) -> DmlFactory:
        real = [each for each in windows.adapters if each.kind != "software"]
        devices = presented(CPU, *map(hardware, real, range(len(real))))
        devices.__enter__()
        ends.append(lambda: devices.__exit__(None, None, None))
        found = DmlFactory()
        onnxplug.register_ep_library("stand-in", found)
        return found

    yield do
    gc.collect()
    left: set[Any] = registry.table.sessions(EP)  # of tests that failed
    for session in left:
        session.close()
    if ends:
        onnxplug.unregister_ep_library("stand-in")
    for end in ends:
        end()


@pytest.fixture
def factory(windows: Windows, register: Callable[[Windows], DmlFactory]) -> DmlFactory:
    """The EP's, registered."""
    return register(windows)


@pytest.fixture
def alone(factory: DmlFactory) -> Callable[..., onnxplug.InferenceSession]:
    """A session whose every node is on the EP."""

    def make(model: Any, **options: Any) -> onnxplug.InferenceSession:
        settings = onnxplug.SessionOptions()
        settings.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        settings.add_session_config_entry("session.check_results", "1")
        return onnxplug.InferenceSession(model, settings, providers=[(EP, options)])

    return make


@pytest.fixture
def parse() -> Callable[..., onnx.ModelProto]:
    """A model from the text of its nodes."""

    def parse_text(
        body: str, inputs: str = "float[2, 3] x", outputs: str = "float[2, 3] y",
        opset: int = 21, weights: str = "",
    ) -> onnx.ModelProto:  # fmt: skip
        held = f"<{weights}>" if weights else ""
        return onnx.parser.parse_model(
            f"""
            < ir_version: 10, opset_import: ["" : {opset}] >
            agraph ({inputs}) => ({outputs}) {held} {{ {body} }}
            """
        )

    return parse_text
