"""What ``onnxplug doctor`` says of a machine."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from onnxplug.ep import Level
from onnxplug_directml import installation
from onnxplug_directml.diagnosis import findings

from .machine import provide, set_up
from .portable_executable import library
from .standin import GPU, NPU, SOFTWARE, Windows


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Windows]:
    """A machine with the stand-in as its libraries; in the end all is checked."""
    folders = set_up(monkeypatch, tmp_path)
    (folders.system / "DirectML.dll").write_bytes(library(version=(1, 15, 4, 0)))
    with Windows() as machine:
        provide(monkeypatch, machine)
        yield machine


def test_the_system_the_library_and_each_adapter_are_told(windows: Windows) -> None:
    found = list(findings())
    assert [each.level for each in found] == [Level.OK] * 4
    system, library, gpu, npu = (each.message for each in found)
    assert system == "Windows 11, build 22631, win-amd64"
    assert library.startswith("DirectML 1.15.4.0 (")
    assert library.endswith("DirectML.dll), System32")
    assert gpu == f"{GPU.name} (device_id 0): feature level 6.4"
    assert npu == f"{NPU.name} (device_filter npu, device_id 0): feature level 6.4"
    assert not windows.alive


def test_adapters_are_counted_as_dxgi_does(windows: Windows) -> None:
    second = dataclasses.replace(GPU, luid=GPU.luid + 1, name="A second one")
    windows.adapters = (SOFTWARE, GPU, second)
    assert [each.message for each in findings()][2:] == [
        f"{GPU.name} (device_id 1): feature level 6.4",
        "A second one (device_id 2): feature level 6.4",
    ]


def test_an_old_library_is_to_be_updated(windows: Windows) -> None:
    windows.directml_level = (2, 0)
    *_, gpu, npu = findings()
    for each in (gpu, npu):
        assert each.level is Level.WARNING
        assert each.message.endswith("feature level 2.0, and the EP needs 5.0")
        assert "Microsoft.AI.DirectML" in each.remedy


def test_an_adapter_without_a_device_says_why(windows: Windows) -> None:
    windows.faults.no_device = 0x887A0004 - (1 << 32)
    *_, gpu, npu = findings()
    for each in (gpu, npu):
        assert each.level is Level.WARNING
        assert "cannot be used: D3D12CreateDevice" in each.message
        assert "DXGI_ERROR_UNSUPPORTED" in each.message
        assert "driver" in each.remedy


def test_a_library_of_windows_10_is_to_be_replaced(windows: Windows) -> None:
    windows.lacking = {"DMLCreateDevice1"}
    *_, gpu, npu = findings()
    for each in (gpu, npu):
        assert each.level is Level.WARNING
        assert "has no DMLCreateDevice1: it is too old" in each.message
        assert "Microsoft.AI.DirectML" in each.remedy


def test_software_alone_is_not_enough(windows: Windows) -> None:
    windows.adapters = (SOFTWARE,)
    *_, last = findings()
    assert last.level is Level.ERROR
    assert "no adapter of hardware" in last.message


def test_no_library_and_no_windows_are_told(
    windows: Windows, monkeypatch: pytest.MonkeyPatch
) -> None:
    (installation.system_folder() / "DirectML.dll").unlink()
    _, missing = findings()
    assert missing.level is Level.ERROR
    assert missing.message.startswith("there is no DirectML.dll")
    monkeypatch.setattr(installation.sys, "platform", sys.platform)
    if sys.platform != "win32":
        (elsewhere,) = findings()
        assert elsewhere.level is Level.ERROR
        assert f"this system is {sys.platform}" in elsewhere.message
        assert "onnxplug eps" in elsewhere.remedy
