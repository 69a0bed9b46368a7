"""The choice of the operating system, and how little it takes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from onnxplug.ep import DeviceType, HardwareDevice
from onnxplug.hardware import discover, vendors


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    discover.cache_clear()
    yield
    discover.cache_clear()


def modules_after(program: str) -> set[str]:
    """What a fresh interpreter has loaded after *program*."""
    shown = subprocess.run(
        [sys.executable, "-c", f"import sys; {program}; print(*sys.modules)"],
        check=True,
        capture_output=True,
        text=True,
    )
    return set(shown.stdout.split())


def test_this_machine_has_one_cpu_and_it_comes_first() -> None:
    found = discover()
    assert isinstance(found, tuple)
    assert [device.type for device in found].count(DeviceType.CPU) == 1
    assert found[0].type == DeviceType.CPU


def test_the_answer_is_kept() -> None:
    assert discover() is discover()


@pytest.mark.parametrize("system", ["win32", "cygwin", "darwin", "freebsd14", "wasi"])
def test_on_a_system_that_gives_no_answer_there_is_a_cpu(
    monkeypatch: pytest.MonkeyPatch, system: str
) -> None:
    # each module asks libraries that are not here
    monkeypatch.setattr(sys, "platform", system)
    assert discover() == (HardwareDevice(type=DeviceType.CPU),)


def test_importing_loads_no_system_and_nothing_heavy() -> None:
    needed = modules_after("import onnxplug.ep.devices")
    loaded = modules_after("import onnxplug.hardware")
    assert loaded - needed == {"onnxplug.hardware", "onnxplug.hardware.discover"}


@pytest.mark.skipif(sys.platform != "linux", reason="names the modules of Linux")
def test_discovery_loads_the_module_of_this_system_only() -> None:
    needed = modules_after("import onnxplug.hardware")
    used = modules_after("import onnxplug.hardware as h; h.discover()")
    new = used - needed
    assert {name for name in new if name.startswith("onnxplug")} == {
        f"onnxplug.hardware.{name}" for name in ("linux", "log", "vendors")
    }
    assert not new & {"ctypes", "logging", "pathlib", "platform", "subprocess"}


def test_discovery_runs_no_program(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError("a process was started")

    for name in ("system", "posix_spawn", "fork", "execv"):
        monkeypatch.setattr(f"os.{name}", refuse, raising=False)
    monkeypatch.setattr("subprocess.Popen", refuse)
    assert discover()


@pytest.mark.parametrize(
    ("vendor_id", "name"),
    [
        (0x1002, "AMD"),
        (0x10DE, "NVIDIA"),
        (0x13B5, "ARM"),
        (0x1414, "Microsoft"),
        (0x19E5, "Huawei"),
        (0x5143, "Qualcomm"),
        (0x17CB, "Qualcomm"),
        (0x8086, "Intel"),
        (0x106B, "Apple"),
        (0xABCD, ""),
    ],
)
def test_makers_have_one_name_each(vendor_id: int, name: str) -> None:
    assert vendors.vendor_name(vendor_id) == name
