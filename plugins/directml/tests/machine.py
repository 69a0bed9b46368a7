"""A machine with Windows as the EP finds it.

The EP asks Python which system it is on in one module, and loads libraries by one
function; nothing else is told otherwise.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from onnxplug_directml import installation
from onnxplug_directml.com import libraries

from . import definitions
from .standin import Windows


class Folders(NamedTuple):
    """Where libraries are looked for."""

    system: Path
    program: Path


def set_up(monkeypatch: pytest.MonkeyPatch, root: Path) -> Folders:
    """Have the EP find Windows 11 on x86-64, with folders below *root*.

    Without Microsoft's definitions, which the stand-in needs, tests are skipped here.
    """
    definitions.find("IUnknown")
    folders = Folders(root / "Windows" / "System32", root / "Program")
    for folder in folders:
        folder.mkdir(parents=True)
    program = str(folders.program / "python.exe")
    python = SimpleNamespace(
        platform="win32",
        maxsize=(1 << 63) - 1,
        executable=program,
        _base_executable=program,
        getwindowsversion=lambda: SimpleNamespace(build=22631),
    )
    monkeypatch.setattr(installation, "sys", python)
    build = SimpleNamespace(get_platform=lambda: "win-amd64")
    monkeypatch.setattr(installation, "sysconfig", build)
    monkeypatch.setenv("SYSTEMROOT", str(root / "Windows"))
    return folders


def provide(monkeypatch: pytest.MonkeyPatch, windows: Windows) -> None:
    """Have the stand-in's libraries be the machine's, its DirectML.dll that of any
    path of which it has no file of its own."""

    def load(name: str) -> Any:
        return windows.load(name if name in windows.files else Path(name).name)

    monkeypatch.setattr(libraries, "load", load)
