"""Which DirectML.dll is found, and what is read of it."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from onnxplug.ep import OptionError
from onnxplug_directml import installation
from onnxplug_directml.abi.types import GUID
from onnxplug_directml.com import libraries
from onnxplug_directml.com.dxgi import IDXGIFactory4
from onnxplug_directml.com.errors import Unsupported
from onnxplug_directml.com.libraries import Libraries
from onnxplug_directml.installation import (
    find_directml,
    problem,
    program_folders,
    read_library,
    system_name,
)

from .machine import Folders, set_up
from .portable_executable import ARM64, library


@pytest.fixture
def folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Folders:
    """The folders of a machine, empty."""
    return set_up(monkeypatch, tmp_path)


def test_the_option_comes_before_the_program_and_that_before_the_system(
    folders: Folders, tmp_path: Path
) -> None:
    with pytest.raises(RuntimeError, match=r"neither beside the program .*System32"):
        find_directml()
    (folders.system / "DirectML.dll").write_bytes(library(version=(1, 8, 0, 1)))
    found = find_directml()
    assert (found.origin, found.version) == ("System32", "1.8.0.1")
    (folders.program / "DirectML.dll").write_bytes(library())
    assert find_directml().origin == "app-local"
    named = tmp_path / "other.dll"
    named.write_bytes(library(version=(2, 3, 4, 65535)))
    found = find_directml(str(named))
    assert (found.path, found.version) == (named, "2.3.4.65535")
    found = find_directml(str(folders.system))
    assert found.path == folders.system / "DirectML.dll"
    assert str(found).startswith("DirectML 1.8.0.1 (")


def test_the_current_directory_is_not_searched(
    folders: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "DirectML.dll").write_bytes(library())
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RuntimeError, match=r"there is no DirectML\.dll"):
        find_directml()
    assert Path.cwd() not in program_folders()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "there is no file"),
        (library(ARM64), r"is for win-arm64, and this Python for win-amd64"),
        (library(0x1234), "machine 0x1234"),
        (b"MZ", "is no library of Windows: it is too short"),
        (b"\x7fELF".ljust(4096, b"\0"), "it has no PE header"),
        (b"MZ".ljust(60, b"\0") + b"\xff" * 8, "it has no PE header"),
    ],
    ids=["none", "arm64", "other", "short", "elf", "header beyond the end"],
)
def test_what_the_option_names_has_to_be_a_library_for_this_process(
    folders: Folders, tmp_path: Path, content: bytes | None, said: str
) -> None:
    path = tmp_path / "named.dll"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(OptionError, match=said) as caught:
        find_directml(str(path))
    assert "option 'dll_path'" in str(caught.value)


def test_a_library_beside_the_program_for_another_processor_is_said(
    folders: Folders,
) -> None:
    (folders.program / "DirectML.dll").write_bytes(library(ARM64))
    with pytest.raises(RuntimeError, match=r"win-arm64.*Microsoft\.AI\.DirectML"):
        find_directml()


def test_windows_own_library_is_for_all_its_processes(folders: Folders) -> None:
    """On ARM64 one file is for processes of ARM64 and of x64, and says ARM64."""
    (folders.system / "DirectML.dll").write_bytes(library(ARM64))
    assert find_directml().origin == "System32"


def test_a_library_that_cannot_be_read_is_said(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folders.program / "DirectML.dll").write_bytes(library())

    def refuse(path: Path) -> tuple[str, str]:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(installation, "read_library", refuse)
    with pytest.raises(RuntimeError, match=r"DirectML\.dll cannot be read: .*denied"):
        find_directml()
    with pytest.raises(OptionError, match=r"option 'dll_path' .* cannot be read"):
        find_directml(str(folders.program))


def test_a_library_may_have_no_version(tmp_path: Path) -> None:
    path = tmp_path / "a.dll"
    path.write_bytes(library(version=None))
    assert read_library(path) == ("win-amd64", "")
    path.write_bytes(library()[:-45])  # cut off within the version
    assert read_library(path) == ("win-amd64", "")


@pytest.mark.skipif(sys.platform == "win32", reason="where there is no Windows")
def test_other_systems_are_told_why_not() -> None:
    assert problem() == (
        f"DirectML is a part of Windows, and this system is {sys.platform}"
    )
    with pytest.raises(RuntimeError, match=r"dxgi\.dll cannot be loaded: "):
        Libraries().CreateDXGIFactory2(0)


def test_a_process_of_32_bits_is_told_why_not(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert problem() == ""
    monkeypatch.setattr(installation.sys, "maxsize", (1 << 31) - 1)
    assert "32 bits" in problem()


def test_windows_11_is_told_by_its_build(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert system_name() == "Windows 11, build 22631, win-amd64"
    version = SimpleNamespace(build=19045)
    monkeypatch.setattr(installation.sys, "getwindowsversion", lambda: version)
    assert system_name() == "Windows 10, build 19045, win-amd64"


class Loaded:
    """Libraries that are functions of ctypes; what is loaded is noted."""

    def __init__(self, **functions: Any) -> None:
        self.functions = functions
        self.names: list[str] = []

    def __call__(self, name: str) -> SimpleNamespace:
        self.names.append(name)
        if name == "dxcore.dll":
            raise FileNotFoundError(f"{name} is not there")
        return SimpleNamespace(**self.functions)


def test_functions_are_found_in_the_libraries_that_export_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[int, bytes]] = []
    prototype = ctypes.CFUNCTYPE(
        ctypes.c_int32, ctypes.c_uint32, ctypes.POINTER(GUID), ctypes.c_void_p
    )

    def create(flags: int, iid: Any, place: int) -> int:
        asked.append((flags, bytes(iid.contents)))
        ctypes.c_void_p.from_address(place).value = 0x1230
        return 0

    dml = ctypes.CFUNCTYPE(
        ctypes.c_int32,
        ctypes.c_void_p,
        ctypes.c_uint32,
        ctypes.c_int32,
        ctypes.POINTER(GUID),
        ctypes.c_void_p,
    )
    loaded = Loaded(
        CreateDXGIFactory2=prototype(create),
        DMLCreateDevice1=dml(lambda *_: 0x887A0004 - (1 << 32)),
    )
    monkeypatch.setattr(libraries, "load", loaded)
    ours = Libraries(r"C:\apps\DirectML.dll")
    factory = ours.CreateDXGIFactory2(0)
    assert isinstance(factory, IDXGIFactory4)
    assert factory.address == 0x1230
    ours.CreateDXGIFactory2(1)
    assert asked == [(flags, bytes(IDXGIFactory4.IID)) for flags in (0, 1)]
    assert loaded.names == ["dxgi.dll"]
    device = libraries.ID3D12Device(0x4560)
    with pytest.raises(Unsupported, match=r"DMLCreateDevice1 \(level 5\.0\) failed"):
        ours.DMLCreateDevice1(device, 0, 0x5000, asked="level 5.0")
    assert loaded.names == ["dxgi.dll", r"C:\apps\DirectML.dll"]
    with pytest.raises(RuntimeError, match=r"dxcore\.dll cannot be loaded"):
        ours.DXCoreCreateAdapterFactory()
    with pytest.raises(RuntimeError, match=r"has no D3D12CreateDevice: it is too old"):
        ours.D3D12CreateDevice(factory, 0xB000)
